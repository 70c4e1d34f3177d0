package push

import (
	"fmt"
	"strings"
	"testing"

	"abide/internal/deliver"
)

// One host hangs and nine answer: the nine get all their messages at once, and the one that hangs holds no more than its
// share (scenario J7).
func TestAHostThatHangsHoldsUpNobody(t *testing.T) {
	r := newRig(t, Limits{MaxOutstanding: 64})
	const each = 200
	for i := range each {
		for host := range 10 {
			r.hint(execute(fmt.Sprintf("t%d.%d", host, i), 0, fmt.Sprintf("http://h%d/", host)))
		}
	}
	accepted := map[string]int{}
	rounds := 0
	for ; len(accepted) < 9 || accepted["http://h9/"] < each; rounds++ {
		if rounds > 2000 {
			t.Fatalf("%v", accepted)
		}
		r.settle()
		for _, s := range append([]*Send(nil), r.sends...) {
			if s.Address != "http://h0/" {
				accepted[s.Address]++
				r.end(s, nil)
			}
		}
		r.nowMs++
	}
	r.pass(1000)
	hanging := 0
	for _, s := range r.sends {
		if s.Address == "http://h0/" {
			hanging++
		}
	}
	if hanging == 0 || hanging > firstWindow {
		t.Errorf("the host that hangs holds %d", hanging)
	}
	// Ideal is 64 slots, of which the hanging host holds 8: 9 * 200 messages in 33 rounds.
	if rounds > 3*33 {
		t.Errorf("%d rounds", rounds)
	}
}

// However many hosts hang, there is room for one more.
func TestHangingHostsShareWhatIsThere(t *testing.T) {
	r := newRig(t, Limits{MaxOutstanding: 100})
	for host := range 40 {
		for i := range 20 {
			r.hint(execute(fmt.Sprintf("t%d.%d", host, i), 0, fmt.Sprintf("http://h%d/", host)))
		}
	}
	r.pass(100)
	if len(r.sends) >= 100 {
		t.Fatalf("all %d slots are taken", len(r.sends))
	}
	r.hint(execute("t", 0, "http://good/"))
	if s := only(t, r.settle()); s.Address != "http://good/" {
		t.Errorf("%+v", s)
	}
}

// However many hosts hang, and however often, one that is known to answer gets its messages at once, and once those have
// hung, so does one that nothing is known of.
func TestSlotsAreNeverAllOfHostsThatHang(t *testing.T) {
	r := newRig(t, Limits{MaxOutstanding: 100})
	hang := func(name string) {
		for host := range 300 {
			r.hint(execute(fmt.Sprintf("%s%d", name, host), 0, fmt.Sprintf("http://%s%d/", name, host)))
		}
		r.pass(100)
	}
	r.hint(execute("known", 0, "http://known/"))
	r.end(only(t, r.settle()), nil)
	hang("a")
	if len(r.sends) != 75 {
		t.Fatalf("hosts that hang have %d slots", len(r.sends))
	}
	r.hint(execute("known again", 0, "http://known/"))
	r.end(only(t, r.settle()), nil)
	for range 4 { // all have hung once, and do so again
		for _, s := range append([]*Send(nil), r.sends...) {
			r.end(s, errDown)
		}
		r.pass(2000)
	}
	r.pass(60_000)
	if len(r.sends) != 50 {
		t.Fatalf("hosts that hang have %d slots", len(r.sends))
	}
	r.hint(execute("new", 0, "http://new/"))
	r.end(only(t, r.settle()), nil)
	hang("b")
	if len(r.sends) != 75 {
		t.Fatalf("hosts that hang have %d slots", len(r.sends))
	}
}

// More messages that nobody takes than fit into memory, of more destinations: others get theirs all the same, and those
// that nobody takes are all tried, again and again.
func TestMemoryIsNeverAllOfHostsThatFail(t *testing.T) {
	r := newRig(t, Limits{MaxFlights: 40})
	const dead = 100
	tries := map[string]int{}
	pass := func(ms int64) {
		for end := r.nowMs + ms; r.nowMs < end; {
			r.pass(100)
			for _, s := range append([]*Send(nil), r.sends...) {
				tries[s.Address]++
				if strings.HasPrefix(s.Address, "http://dead") {
					r.end(s, errDown)
				} else {
					r.end(s, nil)
				}
			}
			if len(r.core.flights) > 40 {
				t.Fatalf("%d in memory", len(r.core.flights))
			}
		}
	}
	for host := range dead {
		r.hint(execute(fmt.Sprintf("t%d", host), 0, fmt.Sprintf("http://dead%d/", host)))
		r.unblock(fmt.Sprintf("p%d", host), fmt.Sprintf("http://dead%d/", host))
	}
	pass(120_000)
	r.hint(execute("good", 0, "http://good/"))
	r.box.queueUnblock("w", "found", "http://zz/") // which only a walk finds
	pass(2500)
	if tries["http://good/"] != 1 || tries["http://zz/"] != 1 {
		t.Errorf("hosts that answer were sent %d and %d", tries["http://good/"], tries["http://zz/"])
	}
	clear(tries)
	pass(300_000)
	sum, seldom := 0, dead
	for host := range dead {
		n := tries[fmt.Sprintf("http://dead%d/", host)]
		sum, seldom = sum+n, min(seldom, n)
	}
	if seldom < 2 || sum > dead*20 {
		t.Errorf("in five minutes a host that fails was tried %d times, all of them %d times", seldom, sum)
	}
	if n := len(r.core.TakeNotices()); n > 8*maxNotices {
		t.Errorf("%d notices", n)
	}
}

// Large messages on their way are bounded by their bytes, however many slots are free: those to hosts that hang leave room
// for others, small ones always go, and each goes in the end.
func TestLargeMessagesAreBoundedByTheirBytes(t *testing.T) {
	r := newRig(t, Limits{MaxLargeBytes: 10 * largeBytes * 2})
	r.box.valueBytes = func(id string) int {
		if strings.HasPrefix(id, "large") {
			return largeBytes * 2
		}
		return largeBytes
	}
	r.unblock("small known", "http://known/")
	r.end(only(t, r.settle()), nil)
	for i := range 100 {
		r.unblock(fmt.Sprintf("large%d", i), fmt.Sprintf("http://h%d/", i))
	}
	for i := range 20 {
		r.unblock(fmt.Sprintf("small%d", i), fmt.Sprintf("http://s%d/", i))
	}
	r.pass(1000)
	large := 0
	for _, s := range r.sends {
		if strings.HasPrefix(s.ID, "large") {
			large++
		}
	}
	if large != 7 || len(r.sends) != 7+20 { // three quarters are for hosts of which nothing is known
		t.Fatalf("%d large ones are on their way, of %d", large, len(r.sends))
	}
	before := r.box.calls["check"]
	r.pass(60_000)
	if n := r.box.calls["check"] - before; n > 1 {
		t.Errorf("the store was asked %d times for what does not fit", n)
	}
	r.unblock("large known", "http://known/")
	r.end(only(t, r.settle()), nil)
	for end := r.nowMs + 60_000; r.nowMs < end && r.box.left() > 0; {
		for _, s := range append([]*Send(nil), r.sends...) {
			r.end(s, nil)
		}
		r.pass(100)
	}
	if r.box.left() != 0 || r.core.large != [trusts]int{} || r.core.held != [trusts]int{} || r.core.kept != [trusts]int{} {
		t.Errorf("%d left, %v bytes, %v slots and %v messages are counted", r.box.left(), r.core.large, r.core.held, r.core.kept)
	}
}

// More queues that cannot be sent than are remembered do not hide one that can.
func TestQueuesAreNeverAllOfHostsThatHang(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range maxOpen + 500 {
		r.box.queueUnblock("w", "p", fmt.Sprintf("http://hangs/%d", i))
	}
	r.box.queueUnblock("w", "p", "http://zz/") // behind them all
	found := false
	for end := r.nowMs + 60_000; r.nowMs < end && !found; {
		for _, s := range r.pass(1000) {
			found = found || s.Address == "http://zz/"
		}
	}
	if !found {
		t.Error("it is not found")
	}
	if len(r.core.flights) > 2*minReady+MaxPage || r.core.queueN > maxOpen+1 {
		t.Errorf("%d messages and %d queues are remembered", len(r.core.flights), r.core.queueN)
	}
}

// A host that was quick has a wide window. When it begins to hang it holds half of what there is and no more.
func TestAQuickHostThatBeginsToHang(t *testing.T) {
	r := newRig(t, Limits{MaxOutstanding: 100})
	for i := range 300 {
		r.hint(execute(fmt.Sprint("t", i), 0, "http://a/"))
	}
	for len(r.core.flights) > 0 {
		r.pass(1000)
		for _, s := range append([]*Send(nil), r.sends...) {
			r.end(s, nil)
		}
	}
	for i := range 300 {
		r.hint(execute(fmt.Sprint("u", i), 0, "http://a/"))
	}
	r.pass(100)
	if n := len(r.sends); n != 50 {
		t.Errorf("it holds %d", n)
	}
}

// A host that only fails is asked by one message at a time, ever less often, and is told of twice; one success opens it
// again.
func TestAHostThatFailsIsProbed(t *testing.T) {
	r := newRig(t, Limits{})
	const messages = 100
	for i := range messages {
		r.hint(execute(fmt.Sprintf("t%03d", i), 0, "http://a/"))
	}
	sends := 0
	fail := func(ms int64) {
		for end := r.nowMs + ms; r.nowMs < end; {
			r.pass(100)
			if sends > firstWindow*2 && len(r.sends) > 1 {
				t.Fatalf("%d requests at once to a host that fails", len(r.sends))
			}
			for _, s := range append([]*Send(nil), r.sends...) {
				sends++
				r.end(s, errDown)
			}
		}
	}
	fail(600_000)
	if sends > 60 {
		t.Errorf("%d requests in ten minutes", sends)
	}
	if st := r.core.Stats().Transports[0]; st.Failing != 1 || st.Lanes != 1 || st.OldestMs < 500_000 {
		t.Errorf("%+v", st)
	}
	for end := r.nowMs + 200_000; r.nowMs < end && r.box.left() > 0; {
		r.pass(100)
		for _, s := range append([]*Send(nil), r.sends...) {
			r.end(s, nil)
		}
	}
	if r.box.left() != 0 {
		t.Errorf("%d left", r.box.left())
	}
	notices := r.core.TakeNotices()
	if len(notices) != 2 || !notices[0].Failing || notices[0].Error != "down" || notices[0].Lane != "a" || notices[1].Failing {
		t.Errorf("%+v", notices)
	}
}

// Some messages of a host fail and others do not: those that do hold up none of the others.
func TestPoisonedMessages(t *testing.T) {
	r := newRig(t, Limits{})
	const messages = 2000
	for i := range messages {
		r.box.queue(execute(fmt.Sprintf("t%04d", i), 0, "http://a/"))
	}
	good := map[string]bool{}
	poisoned := func(s *Send) bool { return s.ID[4] < '3' } // 3 of 10, in rows
	for end := r.nowMs + 60_000; r.nowMs < end && len(good) < messages*7/10; {
		r.pass(100)
		for _, s := range append([]*Send(nil), r.sends...) {
			if poisoned(s) {
				r.end(s, errDown)
				continue
			}
			good[s.ID] = true
			r.end(s, nil)
		}
	}
	if len(good) != messages*7/10 {
		t.Errorf("%d good messages have gone, of %d", len(good), messages*7/10)
	}
}

// A task that is claimed while its request is open is as good as an answer: functions that run for minutes inside the
// request are started by the hundred all the same.
func TestClaimsOpenTheWindow(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range 200 {
		r.hint(execute(fmt.Sprint("t", i), 0, "http://a/"))
	}
	for range 20 {
		for _, s := range r.pass(100) {
			r.box.claim("w", s.ID)
			r.core.HintClaimed(r.nowMs, "w", s.ID, 0)
		}
	}
	if len(r.sends) != 200 {
		t.Errorf("%d requests are open", len(r.sends))
	}
}

// What a transport allows for a lane is never exceeded.
func TestConcurrency(t *testing.T) {
	r := newRig(t, Limits{})
	r.core = NewCore(Limits{}, served(lanes{concurrency: 3}))
	for i := range 100 {
		r.hint(execute(fmt.Sprint("t", i), 0, "http://a/"))
	}
	for r.box.left() > 0 {
		r.pass(100)
		if len(r.sends) > 3 {
			t.Fatalf("%d at once", len(r.sends))
		}
		if len(r.sends) > 0 {
			r.end(r.sends[0], nil)
		}
	}
}

// Memory is bounded, and what does not fit is fetched when there is room.
func TestMemoryIsBounded(t *testing.T) {
	r := newRig(t, Limits{MaxFlights: 50})
	const messages = 1000
	for i := range messages {
		if i%2 == 0 {
			r.hint(execute(fmt.Sprintf("t%04d", i), 0, fmt.Sprintf("http://h%d/", i%8)))
		} else {
			r.unblock(fmt.Sprintf("p%04d", i), fmt.Sprintf("http://h%d/%d", i%8, i%100))
		}
		if len(r.core.flights) > 50 {
			t.Fatalf("%d in memory", len(r.core.flights))
		}
	}
	sent := map[string]bool{}
	for end := r.nowMs + 120_000; r.nowMs < end && r.box.left() > 0; {
		r.pass(100)
		if len(r.core.flights) > 50 {
			t.Fatalf("%d in memory", len(r.core.flights))
		}
		for _, s := range append([]*Send(nil), r.sends...) {
			sent[s.ID] = true
			r.end(s, nil)
		}
	}
	if len(sent) != messages || r.box.left() != 0 {
		t.Errorf("%d sent, %d left", len(sent), r.box.left())
	}
	r.pass(2*quietMsMax + laneIdleMs + 10_000)
	if len(r.core.lanes) != 0 || r.core.queueN != 0 || len(r.core.flights) != 0 {
		t.Errorf("kept: %d lanes, %d queues, %d flights", len(r.core.lanes), r.core.queueN, len(r.core.flights))
	}
}

// Very many queues that nobody takes from cost the store a bounded number of calls.
func TestIdleQueuesCostLittle(t *testing.T) {
	r := newRig(t, Limits{})
	const queues = 1500
	for i := range queues {
		r.box.queueUnblock("w", "p", fmt.Sprintf("poll://uni@g%d", i))
	}
	r.box.page = 6 // 250 steps in a walk
	before := r.box.calls["queues"]
	r.pass(10_000)
	calls := r.box.calls["queues"] - before
	if most := 2 * (quickSteps + 10*pacedSteps + 10); calls > most || calls < 30 {
		t.Errorf("%d calls in ten poll intervals", calls)
	}
	// One that is served among them is found in the end.
	r.box.queueUnblock("w", "p", "http://zz/")
	if begun := r.pass(60_000); len(begun) != 1 {
		t.Errorf("%d sends", len(begun))
	}
	if r.box.calls["unblocks"] > 5 {
		t.Errorf("%d pages were read", r.box.calls["unblocks"])
	}
}

// A queue in which everything is known is looked into ever less often.
func TestQuietQueues(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range 10 {
		r.hint(execute(fmt.Sprint("t", i), 0, "http://a/"))
	}
	r.settle()
	before := r.box.calls["executes"]
	r.pass(100_000) // nothing is answered
	if n := r.box.calls["executes"] - before; n > 15 || n < 3 {
		t.Errorf("%d looks in 100 s", n)
	}
	// A hint that did not fit has it looked into at once.
	r.core.limits.MaxFlights = 10
	r.hint(execute("new", 0, "http://a/"))
	if r.core.stats.HintsDropped != 1 {
		t.Errorf("%+v", r.core.stats)
	}
	r.core.limits.MaxFlights = 1000
	for _, s := range append([]*Send(nil), r.sends...) {
		r.end(s, nil)
	}
	found := false
	for _, s := range r.pass(1500) {
		found = found || s.ID == "new"
	}
	if !found {
		t.Error("what was queued meanwhile is not found")
	}
}

var _ deliver.Hints = (*Pusher)(nil)

// A request that fails after its task was claimed, as where a gateway cuts off what takes long, is no fault of the host.
func TestFailuresAfterTheClaim(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range 50 {
		r.hint(execute(fmt.Sprint("t", i), 0, "http://a/"))
	}
	for range 20 {
		for _, s := range r.pass(100) {
			r.box.claim("w", s.ID)
			r.core.HintClaimed(r.nowMs, "w", s.ID, 0)
			r.end(s, errDown)
		}
	}
	if st := r.core.Stats().Transports[0]; st.Failed != 50 || len(r.core.TakeNotices()) != 0 || r.box.left() != 0 {
		t.Errorf("%+v, %d left", st, r.box.left())
	}
	for _, l := range r.core.lanes {
		if l.failures != 0 || l.untilMs != 0 {
			t.Errorf("the host is blamed: %d failures", l.failures)
		}
	}
}

// A queue that was found while there was room, which another destination then took, is looked into when there is room again.
func TestRoomThatAnotherTook(t *testing.T) {
	r := newRig(t, Limits{MaxFlights: 1})
	r.box.queue(execute("found", 0, "http://b/"))
	walk := r.core.Take(r.nowMs, ScanExecutes)
	r.core.Done(r.nowMs, walk, walk.Run(t.Context(), r.box))
	r.hint(execute("hinted", 0, "http://a/"))
	r.end(only(t, r.settle()), nil)
	if s := only(t, r.pass(3000)); s.ID != "found" {
		t.Errorf("%+v", s)
	}
}
