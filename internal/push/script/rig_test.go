//go:build unix

package script_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/internal/engine"
	"abide/internal/keyspace"
	"abide/internal/push"
	"abide/internal/push/script"
	"abide/kv/memkv"
	"abide/protocol"
)

// rig is an engine with its loops, and a transport over it whose requests a test may answer itself.
type rig struct {
	*script.Transport
	t      *testing.T
	engine *engine.Engine
	folder string

	mu     sync.Mutex
	answer func(req protocol.Request) *protocol.Reply // nil: the engine's
	asked  []protocol.Kind
}

// newRig's transport has a short grace and, unless o says otherwise, a lease that a slow machine keeps.
func newRig(t *testing.T, o script.Options) *rig {
	t.Helper()
	store := memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register(), Now: time.Now})
	e, err := engine.Open(context.Background(), store, engine.Options{PollIntervalMs: 50})
	if err != nil {
		t.Fatal(err)
	}
	e.Start(nil)
	t.Cleanup(func() {
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		_ = store.Close()
	})
	r := &rig{t: t, engine: e, folder: t.TempDir()}
	o.Engine = r
	if o.GraceMs == 0 {
		o.GraceMs = 300
	}
	if o.Environ == nil {
		// Not what the tests are started in, in which a shell may have something to say about the locale.
		o.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.folder, "LC_ALL=C"}
	}
	r.Transport = script.New(o)
	return r
}

// Do serves a request, unless the test answers it.
func (r *rig) Do(ctx context.Context, workspace string, req protocol.Request, debugTime *int64) protocol.Reply {
	r.mu.Lock()
	r.asked = append(r.asked, req.Kind())
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		if reply := answer(req); reply != nil {
			return *reply
		}
	}
	return r.engine.Do(ctx, workspace, req, debugTime)
}

// answers sets answer while requests are being made.
func (r *rig) answers(f func(protocol.Request) *protocol.Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *rig) Now() int64 { return r.engine.Now() }

// times is how many requests of a kind the transport has made.
func (r *rig) times(kind protocol.Kind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, k := range r.asked {
		if k == kind {
			n++
		}
	}
	return n
}

func (r *rig) do(req protocol.Request) protocol.Reply {
	r.t.Helper()
	reply := r.engine.Do(context.Background(), "w", req, nil)
	if reply.Status != protocol.StatusOK {
		r.t.Fatalf("%s: %d %s", req.Kind(), reply.Status, reply.Message)
	}
	return reply
}

// create makes a promise whose task is a script, and the message that its dispatch makes.
func (r *rig) create(id, address string, param protocol.Value, timeoutMs int64) push.Message {
	r.t.Helper()
	r.do(&protocol.PromiseCreate{
		ID: id, TimeoutAt: r.engine.Now() + timeoutMs, Param: param, Tags: protocol.Tags{{Name: protocol.TagTarget, Value: address}},
	})
	task := protocol.TaskRef{ID: id, Version: r.task(id).Version}
	return push.Message{Workspace: "w", Address: address, Task: task, Body: protocol.AppendExecute(nil, "", task), Attempt: 1}
}

func scriptParam(text string) protocol.Value {
	return protocol.MakeValue(nil, base64.StdEncoding.EncodeToString([]byte(text)))
}

func (r *rig) script(id, text string) push.Message {
	r.t.Helper()
	return r.create(id, "bash://", scriptParam(text), 60_000)
}

func (r *rig) task(id string) protocol.Task {
	r.t.Helper()
	return r.do(&protocol.TaskGet{ID: id}).Body.(protocol.TaskBody).Task
}

func (r *rig) promise(id string) protocol.Promise {
	r.t.Helper()
	return r.do(&protocol.PromiseGet{ID: id}).Body.(protocol.PromiseBody).Promise
}

// outcome is a promise's state and the text of its value.
func (r *rig) outcome(id string) (protocol.PromiseState, string) {
	r.t.Helper()
	p := r.promise(id)
	data, _ := p.Value.Data()
	text, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		r.t.Errorf("the value %s is not base64: %v", p.Value, err)
	}
	return p.State, string(text)
}

func (r *rig) send(m push.Message) {
	r.t.Helper()
	if err := r.Send(context.Background(), m); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) want(id string, state protocol.PromiseState, value string) {
	r.t.Helper()
	if s, v := r.outcome(id); s != state || v != value {
		r.t.Errorf("%s is %s with %.200q, want %s with %.200q", id, s, v, state, value)
	}
}

// file is the path of a file that the scripts of this test write.
func (r *rig) file(name string) string { return filepath.Join(r.folder, name) }

// tree is a script that starts a tree of processes, one of which does not end when it is asked to, writes their ids to
// a file, and waits for them.
func (r *rig) tree(name string) string {
	return fmt.Sprintf(`sleep 1000 & a=$!
	(sleep 1000; echo) & b=$!
	(trap '' TERM; while :; do sleep 1000; done) & c=$!
	echo $$ $a $b $c > %[1]s.part && mv %[1]s.part %[1]s
	wait`, r.file(name))
}

// processes waits for what tree writes.
func (r *rig) processes(name string) []int {
	r.t.Helper()
	var text []byte
	within(r.t, "the script has started", func() bool {
		var err error
		text, err = os.ReadFile(r.file(name))
		return err == nil
	})
	var ids []int
	for _, field := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(field)
		if err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// runs reports whether a process is there and has not ended: one whose parent has not asked for its end is a zombie.
func runs(id int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func (r *rig) wantEnded(ids []int) {
	r.t.Helper()
	for _, id := range ids {
		within(r.t, fmt.Sprintf("process %d of %v has ended", id, ids), func() bool { return !runs(id) })
	}
}

// within waits for something that takes a moment.
func within(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it never came about that %s", what)
}

// begin sends in the background.
func (r *rig) begin(ctx context.Context, m push.Message) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- r.Send(ctx, m) }()
	return ended
}

func wait(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the send does not end")
		return nil
	}
}
