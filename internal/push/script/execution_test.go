//go:build unix

package script_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"abide/internal/push"
	"abide/internal/push/script"
	"abide/protocol"
)

func TestLeaseIsKeptWhileTheScriptRuns(t *testing.T) {
	t.Parallel()
	for leaseMs := int64(1500); ; leaseMs *= 2 { // a machine that stands still loses short ones
		if err := keepLease(t, leaseMs); err == nil {
			return
		} else if leaseMs > 20_000 {
			t.Fatal(err)
		}
	}
}

func keepLease(t *testing.T, leaseMs int64) error {
	r := newRig(t, script.Options{LeaseMs: leaseMs})
	ended := r.begin(context.Background(), r.script("p", "until [ -e "+r.file("go")+" ]; do sleep 0.02; done; echo done"))
	within(t, "the lease is renewed for two leases", func() bool { return r.times(protocol.KindTaskHeartbeat) >= 6 || len(ended) > 0 })
	task := r.task("p")
	if err := os.WriteFile(r.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
	if task.State != protocol.TaskAcquired || task.Version != 1 || task.TTL != leaseMs || !strings.HasPrefix(task.PID, "bash-exec-") {
		return fmt.Errorf("while the script runs its task is %+v", task)
	}
	if state, text := r.outcome("p"); state != protocol.Resolved || text != "done" {
		return fmt.Errorf("the outcome is %s with %q", state, text)
	}
	beats := r.times(protocol.KindTaskHeartbeat)
	time.Sleep(time.Duration(leaseMs) * 3 / 4 * time.Millisecond) // longer than two pauses of heartbeats
	if n := r.times(protocol.KindTaskHeartbeat); n > beats+1 {    // one was on its way
		t.Errorf("%d heartbeats after the end", n-beats)
	}
	return nil
}

// reply answers requests of a kind, all others are the engine's to answer.
func reply(kind protocol.Kind, with protocol.Reply) func(protocol.Request) *protocol.Reply {
	return func(req protocol.Request) *protocol.Reply {
		if req.Kind() != kind {
			return nil
		}
		return &with
	}
}

// TestReasonsToEndAScript: whatever ends it, nothing of its processes is left when Send returns, not even the one that
// does not listen, and the promise is as others left it.
func TestReasonsToEndAScript(t *testing.T) {
	down := protocol.Fail(protocol.StatusUnavailable, "the store is away")
	for _, c := range []struct {
		name      string
		lease     int64
		answer    func(protocol.Request) *protocol.Reply
		timeoutMs int64
		end       func(r *rig, stop func())
		state     protocol.PromiseState
		released  bool
	}{
		{name: "a heartbeat says that it is lost", lease: 900, answer: reply(protocol.KindTaskHeartbeat, protocol.OK(protocol.HeartbeatBody{Lost: []string{"p"}})), state: protocol.Pending},
		{name: "no heartbeat is answered", lease: 900, answer: reply(protocol.KindTaskHeartbeat, down), state: protocol.Pending},
		{name: "the promise is canceled", lease: 900, end: func(r *rig, _ func()) {
			r.do(&protocol.PromiseSettle{ID: "p", State: protocol.RejectedCanceled})
		}, state: protocol.RejectedCanceled},
		{name: "the promise's time is over", timeoutMs: 8000, state: protocol.RejectedTimedout},
		{name: "the task is halted", lease: 900, end: func(r *rig, _ func()) { r.do(&protocol.TaskHalt{ID: "p"}) }, state: protocol.Pending},
		{name: "the send is given up", end: func(_ *rig, stop func()) { stop() }, state: protocol.Pending, released: true},
		{name: "the server stops", end: func(r *rig, _ func()) { r.Interrupt() }, state: protocol.Pending, released: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, script.Options{LeaseMs: c.lease})
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			if c.timeoutMs == 0 {
				c.timeoutMs = 60_000
			}
			ended := r.begin(ctx, r.create("p", "bash://", scriptParam(r.tree("tree")), c.timeoutMs))
			ids := r.processes("tree")
			r.answers(c.answer)
			if c.end != nil {
				c.end(r, stop)
			}
			if err := wait(t, ended); err != nil {
				t.Error(err)
			}
			r.wantEnded(ids)
			within(t, "the promise is "+string(c.state), func() bool { return r.promise("p").State == c.state })
			if n := r.times(protocol.KindTaskFulfill); n != 0 {
				t.Error("the promise was settled with half an outcome")
			}
			if released := r.times(protocol.KindTaskRelease) == 1; released != c.released {
				t.Errorf("released: %t", released)
			}
			if task := r.task("p"); c.released && task.State != protocol.TaskPending {
				t.Errorf("the task is %s, want it there for another server", task.State)
			}
		})
	}
}

func TestScriptThatTakesItsTimeToEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{GraceMs: 10_000})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := r.begin(ctx, r.script("p", `trap 'sleep 0.2; echo left > `+r.file("left")+`; exit 0' TERM
		touch `+r.file("here")+`; while :; do sleep 0.01; done`))
	within(t, "the script runs", func() bool { _, err := os.Stat(r.file("here")); return err == nil })
	stop()
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadFile(r.file("left")); string(left) != "left\n" {
		t.Errorf("it was not left to end: %q, %v", left, err)
	}
	if p, task := r.promise("p"), r.task("p"); p.State != protocol.Pending || task.State != protocol.TaskPending {
		t.Errorf("a script that ended because it was asked to: promise %s, task %s", p.State, task.State)
	}
}

// A script and what it has started have one grace together: the second does not get another when the first is over.
func TestStubbornProcessesEndTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{GraceMs: 1500})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := r.begin(ctx, r.script("p", `trap '' TERM
		(while kill -0 $$; do sleep 0.05; done; sleep 0.3; touch `+r.file("outlived")+`; sleep 1000) &
		touch `+r.file("here")+`; while :; do sleep 0.01; done`))
	within(t, "the script runs", func() bool { _, err := os.Stat(r.file("here")); return err == nil })
	stop()
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.file("outlived")); err == nil {
		t.Error("a process that ignores SIGTERM outlived its script, which did too")
	}
}

func TestInterruptedTransportBeginsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{})
	r.Interrupt()
	r.Interrupt()
	if err := r.Send(context.Background(), r.script("p", "true")); err == nil || errors.Is(err, push.ErrRefused) || errors.Is(err, push.ErrStale) {
		t.Errorf("a send after the interrupt: %v", err)
	}
	if len(r.asked) != 0 {
		t.Error("the task was claimed")
	}
}

func TestStoreThatFails(t *testing.T) {
	for _, c := range []struct {
		kind  protocol.Kind
		fails int32   // so many times
		lasts float64 // the script, in leases
		state protocol.PromiseState
		err   bool
	}{
		{protocol.KindTaskAcquire, 1, 0, protocol.Pending, true},
		{protocol.KindTaskHeartbeat, 1, 0.9, protocol.Resolved, false},
		{protocol.KindTaskFulfill, 2, 0, protocol.Resolved, false},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			try := func(leaseMs int64) error {
				r := newRig(t, script.Options{LeaseMs: leaseMs})
				var failed atomic.Int32
				r.answer = func(req protocol.Request) *protocol.Reply {
					if req.Kind() != c.kind || failed.Add(1) > c.fails {
						return nil
					}
					down := protocol.Fail(protocol.StatusUnavailable, "the store is away")
					return &down
				}
				err := r.Send(context.Background(), r.script("p", fmt.Sprintf("sleep %f", c.lasts*float64(leaseMs)/1000)))
				if (err != nil) != c.err || errors.Is(err, push.ErrStale) || errors.Is(err, push.ErrRefused) {
					return fmt.Errorf("the send: %w", err)
				}
				if p := r.promise("p"); p.State != c.state {
					return fmt.Errorf("the promise is %s, want %s", p.State, c.state)
				}
				if n := failed.Load(); n <= c.fails && !c.err {
					return fmt.Errorf("%d requests, want more than the %d that failed", n, c.fails)
				}
				return nil
			}
			for leaseMs := int64(2400); ; leaseMs *= 2 { // a machine that stands still loses short ones
				if err := try(leaseMs); err == nil {
					return
				} else if leaseMs > 20_000 {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestOutcomeIsGivenUpWithTheTask: the store takes no outcome, and then the lease is over.
func TestOutcomeIsGivenUpWithTheTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{LeaseMs: 500})
	r.answer = func(req protocol.Request) *protocol.Reply {
		down := protocol.Fail(protocol.StatusInternal, "the store is away")
		if k := req.Kind(); k == protocol.KindTaskFulfill || k == protocol.KindTaskHeartbeat {
			return &down
		}
		return nil
	}
	r.send(r.script("p", "true"))
	if n := r.times(protocol.KindTaskFulfill); n < 2 {
		t.Errorf("%d attempts to settle", n)
	}
	within(t, "the task is dispatched again", func() bool { return r.task("p").State == protocol.TaskPending })
}

// TestAnotherRunWhileTheFirstOneLasts: one task whose lease was lost runs elsewhere; the first run changes nothing.
func TestAnotherRunWhileTheFirstOneLasts(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{LeaseMs: 60_000})
	m := r.script("p", "echo $$ > "+r.file("part")+"; mv "+r.file("part")+" "+r.file("runs")+"; sleep 1000")
	ended := r.begin(context.Background(), m)
	id := r.processes("runs")[0]
	r.do(&protocol.TaskRelease{ID: "p", Version: 1})
	r.do(&protocol.TaskAcquire{ID: "p", Version: 1, PID: "other", TTL: 60_000})
	r.do(&protocol.TaskFulfill{ID: "p", Version: 2, Action: protocol.PromiseSettle{ID: "p", State: protocol.Resolved, Value: scriptParam("theirs")}})
	if err := syscall.Kill(-id, syscall.SIGTERM); err != nil { // as if it ended by itself
		t.Fatal(err)
	}
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
	r.want("p", protocol.Resolved, "theirs")
}

func TestManyScriptsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{})
	var all []<-chan error
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, id := range ids {
		all = append(all, r.begin(context.Background(), r.script(id, "echo $RESONATE_PROMISE_ID; echo no >&2")))
	}
	for n, ended := range all {
		if err := wait(t, ended); err != nil {
			t.Error(err)
		}
		r.want(ids[n], protocol.Resolved, ids[n])
	}
}
