package push

import (
	"errors"
	"fmt"
	"testing"
)

// only is the one send of a list.
func only(t *testing.T, sends []*Send) *Send {
	t.Helper()
	if len(sends) != 1 {
		t.Fatalf("%d sends, want 1", len(sends))
	}
	return sends[0]
}

func TestAMessageIsSentReportedAndForgotten(t *testing.T) {
	for _, hinted := range []bool{true, false} {
		r := newRig(t, Limits{})
		r.settle()
		if hinted {
			r.hint(execute("t", 3, "http://a/"))
		} else {
			r.box.queue(execute("t", 3, "http://a/"))
			r.pass(1000)
		}
		r.settle()
		s := only(t, r.sends)
		if s.Kind != KindExecute || s.ID != "t" || s.Version != 3 || s.Address != "http://a/" || s.Workspace != "w" || s.Attempt != 1 {
			t.Errorf("%+v", s)
		}
		if r.box.left() != 1 {
			t.Error("its entry has gone before it was accepted")
		}
		r.end(s, nil)
		r.settle()
		if r.box.left() != 0 || len(r.core.flights) != 0 || r.core.busy != 0 || len(r.core.tasks) != 0 {
			t.Errorf("left over: %d entries, %d flights, %d slots", r.box.left(), len(r.core.flights), r.core.busy)
		}
		if st := r.core.Stats().Transports[0]; st.Accepted != 1 || st.Failed != 0 || st.Name != "http" {
			t.Errorf("%+v", st)
		}
	}
}

// An unblock comes with its record, and the same promise goes to each of its addresses.
func TestUnblocksHaveTheirRecords(t *testing.T) {
	r := newRig(t, Limits{})
	r.unblock("p", "http://a/1")
	r.unblock("p", "http://a/2")
	for _, s := range r.settle() {
		if s.Kind != KindUnblock || s.Promise == nil || s.Promise.ID != "p" {
			t.Errorf("%+v", s)
		}
		r.end(s, nil)
	}
	r.settle()
	if r.box.left() != 0 || r.core.Stats().Transports[0].Accepted != 2 {
		t.Errorf("%d left, %+v", r.box.left(), r.core.Stats())
	}
}

// The first repetition comes within a second, each pause is up to twice as long as the one before, and none is longer
// than a minute.
func TestPausesGrow(t *testing.T) {
	r := newRig(t, Limits{})
	r.hint(execute("t", 0, "http://a/"))
	s := only(t, r.settle())
	var before int64
	for attempt := 1; attempt <= 12; attempt++ {
		failedAt := r.nowMs
		r.end(s, errDown)
		s = nil
		for s == nil {
			if again := r.pass(100); len(again) > 0 {
				s = only(t, again)
			}
			if r.nowMs-failedAt > 70_000 {
				t.Fatalf("after attempt %d it is not sent again", attempt)
			}
		}
		took := r.nowMs - failedAt
		if attempt == 1 && took > 1000 {
			t.Errorf("the first repetition after %d ms", took)
		}
		if s.Attempt != attempt+1 || took < before/4 {
			t.Errorf("attempt %d after %d ms, the one before after %d", s.Attempt, took, before)
		}
		before = took
	}
	if before < 25_000 {
		t.Errorf("the last pause is %d ms", before)
	}
}

func TestWhatTheErrorSays(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error
		notUntil int64 // ms
		by       int64
		refused  uint64
	}{
		{"plain", errDown, 400, 1100, 0},
		{"later", fmt.Errorf("x: %w", &LaterError{errDown, 7000}), 7000, 7200, 0},
		{"never", &LaterError{errDown, 1 << 40}, 300_000, 301_000, 0},
		{"sooner", &LaterError{errDown, -5}, 400, 1100, 0},
		{"refused", fmt.Errorf("%w: by a rule", ErrRefused), 60_000, 60_200, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Limits{})
			r.hint(execute("t", 0, "http://a/"))
			r.end(only(t, r.settle()), c.err)
			failedAt := r.nowMs
			var again []*Send
			for ; len(again) == 0 && r.nowMs-failedAt < c.by; again = r.pass(100) {
			}
			if took := r.nowMs - failedAt; len(again) != 1 || took < c.notUntil {
				t.Errorf("%d sends after %d ms", len(again), took)
			}
			if st := r.core.Stats().Transports[0]; st.Refused != c.refused || st.Failed != 1-c.refused {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestStaleCountsAsDelivered(t *testing.T) {
	r := newRig(t, Limits{})
	r.hint(execute("t", 0, "http://a/"))
	r.end(only(t, r.settle()), fmt.Errorf("x: %w", ErrStale))
	r.settle()
	if r.box.left() != 0 || r.core.Stats().Transports[0].Dropped != 1 {
		t.Errorf("%+v", r.core.Stats())
	}
}

// What a claim finds of its task is dropped, in line and in a pause; a request that is open goes on and is not repeated,
// whatever comes of it.
func TestAClaimDropsWhatIsQueued(t *testing.T) {
	for _, c := range []struct {
		name  string
		until func(r *rig) *Send
		err   error
	}{
		{"ready", func(r *rig) *Send { r.core.checkAt[KindExecute].atMs = never; return nil }, nil},
		{"resting", func(r *rig) *Send { r.end(only(t, r.settle()), errDown); return nil }, nil},
		{"sending, accepted", func(r *rig) *Send { return only(t, r.settle()) }, nil},
		{"sending, failed", func(r *rig) *Send { return only(t, r.settle()) }, errDown},
		{"accepted", func(r *rig) *Send {
			s := only(t, r.settle())
			r.box.fail = func(op string) error {
				if op == "report" {
					return errDown
				}
				return nil
			}
			r.end(s, nil)
			return nil
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Limits{})
			r.hint(execute("t", 2, "http://a/"))
			s := c.until(r)
			r.core.HintClaimed(r.nowMs, "w", "t", 1) // of an earlier version: does not matter
			if len(r.core.flights) != 1 {
				t.Fatal("dropped by the claim of an earlier version")
			}
			r.box.claim("w", "t")
			r.core.HintClaimed(r.nowMs, "w", "t", 2)
			if s != nil {
				r.end(s, c.err)
			}
			r.core.checkAt[KindExecute].atMs = 0
			if again := r.pass(70_000); len(again) != 0 {
				t.Errorf("sent again: %+v", again[0])
			}
			if len(r.core.flights) != 0 || r.core.busy != 0 {
				t.Errorf("%d flights, %d slots", len(r.core.flights), r.core.busy)
			}
		})
	}
}

// A claim whose hint was lost is found by the look before the send.
func TestALostClaimIsFound(t *testing.T) {
	r := newRig(t, Limits{})
	r.hint(execute("t", 0, "http://a/"))
	r.end(only(t, r.settle()), errDown)
	r.box.claim("w", "t")
	if again := r.pass(10_000); len(again) != 0 || len(r.core.flights) != 0 {
		t.Errorf("%d sends, %d flights", len(again), len(r.core.flights))
	}
}

// A task that was resumed is sent while the request of its earlier version is still open.
func TestVersionsAreMessagesOfTheirOwn(t *testing.T) {
	r := newRig(t, Limits{})
	r.hint(execute("t", 1, "http://a/"))
	first := only(t, r.settle())
	r.box.claim("w", "t")
	r.core.HintClaimed(r.nowMs, "w", "t", 1)
	r.hint(execute("t", 2, "http://a/"))
	second := only(t, r.settle())
	if second.Version != 2 {
		t.Errorf("%+v", second)
	}
	r.hint(execute("t", 2, "http://a/")) // queued again at the same version: it is on its way
	r.core.HintExecute(r.nowMs, execute("t", 1, "http://a/"))
	if more := r.pass(5000); len(more) != 0 {
		t.Errorf("sent twice at once: %+v", more[0])
	}
	r.end(first, nil)
	r.end(second, nil)
	r.settle()
	if r.box.left() != 0 || len(r.core.flights) != 0 {
		t.Errorf("%d left", r.box.left())
	}
}

// What is queued anew while the report of its earlier send is under way is looked at again.
func TestAHintDuringTheReport(t *testing.T) {
	r := newRig(t, Limits{})
	r.hint(execute("t", 1, "http://a/"))
	r.end(only(t, r.settle()), nil)
	j := r.core.Take(r.nowMs, Report)
	result := j.Run(t.Context(), r.box)
	r.hint(execute("t", 1, "http://a/"))
	r.core.Done(r.nowMs, j, result)
	only(t, r.settle())
}

// Calls that fail are made again, and nothing is lost or sent twice meanwhile.
func TestStoreFailures(t *testing.T) {
	for _, op := range []string{"queues", "executes", "unblocks", "check", "report"} {
		r := newRig(t, Limits{})
		r.box.fail = func(called string) error {
			if called == op {
				return errors.New("away")
			}
			return nil
		}
		r.box.queue(execute("scanned", 0, "http://a/"))
		r.box.queueUnblock("w", "scanned", "http://a/")
		r.hint(execute("hinted", 0, "http://a/"))
		sent := map[string]int{}
		step := func() {
			for _, s := range r.pass(500) {
				sent[s.Kind.String()+" "+s.ID]++
				r.end(s, nil)
			}
		}
		for range 10 {
			step()
		}
		calls := r.box.calls[op]
		r.box.fail = nil
		for range 20 {
			step()
		}
		for what, n := range sent {
			if n != 1 && !(op == "report" && n <= 3) { // a message whose report is given up is met again
				t.Errorf("%s fails: %s is sent %d times", op, what, n)
			}
		}
		if len(sent) != 3 || r.box.left() != 0 || calls > 60 {
			t.Errorf("%s fails: %v sent, %d left, %d calls", op, sent, r.box.left(), calls)
		}
	}
}

func TestDrainBeginsNothing(t *testing.T) {
	r := newRig(t, Limits{})
	r.hint(execute("open", 0, "http://a/"))
	s := only(t, r.settle())
	r.hint(execute("waiting", 0, "http://a/"))
	r.core.Drain(r.nowMs)
	r.hint(execute("later", 0, "http://a/"))
	if begun := r.pass(5000); len(begun) != 0 {
		t.Errorf("%d sends", len(begun))
	}
	if sends, _ := r.core.Unfinished(); sends != 1 {
		t.Errorf("%d sends are unfinished", sends)
	}
	r.end(s, nil)
	if _, reports := r.core.Unfinished(); reports != 1 {
		t.Errorf("%d reports are unfinished", reports)
	}
	r.settle()
	if sends, reports := r.core.Unfinished(); sends+reports != 0 || r.box.left() != 2 {
		t.Errorf("%d sends, %d reports, %d left", sends, reports, r.box.left())
	}
}

// Addresses that nobody serves are passed over, and counted.
func TestUnservedAddresses(t *testing.T) {
	r := newRig(t, Limits{})
	for i, address := range []string{"gcps://p/t", "bash://", "poll://uni@g", "http://nowhere/", "no address"} {
		r.hint(execute(fmt.Sprint("t", i), 0, address))
		r.unblock(fmt.Sprint("p", i), address)
	}
	if begun := r.pass(3000); len(begun) != 0 || r.box.left() != 10 {
		t.Errorf("%d sends", len(begun))
	}
	if s := r.core.Stats(); s.Unserved != [2]int{5, 5} {
		t.Errorf("%+v", s)
	}
	if r.box.calls["executes"]+r.box.calls["unblocks"] != 0 {
		t.Error("their pages are read")
	}
}
