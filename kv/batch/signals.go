package batch

import (
	"slices"
	"sync"

	"abide/kv"
)

// subscribers are those who get the hints of commits.
type subscribers struct {
	mu   sync.Mutex
	next int
	list []subscriber // replaced, never changed in place
}

type subscriber struct {
	id int
	fn func([]kv.Signal)
}

// Signals subscribes fn; see kv.Store. fn may keep the slice but not change it. A call that is under way
// when stop is called may end after it.
func (s *Store) Signals(fn func([]kv.Signal)) (stop func()) {
	return s.subscribers.add(fn)
}

func (s *subscribers) add(fn func([]kv.Signal)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	id := s.next
	s.list = append(slices.Clone(s.list), subscriber{id, fn})
	return func() { s.remove(id) }
}

func (s *subscribers) remove(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(slices.Clone(s.list), func(e subscriber) bool { return e.id == id })
}

// send gives the signals of one commit to everybody.
func (s *subscribers) send(signals []kv.Signal) {
	if dropSignals || len(signals) == 0 {
		return
	}
	s.mu.Lock()
	list := s.list
	s.mu.Unlock()
	for _, e := range list {
		e.fn(signals)
	}
}

// travelling are those of the signals that others have a use for.
func travelling(signals []kv.Signal) []kv.Signal {
	isLocal := func(s kv.Signal) bool { return s.Local }
	if !slices.ContainsFunc(signals, isLocal) {
		return signals
	}
	return slices.DeleteFunc(slices.Clone(signals), isLocal) // the subscribers get them all
}

// coalescing collects signals, each once, in the order in which they first came.
type coalescing struct {
	seen map[kv.Signal]struct{}
	list []kv.Signal
}

// fewSignals is how many signals are compared one by one before a map is worth it.
const fewSignals = 8

func (c *coalescing) add(signals []kv.Signal) {
	for _, s := range signals {
		if c.seen == nil {
			if slices.Contains(c.list, s) {
				continue
			}
			if len(c.list) == fewSignals {
				c.seen = make(map[kv.Signal]struct{}, 4*fewSignals)
				for _, old := range c.list {
					c.seen[old] = struct{}{}
				}
			}
		}
		if c.seen != nil {
			if _, ok := c.seen[s]; ok {
				continue
			}
			c.seen[s] = struct{}{}
		}
		c.list = append(c.list, s)
	}
}

// take empties the collection and returns what was in it. The list is not used again.
func (c *coalescing) take() []kv.Signal {
	list := c.list
	*c = coalescing{}
	return list
}
