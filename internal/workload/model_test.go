package workload

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"abide/protocol"
)

// TestGeneratorRepeats wants the same seed to make the same history.
func TestGeneratorRepeats(t *testing.T) {
	history := func(seed uint64) []string {
		m, g := NewModel(30_000), NewGenerator(seed)
		var out []string
		for range 1000 {
			op := g.Next(m)
			m.Apply(op.Workspace, op.At, op.Request)
			out = append(out, op.String())
		}
		return out
	}
	if !slices.Equal(history(7), history(7)) {
		t.Error("two histories of one seed differ")
	}
	if slices.Equal(history(7), history(8)) {
		t.Error("two seeds make the same history")
	}
}

// story is a list of requests at instants, and a look at the model after each.
type story struct {
	t   *testing.T
	m   *Model
	now int64
}

func (s *story) do(req protocol.Request, want int) Answer {
	s.t.Helper()
	if tick, is := req.(*protocol.DebugTick); is {
		tick.Time = s.now
	}
	a := s.m.Apply("", s.now, req)
	if a.Status != want {
		s.t.Errorf("%s is answered %d, want %d", Op{At: s.now, Request: req}, a.Status, want)
	}
	return a
}

func (s *story) task(id, state string, version, resumes int64) {
	s.t.Helper()
	got := s.do(&protocol.TaskGet{ID: id}, 200).Data.(object)["task"].(object)
	if got["state"] != state || got["version"] != version || got["resumes"] != resumes {
		s.t.Errorf("task %s is %v, want %s, version %d, %d resumes", id, got, state, version, resumes)
	}
}

func targeted(id string, timeoutAt int64) *protocol.PromiseCreate {
	return &protocol.PromiseCreate{ID: id, TimeoutAt: timeoutAt, Tags: flavours[2]}
}

// TestModelResumes follows a task from birth over a suspension on two promises to its end.
func TestModelResumes(t *testing.T) {
	s := &story{t, NewModel(100), 1000}
	s.do(targeted("t", 9000), 200)
	s.do(&protocol.PromiseCreate{ID: "x", TimeoutAt: 2000}, 200)
	s.do(&protocol.PromiseCreate{ID: "y", TimeoutAt: 9000}, 200)
	s.task("t", pending, 0, 0)
	s.do(&protocol.TaskAcquire{ID: "t", Version: 0, PID: "p", TTL: 50}, 200)
	s.do(&protocol.TaskSuspend{ID: "t", Version: 1, Awaited: []string{"x", "nobody"}}, 422)
	s.do(&protocol.TaskSuspend{ID: "t", Version: 1, Awaited: []string{"x", "y"}}, 200)
	s.task("t", suspended, 1, 0)
	s.now = 2000
	s.task("t", suspended, 1, 0)
	s.do(&protocol.DebugTick{}, 200)
	s.task("t", pending, 1, 1)
	s.do(&protocol.PromiseSettle{ID: "y", State: protocol.Resolved}, 200)
	s.task("t", pending, 1, 2)
	s.do(&protocol.TaskAcquire{ID: "t", Version: 1, PID: "p", TTL: 50}, 200)
	s.task("t", acquired, 2, 0)
	s.do(&protocol.TaskSuspend{ID: "t", Version: 2, Awaited: []string{"y"}}, 300)
	s.do(&protocol.TaskFulfill{ID: "t", Version: 2, Action: protocol.PromiseSettle{ID: "t", State: protocol.Resolved}}, 200)
	s.task("t", fulfilled, 2, 0)
	s.do(&protocol.TaskContinue{ID: "t"}, 409)
}

// TestModelHastyReleases follows the waits of section 3.
func TestModelHastyReleases(t *testing.T) {
	s := &story{t, NewModel(30_000), 1_000_000}
	s.do(targeted("t", 1<<40), 200)
	for n, wait := range []int64{30_000, 30_000, 30_000, 100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		version := int64(n)
		s.do(&protocol.TaskAcquire{ID: "t", Version: version, PID: "p", TTL: 60_000}, 200)
		s.now += 999
		s.do(&protocol.TaskRelease{ID: "t", Version: version + 1}, 200)
		if got := s.m.space("").tasks["t"].retryAt - s.now; got != wait {
			t.Errorf("the release %d in a row is dispatched again after %d ms, want %d", n+1, got, wait)
		}
		if _, queued := s.m.space("").executes["t"]; queued != (n < 3) {
			t.Errorf("after the release %d in a row, dispatched at once is %t", n+1, queued)
		}
	}
	s.do(&protocol.TaskAcquire{ID: "t", Version: 11, PID: "p", TTL: 60_000}, 200)
	s.now += 1000
	s.do(&protocol.TaskRelease{ID: "t", Version: 12}, 200)
	if _, queued := s.m.space("").executes["t"]; !queued {
		t.Error("a claim that lasted a second does not break the row")
	}
}

// TestModelTime wants earlier instants raised, sums saturated, and a reset to forget the mark.
func TestModelTime(t *testing.T) {
	s := &story{t, NewModel(100), 5000}
	s.do(&protocol.PromiseGet{ID: "x"}, 404)
	s.now = 10
	s.do(targeted("t", 1<<62), 200)
	if p := s.m.space("").promises["t"]; p.createdAt != 5000 {
		t.Errorf("created at %d, want 5000", p.createdAt)
	}
	s.do(&protocol.TaskAcquire{ID: "t", Version: 0, PID: "p", TTL: 1<<63 - 1}, 200)
	if lease := s.m.space("").tasks["t"].lease; lease != 1<<63-1 {
		t.Errorf("a lease of %d, want the largest", lease)
	}
	s.do(&protocol.DebugReset{}, 200)
	s.do(targeted("t", 20), 200)
	if p := s.m.space("").promises["t"]; p.createdAt != 10 {
		t.Errorf("created at %d after the reset, want 10", p.createdAt)
	}
}

func TestModelCron(t *testing.T) {
	const day = 24 * 60 * 60 * 1000
	for _, c := range []struct {
		cron  string
		after int64
		want  int64 // -1 for none
	}{
		{"* * * * *", 0, 60_000}, {"* * * * *", 59_999, 60_000}, {"* * * * *", 60_000, 120_000}, {"* * * * * *", 999, 1000},
		{"*/20 * * * * *", 20_000, 40_000}, {"30 * * * * *", 0, 30_000}, {"@hourly", 1, 3_600_000}, {"@daily", 1, day},
		{"0 0 ? * 6", 0, day}, // 1970-01-02 was a Friday, the sixth day from Sunday
		{"0 0 2 1 6", 0, day}, {"0 0 1 1 *", 0, 365 * day}, {"0 0 0 1 1 ? 1970", 0, -1}, {"0 0 31 2 *", 0, -1},
	} {
		when, good := parseCron(c.cron)
		got, any := when.next(c.after)
		if !any {
			got = -1
		}
		if !good || got != c.want {
			t.Errorf("%q after %d: %d, want %d (parsed %t)", c.cron, c.after, got, c.want, good)
		}
	}
}

// lyingServer replaces a text in its answers.
type lyingServer struct {
	Server
	from, to string
}

func (s lyingServer) Post(path string, body []byte) (int, []byte, error) {
	status, answer, err := s.Server.Post(path, body)
	return status, bytes.ReplaceAll(answer, []byte(s.from), []byte(s.to)), err
}

// TestDifferencesAreFoundAndShrunk has a server answer wrongly in one way each, and wants a short history.
func TestDifferencesAreFoundAndShrunk(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for n, lie := range []struct {
		from, to string
		atMost   int // requests
	}{
		{`"resumes":1`, `"resumes":0`, 6},
		{`"state":"rejected_timedout"`, `"state":"rejected"`, 3},
		{`"type":1,`, `"type":0,`, 3},
		{`"callbacks":[{`, `"callbacks":[],"x":[{`, 5},
		{`"status":422`, `"status":409`, 2},
		{`"lastRunAt":`, `"lastRun":`, 3},
	} {
		liar := lyingServer{server, lie.from, lie.to}
		err := NewRun(liar, fmt.Sprintf("lie%d-", n), serverRetryMs).Generate(NewGenerator(3), 2000, 100)
		var found *Difference
		if !errors.As(err, &found) {
			t.Errorf("%q for %q is not found: %v", lie.to, lie.from, err)
			continue
		}
		short := Shrink(found, Replayer(liar, fmt.Sprintf("shrunk%d", n), serverRetryMs))
		if len(short.History) > lie.atMost {
			t.Errorf("%q for %q is shown by %d requests, want at most %d:\n%v", lie.to, lie.from, len(short.History), lie.atMost, short)
		}
	}
}

// TestOpenDrainsAreNoDifference wants a snapshot between a large settlement and the next pass, in which a server may
// still show waiters, to be no difference, and one after the pass to be compared.
func TestOpenDrainsAreNoDifference(t *testing.T) {
	server := startServer(t)
	history := []Op{{firstSpace, Start, &protocol.PromiseCreate{ID: "p", TimeoutAt: Start + farMs}}}
	for n := range bigDrain {
		history = append(history, Op{firstSpace, Start, &protocol.PromiseRegisterListener{Awaited: "p", Address: fmt.Sprintf("poll://uni@g/%d", n)}})
	}
	history = append(history,
		Op{firstSpace, Start, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved}},
		Op{firstSpace, Start, &protocol.DebugSnap{}},
		Op{firstSpace, Start, &protocol.DebugTick{Time: Start}},
		Op{firstSpace, Start, &protocol.DebugSnap{}})
	if err := Replayer(server, "drain", serverRetryMs)(history); err != nil {
		t.Error(err)
	}
	var found *Difference
	if err := Replayer(lyingServer{server, `"listeners":[]`, `"listeners":[1]`}, "lie", serverRetryMs)(history); !errors.As(err, &found) {
		t.Errorf("after the pass nothing is compared: %v", err)
	}
}
