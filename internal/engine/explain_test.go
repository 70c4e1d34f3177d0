package engine

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"abide/protocol"
)

func (f *fixture) explained(id string) protocol.ExplainBody {
	f.t.Helper()
	return f.do(200, &protocol.TaskExplain{ID: id}).Body.(protocol.ExplainBody)
}

func TestExplainSaysWhatEachStateWaitsFor(t *testing.T) {
	f := newFixture(t)
	f.do(404, &protocol.TaskExplain{ID: "nobody"})
	now := f.Now()
	create := func(id string, more ...string) {
		f.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: now + 3_600_000, Tags: tags(append(more, protocol.TagTarget, "poll://any@g")...)})
	}
	f.do(200, &protocol.PromiseCreate{ID: "plain", TimeoutAt: now + 3_600_000})
	f.do(404, &protocol.TaskExplain{ID: "plain"})

	create("r")
	b := f.explained("r")
	if !b.Queued || b.RetryAt != 0 || b.Task.State != protocol.TaskPending || b.Target != "poll://any@g" || b.TimeoutAt != now+3_600_000 || b.Now < now {
		t.Errorf("queued: %+v", b)
	}
	create("late", protocol.TagDelay, fmt.Sprint(now+60_000))
	if b := f.explained("late"); b.Queued || b.RetryAt != now+60_000 {
		t.Errorf("delayed: %+v", b)
	}
	f.do(200, &protocol.TaskAcquire{ID: "r", Version: 0, PID: "w", TTL: 5000})
	b = f.explained("r")
	if b.LeaseAt != b.ClaimedAt+5000 || b.Task.PID != "w" || b.Queued || b.RetryAt != 0 || len(b.Awaiting) != 0 {
		t.Errorf("acquired: %+v", b)
	}
	for _, id := range []string{"r.1", "r.2", "r.3", "other"} {
		create(id)
	}
	f.do(200, &protocol.PromiseRegisterCallback{Awaited: "r.3", Awaiter: "late"})
	f.do(200, &protocol.TaskSuspend{ID: "r", Version: 1, Awaited: []string{"r.2", "r.1", "other"}})
	b = f.explained("r")
	if b.LeaseAt != 0 || b.Partial || !reflect.DeepEqual(b.Awaiting, []string{"r.1", "r.2"}) {
		t.Errorf("suspended: %+v", b)
	}
	f.do(200, &protocol.TaskHalt{ID: "r"})
	if b := f.explained("r"); b.Task.State != protocol.TaskHalted || b.Awaiting != nil || b.Queued {
		t.Errorf("halted: %+v", b)
	}
	f.clock.advance(2 * time.Hour)
	if b := f.explained("r"); b.Task.State != protocol.TaskFulfilled || b.Promise != protocol.RejectedTimedout {
		t.Errorf("past its deadline: %+v", b)
	}
}

// TestExplainIsBounded: a task that awaits very many is answered in part, and says so.
func TestExplainIsBounded(t *testing.T) {
	f := newFixture(t)
	now := f.Now()
	f.do(200, &protocol.TaskCreate{PID: "w", TTL: 60_000, Action: protocol.PromiseCreate{ID: "r", TimeoutAt: now + 60_000, Tags: tags(protocol.TagTarget, "poll://any@g")}})
	var ids []string
	for i := range protocol.MaxExplainAwaiting + 1 {
		ids = append(ids, fmt.Sprintf("r.%03d", i))
		f.do(200, &protocol.PromiseCreate{ID: ids[i], TimeoutAt: now + 60_000})
	}
	f.do(200, &protocol.TaskSuspend{ID: "r", Version: 1, Awaited: ids})
	b := f.explained("r")
	if !b.Partial || !reflect.DeepEqual(b.Awaiting, ids[:protocol.MaxExplainAwaiting]) {
		t.Errorf("%v, partial %v", b.Awaiting, b.Partial)
	}
	f.do(200, &protocol.PromiseSettle{ID: ids[0], State: protocol.Resolved}) // which resumes it
	if b := f.explained("r"); b.Task.State != protocol.TaskPending || b.Partial {
		t.Errorf("resumed: %+v", b)
	}
}
