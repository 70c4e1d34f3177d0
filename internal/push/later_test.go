package push

import (
	"fmt"
	"testing"
)

// A host that asks to be left alone for a while is left alone for so long, also if it accepts a message that was on its way
// when it asked, or the task of one is claimed meanwhile.
func TestWhatAHostAsksForHolds(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(r *rig, other *Send)
	}{
		{"accepted", func(r *rig, other *Send) { r.end(other, nil) }},
		{"claimed", func(r *rig, other *Send) {
			r.box.claim("w", other.ID)
			r.core.HintClaimed(r.nowMs, "w", other.ID, other.Version)
		}},
		{"failed in a row, then accepted", func(r *rig, other *Send) {
			for len(r.sends) > 1 {
				r.end(r.sends[len(r.sends)-1], errDown)
			}
			r.end(other, nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Limits{})
			for i := range 6 {
				r.hint(execute(fmt.Sprint("t", i), 0, "http://h/"))
			}
			r.settle()
			r.end(r.sends[0], &LaterError{errDown, 30_000})
			asked := r.nowMs
			c.then(r, r.sends[0])
			r.hint(execute("late", 0, "http://h/"))
			if begun := r.pass(29_900); len(begun) > 0 {
				t.Errorf("%d messages were sent before the host wanted any, the first %d ms early", len(begun), asked+30_000-r.nowMs)
			}
			if begun := r.pass(1_200); len(begun) == 0 {
				t.Error("nothing was sent when it did")
			}
		})
	}
}

// A host of which the last requests have all failed is left alone for at least half of the first pause, also by messages that
// have not failed, and is tried again soon after.
func TestAHostThatFailsIsLeftAlone(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range firstWindow / 2 {
		r.hint(execute(fmt.Sprint("t", i), 0, "http://h/"))
	}
	for _, s := range r.settle() {
		r.end(s, errDown)
	}
	r.hint(execute("new", 0, "http://h/"))
	if begun := append(r.settle(), r.pass(400)...); len(begun) > 0 {
		t.Errorf("%d messages were sent to a host that has just failed", len(begun))
	}
	if begun := r.pass(1_000); len(begun) == 0 {
		t.Error("nothing was sent after the pause")
	}
}
