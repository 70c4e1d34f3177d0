package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"abide/protocol"
)

// The callbacks of a suspend may be more than one transaction holds, by bytes: every awaited record is
// rewritten once to be marked as waited on. An SDK cannot split a suspend, so the server does.
func TestSuspendOnMoreThanOneTransaction(t *testing.T) {
	f := newFixture(t)
	target := tags(protocol.TagTarget, "poll://any@default")
	large := tags("note", strings.Repeat("x", 30_000))
	f.do(200, &protocol.TaskCreate{PID: "w", TTL: 60_000, Action: protocol.PromiseCreate{ID: "root", TimeoutAt: far, Tags: target}})
	var awaited []string
	for i := range 200 {
		id := fmt.Sprintf("root.%d", i)
		awaited = append(awaited, id)
		f.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: large})
	}
	f.do(422, &protocol.TaskSuspend{ID: "root", Version: 1, Awaited: append([]string{"unknown"}, awaited...)})
	if snap := f.snapshot(); len(snap.Callbacks) != 0 {
		t.Fatalf("a refused suspend left %d callbacks", len(snap.Callbacks))
	}
	f.do(409, &protocol.TaskSuspend{ID: "root", Version: 7, Awaited: awaited})
	f.do(200, &protocol.TaskSuspend{ID: "root", Version: 1, Awaited: awaited})
	snap := f.snapshot()
	if len(snap.Callbacks) != len(awaited) {
		t.Fatalf("%d callbacks for %d awaited", len(snap.Callbacks), len(awaited))
	}
	f.do(200, &protocol.PromiseSettle{ID: "root.77", State: protocol.Resolved})
	task := f.do(200, &protocol.TaskGet{ID: "root"}).Body.(protocol.TaskBody).Task
	if task.State != protocol.TaskPending || task.Resumes != 1 {
		t.Fatalf("after a settlement: %+v", task)
	}
	f.do(200, &protocol.TaskAcquire{ID: "root", Version: 1, PID: "w", TTL: 60_000})
	f.do(300, &protocol.TaskSuspend{ID: "root", Version: 2, Awaited: awaited})
}

func (f *fixture) snapshot() protocol.SnapBody {
	f.t.Helper()
	return f.do(200, &protocol.DebugSnap{}).Body.(protocol.SnapBody)
}

// A snapshot has no size at which it is refused.
func TestSnapOfManyPages(t *testing.T) {
	f := newFixture(t)
	target := tags(protocol.TagTarget, "poll://any@default", protocol.TagOrigin, "elsewhere")
	for i := range 3 * snapPage {
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprintf("p%05d", i), TimeoutAt: far, Tags: target})
	}
	snap := f.snapshot()
	if n := 3 * snapPage; len(snap.Promises) != n || len(snap.Tasks) != n || len(snap.Messages) != n || len(snap.PromiseTimeouts) != n {
		t.Fatalf("%d promises, %d tasks, %d messages, %d timeouts instead of %d each",
			len(snap.Promises), len(snap.Tasks), len(snap.Messages), len(snap.PromiseTimeouts), n)
	}
}

// What takes several transactions must not say that nothing was changed when it ends early.
func TestUnfinishedWorkIsNotCalledNothing(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		req    protocol.Request
		status int
		text   string
	}{
		{&protocol.DebugReset{}, 500, messagePartial},
		{&protocol.DebugTick{Time: 5}, 500, messagePartial},
		{&protocol.TaskHeartbeat{PID: "w"}, 503, messagePartial},
		{&protocol.PromiseCreate{ID: "p", TimeoutAt: far}, 503, messageUnavailable},
	} {
		if r := f.Do(ctx, "default", c.req, nil); r.Status != c.status || r.Message != c.text {
			t.Errorf("%s: %d %q", c.req.Kind(), r.Status, r.Message)
		}
	}
}

// A reset removes schedules before promises: else one that catches up makes new ones all the while.
func TestResetBeginsWithSchedules(t *testing.T) {
	f := newFixture(t)
	f.do(200, &protocol.ScheduleCreate{ID: "s", Cron: "* * * * * *", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 1000})
	for i := range 3 * resetRows {
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprintf("p%d", i), TimeoutAt: far})
	}
	counted := &countingContext{Context: context.Background(), left: 4}
	f.Do(counted, "default", &protocol.DebugReset{}, nil) // ends early
	f.do(404, &protocol.ScheduleGet{ID: "s"})
}

// countingContext ends after a number of looks at it: somewhere in mid-work.
type countingContext struct {
	context.Context
	left int
}

func (c *countingContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}
