package deliver

import (
	"context"
	"fmt"
	"testing"
)

func TestMessagesWaitForTheirWorker(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range 600 {
		r.queueAndHint(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
	}
	r.queueAndHint("mine", 0, "poll://uni@g/b")
	r.queueAndHint("nobody", 0, "poll://uni@g")
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p1", "poll://uni@g/b"))
	r.pass(5000)
	if n := r.box.count("executes") + r.box.count("check executes") + r.box.count("unblocks"); n != 0 {
		t.Errorf("%d calls although nobody is connected", n)
	}
	a := r.connect("w", "g", "a")
	r.work()
	first := r.read(a)
	if len(first) != 256 {
		t.Errorf("%d messages at once, want the limit of 256", len(first))
	}
	b := r.connect("w", "g", "b")
	r.work()
	got := r.read(b)
	if len(got) != 257 { // 256 executes and the unblock
		t.Errorf("second worker got %d messages", len(got))
	}
	r.claimAll(append(first, got...))
	for range 5 {
		r.pass(1100)
		r.claimAll(r.read(a))
		r.claimAll(r.read(b))
	}
	if n, _ := r.box.left(); n != 1 {
		t.Errorf("%d executes left, want the one that nobody can get", n)
	}
}

func TestFullWorkerHoldsUpNobody(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 2})
	a := r.connect("w", "g", "a")
	for i := range 10 {
		r.queue(fmt.Sprintf("a%d", i), 0, "poll://uni@g/a")
	}
	r.core.HintExecute(r.nowMs, Execute{"w", "a0", 0, "poll://uni@g/a", nil})
	r.work()
	r.want(r.read(a), "a0@0", "a1@0")
	b := r.connect("w", "g", "b")
	r.queueAndHint("t", 0, "poll://any@g")
	r.work()
	r.want(r.read(b), "t@0")
}

func TestSlotsComeFreeByClaims(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 16})
	a := r.connect("w", "g", "a")
	for i := range 100 {
		r.queue(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
	}
	r.pass(1000)
	total := 0
	for range 100 {
		for _, m := range r.read(a) {
			total++
			id, _, _ := splitAt(m)
			r.box.claim("w", id)
			r.core.HintClaimed(r.nowMs, "w", id, 0)
		}
		r.work() // no time passes
	}
	if total != 100 {
		t.Errorf("got %d of 100 without time passing", total)
	}
}

func TestOldTasksDoNotStarve(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 16})
	a := r.connect("w", "g", "a")
	for i := range 64 {
		r.queue(fmt.Sprintf("old%02d", i), 0, "poll://any@g")
	}
	r.core.HintExecute(r.nowMs, Execute{"w", "old00", 0, "poll://any@g", nil})
	r.pass(1000)
	// A worker that claims one at a time, while new tasks come as fast as it claims.
	old, inbox := 0, []string(nil)
	for i := range 400 {
		r.work()
		inbox = append(inbox, r.read(a)...)
		if len(inbox) == 0 {
			t.Fatal("nothing to do")
		}
		id, _, _ := splitAt(inbox[0])
		inbox = inbox[1:]
		if id < "p" {
			old++
		}
		r.box.claim("w", id)
		r.core.HintClaimed(r.nowMs, "w", id, 0)
		r.queueAndHint(fmt.Sprintf("young%03d", i), 0, "poll://any@g")
	}
	if old != 64 {
		t.Errorf("%d of 64 old tasks were served", old)
	}
}

func TestLostHintsCostOnlyLatency(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.pass(500)
	r.queue("t1", 0, "poll://any@g")
	r.queue("t2", 0, "poll://uni@g/a")
	r.queueUnblock("p1", "poll://uni@g/a")
	r.queueUnblock("p2", "poll://any@g")
	r.pass(1000)
	if got := r.read(a); len(got) != 4 {
		t.Errorf("got %v", got)
	}
}

func TestIdleWorkersCostOneScanAQueueAndPoll(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range 10 {
		r.connect("w", "g", fmt.Sprint(i))
	}
	for i := range 1000 { // for workers that are gone
		r.queueUnblock(fmt.Sprintf("p%04d", i), fmt.Sprintf("poll://uni@g/gone%d", i))
		r.queue(fmt.Sprintf("t%04d", i), 0, fmt.Sprintf("poll://uni@g/gone%d", i))
	}
	r.work()
	before := r.box.count("unblocks") + r.box.count("executes")
	r.pass(10_000)
	if n := r.box.count("unblocks") + r.box.count("executes") - before; n > 2*12*10 {
		t.Errorf("%d scans in 10 polls of 12 queues of 2 kinds", n)
	}
	gone := r.connect("w", "g", "gone7")
	r.work()
	r.want(r.read(gone), "t0007@0", "unblock p0007")
}

func TestUnblocksArePaged(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range 100 {
		r.queueUnblock(fmt.Sprintf("p%03d", i), "poll://uni@g/a")
	}
	a := r.connect("w", "g", "a")
	r.work()
	if n := len(r.read(a)); n != 100 {
		t.Errorf("got %d of 100", n)
	}
	if n := r.box.count("unblocks"); n < 100/MaxUnblockPage {
		t.Errorf("%d pages", n)
	}
	r.pass(1100)
	if _, n := r.box.left(); n != 0 {
		t.Errorf("%d unblocks left after their window", n)
	}
	if n := r.box.count("unblocks delivered"); n != 1 {
		t.Errorf("%d reports, want 1", n)
	}
}

func TestStaleHintsAndPages(t *testing.T) {
	r := newRig(t, Limits{PollMs: 1 << 40})
	a := r.connect("w", "g", "a")
	r.work()
	r.core.HintExecute(r.nowMs, Execute{"w", "t", 0, "poll://any@g", nil}) // not in the outbox
	r.work()
	r.want(r.read(a))

	// A page that was read before a claim, and comes in after it.
	r.queue("u", 0, "poll://any@g")
	r.connect("w", "g", "b") // begins a scan
	j := r.core.Take(r.nowMs, ScanExecutes)
	answer := j.Run(context.Background(), r.box)
	r.queueAndHint("u", 0, "poll://any@g/a")
	check := r.core.Take(r.nowMs, CheckExecutes)
	r.core.Done(r.nowMs, check, check.Run(context.Background(), r.box))
	r.want(r.read(a), "u@0")
	r.box.claim("w", "u")
	r.core.HintClaimed(r.nowMs, "w", "u", 0)
	r.core.Done(r.nowMs, j, answer)
	r.work()
	r.want(r.read(a))
}

func TestTooManyHintsAreLeftToTheScan(t *testing.T) {
	r := newRig(t, Limits{MaxHints: 10})
	a := r.connect("w", "g", "a")
	r.work()
	for i := range 50 {
		r.queueAndHint(fmt.Sprintf("t%02d", i), 0, "poll://any@g")
	}
	if s := r.core.Stats(); s.HintsDropped != 40 {
		t.Errorf("stats %+v", s)
	}
	r.work()
	if n := len(r.read(a)); n != 50 {
		t.Errorf("got %d of 50", n)
	}
}
