package engine

import (
	"testing"
	"time"

	"abide/protocol"
)

const far = int64(1) << 50

func TestWorkflowFromCreateToResume(t *testing.T) {
	f := newFixture(t)
	target := tags(protocol.TagTarget, "poll://any@default", protocol.TagBranch, "p", protocol.TagOrigin, "p")
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: target})
	claim := f.do(200, &protocol.TaskAcquire{ID: "p", Version: 0, PID: "w", TTL: 10_000}).Body.(protocol.ClaimBody)
	if claim.Task.Version != 1 || claim.Task.State != protocol.TaskAcquired {
		t.Fatalf("claim: %+v", claim.Task)
	}
	f.do(409, &protocol.TaskAcquire{ID: "p", Version: 0, PID: "w", TTL: 10_000})
	child := protocol.PromiseCreate{ID: "p.1", TimeoutAt: far, Tags: target.With(protocol.TagBranch, "p")}
	fence := f.do(200, &protocol.TaskFence{ID: "p", Version: 1, Create: &child}).Body.(protocol.FenceBody)
	if fence.Action.Status != 200 || len(fence.Preload) != 1 || fence.Preload[0].ID != "p.1" {
		t.Fatalf("fence: %+v", fence)
	}
	f.do(200, &protocol.TaskSuspend{ID: "p", Version: 1, Awaited: []string{"p.1", "p.1"}})
	f.do(200, &protocol.TaskAcquire{ID: "p.1", Version: 0, PID: "w", TTL: 10_000})
	f.do(200, &protocol.TaskFulfill{ID: "p.1", Version: 1, Action: protocol.PromiseSettle{ID: "p.1", State: protocol.Resolved}})
	task := f.do(200, &protocol.TaskGet{ID: "p"}).Body.(protocol.TaskBody).Task
	if task.State != protocol.TaskPending || task.Resumes != 1 {
		t.Fatalf("after resume: %+v", task)
	}
}

func TestExpiredLeaseAndTimeout(t *testing.T) {
	f := newFixture(t)
	target := tags(protocol.TagTarget, "poll://any@default")
	f.do(200, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: "p", TimeoutAt: f.Now() + 5000, Tags: target}})
	f.clock.advance(600 * time.Millisecond)
	f.do(200, &protocol.TaskHeartbeat{PID: "w"})
	f.clock.advance(600 * time.Millisecond)
	f.fireDue()
	if s := f.do(200, &protocol.TaskGet{ID: "p"}).Body.(protocol.TaskBody).Task.State; s != protocol.TaskAcquired {
		t.Fatalf("renewed lease: task is %s", s)
	}
	f.clock.advance(600 * time.Millisecond)
	f.fireDue()
	if s := f.do(200, &protocol.TaskGet{ID: "p"}).Body.(protocol.TaskBody).Task.State; s != protocol.TaskPending {
		t.Fatalf("lapsed lease: task is %s", s)
	}
	f.clock.advance(5 * time.Second)
	if s := f.do(200, &protocol.PromiseGet{ID: "p"}).Body.(protocol.PromiseBody).Promise.State; s != protocol.RejectedTimedout {
		t.Fatalf("projected: promise is %s", s)
	}
	f.fireDue()
	if s := f.do(200, &protocol.TaskGet{ID: "p"}).Body.(protocol.TaskBody).Task.State; s != protocol.TaskFulfilled {
		t.Fatalf("timed out: task is %s", s)
	}
}

// A worker whose requests failed while the server died forgets its task. Its empty heartbeats must not keep
// that task leased in the server's next life; one that names the task does.
func TestEmptyHeartbeatVouchesForThisLifeOnly(t *testing.T) {
	f := newFixture(t)
	target := tags(protocol.TagTarget, "poll://any@default")
	for _, id := range []string{"forgotten", "named"} {
		f.do(200, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: target}})
	}
	f.clock.advance(100 * time.Millisecond)
	again := fixtureOver(t, f.store, f.clock)
	again.do(200, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: "new", TimeoutAt: far, Tags: target}})
	again.clock.advance(500 * time.Millisecond)
	again.do(200, &protocol.TaskHeartbeat{PID: "w"})
	again.do(200, &protocol.TaskHeartbeat{PID: "w", Tasks: []protocol.TaskRef{{ID: "named", Version: 1}}})
	again.clock.advance(600 * time.Millisecond)
	again.fireDue()
	want := map[string]protocol.TaskState{
		"forgotten": protocol.TaskPending, "named": protocol.TaskAcquired, "new": protocol.TaskAcquired,
	}
	for id, state := range want {
		if s := again.do(200, &protocol.TaskGet{ID: id}).Body.(protocol.TaskBody).Task.State; s != state {
			t.Errorf("%s is %s, want %s", id, s, state)
		}
	}
}
