package deliver

import (
	"errors"
	"fmt"
	"testing"

	"abide/protocol"
)

func TestBrokenStreamSendsAgain(t *testing.T) {
	for _, flush := range []bool{false, true} {
		r := newRig(t, Limits{})
		a, b := r.connect("w", "g", "a"), r.connect("w", "g", "b")
		r.queueAndHint("t1", 0, "poll://any@g/a")
		r.work()
		if flush {
			r.want(r.read(a), "t1@0")
		} else {
			r.want(r.peek(a), "t1@0")
		}
		r.nowMs += 500
		r.core.Disconnect(r.nowMs, a)
		r.work()
		r.want(r.read(b), "t1@0")
		if s := r.core.Stats().Messages[kindExecute]; s.Resent != 1 {
			t.Errorf("stats %+v", s)
		}
	}
}

func TestStreamThatBreaksAfterTheWindowHasDelivered(t *testing.T) {
	r := newRig(t, Limits{GatherMs: 500})
	a, b := r.connect("w", "g", "a"), r.connect("w", "g", "b")
	r.queueAndHint("t1", 0, "poll://any@g/a")
	r.work()
	r.want(r.read(a), "t1@0")
	r.pass(1100) // past the window; the report still waits for company
	r.core.Disconnect(r.nowMs, a)
	r.pass(1000)
	r.want(r.read(b))
	if n, _ := r.box.left(); n != 0 {
		t.Error("not reported")
	}
}

func TestSharesAreFair(t *testing.T) {
	r := newRig(t, Limits{})
	ids := []ConnID{r.connect("w", "g", "a"), r.connect("w", "g", "b"), r.connect("w", "g", "c")}
	for i := range 300 {
		r.queueAndHint(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
	}
	r.work()
	for _, id := range ids {
		if n := len(r.read(id)); n != 100 {
			t.Errorf("connection %d got %d of 300", id, n)
		}
	}
}

func TestNewestConnectionOfAPIDWins(t *testing.T) {
	r := newRig(t, Limits{})
	old := r.connect("w", "g", "a")
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p", "poll://uni@g/a"))
	r.queueAndHint("t", 0, "poll://uni@g/a")
	r.work()
	r.want(r.read(old), "t@0", "unblock p")
	r.core.Woken()
	young := r.connect("w", "g", "a")
	if _, status := r.core.Output(r.nowMs, old, nil); status != Closed {
		t.Errorf("the older one is in status %d", status)
	}
	found := false
	for _, id := range r.core.Woken() {
		found = found || id == old
	}
	if !found {
		t.Error("the older one's writer was not woken")
	}
	r.work()
	r.want(r.read(young), "t@0", "unblock p") // both, because the old stream did not live a second longer
	r.core.Disconnect(r.nowMs, old)           // its handler returns late
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p2", "poll://uni@g/a"))
	r.work()
	r.want(r.read(young), "unblock p2")
	if s := r.core.Stats(); s.Replaced != 1 || s.Connections != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestConnectionLimit(t *testing.T) {
	r := newRig(t, Limits{MaxConnections: 2})
	r.connect("w", "g", "a")
	r.connect("w", "h", "a")
	if _, err := r.core.Connect(r.nowMs, "w", "g", "b"); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
	a := r.connect("w", "g", "a") // takes its own place
	r.core.Disconnect(r.nowMs, a)
	r.connect("w", "g", "b")
	checkCore(t, r.core)
	if s := r.core.Stats(); s.Refused != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestBufferIsBounded(t *testing.T) {
	r := newRig(t, Limits{BufferBytes: 1000, WriteBytes: 500})
	a := r.connect("w", "g", "a")
	big := protocol.Promise{ID: "big", State: protocol.Resolved, Value: make([]byte, 5000)}
	for _, id := range []string{"b1", "b2", "b3"} {
		big.ID = id
		r.box.queueUnblock(Unblock{"w", id, "poll://uni@g/a", big})
	}
	r.pass(2000)
	messages, _ := r.core.Output(r.nowMs, a, nil)
	if len(messages) != 1 {
		t.Fatalf("%d messages were buffered, want one that fills it", len(messages))
	}
	r.work()
	if next, _ := r.core.Output(r.nowMs, a, nil); len(next) != 1 {
		t.Fatalf("%d messages were buffered behind it", len(next))
	}
	r.core.Flushed(r.nowMs, a)
	r.work()
	r.want(r.read(a), "unblock b3")
}

func TestDrain(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.core.Drain(r.nowMs)
	r.queueAndHint("t2", 0, "poll://any@g")
	r.pass(2000)
	messages, status := r.core.Output(r.nowMs, a, nil)
	if len(messages) != 1 || status != Ending {
		t.Errorf("%d messages, status %d", len(messages), status)
	}
	r.core.Flushed(r.nowMs, a)
	r.core.Disconnect(r.nowMs, a)
	if _, err := r.core.Connect(r.nowMs, "w", "g", "b"); !errors.Is(err, ErrDraining) {
		t.Errorf("got %v", err)
	}
	r.pass(2000)
	if n, _ := r.box.left(); n != 2 {
		t.Errorf("%d executes left, want both: neither was delivered", n)
	}
}

func TestFinishedConnectionWritesWhatItHas(t *testing.T) {
	r := newRig(t, Limits{WriteBytes: 1})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.queueAndHint("t2", 0, "poll://any@g")
	r.work()
	r.core.Finish(r.nowMs, a)
	first, status := r.core.Output(r.nowMs, a, nil)
	if len(first) != 1 || status != Open {
		t.Errorf("%d messages, status %d", len(first), status)
	}
	r.core.Flushed(r.nowMs, a)
	second, status := r.core.Output(r.nowMs, a, nil)
	if len(second) != 1 || status != Ending {
		t.Errorf("%d messages, status %d", len(second), status)
	}
}
