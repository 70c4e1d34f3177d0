package api

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newShares(limit, each int) *shares {
	return &shares{limit: limit, each: each, by: map[string]*share{}}
}

// asked is a request that somebody has sent.
type asked struct {
	workspace string
	cancel    context.CancelFunc
	answer    chan answered
	waits     bool
}

type answered struct {
	share   *share
	refused refused
}

// ask sends a request and returns when it runs, waits or is refused.
func ask(s *shares, workspace string) (*asked, answered) {
	ctx, cancel := context.WithCancel(context.Background())
	a := &asked{workspace: workspace, cancel: cancel, answer: make(chan answered, 1)}
	before := s.waitingIn(workspace)
	go func() {
		w, r := s.enter(ctx, workspace)
		a.answer <- answered{w, r}
	}()
	for {
		select {
		case got := <-a.answer:
			return a, got
		default:
			if s.waitingIn(workspace) > before {
				a.waits = true
				return a, answered{}
			}
			runtime.Gosched()
		}
	}
}

func (s *shares) waitingIn(workspace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.by[workspace]; w != nil {
		return len(w.waiting)
	}
	return 0
}

// TestALoneWorkspaceHasNoTurns: as many as the limits allow run at once, and one more is refused, by whichever is reached.
func TestALoneWorkspaceHasNoTurns(t *testing.T) {
	const n = 2 * contendedSlots
	for name, tc := range map[string]struct {
		limit, each int
		want        refused
	}{
		"the workspace's limit": {n + 100, n, shareFull},
		"the server's limit":    {n, n + 100, allFull},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShares(tc.limit, tc.each)
			var in []*share
			for i := range n {
				w, r := s.enter(t.Context(), "a")
				if r != letIn {
					t.Fatalf("request %d of %d: %v", i+1, n, r)
				}
				in = append(in, w)
			}
			if _, r := s.enter(t.Context(), "a"); r != tc.want {
				t.Errorf("one more: %v, want %v", r, tc.want)
			}
			other, got := ask(s, "b")
			if other.waits != (tc.want == shareFull) || got.refused != map[refused]refused{allFull: allFull}[tc.want] {
				t.Errorf("one of another workspace: waits %v, %v", other.waits, got.refused)
			}
			for _, w := range in {
				s.leave(w)
			}
			if other.waits {
				s.leave((<-other.answer).share)
			}
			if s.inFlight() != 0 || s.running != 0 {
				t.Errorf("%d in, %d running after all have left", s.in, s.running)
			}
		})
	}
}

// TestWhoComesBesideAFloodRunsAtOnce: while several workspaces are present, a flood of n of them leaves a part of the slots
// free, and what it takes is shared alike.
func TestWhoComesBesideAFloodRunsAtOnce(t *testing.T) {
	for _, n := range []int{1, 2, 10, 100} {
		s := newShares(100_000, 100_000)
		w, _ := s.enter(t.Context(), "gentle")
		s.leave(w)
		for i := range n * 2 * contendedSlots / floodPart {
			ask(s, fmt.Sprint("flood", i%n))
		}
		least, most := contendedSlots, 0
		for i := range n {
			running := s.by[fmt.Sprint("flood", i)].running
			least, most = min(least, running), max(most, running)
		}
		if s.running >= contendedSlots || most > contendedSlots/floodPart || most-least > 1 || least < 1 {
			t.Errorf("%d floods: %d of %d slots are taken, by each %d to %d", n, s.running, contendedSlots, least, most)
		}
		if w, r := s.enter(t.Context(), "gentle"); r != letIn || w.running != 1 {
			t.Errorf("%d floods: the gentle one is not let in at once: %v", n, r)
		}
	}
}

// TestSlotsAreFreeOnceOthersHaveRun: while several workspaces are present, those that wait are let in for those that have left
// not at once, but when everybody else who can run has had a turn.
func TestSlotsAreFreeOnceOthersHaveRun(t *testing.T) {
	s := newShares(1000, 1000)
	var later []func()
	s.later = func(f func()) { later = append(later, f) }
	lone, _ := s.enter(t.Context(), "gentle")
	s.leaveLater(lone)
	if len(later) != 0 || s.running != 0 {
		t.Fatalf("the slot of a lone workspace is not free at once: %d are taken", s.running)
	}
	const part = contendedSlots / floodPart
	var running, waiting []*asked
	var share *share
	for range 2 * part {
		a, got := ask(s, "flood")
		if a.waits {
			waiting = append(waiting, a)
			continue
		}
		running, share = append(running, a), got.share
	}
	for range running {
		s.leaveLater(share)
	}
	if s.running != len(running) || s.in != len(waiting) || len(later) != 1 {
		t.Fatalf("%d slots taken by %d that have left, %d in, %d waiting; to be called later: %d", s.running, len(running), s.in, len(waiting), len(later))
	}
	if w, r := s.enter(t.Context(), "gentle"); r != letIn || w.running != 1 {
		t.Errorf("who comes meanwhile is not let in at once: %v", r)
	}
	later[0]()
	for _, a := range waiting[:part-1] {
		if got := <-a.answer; got.refused != letIn {
			t.Errorf("one that waited: %v", got.refused)
		}
	}
	s.leaveLater(share)
	s.leave(share) // one that has waited frees all that have left
	if len(s.left) != 0 || s.running > part+1 {
		t.Errorf("%d slots taken, %d to be freed", s.running, len(s.left))
	}
}

// TestAFloodIsLetInOnceOthersAreGone: after presence requests without another workspace, a lone one has no bound again,
// and those that waited for it run.
func TestAFloodIsLetInOnceOthersAreGone(t *testing.T) {
	s := newShares(100_000, 100_000)
	w, _ := s.enter(t.Context(), "gentle")
	s.leave(w)
	var running, waiting []*asked
	for range contendedSlots {
		if a, _ := ask(s, "flood"); a.waits {
			waiting = append(waiting, a)
		} else {
			running = append(running, a)
		}
	}
	if len(running) == 0 || len(waiting) == 0 {
		t.Fatalf("%d run, %d wait", len(running), len(waiting))
	}
	s.seq += presence // as many requests later
	s.note("flood")
	if len(s.by) != 1 {
		t.Fatalf("%d workspaces are remembered", len(s.by))
	}
	s.leave(s.by["flood"])
	for _, a := range waiting {
		if got := <-a.answer; got.refused != letIn {
			t.Errorf("one that waited: %v", got.refused)
		}
	}
}

// TestFewWorkspacesAreRemembered: requests that name a new workspace each cost no memory for long.
func TestFewWorkspacesAreRemembered(t *testing.T) {
	s := newShares(10, 10)
	for i := range 3 * maxPresent {
		w, r := s.enter(t.Context(), fmt.Sprint(i))
		if r != letIn {
			t.Fatal(r)
		}
		s.leave(w)
	}
	if len(s.by) > maxPresent {
		t.Errorf("%d workspaces are remembered, want at most %d", len(s.by), maxPresent)
	}
}

// TestSharesAgreeWithTheirRules runs any order of requests, ends and clients that go away.
func TestSharesAgreeWithTheirRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit, each = 150, 90
		s := newShares(limit, each)
		var running []*share
		waiting := map[string][]*asked{} // in the order in which they came
		waits := func() (n int) {
			for _, list := range waiting {
				n += len(list)
			}
			return n
		}
		// collect finds out who was let in: the first ones of their workspaces.
		collect := func() {
			for ws := range waiting {
				for left := s.waitingIn(ws); len(waiting[ws]) > left; {
					got := <-waiting[ws][0].answer
					if got.refused != letIn {
						t.Fatalf("the first that waits in %s: %v", ws, got.refused)
					}
					running = append(running, got.share)
					waiting[ws] = waiting[ws][1:]
				}
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "operations") {
			switch rapid.SampledFrom([]string{"flood", "flood", "flood", "enter", "leave", "leave", "go away"}).Draw(t, "operation") {
			case "flood", "enter":
				ws := rapid.SampledFrom([]string{"a", "a", "a", "a", "b", "b", "c"}).Draw(t, "workspace")
				a, got := ask(s, ws)
				switch {
				case a.waits:
					waiting[ws] = append(waiting[ws], a)
				case got.refused == letIn:
					running = append(running, got.share)
				case got.refused == shareFull && s.by[ws].in == each, got.refused == allFull && s.in == limit:
				default:
					t.Fatalf("refused with %v at %d in, %d in all", got.refused, s.by[ws].in, s.in)
				}
			case "leave":
				if len(running) > 0 {
					i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
					w := running[i]
					running = slices.Delete(running, i, i+1)
					s.leave(w)
					collect()
				}
			case "go away":
				ws := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "workspace")
				if n := len(waiting[ws]); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "which")
					waiting[ws][i].cancel()
					if got := <-waiting[ws][i].answer; got.refused != gaveUp {
						t.Fatalf("one that went away: %v", got.refused)
					}
					waiting[ws] = slices.Delete(waiting[ws], i, i+1)
				}
			}
			if s.running != len(running) || s.in != len(running)+waits() || s.in > limit {
				t.Fatalf("%d running and %d in, want %d and %d", s.running, s.in, len(running), len(running)+waits())
			}
			if waits() > 0 && s.running < contendedSlots/(floodPart+1) {
				t.Fatalf("%d wait while %d run", waits(), s.running)
			}
		}
		for len(running) > 0 { // nobody is left behind
			s.leave(running[0])
			running = running[1:]
			collect()
		}
		if s.in != 0 || waits() != 0 || s.turn != nil {
			t.Fatalf("%d in, %d wait at the end", s.in, waits())
		}
	})
}

// TestSharesOfManyAtOnce is for the race detector.
func TestSharesOfManyAtOnce(t *testing.T) {
	s := newShares(4096, 2048)
	s.later = afterOthers
	var running sync.WaitGroup
	for i := range 200 {
		running.Go(func() {
			for range 50 {
				if w, r := s.enter(t.Context(), fmt.Sprint(i%3)); r == letIn && i%2 == 0 {
					s.leave(w)
				} else if r == letIn {
					s.leaveLater(w)
				}
			}
		})
	}
	running.Wait()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() { // the last slots are freed later
		s.mu.Lock()
		done := s.running == 0
		s.mu.Unlock()
		if done {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in != 0 || s.running != 0 || s.turn != nil {
		t.Errorf("%d in, %d running at the end", s.in, s.running)
	}
}
