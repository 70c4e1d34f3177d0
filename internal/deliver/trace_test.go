package deliver

import (
	"fmt"
	"strings"
	"testing"

	"abide/protocol"
)

// traceOf is a trace of its own for each number.
func traceOf(n int) *protocol.Trace {
	return protocol.ParseTrace(fmt.Sprintf("00-0af7651916cd43dd8448eb2100000000-b7ad6b71692%05x-00", n+1), "")
}

// queueTraced queues an execute as the store has it: with a trace, which its hint does not say.
func (r *rig) queueTraced(id string, trace *protocol.Trace) Execute {
	e := Execute{Workspace: "w", ID: id, Address: "poll://any@g", Trace: trace}
	r.box.queue(e)
	e.Trace = nil
	return e
}

// traces are those of the messages that wait for a connection, by task.
func (r *rig) traces(id ConnID) map[string]*protocol.Trace {
	found := map[string]*protocol.Trace{}
	messages, _ := r.core.Output(r.nowMs, id, nil)
	for _, m := range messages {
		found[m.Task.ID] = m.Trace
	}
	r.core.Flushed(r.nowMs, id)
	return found
}

// A message carries the trace of its task, whether a hint or a scan has found it, and again when it is sent again.
func TestMessagesCarryTheirTrace(t *testing.T) {
	for _, hinted := range []bool{false, true} {
		for _, claimed := range []bool{false, true} {
			r := newRig(t, Limits{})
			if hinted {
				r.connect("w", "g", "a")
			}
			var queued []Execute
			want := map[string]*protocol.Trace{}
			for i := range 6 {
				id := fmt.Sprint("t", i)
				if i%2 == 0 {
					want[id] = traceOf(i)
				} else {
					want[id] = nil
				}
				queued = append(queued, r.queueTraced(id, want[id]))
			}
			if claimed { // then the answer to the check is shorter than the question
				r.box.claim("w", "t0")
				delete(want, "t0")
			}
			for _, e := range queued {
				if hinted {
					r.core.HintExecute(r.nowMs, e)
				}
			}
			var last ConnID = 1
			if !hinted {
				last = r.connect("w", "g", "a")
			}
			r.work()
			if got := r.traces(last); !sameTraces(got, want) {
				t.Errorf("hinted %v, claimed %v: %v, want %v", hinted, claimed, got, want)
			}
			r.core.Disconnect(r.nowMs, last) // before its window is over: somebody else gets them
			last = r.connect("w", "g", "b")
			r.work()
			if got := r.traces(last); !sameTraces(got, want) {
				t.Errorf("hinted %v, claimed %v, sent again: %v, want %v", hinted, claimed, got, want)
			}
		}
	}
}

func sameTraces(a, b map[string]*protocol.Trace) bool {
	if len(a) != len(b) {
		return false
	}
	for id, trace := range a {
		other, ok := b[id]
		if !ok || (trace == nil) != (other == nil) || (trace != nil && *trace != *other) {
			return false
		}
	}
	return true
}

// A stream says the trace in the head of its execute.
func TestStreamsSayTheTrace(t *testing.T) {
	box := newMemOutbox()
	d := newDeliverer(t, box)
	r := read(t, d, "w", "g", "a")
	e := Execute{Workspace: "w", ID: "t", Address: "poll://any@g", Trace: traceOf(1)}
	box.queue(e)
	d.HintExecute(e)
	eventually(t, "the execute arrives", func() bool { return len(r.frames()) > 0 })
	if parent := string(traceOf(1).AppendParent(nil)); !strings.Contains(r.frames()[0], `"traceparent":"`+parent+`"`) {
		t.Errorf("%s does not say %s", r.frames()[0], parent)
	}
}
