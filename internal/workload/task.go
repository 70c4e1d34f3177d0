package workload

import (
	"abide/protocol"
)

const (
	hastyMs     = 1000 // a claim that is released earlier was released in haste
	hastyFree   = 3    // so many in a row cost nothing
	hastyBaseMs = 100
	hastyMaxMs  = 5000
)

// viewAt is the task's state as section 2 has it: a settled promise has a fulfilled task.
func (s *space) viewAt(now int64, id string) string {
	if !s.promises[id].pendingAt(now) {
		return fulfilled
	}
	return s.tasks[id].state
}

// dispatch makes a pending task known to workers, now.
func (s *space) dispatch(now int64, id string) {
	t := s.tasks[id]
	s.executes[id] = t.version
	t.retryAt = plus(now, s.retryMs)
}

// idle takes a task out of a worker's hands.
func (t *task) idle(state string) {
	t.state, t.pid, t.ttl, t.lease, t.retryAt = state, "", 0, 0, 0
}

func (s *space) claim(now int64, id, pid string, ttl int64) {
	t := s.tasks[id]
	t.state = acquired
	t.version++
	t.pid, t.ttl, t.lease = pid, ttl, plus(now, ttl)
	t.retryAt, t.resumes = 0, 0
	t.claimedAt = now
	delete(s.executes, id)
}

// resume tells a task that something it awaits has settled.
func (s *space) resume(now int64, id string) {
	t := s.tasks[id]
	switch s.viewAt(now, id) {
	case suspended:
		t.idle(pending)
		t.resumes = 1
		t.hasty = 0
		s.dispatch(now, id)
	case pending, acquired, halted:
		t.resumes++
		t.hasty = 0
	}
}

func (s *space) taskGet(now int64, id string) Answer {
	if s.tasks[id] == nil {
		return fail(protocol.StatusNotFound)
	}
	return ok(object{"task": s.taskRecord(id, now)})
}

func (s *space) taskCreate(now int64, r *protocol.TaskCreate) Answer {
	id := r.Action.ID
	p := s.promises[id]
	switch {
	case p == nil && r.Action.TimeoutAt > now:
		p = newPromise(&r.Action)
		p.createdAt = now
		s.promises[id] = p
		s.tasks[id] = &task{}
		s.claim(now, id, r.PID, r.TTL)
		return ok(s.claimed(now, id))
	case p == nil:
		s.birth(now, now, &r.Action)
		return ok(s.over(now, id))
	case !p.isTargeted():
		return fail(protocol.StatusUnprocessable)
	}
	switch s.viewAt(now, id) {
	case fulfilled:
		return ok(s.over(now, id))
	case pending:
		s.claim(now, id, r.PID, r.TTL)
		return ok(s.claimed(now, id))
	default:
		return fail(protocol.StatusConflict)
	}
}

// claimed is the data of a claim.
func (s *space) claimed(now int64, id string) object {
	return object{"task": s.taskRecord(id, now), "promise": s.promises[id].record(id, now), "preload": s.preload(now, id)}
}

// over is the data of a task.create for a task that is fulfilled.
func (s *space) over(now int64, id string) object {
	return object{"task": s.taskRecord(id, now), "promise": s.promises[id].record(id, now), "preload": []any{}}
}

func (s *space) taskAcquire(now int64, r *protocol.TaskAcquire) Answer {
	t := s.tasks[r.ID]
	switch {
	case t == nil:
		return fail(protocol.StatusNotFound)
	case s.viewAt(now, r.ID) != pending, t.version != r.Version:
		return fail(protocol.StatusConflict)
	}
	s.claim(now, r.ID, r.PID, r.TTL)
	return ok(s.claimed(now, r.ID))
}

// held checks what a worker that holds a task must show: 0, or the status that refuses.
func (s *space) held(now int64, id string, version int64) int {
	t := s.tasks[id]
	switch {
	case t == nil:
		return protocol.StatusNotFound
	case s.viewAt(now, id) != acquired, t.version != version:
		return protocol.StatusConflict
	}
	return 0
}

func (s *space) taskFence(now int64, r *protocol.TaskFence) Answer {
	if status := s.held(now, r.ID, r.Version); status != 0 {
		return fail(status)
	}
	var inner Answer
	var kind protocol.Kind
	if r.Create != nil {
		kind, inner = protocol.KindPromiseCreate, s.promiseCreate(now, r.Create)
	} else {
		kind, inner = protocol.KindPromiseSettle, s.promiseSettle(now, r.Settle)
	}
	return ok(object{
		"action": object{
			"kind": string(kind),
			"head": object{"corrId": corrID, "status": int64(inner.Status), "version": protocol.Version},
			"data": inner.Data,
		},
		"preload": s.preload(now, r.ID),
	})
}

func (s *space) taskHeartbeat(now int64, r *protocol.TaskHeartbeat) Answer {
	if len(r.Tasks) == 0 {
		for id, t := range s.tasks {
			if s.viewAt(now, id) == acquired && t.pid == r.PID {
				t.lease = plus(now, t.ttl)
			}
		}
		return ok(empty())
	}
	lost := []any{}
	for _, ref := range r.Tasks {
		if s.held(now, ref.ID, ref.Version) == 0 && s.tasks[ref.ID].pid == r.PID {
			s.tasks[ref.ID].lease = plus(now, s.tasks[ref.ID].ttl)
		} else {
			lost = append(lost, ref.ID)
		}
	}
	if len(lost) == 0 {
		return ok(empty())
	}
	return ok(object{"lost": lost})
}

func (s *space) taskSuspend(now int64, r *protocol.TaskSuspend) Answer {
	if status := s.held(now, r.ID, r.Version); status != 0 {
		return fail(status)
	}
	t := s.tasks[r.ID]
	goOn := false
	for _, awaited := range r.Awaited {
		p := s.promises[awaited]
		if p == nil {
			return fail(protocol.StatusUnprocessable)
		}
		goOn = goOn || !p.pendingAt(now)
	}
	t.resumes = 0
	if goOn {
		return Answer{protocol.StatusPreload, object{"preload": s.preload(now, r.ID)}}
	}
	for _, awaited := range r.Awaited {
		s.promises[awaited].callbacks[r.ID] = true
		s.promises[awaited].waited = true
	}
	t.idle(suspended)
	t.hasty = 0
	return ok(empty())
}

func (s *space) taskFulfill(now int64, r *protocol.TaskFulfill) Answer {
	if status := s.held(now, r.ID, r.Version); status != 0 {
		return fail(status)
	}
	s.settle(now, &r.Action)
	return s.promiseGet(now, r.ID)
}

func (s *space) taskRelease(now int64, r *protocol.TaskRelease) Answer {
	if status := s.held(now, r.ID, r.Version); status != 0 {
		return fail(status)
	}
	t := s.tasks[r.ID]
	if now-t.claimedAt < hastyMs {
		t.hasty++
	} else {
		t.hasty = 0
	}
	t.idle(pending)
	if t.hasty <= hastyFree {
		s.dispatch(now, r.ID)
		return ok(empty())
	}
	wait := int64(hastyBaseMs)
	for n := hastyFree + 1; n < t.hasty && wait < hastyMaxMs; n++ {
		wait *= 2
	}
	t.retryAt = plus(now, min(wait, hastyMaxMs))
	return ok(empty())
}

func (s *space) taskHalt(now int64, id string) Answer {
	t := s.tasks[id]
	if t == nil {
		return fail(protocol.StatusNotFound)
	}
	if s.viewAt(now, id) == fulfilled {
		return fail(protocol.StatusConflict)
	}
	t.idle(halted)
	delete(s.executes, id)
	return ok(empty())
}

func (s *space) taskContinue(now int64, id string) Answer {
	t := s.tasks[id]
	if t == nil {
		return fail(protocol.StatusNotFound)
	}
	if s.viewAt(now, id) != halted {
		return fail(protocol.StatusConflict)
	}
	t.idle(pending)
	t.hasty = 0
	s.dispatch(now, id)
	return ok(empty())
}
