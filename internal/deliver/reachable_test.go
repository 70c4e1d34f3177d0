package deliver

import "testing"

func TestReachable(t *testing.T) {
	r := newRig(t, Limits{})
	r.connect("w", "g", "a")
	r.connect("w", "g", "b")
	r.connect("w", "h", "a")
	r.connect("v", "g", "a")
	finishing := r.connect("w", "g", "c")
	r.core.Finish(r.nowMs, finishing)
	for _, c := range []struct {
		workspace, address string
		want               int
		ok                 bool
	}{
		{"w", "poll://any@g", 2, true},
		{"w", "poll://any@g/zzz", 2, true},
		{"w", "poll://uni@g/b", 1, true},
		{"w", "poll://uni@g/c", 0, true},
		{"w", "poll://any@nobody", 0, true},
		{"w", "poll://any@w/poll", 3, true},
		{"v", "poll://any@g", 1, true},
		{"w", "https://example.com/", 0, false},
		{"w", "none", 0, false},
	} {
		if n, ok := r.core.reachable(c.workspace, c.address); n != c.want || ok != c.ok {
			t.Errorf("%s %s: %d %v, want %d %v", c.workspace, c.address, n, ok, c.want, c.ok)
		}
	}
}
