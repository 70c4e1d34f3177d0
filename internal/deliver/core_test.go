package deliver

import (
	"context"
	"fmt"
	"testing"
)

func TestHintGoesStraightToTheWorker(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.work()
	scans := r.box.count("executes")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t1@0")
	if n := r.box.count("executes"); n != scans {
		t.Errorf("the hint cost %d scans", n-scans)
	}
	if n := r.box.count("check executes"); n != 1 {
		t.Errorf("checked %d times, want once", n)
	}
	for _, id := range r.core.Woken() {
		if id != a {
			t.Errorf("connection %d was woken", id)
		}
	}
}

func TestClaimedMessageCostsNoReport(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t1@0")
	r.box.claim("w", "t1")
	r.core.HintClaimed(r.nowMs, "w", "t1", 0)
	r.pass(3000)
	if n := r.box.count("executes delivered"); n != 0 {
		t.Errorf("reported %d times", n)
	}
	s := r.core.Stats().Messages[kindExecute]
	if s.Claimed != 1 || s.Delivered != 0 || s.InFlight != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestUnclaimedMessageIsReportedAfterTheWindowAndMayComeAgain(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t1@0")
	r.pass(990)
	if n, _ := r.box.left(); n != 1 {
		t.Fatal("reported before the window was over")
	}
	r.want(r.read(a)) // and a scan meanwhile did not send it again
	r.pass(200)
	if n, _ := r.box.left(); n != 0 {
		t.Fatal("not reported after the window")
	}
	r.queueAndHint("t1", 0, "poll://any@g") // the retry timer came due: same version
	r.work()
	r.want(r.read(a), "t1@0")
}

func TestManyDeliveriesAreOneReport(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	for i := range 100 {
		r.queueAndHint(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
		r.work()
		r.read(a)
	}
	r.pass(2000)
	if n := r.box.count("executes delivered"); n != 1 {
		t.Errorf("%d reports, want 1", n)
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		address string
		who     string // gets it while a and b are connected
	}{
		{"poll://uni@g/a", "a"},
		{"poll://uni@g/b", "b"},
		{"poll://uni@g/c", ""},
		{"poll://uni@g", ""},
		{"poll://any@g/a", "a"},
		{"poll://any@g/b", "b"},
		{"poll://any@other", ""},
		{"poll://any@g%67", ""},
		{"poll://uni@%67/%61", "a"},
		{"http://example.com/", ""},
		{"bash://x", ""},
		{"no address", ""},
	} {
		r := newRig(t, Limits{})
		conns := map[string]ConnID{"a": r.connect("w", "g", "a"), "b": r.connect("w", "g", "b")}
		foreign := r.connect("v", "g", "a")
		r.queueAndHint("t", 0, c.address)
		r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p", c.address))
		r.work()
		for pid, id := range conns {
			got := r.read(id)
			if c.who == pid {
				r.want(got, "t@0", "unblock p")
			} else if len(got) > 0 {
				t.Errorf("%s: %s got %v", c.address, pid, got)
			}
		}
		r.want(r.read(foreign))
	}
}

func TestAnyFallsBackWhenTheNamedWorkerIsAbsentOrFull(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 1})
	a, b := r.connect("w", "g", "a"), r.connect("w", "g", "b")
	r.queueAndHint("t1", 0, "poll://any@g/a")
	r.queueAndHint("t2", 0, "poll://any@g/a")
	r.work()
	r.want(r.read(a), "t1@0")
	r.want(r.read(b), "t2@0")
	r.core.HintClaimed(r.nowMs, "w", "t2", 0)
	r.queueAndHint("t3", 0, "poll://any@g/absent")
	r.work()
	r.want(r.read(b), "t3@0")
}

func TestClaimedAndReleasedWithinTheWindow(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t@0")
	r.queueAndHint("t", 1, "poll://any@g") // claimed (that hint was lost), released
	r.work()
	r.want(r.read(a), "t@1")
	r.queue("t", 2, "poll://any@g") // again, and both hints lost
	r.pass(1000)
	r.want(r.read(a), "t@2")
}

func TestHaltedAndContinuedWithinTheWindow(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t@0")
	r.nowMs += 100
	r.core.HintExecute(r.nowMs, r.queue("t", 0, "poll://any@g")) // the same version, dispatched anew
	r.work()
	r.want(r.read(a), "t@0")
}

func TestHintDuringACheckOrReportIsNotLost(t *testing.T) {
	r := newRig(t, Limits{PollMs: 1 << 40})
	a := r.connect("w", "g", "a")
	r.work()
	r.queueAndHint("t", 0, "poll://any@g")
	r.box.claim("w", "t") // halted
	j := r.core.Take(r.nowMs, CheckExecutes)
	answer := j.Run(context.Background(), r.box)
	r.queueAndHint("t", 0, "poll://any@g") // continued, before the answer is taken in
	r.core.Done(r.nowMs, j, answer)
	r.work()
	r.want(r.read(a), "t@0")

	r.nowMs += 1100
	j = r.core.Take(r.nowMs, Report)
	answer = j.Run(context.Background(), r.box)
	r.queueAndHint("t", 0, "poll://any@g") // the retry timer was very short
	r.core.Done(r.nowMs, j, answer)
	r.work()
	r.want(r.read(a), "t@0")
}

func TestTargetMemoryIsBounded(t *testing.T) {
	ts := targets{}
	for i := range 3 * maxTargets {
		ts.parse("w", fmt.Sprintf("poll://uni@g/%d", i))
	}
	if len(ts) > maxTargets {
		t.Errorf("%d targets kept", len(ts))
	}
}

func TestHintThatIsSlowerThanAScan(t *testing.T) {
	for _, claimed := range []bool{true, false} {
		r := newRig(t, Limits{})
		e := r.queue("t", 0, "poll://any@g")
		a := r.connect("w", "g", "a")
		r.work()
		r.want(r.read(a), "t@0")
		r.core.HintExecute(r.nowMs, e)
		r.work()
		r.want(r.read(a)) // not twice
		want := []string{"t@0"}
		if claimed {
			r.box.claim("w", "t")
			r.core.HintClaimed(r.nowMs, "w", "t", 0)
			want = nil
		}
		r.pass(1100)
		r.want(r.read(a), want...) // unless nobody wants it: it might have been about a new dispatch
		r.pass(1100)
		r.want(r.read(a))
		if n, _ := r.box.left(); n != 0 {
			t.Error("not reported")
		}
	}
}

func TestHintThatWasOvertaken(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	late := r.queue("t", 0, "poll://any@g")
	r.pass(1000)
	r.want(r.read(a), "t@0")
	r.box.claim("w", "t")
	r.queueAndHint("t", 1, "poll://any@g") // released
	r.work()
	r.want(r.read(a), "t@1")
	r.core.HintExecute(r.nowMs, late)
	r.pass(2000)
	r.want(r.read(a)) // not twice

	r.box.claim("w", "t")
	r.queueAndHint("t", 5, "poll://any@g")
	r.work()
	r.want(r.read(a), "t@5")
	r.queueAndHint("t", 0, "poll://any@g") // the workspace was reset
	r.pass(2200)
	r.want(r.read(a), "t@0")
}

// A message that came back from a broken stream, and whose late hint arrives during its check.
func TestHintDuringACheckThatSaysYes(t *testing.T) {
	r := newRig(t, Limits{})
	e := r.queue("t", 0, "poll://any@g")
	r.connect("w", "g", "a")
	r.work()
	a := r.connect("w", "g", "a")
	j := r.core.Take(r.nowMs, CheckExecutes)
	r.core.HintExecute(r.nowMs, e)
	r.core.Done(r.nowMs, j, j.Run(context.Background(), r.box))
	r.want(r.read(a), "t@0")
	r.pass(2000)
	r.want(r.read(a))
}

func TestClaimBeforeTheMessageIsWritten(t *testing.T) {
	for _, stage := range []string{"waiting", "checking", "buffered"} {
		r := newRig(t, Limits{MaxExecutes: 1})
		a := r.connect("w", "g", "a")
		r.work()
		r.queueAndHint("t", 0, "poll://any@g")
		var j *Job
		var answer Result
		if stage != "waiting" {
			j = r.core.Take(r.nowMs, CheckExecutes)
			answer = j.Run(context.Background(), r.box)
		}
		if stage == "buffered" {
			r.core.Done(r.nowMs, j, answer)
		}
		r.claim("t", 0)
		if stage == "checking" {
			r.core.Done(r.nowMs, j, answer)
		}
		r.work()
		r.want(r.read(a))
		if s := r.core.Stats().Messages[kindExecute]; s.InFlight != 0 || r.core.conns[a].used[kindExecute] != 0 {
			t.Errorf("%s: stats %+v", stage, s)
		}
	}
}
