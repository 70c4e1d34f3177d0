package engine

import (
	"context"
	"testing"

	"abide/internal/deliver"
	"abide/protocol"
)

// A debug.tick is about its own workspace: what is due at its time in another one stays as it is.
func TestTickIsAboutItsWorkspace(t *testing.T) {
	f := newFixture(t)
	for _, w := range []string{"ticked", "other"} {
		f.in(w, 200, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: target}})
		f.in(w, 200, &protocol.PromiseCreate{ID: "sleep", TimeoutAt: f.Now() + 1000, Tags: tags(protocol.TagTimer, "true")})
		f.in(w, 200, &protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 1})
	}
	f.tick("ticked", f.Now()+120_000)
	for w, want := range map[string]struct {
		task  protocol.TaskState
		fired bool
	}{"ticked": {protocol.TaskPending, true}, "other": {protocol.TaskAcquired, false}} {
		if got := f.in(w, 200, &protocol.TaskGet{ID: "t"}).Body.(protocol.TaskBody).Task.State; got != want.task {
			t.Errorf("%s: the task is %s, want %s", w, got, want.task)
		}
		if got := f.persisted(w, "sleep"); got != want.fired {
			t.Errorf("%s: the sleep has fired: %t", w, got)
		}
		if s := f.in(w, 200, &protocol.ScheduleGet{ID: "s"}).Body.(protocol.ScheduleBody).Schedule; s.HasRun != want.fired {
			t.Errorf("%s: the schedule has run: %t", w, s.HasRun)
		}
	}
}

// An unblock stays queued until it is reported as delivered, whoever looks at it before.
func TestLookingAtAnUnblockLeavesItQueued(t *testing.T) {
	f := newFixture(t)
	const address = "poll://uni@g/w"
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far})
	f.do(200, &protocol.PromiseRegisterListener{Awaited: "p", Address: address})
	f.do(200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
	refs := []deliver.UnblockRef{{ID: "p", Address: address}}
	ctx, out := context.Background(), f.Outbox()
	for range 2 {
		if found, err := out.CheckUnblocks(ctx, "default", refs); err != nil || len(found) != 1 {
			t.Fatalf("checked: %v, %v", found, err)
		}
		if page := unblocksFor(t, out, deliver.Destination{Workspace: "default", Group: "g", PID: "w"}).Unblocks; len(page) != 1 {
			t.Fatalf("listed: %v", page)
		}
	}
	if err := out.UnblocksDelivered(ctx, "default", refs); err != nil {
		t.Fatal(err)
	}
	if found, err := out.CheckUnblocks(ctx, "default", refs); err != nil || len(found) != 0 {
		t.Errorf("after its delivery: %v, %v", found, err)
	}
}
