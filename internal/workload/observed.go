package workload

// The methods of this file are for a run in which the server does its internal steps by itself and somebody tells the
// model which it has done, and when: the journal does. They do the step if the model, too, finds it due.

// Expire persists that a promise's deadline has passed, with all that follows from it.
func (m *Model) Expire(workspace string, at int64, id string) {
	s, now := m.step(workspace, at)
	if p := s.promises[id]; p != nil && p.state == pending && p.timeoutAt <= now {
		p.state, p.settledAt = p.expired(), p.timeoutAt
		s.settled(now, id)
	}
}

// EndLease takes a task back whose lease has ended. When the lease ends is the server's word: heartbeats may have
// moved it in parts.
func (m *Model) EndLease(workspace string, at int64, id string) {
	s, now := m.step(workspace, at)
	if s.tasks[id] == nil || s.viewAt(now, id) != acquired {
		return
	}
	t := s.tasks[id]
	if now-t.claimedAt >= hastyMs {
		t.hasty = 0
	}
	t.idle(pending)
	s.dispatch(now, id)
}

// Occur runs a schedule up to and including its occurrence at the instant last.
func (m *Model) Occur(workspace string, at int64, id string, last int64) {
	s, now := m.step(workspace, at)
	if s.schedules[id] != nil {
		s.runSchedule(now, min(now, last), id)
	}
}

// step is the workspace and the instant of a step.
func (m *Model) step(workspace string, at int64) (*space, int64) {
	s := m.space(workspace)
	s.mark = max(s.mark, at)
	return s, at
}
