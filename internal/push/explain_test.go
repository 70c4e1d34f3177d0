package push

import (
	"fmt"
	"testing"

	"abide/protocol"
)

// Why a pushed task does not run is told at every step.
func TestExplain(t *testing.T) {
	r := newRig(t, Limits{})
	asked := func(target string) protocol.ExplainBody {
		body := protocol.ExplainBody{Task: protocol.Task{ID: "t", Version: 4}, Target: target, Now: 1_000_000, Queued: true}
		r.core.explain(r.nowMs, "w", &body)
		return body
	}
	const target = "http://a/"
	if b := asked(target); b.Push != protocol.PushWaiting || b.PushAt != 0 || b.PushError != "" {
		t.Errorf("%+v", b)
	}
	if b := asked("gcps://p/t"); b.Push != protocol.PushUnserved || b.PushError == "" {
		t.Errorf("%+v", b)
	}
	if b := asked("http://nowhere/"); b.Push != protocol.PushUnserved || b.PushError != "there is no such host" {
		t.Errorf("%+v", b)
	}
	r.hint(execute("t", 4, target))
	s := only(t, r.settle())
	if b := asked(target); b.Push != protocol.PushSending || b.PushAttempts != 1 {
		t.Errorf("%+v", b)
	}
	r.end(s, errDown)
	if b := asked(target); b.Push != protocol.PushPaused || b.PushAttempts != 1 || b.PushError != "down" || b.PushAt <= b.Now || b.PushAt > b.Now+1000 {
		t.Errorf("%+v", b)
	}
	if b := asked(target); b.PushTo != "a" || b.PushTriedAt != b.Now {
		t.Errorf("%+v", b)
	}
	for _, s := range r.pass(1500) {
		r.end(s, nil)
	}
	r.settle()
	if b := asked(target); b.Push != protocol.PushWaiting || b.PushError != "" {
		t.Errorf("%+v", b)
	}
	r.core.Servers("x", []string{"y"})
	if b := asked(target); b.Push != protocol.PushElsewhere {
		t.Errorf("%+v", b)
	}
}

// What keeps a message from being sent, if it is not its own failure, is told: a rule, others that failed, and too many on
// their way.
func TestExplainOfWhatWaits(t *testing.T) {
	asked := func(r *rig, id, target string) protocol.ExplainBody {
		body := protocol.ExplainBody{Task: protocol.Task{ID: id, Version: 1}, Target: target, Now: 1_000_000, Queued: true}
		r.core.explain(r.nowMs, "w", &body)
		return body
	}
	t.Run("refused", func(t *testing.T) {
		r := newRig(t, Limits{})
		r.hint(execute("t", 1, "http://a/"))
		r.end(only(t, r.settle()), fmt.Errorf("%w: no rule covers a", ErrRefused))
		if b := asked(r, "t", "http://a/"); b.Push != protocol.PushRefused || b.PushAttempts != 1 || b.PushError != "refused: no rule covers a" || b.PushAt <= b.Now {
			t.Errorf("%+v", b)
		}
		if b := asked(r, "other", "http://a/"); b.Push != protocol.PushRefused || b.PushAttempts != 0 || b.PushTriedAt != b.Now {
			t.Errorf("of another: %+v", b)
		}
	})
	t.Run("others failed", func(t *testing.T) {
		r := newRig(t, Limits{MaxOutstanding: 100})
		for i := range firstWindow {
			r.hint(execute(fmt.Sprint("t", i), 1, "http://a/"))
		}
		for _, s := range r.settle() {
			r.end(s, errDown)
		}
		if b := asked(r, "other", "http://a/"); b.Push != protocol.PushPaused || b.PushAttempts != 0 || b.PushError != "down" || b.PushTriedAt != b.Now || b.PushAt <= b.Now {
			t.Errorf("%+v", b)
		}
	})
	t.Run("full", func(t *testing.T) {
		r := newRig(t, Limits{MaxOutstanding: 100})
		for i := range firstWindow + 1 {
			r.hint(execute(fmt.Sprint("t", i), 1, "http://a/"))
		}
		sent := len(r.settle())
		if b := asked(r, fmt.Sprint("t", firstWindow), "http://a/"); b.Push != protocol.PushFull || b.PushOpen != int64(sent) {
			t.Errorf("%d are sent: %+v", sent, b)
		}
	})
	t.Run("busy", func(t *testing.T) {
		r := newRig(t, Limits{MaxOutstanding: 4})
		for _, host := range "abcdefgh" {
			r.hint(execute("t"+string(host), 1, "http://"+string(host)+"/"))
		}
		sent := len(r.settle())
		if b := asked(r, "th", "http://h/"); b.Push != protocol.PushBusy || b.PushOpen != int64(sent) {
			t.Errorf("%d are sent: %+v", sent, b)
		}
	})
}
