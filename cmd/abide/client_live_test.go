package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/client"
	"abide/internal/testserver"
	"abide/protocol"
)

// live is a server in this process and a client of it.
func live(t *testing.T) (*client.Client, string) {
	t.Helper()
	server, err := testserver.Start(testserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c, server.URL
}

// atTerminal runs the program at a terminal, on the real clock.
func atTerminal(url, args string) result {
	var stdout, stderr bytes.Buffer
	code := run(words(args), surroundings{
		environ: []string{"ABIDE_URL=" + url, "NO_COLOR=1"}, stdout: &stdout, stderr: &stderr, signals: make(chan os.Signal), abort: func() {}, terminal: true,
	})
	return result{code, stdout.String(), stderr.String()}
}

// noticing calls noticed once, when something has been written to it.
type noticing struct {
	text    bytes.Buffer
	once    sync.Once
	noticed func()
}

func (n *noticing) Write(p []byte) (int, error) {
	defer n.once.Do(n.noticed)
	return n.text.Write(p)
}

func settleSoon(t *testing.T, c *client.Client, id string, state protocol.PromiseState) {
	t.Helper()
	go func() {
		time.Sleep(50 * time.Millisecond)
		_, _ = c.PromiseSettle(context.Background(), protocol.PromiseSettle{ID: id, State: state, Value: protocol.MakeValue(nil, "NDI=")})
	}()
}

func TestWaitAndItsExitCodes(t *testing.T) {
	c, url := live(t)
	for _, tc := range []struct {
		state protocol.PromiseState
		code  int
	}{{protocol.Resolved, exitOK}, {protocol.Rejected, exitRejected}, {protocol.RejectedCanceled, exitRejected}} {
		id := string(tc.state)
		if r := atTerminal(url, "promises create "+id+" --timeout 1h"); r.code != exitOK {
			t.Fatalf("%+v", r)
		}
		settleSoon(t, c, id, tc.state)
		for range 2 { // while it is pending, and after
			if r := atTerminal(url, "wait "+id); r.code != tc.code || !strings.Contains(r.stdout, "value    42") || r.stderr != "" {
				t.Errorf("%s: %+v", id, r)
			}
		}
	}
	atTerminal(url, "promises create never --timeout 1h")
	if r := atTerminal(url, "wait never --timeout 30ms"); r.code != exitPending || r.stdout != "" || !strings.Contains(r.stderr, "still pending after 30ms") {
		t.Errorf("%+v", r)
	}
	if r := atTerminal(url, "wait nobody"); r.code != exitFailure || !strings.Contains(r.stderr, "404") {
		t.Errorf("%+v", r)
	}
}

func TestInvokeAndWait(t *testing.T) {
	c, url := live(t)
	ctx, cancel := context.WithCancel(t.Context())
	var worker sync.WaitGroup
	worker.Go(func() {
		_ = c.Poll(ctx, "default", "w", func(m protocol.Message) error {
			claim, err := c.TaskAcquire(ctx, protocol.TaskAcquire{ID: m.Task.ID, Version: m.Task.Version, PID: "w", TTL: 60_000})
			if err == nil {
				_, _ = c.TaskFulfill(ctx, protocol.TaskFulfill{ID: claim.Task.ID, Version: claim.Task.Version, Action: protocol.PromiseSettle{
					ID: claim.Task.ID, State: protocol.Resolved, Value: claim.Promise.Param,
				}})
			}
			return nil
		})
	})
	defer func() { cancel(); worker.Wait() }()
	r := atTerminal(url, `invoke i --func echo --arg hello --wait`)
	if r.code != exitOK || !strings.Contains(r.stdout, `value    {"func":"echo","args":["hello"],"version":1}`) {
		t.Errorf("%+v", r)
	}
	if r := atTerminal(url, "tree i"); r.stdout != "i 🟢 (rpc echo)\n" || r.code != exitOK {
		t.Errorf("%+v", r)
	}
}

func TestTreeOfALiveServer(t *testing.T) {
	c, url := live(t)
	atTerminal(url, "invoke r --func root --target poll://any@g")
	child := func(id, parent string) {
		if _, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: time.Now().Add(time.Hour).UnixMilli(), Tags: protocol.Tags{
			{Name: protocol.TagOrigin, Value: "r"}, {Name: protocol.TagParent, Value: parent}, {Name: protocol.TagScope, Value: "local"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	child("r.1", "r")
	child("r.1.1", "r.1")
	if r := atTerminal(url, "tree r"); r.stdout != "r 🟡 (rpc root)\n└── r.1 🟡 (run)\n    └── r.1.1 🟡 (run)\n" {
		t.Errorf("%+v", r)
	}
	if r := atTerminal(url, "tree r.1"); r.stdout != "r.1 🟡 (run)\n└── r.1.1 🟡 (run)\n" {
		t.Errorf("%+v", r)
	}
	if r := atTerminal(url, "tree nobody"); r.stdout != "nobody\n" || r.code != exitOK {
		t.Errorf("%+v", r)
	}
	if r := atTerminal(url, "tree r.1.1 --json"); !strings.Contains(r.stdout, `"depth": 0`) || r.code != exitOK {
		t.Errorf("%+v", r)
	}
}

// TestTreeReadsEveryPage: more promises than a page holds.
func TestTreeReadsEveryPage(t *testing.T) {
	c, url := live(t)
	const children = 2*treePage + 1
	for i := range children {
		id := "r." + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		if _, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: time.Now().Add(time.Hour).UnixMilli(), Tags: protocol.Tags{{Name: protocol.TagOrigin, Value: "r"}, {Name: protocol.TagParent, Value: "r"}}}); err != nil {
			t.Fatal(err)
		}
	}
	atTerminal(url, "promises create r --timeout 1h")
	if r := atTerminal(url, "tree r"); strings.Count(r.stdout, "\n") != children+1 {
		t.Errorf("%d lines", strings.Count(r.stdout, "\n"))
	}
}

func TestWatchEndsWithWhatItWatches(t *testing.T) {
	c, url := live(t)
	// watch settles the promise once its first look was shown, and gives everything that was.
	watch := func(terminal bool, command, id string) string {
		atTerminal(url, "promises create "+id+" --timeout 1h")
		stdout := &noticing{noticed: func() {
			if _, err := c.PromiseSettle(t.Context(), protocol.PromiseSettle{ID: id, State: protocol.Rejected}); err != nil {
				t.Error(err)
			}
		}}
		var stderr bytes.Buffer
		code := run(words(command+" "+id+" --watch --interval 10ms"), surroundings{
			environ: []string{"ABIDE_URL=" + url, "NO_COLOR=1"}, stdout: stdout, stderr: &stderr, signals: make(chan os.Signal), abort: func() {}, terminal: terminal,
		})
		if code != exitOK || stderr.Len() > 0 {
			t.Errorf("%s: exit %d, %s", command, code, stderr.String())
		}
		return stdout.text.String()
	}
	for command, want := range map[string][2]string{"promises get": {"pending", "rejected"}, "tree": {"🟡", "🔴"}} {
		shown := strings.Split(watch(true, command, "p-"+command[:4]), "\x1b[H\x1b[2J")
		if len(shown) != 3 || shown[0] != "" || !strings.Contains(shown[1], want[0]) || !strings.Contains(shown[2], want[1]) {
			t.Errorf("%s: %q", command, shown)
		}
	}
	lines := strings.Split(strings.TrimSpace(watch(false, "promises get", "q")), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"pending"`) || !strings.Contains(lines[1], `"rejected"`) {
		t.Errorf("one document a line, when it changes: %q", lines)
	}
}

func TestWatchEndsWithAnInterrupt(t *testing.T) {
	_, url := live(t)
	signals := make(chan os.Signal, 1)
	stdout := &noticing{noticed: func() { signals <- os.Interrupt }} // once its first look was shown
	var stderr bytes.Buffer
	code := run(words("tasks search --watch --interval 10ms"), surroundings{
		environ: []string{"ABIDE_URL=" + url}, stdout: stdout, stderr: &stderr, signals: signals, abort: func() {}, terminal: true,
	})
	if code != exitOK || !strings.Contains(stdout.text.String(), "Nothing found") || stderr.Len() > 0 {
		t.Errorf("exit %d: %q %q", code, stdout.text.String(), stderr.String())
	}
}

func TestExplainOfALiveServer(t *testing.T) {
	c, url := live(t)
	explain := func(id, says string) {
		t.Helper()
		r := atTerminal(url, "task explain "+id)
		if r.code != exitOK || !strings.Contains(r.stdout, says) {
			t.Errorf("%s: %+v, want %q", id, r, says)
		}
	}
	atTerminal(url, "invoke t --func f --target poll://any@g")
	explain("t", "No worker is connected that it could go to: group g")
	atTerminal(url, "invoke later --func f --target poll://any@g --delay 1h")
	explain("later", "delayed by its tag")
	atTerminal(url, "tasks claim t --pid me --version 0 --ttl 1m")
	explain("t", "held by the worker me until")
	atTerminal(url, "promises create t.1 --timeout 1h")
	if _, _, err := c.TaskSuspend(t.Context(), protocol.TaskSuspend{ID: "t", Version: 1, Awaited: []string{"t.1"}}); err != nil {
		t.Fatal(err)
	}
	explain("t", "until one of these settles:\n  t.1\n")
	atTerminal(url, "tasks halt t")
	explain("t", "abide tasks continue t")
	atTerminal(url, "promises resolve t")
	explain("t", "It is done: its promise is resolved.")
	if r := atTerminal(url, "task explain nobody"); r.code != exitFailure || !strings.Contains(r.stderr, "404") {
		t.Errorf("%+v", r)
	}
	if r := person(false, []string{"ABIDE_URL=" + url}, "", "task explain later"); !strings.Contains(r.stdout, `"reason": "delayed"`) {
		t.Errorf("%+v", r)
	}
}
