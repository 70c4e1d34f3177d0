package push

import (
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
