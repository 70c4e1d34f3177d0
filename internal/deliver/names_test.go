package deliver

import (
	"fmt"
	"testing"

	"abide/protocol"
)

// Names mean something within their workspace only: the same task and the same promise wait in two, each for its own
// worker, and what becomes of one says nothing about the other.
func TestSameNamesInTwoWorkspaces(t *testing.T) {
	r := newRig(t, Limits{})
	a, b := r.connect("w", "g", "a"), r.connect("v", "g", "a")
	r.work()
	r.queueIn("w", "poll://any@g")
	r.queueIn("v", "poll://any@g")
	r.work()
	r.want(r.read(a), "t@0", "unblock p")
	r.want(r.read(b), "t@0", "unblock p")
	r.box.claim("v", "t")
	r.core.HintClaimed(r.nowMs, "v", "t", 0)
	r.pass(3000)
	if s := r.core.Stats().Messages[kindExecute]; s.Claimed != 1 || s.Delivered != 1 {
		t.Errorf("one was claimed, one delivered: %+v", s)
	}
	if s := r.core.Stats().Messages[kindUnblock]; s.Delivered != 2 {
		t.Errorf("both unblocks were delivered: %+v", s)
	}
	if executes, unblocks := r.box.left(); executes != 0 || unblocks != 0 {
		t.Errorf("%d executes and %d unblocks are left in the outbox", executes, unblocks)
	}
}

// The default workspace has no queue for the whole of it; a slot that comes free there serves its groups all the same.
func TestSlotsComeFreeInTheDefaultWorkspace(t *testing.T) {
	const tasks = 40
	r := newRig(t, Limits{MaxExecutes: 8})
	a := r.connect(protocol.DefaultWorkspace, "g", "a")
	for i := range tasks {
		r.box.queue(Execute{protocol.DefaultWorkspace, fmt.Sprintf("t%02d", i), 0, "poll://any@g", nil})
	}
	r.pass(1000)
	got := 0
	for range tasks {
		for _, m := range r.read(a) {
			got++
			id, _, _ := splitAt(m)
			r.box.claim(protocol.DefaultWorkspace, id)
			r.core.HintClaimed(r.nowMs, protocol.DefaultWorkspace, id, 0)
		}
		r.work() // no time passes
	}
	if got != tasks {
		t.Errorf("got %d of %d without time passing", got, tasks)
	}
}
