package workload

import (
	"abide/protocol"
)

// isTimer, isTargeted and isExternal are the three words of section 1.
func (p *promise) isTimer() bool { return p.tags["resonate:timer"] == "true" }

func (p *promise) isTargeted() bool {
	_, has := p.tags["resonate:target"]
	return has && !p.isTimer()
}

func (p *promise) isExternal() bool {
	return p.isTargeted() || p.isTimer() || p.tags["resonate:external"] == "true"
}

// expired is what a promise becomes at its deadline.
func (p *promise) expired() string {
	if p.isTimer() {
		return resolved
	}
	return timedout
}

// stateAt is the projection of section 2: the timeout always wins.
func (p *promise) stateAt(now int64) string {
	if p.state == pending && p.timeoutAt <= now {
		return p.expired()
	}
	return p.state
}

func (p *promise) pendingAt(now int64) bool { return p.stateAt(now) == pending }

func (s *space) promiseGet(now int64, id string) Answer {
	p := s.promises[id]
	if p == nil {
		return fail(protocol.StatusNotFound)
	}
	return ok(object{"promise": p.record(id, now)})
}

func (s *space) promiseCreate(now int64, r *protocol.PromiseCreate) Answer {
	if s.promises[r.ID] == nil {
		s.birth(now, now, r)
	}
	return s.promiseGet(now, r.ID)
}

// birth makes a promise, and its task if it is targeted. Born is the instant of the birth; the clock may
// already be further on, for the occurrences of schedules alone.
func (s *space) birth(born, now int64, r *protocol.PromiseCreate) *promise {
	p := newPromise(r)
	s.promises[r.ID] = p
	p.createdAt = born
	if p.timeoutAt <= now {
		p.state, p.settledAt = p.expired(), p.timeoutAt
		p.createdAt = min(born, p.timeoutAt)
		if p.isTargeted() {
			s.tasks[r.ID] = &task{state: fulfilled}
		}
		return p
	}
	if p.isTargeted() {
		t := &task{state: pending}
		s.tasks[r.ID] = t
		if delay, delayed := p.tags["resonate:delay"]; delayed {
			if at, _ := delayOf(delay); at > born {
				t.retryAt = at
				return p
			}
		}
		s.dispatch(now, r.ID)
	}
	return p
}

func newPromise(r *protocol.PromiseCreate) *promise {
	return &promise{
		state:     pending,
		param:     string(r.Param),
		tags:      asMap(r.Tags),
		timeoutAt: r.TimeoutAt,
		callbacks: map[string]bool{},
		listeners: map[string]bool{},
	}
}

func (s *space) promiseSettle(now int64, r *protocol.PromiseSettle) Answer {
	p := s.promises[r.ID]
	if p == nil {
		return fail(protocol.StatusNotFound)
	}
	if p.pendingAt(now) {
		s.settle(now, r)
	}
	return s.promiseGet(now, r.ID)
}

func (s *space) settle(now int64, r *protocol.PromiseSettle) {
	p := s.promises[r.ID]
	p.state, p.value, p.settledAt = string(r.State), string(r.Value), now
	s.settled(now, r.ID)
}

// settled is what follows in the transaction that has settled a promise: its task is fulfilled, who waits is
// resumed, who listens is told.
func (s *space) settled(now int64, id string) {
	p := s.promises[id]
	s.draining = s.draining || len(p.callbacks)+len(p.listeners) > wholeDrain
	if t := s.tasks[id]; t != nil {
		*t = task{state: fulfilled, version: t.version}
		delete(s.executes, id)
	}
	for awaiter := range p.callbacks {
		s.resume(now, awaiter)
	}
	for address := range p.listeners {
		s.unblocks[unblock{id, address}] = true
	}
	clear(p.callbacks)
	clear(p.listeners)
}

func (s *space) registerCallback(now int64, awaited, awaiter string) Answer {
	p, a := s.promises[awaited], s.promises[awaiter]
	switch {
	case p == nil:
		return fail(protocol.StatusNotFound)
	case a == nil, !a.isTargeted():
		return fail(protocol.StatusUnprocessable)
	}
	if p.pendingAt(now) && a.pendingAt(now) {
		p.callbacks[awaiter] = true
		p.waited = true
	}
	return s.promiseGet(now, awaited)
}

func (s *space) registerListener(now int64, awaited, address string) Answer {
	p := s.promises[awaited]
	if p == nil {
		return fail(protocol.StatusNotFound)
	}
	if p.pendingAt(now) {
		p.listeners[address] = true
		p.waited = true
	}
	return s.promiseGet(now, awaited)
}
