package machine

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"abide/protocol"
)

// birth makes the object of a promise.create at instant now, which for a schedule's occurrence is the
// scheduled instant and may lie before op.Now. It writes nothing.
// (spec: createPromise, and enqueue of a new task, in one transaction)
func (op *Op) birth(c *protocol.PromiseCreate, now int64) *Object {
	o := &Object{
		ID:        c.ID,
		State:     protocol.Pending,
		Param:     inline(c.Param),
		Tags:      c.Tags,
		TimeoutAt: c.TimeoutAt,
		CreatedAt: now,
	}
	if IsTargeted(c.Tags) {
		o.Task, o.Trace = &Task{State: protocol.TaskPending}, c.Trace
	}
	if c.TimeoutAt <= now {
		o.CreatedAt = c.TimeoutAt
		op.expire(o)
		return o
	}
	if o.Task == nil {
		return o
	}
	if at, ok := delay(c.Tags); ok && at > now {
		o.Task.RetryAt = at
		return o
	}
	op.dispatch(o)
	return o
}

// delay is the instant of the resonate:delay tag; validation has checked its form.
func delay(tags protocol.Tags) (at int64, ok bool) {
	v, ok := tags.Get(protocol.TagDelay)
	if !ok {
		return 0, false
	}
	at, err := strconv.ParseInt(v, 10, 64)
	return at, err == nil
}

func inline(v protocol.Value) Payload { return Payload{Inline: v, Size: int64(len(v))} }

// expire turns a pending object into what its deadline makes of it, without draining its waiters.
func (op *Op) expire(o *Object) {
	o.State = timeoutState(o.Tags)
	o.SettledAt = o.TimeoutAt
	fulfillTask(o)
}

func fulfillTask(o *Object) {
	if o.Task != nil {
		*o.Task = Task{State: protocol.TaskFulfilled, Version: o.Task.Version}
	}
}

// settle settles a pending object by request and drains its waiters. (spec: settlement)
func (op *Op) settle(o *Object, state protocol.PromiseState, value protocol.Value) error {
	o.State = state
	o.Value = inline(value)
	o.SettledAt = op.Now
	fulfillTask(o)
	return op.settled(o)
}

// settled writes an object that has just become settled and drains its waiters, as many as one transaction
// may; a rest becomes a drain obligation.
func (op *Op) settled(o *Object) error {
	if err := op.State.Put(o); err != nil {
		return err
	}
	if !o.Waited {
		return nil // nobody ever registered: nothing to look for
	}
	waiters, last, err := op.nextWaiters(o)
	switch {
	case errors.Is(err, ErrInvariant):
		// A damaged waiter keeps no promise from being settled. Nothing has been drained; whoever works the
		// obligation off sets the row aside.
		return op.State.SetDraining(o.ID, true)
	case err != nil:
		return err
	}
	left, err := op.wake(o, waiters)
	if err != nil || (last && left == 0) {
		return err
	}
	return op.State.SetDraining(o.ID, true)
}

// drain removes the next waiters of a settled object. It reports whether none are left. (spec: settlement
// scrub)
func (op *Op) drain(o *Object) (done bool, err error) {
	waiters, last, err := op.nextWaiters(o)
	if err != nil {
		return false, err
	}
	left, err := op.wake(o, waiters)
	return last && left == 0, err
}

// nextWaiters reads the waiters that one transaction may drain, with the tasks that they resume; last: there are
// no others. It changes nothing.
func (op *Op) nextWaiters(o *Object) (waiters []Waiter, last bool, err error) {
	waiters, err = op.State.Waiters(o.ID, drainWaiters+1)
	if err != nil {
		return nil, false, err
	}
	if last = len(waiters) <= drainWaiters; !last {
		waiters = waiters[:drainWaiters]
	}
	awaiters := make([]string, 0, len(waiters))
	for _, w := range waiters {
		if w.Kind == WaiterCallback {
			awaiters = append(awaiters, w.To)
		}
	}
	return waiters, last, op.State.Load(awaiters)
}

// wake drains waiters until one transaction has rewritten enough: each callback is removed and resumes its task,
// each listener is removed and turns into an unblock message. It returns how many are left.
func (op *Op) wake(o *Object, waiters []Waiter) (left int, err error) {
	bytes := int64(0)
	for i, w := range waiters {
		if bytes > drainBytes {
			return len(waiters) - i, nil
		}
		if err := op.State.DeleteWaiter(w); err != nil {
			return 0, err
		}
		if w.Kind == WaiterListener {
			err = op.State.PutUnblock(Unblock{ID: o.ID, Address: w.To, DueAt: op.Now})
			bytes += int64(len(w.To) + len(o.ID))
		} else {
			var n int64
			n, err = op.resume(w.To)
			bytes += n
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// resume tells an awaiting task that one of the promises it waited for has settled, and returns about how
// many bytes that rewrote. (spec: resume)
func (op *Op) resume(awaiter string) (bytes int64, err error) {
	o, err := op.State.Object(awaiter)
	if err != nil || o == nil || o.Task == nil {
		return 0, err
	}
	switch op.taskState(o) {
	case protocol.TaskFulfilled:
		return 0, nil
	case protocol.TaskSuspended:
		o.Task.State = protocol.TaskPending
		o.Task.Resumes = 1
		op.dispatch(o)
	default:
		o.Task.Resumes++
	}
	o.Task.Hasty = 0
	return o.recordBytes(), op.State.Put(o)
}

// recordBytes is about the size of the object's record.
func (o *Object) recordBytes() int64 {
	n := int64(len(o.ID)+len(o.Param.Inline)+len(o.Value.Inline)) + 100
	for _, t := range o.Tags {
		n += int64(len(t.Name) + len(t.Value))
	}
	return n
}

// dispatch queues the execute of a pending task, now. While it is queued no timer is armed; RetryAt is
// what the specification would show. The caller puts the object.
func (op *Op) dispatch(o *Object) {
	o.Task.Queued = true
	o.Task.RetryAt = add(op.Now, op.Config.RetryTimeoutMs)
}

// claim hands the task to a worker: the only place where a version changes. The caller puts the object.
func (op *Op) claim(o *Object, pid string, ttlMs int64) {
	lease := add(op.Now, ttlMs)
	*o.Task = Task{
		State:     protocol.TaskAcquired,
		Version:   o.Task.Version + 1,
		PID:       pid,
		TTL:       ttlMs,
		LeaseAt:   lease,
		ArmedAt:   lease,
		ClaimedAt: op.Now,
		Hasty:     o.Task.Hasty,
	}
}

// unclaim takes a task from its worker, or out of its queue, into the given state, keeping what outlives a
// claim.
func unclaim(t *Task, state protocol.TaskState) {
	*t = Task{State: state, Version: t.Version, Resumes: t.Resumes, ClaimedAt: t.ClaimedAt, Hasty: t.Hasty}
}

// promise is the object as an answer shows it: projected, with whole payloads.
func (op *Op) promise(o *Object) (protocol.Promise, error) {
	p := protocol.Promise{
		ID: o.ID, State: o.State, Tags: o.Tags,
		TimeoutAt: o.TimeoutAt, CreatedAt: o.CreatedAt, SettledAt: o.SettledAt,
	}
	if expired(o, op.Now) {
		op.Projected = true
		p.State, p.SettledAt = timeoutState(o.Tags), o.TimeoutAt
	}
	var err error
	if p.Param, err = op.payload(o, &o.Param); err != nil {
		return p, err
	}
	p.Value, err = op.payload(o, &o.Value)
	return p, err
}

func (op *Op) payload(o *Object, p *Payload) (protocol.Value, error) {
	if p.Ref == "" || p.Inline != nil {
		return p.Inline, nil
	}
	return op.State.Payload(o, p)
}

// task is the object's task as an answer shows it.
func (op *Op) task(o *Object) protocol.Task {
	t := o.Task
	if op.taskState(o) == protocol.TaskFulfilled {
		return protocol.Task{ID: o.ID, State: protocol.TaskFulfilled, Version: t.Version}
	}
	return protocol.Task{
		ID: o.ID, State: t.State, Version: t.Version, Resumes: t.Resumes, TTL: t.TTL, PID: t.PID,
	}
}

// preload is what a worker's cache is seeded with: the promises that share the task's branch, without the
// task's own, ascending by id, bounded. A hint: bounding it is always safe.
func (op *Op) preload(o *Object, maxCount int, maxBytes int64) ([]protocol.Promise, error) {
	branch, ok := o.Tags.Get(protocol.TagBranch)
	if !ok {
		return nil, nil
	}
	page, err := op.State.Enumerate(Path{Kind: PathBranch, Value: branch}, "", maxCount+1)
	if err != nil {
		return nil, err
	}
	out := make([]protocol.Promise, 0, len(page.Objects))
	bytes := int64(0)
	for _, other := range page.Objects {
		if b, _ := other.Tags.Get(protocol.TagBranch); other.ID == o.ID || b != branch {
			continue
		}
		bytes += other.recordBytes() + other.Param.Size + other.Value.Size
		if len(out) == maxCount || bytes > maxBytes {
			break
		}
		p, err := op.promise(other)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b protocol.Promise) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}
