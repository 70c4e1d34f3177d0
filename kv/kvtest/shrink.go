package kvtest

import "slices"

// maxShrinkRuns bounds how often a failing history is tried again while it is cut down.
const maxShrinkRuns = 2000

// shrinker cuts a history down as long as what is left still fails.
type shrinker struct {
	run    func(history) error
	left   int
	best   history
	reason error
}

// shrink returns the shortest history found that run still fails, and how it fails. failure is how h does.
func shrink(h history, failure error, run func(history) error) (history, error) {
	s := &shrinker{run: run, left: maxShrinkRuns, best: h, reason: failure}
	for {
		before := s.best.operations()
		s.cutStatements()
		s.cutOperations()
		if s.best.operations() == before {
			break
		}
	}
	s.simplify()
	return s.best, s.reason
}

// try keeps a candidate if it fails.
func (s *shrinker) try(h history) bool {
	if s.left == 0 {
		return false
	}
	s.left--
	err := s.run(h)
	if err == nil {
		return false
	}
	s.best, s.reason = h, err
	return true
}

// cut removes as much of a list of n as it can, in pieces that get smaller. try is given what to leave out and
// says whether that was accepted.
func cut(n int, try func(from, to int) bool) {
	for size := (n + 1) / 2; size > 0; size /= 2 {
		for from := n - size; from > -size; from -= size {
			first := max(0, from)
			if last := first + size; last <= n && try(first, last) {
				n -= last - first
			}
		}
	}
}

func (s *shrinker) cutStatements() {
	cut(len(s.best), func(from, to int) bool {
		return s.try(slices.Delete(slices.Clone(s.best), from, to))
	})
}

// cutOperations does the same inside each statement.
func (s *shrinker) cutOperations() {
	for i := len(s.best) - 1; i >= 0; i-- {
		cut(len(s.best[i].body), func(from, to int) bool {
			return s.try(s.best.with(i, func(st *statement) { st.body = slices.Delete(st.body, from, to) }))
		})
		for j := len(s.best[i].body) - 1; j >= 0; j-- {
			nested := s.best[i].body[j].nested
			if nested == nil {
				continue
			}
			cut(len(nested.body), func(from, to int) bool {
				return s.try(s.best.with(i, func(st *statement) {
					st.body[j].nested.body = slices.Delete(st.body[j].nested.body, from, to)
				}))
			})
		}
	}
}

// simplify makes what is left easier to read.
func (s *shrinker) simplify() {
	for i := range s.best {
		for j := range s.best[i].body {
			if len(s.best[i].body[j].value) > 1 {
				s.try(s.best.with(i, func(st *statement) { st.body[j].value = "v" }))
			}
			if key := s.best[i].body[j].key; len(key) > 8 {
				s.try(s.best.with(i, func(st *statement) { st.body[j].key = key[:8] }))
			}
		}
	}
}

// with is a copy of a history in which one statement is changed.
func (h history) with(i int, change func(*statement)) history {
	c := slices.Clone(h)
	c[i].body = slices.Clone(c[i].body)
	for j, op := range c[i].body {
		if op.nested != nil {
			nested := *op.nested
			nested.body = slices.Clone(nested.body)
			c[i].body[j].nested = &nested
		}
	}
	change(&c[i])
	return c
}
