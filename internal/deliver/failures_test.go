package deliver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"abide/internal/loops"
)

func TestFailingOutboxIsRetriedWithBackoff(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.work()
	r.box.fail = func(string) error { return errors.New("disk full") }
	r.queueAndHint("t1", 0, "poll://any@g")
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p1", "poll://uni@g/a"))
	before := r.box.count("executes") + r.box.count("unblocks")
	r.pass(30_000)
	if n := r.box.count("executes") + r.box.count("unblocks") - before; n > 80 {
		t.Errorf("%d calls in 30 s of failure", n)
	}
	r.want(r.read(a))
	r.box.fail = nil
	r.pass(loops.MaxCallPauseMs)
	r.want(r.read(a), "t1@0", "unblock p1")
	if s := r.core.Stats(); s.Errors[ScanExecutes] == 0 || s.Errors[CheckExecutes] != 1 || s.Errors[CheckUnblocks] != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestFailingReportsAreRepeated(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t1@0")
	failures := 3
	r.box.fail = func(op string) error {
		if op == "executes delivered" && failures > 0 {
			failures--
			return errors.New("conflict")
		}
		return nil
	}
	r.pass(3000)
	if n, _ := r.box.left(); n != 0 {
		t.Error("not reported")
	}
	r.want(r.read(a)) // never sent twice meanwhile
}

// poisoned is an outbox that cannot report one task.
type poisoned struct{ *memOutbox }

func (p poisoned) ExecutesDelivered(ctx context.Context, w string, delivered []Execute) error {
	for _, e := range delivered {
		if e.ID == "t13" {
			return errors.New("cannot")
		}
	}
	return p.memOutbox.ExecutesDelivered(ctx, w, delivered)
}

func TestEntryThatCannotBeReportedHoldsUpNobody(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	for i := range 100 {
		r.queueAndHint(fmt.Sprintf("t%d", i), 0, "poll://any@g")
	}
	r.work()
	r.read(a)
	for end := r.nowMs + 20_000; r.nowMs < end; r.nowMs += 10 {
		for cl := range Classes {
			if j := r.core.Take(r.nowMs, cl); j != nil {
				r.core.Done(r.nowMs, j, j.Run(context.Background(), poisoned{r.box}))
			}
		}
	}
	if n, _ := r.box.left(); n != 1 {
		t.Errorf("%d executes left, want the one that cannot be reported", n)
	}
	if s := r.core.Stats().Messages[kindExecute]; s.GivenUp != 1 || s.Delivered != 99 {
		t.Errorf("stats %+v", s)
	}
}
