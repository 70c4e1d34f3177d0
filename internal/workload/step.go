package workload

import (
	"maps"
	"slices"
)

// tick is one pass of the internal steps, in the order of section 4. The model drains whole at once, so no
// drain is ever left open here.
func (s *space) tick(now int64) {
	for _, id := range ids(s.promises) {
		p := s.promises[id]
		if p.armed() && p.timeoutAt <= now {
			p.state, p.settledAt = p.expired(), p.timeoutAt
			s.settled(now, id)
		}
	}
	for _, id := range ids(s.tasks) {
		if s.viewAt(now, id) == pending && s.tasks[id].retryAt <= now {
			s.dispatch(now, id)
		}
	}
	for _, id := range ids(s.tasks) {
		if t := s.tasks[id]; s.viewAt(now, id) == acquired && t.lease <= now {
			if now-t.claimedAt >= hastyMs {
				t.hasty = 0
			}
			t.idle(pending)
			s.dispatch(now, id)
		}
	}
	s.draining = false
	for _, id := range ids(s.schedules) {
		s.runSchedule(now, now, id)
	}
}

// armed tells whether a promise's timeout fires by itself.
func (p *promise) armed() bool { return p.state == pending && (p.isExternal() || p.waited) }

func ids[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
