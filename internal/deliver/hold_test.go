package deliver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// holds returns how many executes are held.
func (r *rig) holds() int { return r.core.Stats().Messages[kindExecute].Held }

// heldOne makes a rig whose only worker has been sent t@0, which is held.
func heldOne(t *testing.T, l Limits) (r *rig, a ConnID) {
	t.Helper()
	r = newRig(t, l)
	a = r.connect("w", "g", "a")
	r.queueAndHint("t", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t@0")
	r.pass(1100)
	if n, _ := r.box.left(); n != 0 || r.holds() != 1 {
		t.Fatalf("%d executes left, %d held", n, r.holds())
	}
	return r, a
}

func TestWorkerThatClaimsNothingIsHandedNoMore(t *testing.T) {
	for _, address := range []string{"poll://any@g", "poll://any@g/a", "poll://uni@w/poll"} {
		r := newRig(t, Limits{})
		a := r.connect("w", "g", "a")
		for i := range 2000 {
			r.queueAndHint(fmt.Sprintf("t%04d", i), 0, address)
		}
		got := 0
		for range 20 {
			r.pass(1000)
			got += len(r.read(a))
		}
		if got != 256 || r.holds() != 256 {
			t.Errorf("%s: got %d and %d are held, want 256", address, got, r.holds())
		}
		calls := r.box.count("executes") + r.box.count("check executes") + r.box.count("executes delivered")
		r.pass(5000)
		if n := r.box.count("executes") + r.box.count("check executes") + r.box.count("executes delivered") - calls; n != 0 {
			t.Errorf("%s: %d calls about what is held", address, n)
		}
		b := r.connect("w", "g", "b")
		rest := 0
		for range 20 {
			r.work()
			batch := r.read(b)
			rest += len(batch)
			r.claimAll(batch)
		}
		if left, _ := r.box.left(); rest != 2000-256 || left != 0 {
			t.Errorf("%s: the second worker got %d, %d are left", address, rest, left)
		}
	}
}

func TestClaimOfAHeldTaskFreesItsSlot(t *testing.T) {
	r, a := heldOne(t, Limits{MaxExecutes: 1})
	r.queueAndHint("u", 0, "poll://any@g")
	r.pass(2000)
	r.want(r.read(a))
	r.core.HintClaimed(r.nowMs, "w", "t", 0) // its entry is gone already
	r.work()
	r.want(r.read(a), "u@0")
	if s := r.core.Stats().Messages[kindExecute]; s.Late != 1 || s.Claimed != 0 || s.Delivered != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestRetryOfAHeldTaskIsANewDispatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		limit   int
		version int64
		hinted  bool
	}{
		{"hinted", 8, 0, true},
		{"hinted, no other slot", 1, 0, true},
		{"found by a scan", 8, 0, false},
		{"released, hinted", 8, 1, true},
		{"released, no other slot", 1, 1, true},
		{"released, found by a scan", 8, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, a := heldOne(t, Limits{MaxExecutes: c.limit})
			e := r.queue("t", c.version, "poll://any@g")
			if c.hinted {
				scans := r.box.count("executes")
				r.core.HintExecute(r.nowMs, e)
				r.work()
				if n := r.box.count("executes"); c.limit > 1 && n != scans {
					t.Errorf("the hint cost %d scans", n-scans)
				}
			} else {
				r.pass(1000)
			}
			r.want(r.read(a), fmt.Sprintf("t@%d", c.version))
			if n := r.core.conns[a].used[kindExecute]; n != 1 || r.holds() != 0 {
				t.Errorf("%d slots in use, %d held", n, r.holds())
			}
			r.pass(1100)
			if r.holds() != 1 {
				t.Error("not held again")
			}
		})
	}
}

func TestRetryOfAHeldTaskMayGoToAnotherWorker(t *testing.T) {
	r, a := heldOne(t, Limits{MaxExecutes: 1})
	b := r.connect("w", "g", "b")
	r.work()
	r.queueAndHint("t", 0, "poll://any@g/b")
	r.work()
	r.want(r.read(b), "t@0")
	r.queueAndHint("u", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "u@0") // its slot came free
}

func TestRetryDuringTheReport(t *testing.T) {
	for _, scanned := range []bool{true, false} { // so that the hint may be about either dispatch
		for _, fails := range []bool{true, false} {
			r := newRig(t, Limits{MaxExecutes: 1})
			e := r.queue("t", 0, "poll://any@g")
			a := r.connect("w", "g", "a")
			if !scanned {
				r.core.HintExecute(r.nowMs, e)
			}
			r.work()
			r.want(r.read(a), "t@0")
			r.nowMs += 1100
			j := r.core.Take(r.nowMs, Report)
			answer := j.Run(context.Background(), r.box)
			if fails {
				answer.Err = errors.New("outcome unknown")
			}
			r.queueAndHint("t", 0, "poll://any@g")
			r.core.Done(r.nowMs, j, answer)
			r.work()
			r.want(r.read(a), "t@0")
		}
	}
}

// The hint of a dispatch that a scan was faster to find says nothing new, however late it is.
func TestLateHintDoesNotFreeAHeldSlot(t *testing.T) {
	for _, when := range []string{"held", "delivered", "reporting"} {
		r := newRig(t, Limits{MaxExecutes: 1})
		e := r.queue("t", 0, "poll://any@g")
		a := r.connect("w", "g", "a")
		r.work()
		r.want(r.read(a), "t@0")
		var j *Job
		var answer Result
		r.nowMs += 1100
		j = r.core.Take(r.nowMs, Report)
		answer = j.Run(context.Background(), r.box)
		if when == "delivered" {
			r.core.Done(r.nowMs, j, Result{Err: errors.New("outcome unknown")})
		} else if when == "held" {
			r.core.Done(r.nowMs, j, answer)
		}
		r.core.HintExecute(r.nowMs, e)
		if when == "reporting" {
			r.core.Done(r.nowMs, j, answer)
		}
		r.queueAndHint("u", 0, "poll://any@g")
		r.pass(3000)
		r.want(r.read(a))
		if r.holds() != 1 {
			t.Errorf("%s: %d held", when, r.holds())
		}
	}
}

func TestLostClaimFreesItsSlotAfterTheHold(t *testing.T) {
	r, a := heldOne(t, Limits{MaxExecutes: 1, HoldMs: 7000})
	r.queueAndHint("u", 0, "poll://any@g")
	if at := r.core.NextMs(ScanExecutes); at <= r.nowMs+5000 || at > r.nowMs+7000 {
		t.Errorf("the next scan is due in %d ms", at-r.nowMs)
	}
	r.pass(6000)
	r.want(r.read(a))
	r.pass(1000)
	r.want(r.read(a), "u@0")
	if s := r.core.Stats().Messages[kindExecute]; s.Expired != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestEndOfAConnectionForgetsWhatIsHeld(t *testing.T) {
	for _, replaced := range []bool{true, false} {
		r, a := heldOne(t, Limits{})
		checks := r.box.count("check executes")
		if !replaced {
			r.core.Disconnect(r.nowMs, a)
		}
		a = r.connect("w", "g", "a")
		r.pass(3000)
		r.want(r.read(a)) // its retry is armed
		if n := r.box.count("check executes"); n != checks {
			t.Errorf("%d checks", n-checks)
		}
		if s := r.core.Stats().Messages[kindExecute]; s.InFlight != 0 || s.Held != 0 || s.Resent != 0 {
			t.Errorf("stats %+v", s)
		}
		r.queueAndHint("t", 0, "poll://any@g")
		r.work()
		r.want(r.read(a), "t@0")
	}
}

// A connection that ends when it is about to be asked, or is being asked, whether its held task is queued again.
func TestEndOfAConnectionDuringARecheck(t *testing.T) {
	for _, c := range []struct{ queued, asked bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		r, a := heldOne(t, Limits{})
		b := r.connect("w", "g", "b")
		r.work()
		checks := r.box.count("check executes")
		e := Execute{"w", "t", 0, "poll://any@g", nil}
		if c.queued {
			r.box.queue(e)
		}
		r.core.HintExecute(r.nowMs, e)
		if c.asked {
			j := r.core.Take(r.nowMs, CheckExecutes)
			r.core.Disconnect(r.nowMs, a)
			r.core.Done(r.nowMs, j, j.Run(context.Background(), r.box))
		} else {
			r.core.Disconnect(r.nowMs, a)
		}
		r.work()
		if c.queued {
			r.want(r.read(b), "t@0")
		} else {
			r.want(r.read(b))
		}
		if s := r.core.Stats().Messages[kindExecute]; s.Held != 0 || (s.InFlight == 1) != c.queued {
			t.Errorf("%+v: stats %+v", c, s)
		}
		if n := r.box.count("check executes") - checks; n != 1 || r.core.checks[kindExecute].n != 0 {
			t.Errorf("%+v: %d checks, %d more wait", c, n, r.core.checks[kindExecute].n)
		}
	}
}

func TestUnblocksFreeTheirSlotsAtTheReport(t *testing.T) {
	r := newRig(t, Limits{MaxUnblocks: 4})
	a := r.connect("w", "g", "a")
	for i := range 20 {
		r.core.HintUnblock(r.nowMs, "w", r.queueUnblock(fmt.Sprintf("p%02d", i), "poll://uni@g/a"))
	}
	got := 0
	for range 6 {
		r.work()
		got += len(r.read(a))
		r.pass(1100)
	}
	if s := r.core.Stats().Messages[kindUnblock]; got != 20 || s.InFlight != 0 || s.Held != 0 {
		t.Errorf("got %d, stats %+v", got, s)
	}
}

func TestFailedRecheckKeepsTheSlot(t *testing.T) {
	r, a := heldOne(t, Limits{MaxExecutes: 2})
	e := r.queue("t", 0, "poll://any@g")
	r.core.HintExecute(r.nowMs, e)
	j := r.core.Take(r.nowMs, CheckExecutes)
	r.core.Done(r.nowMs, j, Result{Err: errors.New("disk full")})
	if n := r.core.conns[a].used[kindExecute]; n != 1 {
		t.Errorf("%d slots in use", n)
	}
	r.work() // a scan finds it
	r.want(r.read(a), "t@0")
}

// A page that was read before the report shows the entry, and comes in when the task is held.
func TestStalePageIsNoNewDispatch(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.work()
	r.queueAndHint("t", 0, "poll://any@g")
	r.nowMs += 1000
	check := r.core.Take(r.nowMs, CheckExecutes)
	r.core.Done(r.nowMs, check, check.Run(context.Background(), r.box))
	r.want(r.read(a), "t@0")
	var j *Job
	var page Result
	j = r.core.Take(r.nowMs, ScanExecutes)
	page = j.Run(context.Background(), r.box)
	if len(page.ExecutePages[0].Executes)+len(page.ExecutePages[1].Executes) != 1 {
		t.Fatalf("read %+v", page.ExecutePages)
	}
	r.nowMs += 1100
	report := r.core.Take(r.nowMs, Report)
	r.core.Done(r.nowMs, report, report.Run(context.Background(), r.box))
	if r.holds() != 1 {
		t.Fatalf("%d held", r.holds())
	}
	r.core.Done(r.nowMs, j, page)
	r.pass(3000)
	r.want(r.read(a))
}

func TestResetWorkspaceAndAHeldTask(t *testing.T) {
	r := newRig(t, Limits{PollMs: 1 << 40})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t", 5, "poll://any@g")
	r.work()
	r.want(r.read(a), "t@5")
	r.pass(1100)
	r.queueAndHint("t", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t@0")
}

// A worker that claims nothing: its retried tasks do not keep those from it that it has not been sent yet.
func TestRetriedTasksDoNotStarveTheOthers(t *testing.T) {
	const tasks, slots = 100, 16
	r := newRig(t, Limits{MaxExecutes: slots, HoldMs: 1 << 40})
	a := r.connect("w", "g", "a")
	for i := range tasks {
		r.queueAndHint(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
	}
	seen := map[string]bool{}
	for range 2 * tasks / slots {
		r.work()
		batch := r.read(a)
		r.pass(1100)
		for _, m := range batch {
			id, version, _ := splitAt(m)
			seen[id] = true
			r.queueAndHint(id, version, "poll://any@g") // its retry has come
		}
	}
	if len(seen) != tasks {
		t.Errorf("%d of %d tasks were sent", len(seen), tasks)
	}
}

func TestParkedLaneGoesOnWhenEnoughIsClaimed(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 64})
	a := r.connect("w", "g", "a")
	for i := range 200 {
		r.queueAndHint(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
	}
	r.work()
	inbox := r.read(a)
	r.pass(3000)
	if len(inbox) != 64 || r.holds() != 64 {
		t.Fatalf("got %d, %d held", len(inbox), r.holds())
	}
	scans := r.box.count("executes")
	r.claimAll(inbox[:7])
	r.pass(1000)
	r.want(r.read(a))
	if n := r.box.count("executes"); n != scans {
		t.Errorf("%d scans for less than an eighth", n-scans)
	}
	r.claimAll(inbox[7:8])
	r.pass(1000)
	if n := len(r.read(a)); n != 8 {
		t.Errorf("got %d for 8 claims", n)
	}
}

// slowly is a Core with a worker that claims slowly, and later one that claims at once.
type slowly struct {
	t     *rapid.T
	core  *Core
	box   *memOutbox
	nowMs int64
	limit int
	tasks int

	sent      map[string]bool
	unclaimed []string // by the slow one
}

func newSlowly(t *rapid.T) *slowly {
	s := &slowly{t: t, box: newMemOutbox(), nowMs: 1, sent: map[string]bool{},
		limit: rapid.IntRange(1, 20).Draw(t, "MaxExecutes"),
		tasks: rapid.IntRange(1, 100).Draw(t, "tasks"),
	}
	s.core = NewCore(Limits{MaxExecutes: s.limit, HoldMs: 1 << 40})
	return s
}

func (s *slowly) connect(pid string) ConnID {
	id, err := s.core.Connect(s.nowMs, "w", "g", pid)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s *slowly) create() {
	address := rapid.SampledFrom([]string{"poll://any@g", "poll://any@g/a", "poll://any@w/poll"}).Draw(s.t, "address")
	for i := range s.tasks {
		e := Execute{"w", fmt.Sprintf("t%03d", i), 0, address, nil}
		s.box.queue(e)
		if rapid.Bool().Draw(s.t, "hinted") {
			s.core.HintExecute(s.nowMs, e)
		}
	}
}

// pass lets time go by, with the work that is due then.
func (s *slowly) pass(ms int64) {
	s.nowMs += ms
	for busy := true; busy; {
		busy = false
		for cl := range Classes {
			if j := s.core.Take(s.nowMs, cl); j != nil {
				busy = true
				s.core.Done(s.nowMs, j, j.Run(context.Background(), s.box))
			}
		}
	}
	checkCore(s.t, s.core)
}

// read returns the tasks that came to a worker, none of which may have come to anybody before.
func (s *slowly) read(id ConnID) (got []string) {
	messages, _ := s.core.Output(s.nowMs, id, nil)
	s.core.Flushed(s.nowMs, id)
	for _, m := range messages {
		if s.sent[m.Task.ID] {
			s.t.Fatalf("%s came twice", m.Task.ID)
		}
		s.sent[m.Task.ID] = true
		got = append(got, m.Task.ID)
	}
	return got
}

func (s *slowly) readSlow(id ConnID) {
	s.unclaimed = append(s.unclaimed, s.read(id)...)
	if len(s.unclaimed) > s.limit {
		s.t.Fatalf("%d unclaimed, limit %d", len(s.unclaimed), s.limit)
	}
}

func (s *slowly) claim(ids []string) {
	for _, id := range ids {
		s.box.claim("w", id)
		s.core.HintClaimed(s.nowMs, "w", id, 0)
	}
}

// Whatever a slow worker claims, and when: it never has more unclaimed executes than it may, a second worker
// gets what is left, and every task is sent once.
func TestSlowWorkersProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSlowly(t)
		slow := s.connect("a")
		s.create()
		for range rapid.IntRange(0, 12).Draw(t, "rounds") {
			s.pass(rapid.SampledFrom([]int64{1, 500, 1100, 3000}).Draw(t, "ms"))
			s.readSlow(slow)
			n := rapid.IntRange(0, len(s.unclaimed)).Draw(t, "claims")
			s.claim(s.unclaimed[:n])
			s.unclaimed = s.unclaimed[n:]
		}
		brisk := s.connect("b")
		for range 2*s.tasks + 20 {
			s.pass(100)
			s.readSlow(slow)
			s.claim(s.read(brisk))
		}
		if left, _ := s.box.left(); len(s.sent) != s.tasks || left != 0 {
			t.Fatalf("%d of %d tasks were sent, %d are left", len(s.sent), s.tasks, left)
		}
	})
}
