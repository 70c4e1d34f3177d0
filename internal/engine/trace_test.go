package engine

import (
	"context"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/protocol"
)

// sent are the traces of the executes that wait for the group g, by task.
func (f *fixture) sent() map[string]*protocol.Trace {
	f.t.Helper()
	found := map[string]*protocol.Trace{}
	for _, e := range executesFor(f.t, f.Outbox(), deliver.Destination{Workspace: "default", Group: "g"}, "", 100).Executes {
		found[e.ID] = e.Trace
		e.Trace = nil
		checked, err := f.Outbox().CheckExecutes(context.Background(), "default", []deliver.Execute{e})
		if err != nil || len(checked) != 1 || (checked[0].Trace == nil) != (found[e.ID] == nil) {
			f.t.Fatalf("the check of %+v says %+v, %v", e, checked, err)
		}
	}
	return found
}

// A task's execute carries the trace of the request that created its promise, however it was created, and every later
// one carries it as well: after a retry, a lost lease, a release, a resume.
func TestExecutesCarryTheTraceOfTheirCreation(t *testing.T) {
	f := newFixture(t)
	const text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	want := protocol.ParseTrace(text, "a=1")
	create := func(id string, trace *protocol.Trace) protocol.PromiseCreate {
		return protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g"), Trace: trace}
	}
	plain, traced := create("plain", nil), create("traced", want)
	f.do(200, &plain)
	f.do(200, &traced)
	other := create("traced", protocol.ParseTrace("00-00000000000000000000000000000001-b7ad6b7169203331-01", ""))
	f.do(200, &other) // it exists: nothing changes
	f.do(200, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: create("claimed", want)})
	inner := create("inner", want)
	f.do(200, &protocol.TaskFence{ID: "claimed", Version: 1, Create: &inner})

	carried := func(when string, ids ...string) {
		t.Helper()
		got := f.sent()
		for _, id := range ids {
			if trace := got[id]; trace == nil || *trace != *want {
				t.Errorf("%s: %s carries %+v", when, id, trace)
			}
		}
		if trace, ok := got["plain"]; !ok || trace != nil {
			t.Errorf("%s: plain carries %+v, %v", when, trace, ok)
		}
	}
	carried("at first", "traced", "inner")
	f.clock.advance(time.Minute) // the lease lapses
	f.fireDue()
	carried("after a lost lease", "traced", "inner", "claimed")

	f.do(200, &protocol.TaskAcquire{ID: "traced", PID: "w", TTL: 1000})
	f.do(200, &protocol.TaskRelease{ID: "traced", Version: 1})
	carried("after a release", "traced")
	f.do(200, &protocol.TaskAcquire{ID: "traced", Version: 1, PID: "w", TTL: 1000})
	f.do(200, &protocol.TaskSuspend{ID: "traced", Version: 2, Awaited: []string{"inner"}})
	f.do(200, &protocol.PromiseSettle{ID: "inner", State: protocol.Resolved})
	carried("after a resume", "traced")
	f.do(200, &protocol.TaskHalt{ID: "traced"})
	f.do(200, &protocol.TaskContinue{ID: "traced"})
	carried("after a halt", "traced")
}
