package api

import (
	"context"
	"runtime"
	"sync"

	"abide/protocol"
)

const (
	// contendedSlots is how many requests are in the engine at once while several workspaces are present, and floodPart
	// which part of those that are free one workspace may have. It keeps batches short, and few goroutines in front of one
	// that has just been woken: a request that comes alone then waits for some milliseconds of other people's work, and not
	// for all of it. One workspace that floods has 8 slots, ten have 6 each, and as many as there are find some
	// left. A lone workspace has no such bound, since long batches are what makes it fast. (docs/decisions/0045)
	contendedSlots = 256
	floodPart      = 31
	// presence is for how many requests after its last one a workspace is present.
	presence = 100_000
	// maxPresent bounds the workspaces that are remembered without a request.
	maxPresent = 4096
)

// shares lets requests into the engine: as many as there is room for, those of several workspaces in turns, so that one
// which sends without end does not keep the others waiting. It remembers the workspaces of the last presence requests and
// of those that are in. Safe for concurrent use.
type shares struct {
	limit int // requests that may be in, running and waiting
	each  int // the same of one workspace
	// later calls a function once the goroutines that can run now have run; nil calls it at once.
	later func(func())

	mu      sync.Mutex
	in      int
	running int
	seq     uint64 // of the last request
	by      map[string]*share
	// oldest and newest are the ends of the list of shares by their last request.
	oldest, newest *share
	// left are the shares of requests that have left and whose slots are not free yet, one for each.
	left []*share
	// turn is the share whose waiting request is let in next; those that have any are a ring.
	turn *share
}

// share is what one workspace has of the engine.
type share struct {
	workspace      string
	in, running    int
	last           uint64 // sequence number of its last request
	older, newer   *share
	before, behind *share // in the ring; nil outside it
	waiting        []*turn
}

// turn is a request that waits to be let in.
type turn struct {
	let chan struct{} // closed by whoever lets it in
}

// refused is why a request is not let in.
type refused int

const (
	letIn     refused = iota
	allFull           // the server has as many as it takes
	shareFull         // the workspace has
	gaveUp            // its time was over, or its client gone
)

// enter waits until a request of a workspace may run. If it is let in the caller calls leave afterwards.
func (s *shares) enter(ctx context.Context, workspace string) (*share, refused) {
	s.mu.Lock()
	w := s.note(workspace)
	switch {
	case w.in >= s.each:
		s.mu.Unlock()
		return nil, shareFull
	case s.in >= s.limit:
		s.mu.Unlock()
		return nil, allFull
	}
	s.in++
	w.in++
	if len(w.waiting) == 0 && s.admits(w) {
		s.running++
		w.running++
		s.mu.Unlock()
		return w, letIn
	}
	t := &turn{let: make(chan struct{})}
	s.wait(w, t)
	s.mu.Unlock()
	select {
	case <-t.let:
		return w, letIn
	case <-ctx.Done():
		return s.giveUp(w, t)
	}
}

// giveUp takes a request out that waits no longer, unless it has just been let in.
func (s *shares) giveUp(w *share, t *turn) (*share, refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, waiting := range w.waiting {
		if waiting == t {
			s.dismiss(w, i)
			s.in--
			w.in--
			return nil, gaveUp
		}
	}
	return w, letIn
}

// leave ends a request that was let in, and lets others in for it.
func (s *shares) leave(w *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone(w)
	s.free()
}

// leaveLater is leave for a request that has waited for nothing. While several workspaces are present its slot is free only
// once whoever can run has run: such requests would pass through a slot one after the other, hundreds of them would be in the
// scheduler's line and none in this one, and whoever comes would wait behind all of them. (docs/decisions/0050)
func (s *shares) leaveLater(w *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone(w)
	switch {
	case s.later == nil || !s.contended():
		s.free()
	case len(s.left) == 1:
		s.later(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.free()
		})
	}
}

// gone takes a request out whose slot is about to be free.
func (s *shares) gone(w *share) {
	s.in--
	w.in--
	s.left = append(s.left, w)
}

// quick tells whether requests of a kind wait for nothing: they read a snapshot. The others wait for the store's writer.
func quick(k protocol.Kind) bool {
	switch k {
	case protocol.KindPromiseGet, protocol.KindTaskGet, protocol.KindScheduleGet, protocol.KindTaskExplain,
		protocol.KindPromiseSearch, protocol.KindTaskSearch, protocol.KindScheduleSearch:
		return true
	}
	return false
}

// free gives the slots of those that have left to others.
func (s *shares) free() {
	for i, w := range s.left {
		s.running--
		w.running--
		s.left[i] = nil
	}
	s.left = s.left[:0]
	for passed := s.turn; s.turn != nil && !s.full(); {
		next := s.turn
		s.turn = next.behind
		if !s.admits(next) {
			if s.turn == passed {
				return // each has been looked at
			}
			continue
		}
		t := next.waiting[0]
		s.dismiss(next, 0)
		s.running++
		next.running++
		close(t.let)
		passed = s.turn
	}
}

// afterOthers calls f when every goroutine that can run now has had its turn: one that yields goes behind all of them.
func afterOthers(f func()) {
	go func() {
		runtime.Gosched()
		f()
	}()
}

// admits tells whether one more request of w may run. While several workspaces are present, each may have a part of the
// slots that are left, so that whoever comes finds some free.
func (s *shares) admits(w *share) bool {
	return !s.contended() || !s.full() && w.running < max(1, (contendedSlots-s.running)/floodPart)
}

// contended tells whether several workspaces are present.
func (s *shares) contended() bool { return s.oldest != s.newest }

// others tells whether a workspace besides this one is present.
func (s *shares) others(workspace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contended() || s.oldest != nil && s.oldest.workspace != workspace
}

// full tells whether no slot is left.
func (s *shares) full() bool { return s.contended() && s.running >= contendedSlots }

// note finds the share of a workspace that sends a request, and forgets those that have sent none for long.
func (s *shares) note(workspace string) *share {
	s.seq++
	w := s.by[workspace]
	if w == nil {
		w = &share{workspace: workspace}
		s.by[workspace] = w
	} else if w != s.newest {
		s.unlink(w)
	}
	w.last = s.seq
	if w != s.newest {
		w.older, w.newer = s.newest, nil
		if s.newest != nil {
			s.newest.newer = w
		} else {
			s.oldest = w
		}
		s.newest = w
	}
	for o := s.oldest; o != w && o.in == 0 && (s.seq-o.last > presence || len(s.by) > maxPresent); o = s.oldest {
		s.unlink(o)
		delete(s.by, o.workspace)
	}
	return w
}

// unlink takes w out of the list by last requests.
func (s *shares) unlink(w *share) {
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		s.oldest = w.newer
	}
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		s.newest = w.older
	}
	w.older, w.newer = nil, nil
}

// wait puts t behind the waiting requests of w, and w behind the others that have any.
func (s *shares) wait(w *share, t *turn) {
	w.waiting = append(w.waiting, t)
	if len(w.waiting) > 1 {
		return
	}
	if s.turn == nil {
		s.turn, w.before, w.behind = w, w, w
		return
	}
	w.behind, w.before = s.turn, s.turn.before
	w.before.behind, w.behind.before = w, w
}

// dismiss takes the i-th waiting request of w away, and w out of the ring if it was the last.
func (s *shares) dismiss(w *share, i int) {
	copy(w.waiting[i:], w.waiting[i+1:])
	w.waiting[len(w.waiting)-1] = nil
	if w.waiting = w.waiting[:len(w.waiting)-1]; len(w.waiting) > 0 {
		return
	}
	w.waiting = nil
	if w.behind == w {
		s.turn = nil
	} else {
		w.before.behind, w.behind.before = w.behind, w.before
		if s.turn == w {
			s.turn = w.behind
		}
	}
	w.before, w.behind = nil, nil
}

// inFlight is how many requests are in, running and waiting.
func (s *shares) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in
}
