package machine

import (
	"fmt"

	"abide/protocol"
)

// The requests on tasks (spec: external, tasks). Guards come in the order of docs/machine.md section 3.

func (op *Op) taskGet(r *protocol.TaskGet) (protocol.Reply, error) {
	o, err := op.State.Object(r.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if o == nil || o.Task == nil {
		return taskUnknown, nil
	}
	return protocol.OK(protocol.TaskBody{Task: op.task(o)}), nil
}

// claimed is 200 with task, promise and preload; a task that reads as fulfilled comes without preload.
func (op *Op) claimed(o *Object) (protocol.Reply, error) {
	body := protocol.ClaimBody{Task: op.task(o)}
	var err error
	if body.Promise, err = op.promise(o); err != nil {
		return protocol.Reply{}, err
	}
	if body.Task.State != protocol.TaskFulfilled {
		if body.Preload, err = op.preload(o, claimPreloadCount, claimPreloadBytes); err != nil {
			return protocol.Reply{}, err
		}
	}
	return protocol.OK(body), nil
}

func (op *Op) taskCreate(r *protocol.TaskCreate) (protocol.Reply, error) {
	o, err := op.State.Object(r.Action.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if o == nil {
		o = op.birth(&r.Action, op.Now)
		if o.State == protocol.Pending {
			op.claim(o, r.PID, r.TTL)
		}
		if err := op.State.Put(o); err != nil {
			return protocol.Reply{}, err
		}
		return op.claimed(o)
	}
	if o.Task == nil {
		return protocol.Fail(protocol.StatusUnprocessable, "The promise exists and has no task"), nil
	}
	switch op.taskState(o) {
	case protocol.TaskFulfilled:
		return op.claimed(o)
	case protocol.TaskPending:
		op.claim(o, r.PID, r.TTL)
		if err := op.State.Put(o); err != nil {
			return protocol.Reply{}, err
		}
		return op.claimed(o)
	}
	return protocol.Fail(protocol.StatusConflict, fmt.Sprintf("The task exists and is %s", o.Task.State)), nil
}

func (op *Op) taskAcquire(r *protocol.TaskAcquire) (protocol.Reply, error) {
	o, refusal, err := op.held(r.ID, r.Version, protocol.TaskPending)
	if o == nil {
		return refusal, err
	}
	op.claim(o, r.PID, r.TTL)
	if err := op.State.Put(o); err != nil {
		return protocol.Reply{}, err
	}
	return op.claimed(o)
}

// held returns the object if its task reads as the wanted state at the given version, else the refusal:
// 404, or 409 with the reason.
func (op *Op) held(id string, version int64, want protocol.TaskState) (*Object, protocol.Reply, error) {
	o, err := op.State.Object(id)
	if err != nil {
		return nil, protocol.Reply{}, err
	}
	if o == nil || o.Task == nil {
		return nil, taskUnknown, nil
	}
	if state := op.taskState(o); state != want {
		return nil, protocol.Fail(protocol.StatusConflict, fmt.Sprintf("Task is %s, not %s", state, want)), nil
	}
	if o.Task.Version != version {
		return nil, protocol.Fail(protocol.StatusConflict,
			fmt.Sprintf("Task is at version %d, not %d", o.Task.Version, version)), nil
	}
	return o, protocol.Reply{}, nil
}

func (op *Op) taskFence(r *protocol.TaskFence) (protocol.Reply, error) {
	o, refusal, err := op.held(r.ID, r.Version, protocol.TaskAcquired)
	if o == nil {
		return refusal, err
	}
	body := protocol.FenceBody{}
	if r.Create != nil {
		body.ActionKind = protocol.KindPromiseCreate
		body.Action, err = op.promiseCreate(r.Create)
	} else {
		body.ActionKind = protocol.KindPromiseSettle
		body.Action, err = op.promiseSettle(r.Settle)
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	if body.Preload, err = op.preload(o, fencePreloadCount, fencePreloadBytes); err != nil {
		return protocol.Reply{}, err
	}
	return protocol.OK(body), nil
}

func (op *Op) taskSuspend(r *protocol.TaskSuspend) (protocol.Reply, error) {
	o, awaited, reply, err := op.toAwait(r, r.Awaited)
	if o == nil {
		return reply, err
	}
	if err := op.await(o, awaited); err != nil {
		return protocol.Reply{}, err
	}
	return op.suspend(o)
}

// toAwait checks the guards of a suspend that names some ids. It returns the task and the awaited promises,
// each once and all alive; or no task and the reply, if that is decided.
func (op *Op) toAwait(r *protocol.TaskSuspend, ids []string) (o *Object, awaited []*Object, reply protocol.Reply, err error) {
	if o, reply, err = op.held(r.ID, r.Version, protocol.TaskAcquired); o == nil {
		return nil, nil, reply, err
	}
	seen := make(map[string]bool, len(ids))
	awaited = make([]*Object, 0, len(ids))
	ready := false
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		a, err := op.State.Object(id)
		if err != nil {
			return nil, nil, protocol.Reply{}, err
		}
		if a == nil {
			return nil, nil, protocol.Fail(protocol.StatusUnprocessable, "An awaited promise does not exist"), nil
		}
		ready = ready || !op.alive(a)
		awaited = append(awaited, a)
	}
	if ready {
		reply, err = op.staysAwake(o)
		return nil, nil, reply, err
	}
	return o, awaited, protocol.Reply{}, nil
}

func (op *Op) await(o *Object, awaited []*Object) error {
	for _, a := range awaited {
		if err := op.wait(a, Waiter{a.ID, WaiterCallback, o.ID}); err != nil {
			return err
		}
	}
	return nil
}

func (op *Op) suspend(o *Object) (protocol.Reply, error) {
	unclaim(o.Task, protocol.TaskSuspended)
	o.Task.Resumes, o.Task.Hasty = 0, 0
	return empty, op.State.Put(o)
}

// SuspendPart is a part of a suspend whose callbacks together are too large for one transaction: it checks the
// guards for the given ids and registers their callbacks, and the task stays acquired. A callback too many is
// harmless: at most it resumes a task that would have been resumed. With no ids to register the guards alone are
// checked, for all awaited. answered reports that the reply is decided.
func (op *Op) SuspendPart(r *protocol.TaskSuspend, ids []string) (reply protocol.Reply, answered bool, err error) {
	check := ids
	if len(ids) == 0 {
		check = r.Awaited
	}
	if err := op.State.Load(check); err != nil {
		return protocol.Reply{}, false, err
	}
	o, awaited, reply, err := op.toAwait(r, check)
	if o == nil || len(ids) == 0 {
		return reply, o == nil, err
	}
	return protocol.Reply{}, false, op.await(o, awaited)
}

// SuspendRegistered is the last part of such a suspend: all guards again, then the task is suspended. The
// callbacks of promises that are still alive are still there: only a settlement removes one.
func (op *Op) SuspendRegistered(r *protocol.TaskSuspend) (protocol.Reply, error) {
	if err := op.State.Load(r.Awaited); err != nil {
		return protocol.Reply{}, err
	}
	o, _, reply, err := op.toAwait(r, r.Awaited)
	if o == nil {
		return reply, err
	}
	return op.suspend(o)
}

// staysAwake answers a suspend that awaits something settled: 300, the task stays acquired.
func (op *Op) staysAwake(o *Object) (protocol.Reply, error) {
	if o.Task.Resumes > 0 {
		o.Task.Resumes = 0
		if err := op.State.Put(o); err != nil {
			return protocol.Reply{}, err
		}
	}
	preload, err := op.preload(o, claimPreloadCount, claimPreloadBytes)
	return protocol.Reply{Status: protocol.StatusPreload, Body: protocol.PreloadBody{Preload: preload}}, err
}

func (op *Op) taskFulfill(r *protocol.TaskFulfill) (protocol.Reply, error) {
	o, refusal, err := op.held(r.ID, r.Version, protocol.TaskAcquired)
	if o == nil {
		return refusal, err
	}
	if err := op.settle(o, r.Action.State, r.Action.Value); err != nil {
		return protocol.Reply{}, err
	}
	return op.answer(o)
}

func (op *Op) taskRelease(r *protocol.TaskRelease) (protocol.Reply, error) {
	o, refusal, err := op.held(r.ID, r.Version, protocol.TaskAcquired)
	if o == nil {
		return refusal, err
	}
	if op.Now-o.Task.ClaimedAt < hastyWithinMs {
		o.Task.Hasty++
	} else {
		o.Task.Hasty = 0
	}
	unclaim(o.Task, protocol.TaskPending)
	if o.Task.Hasty >= hastyFrom {
		// An SDK that meets a permanent error releases at once and would spin: make it wait.
		o.Task.RetryAt = add(op.Now, hastyPauseMs(o.Task.Hasty))
	} else {
		op.dispatch(o)
	}
	return empty, op.State.Put(o)
}

// hastyPauseMs is how long the dispatch after the n-th hasty release in a row waits; n >= hastyFrom.
func hastyPauseMs(n int64) int64 {
	pause := int64(hastyFirstMs)
	for ; n > hastyFrom && pause < hastyMaxMs; n-- {
		pause *= 2
	}
	return min(pause, hastyMaxMs)
}

func (op *Op) taskHalt(r *protocol.TaskHalt) (protocol.Reply, error) {
	o, err := op.State.Object(r.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if o == nil || o.Task == nil {
		return taskUnknown, nil
	}
	switch op.taskState(o) {
	case protocol.TaskFulfilled:
		return protocol.Fail(protocol.StatusConflict, "Task is fulfilled"), nil
	case protocol.TaskHalted:
		return empty, nil
	}
	unclaim(o.Task, protocol.TaskHalted)
	return empty, op.State.Put(o)
}

func (op *Op) taskContinue(r *protocol.TaskContinue) (protocol.Reply, error) {
	o, err := op.State.Object(r.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if o == nil || o.Task == nil {
		return taskUnknown, nil
	}
	if state := op.taskState(o); state != protocol.TaskHalted {
		return protocol.Fail(protocol.StatusConflict, fmt.Sprintf("Task is %s, not halted", state)), nil
	}
	o.Task.State = protocol.TaskPending
	o.Task.Hasty = 0
	op.dispatch(o)
	return empty, op.State.Put(o)
}

// Lease judges a heartbeat of pid for one task. kept is false if the task is not (or no longer) held by that
// pid at that version; version < 0 stands for any claim since ClaimedSince (the empty heartbeat, which names
// a pid alone). leaseAt is where the lease must be moved to, 0 if it stays: one that already reaches past its
// promise's deadline can never expire first.
func (op *Op) Lease(id, pid string, version int64) (kept bool, leaseAt int64, err error) {
	o, err := op.State.Object(id)
	if err != nil || o == nil || o.Task == nil {
		return false, 0, err
	}
	t := o.Task
	if op.taskState(o) != protocol.TaskAcquired || t.PID != pid {
		return false, 0, nil
	}
	if (version >= 0 && t.Version != version) || (version < 0 && t.ClaimedAt < op.ClaimedSince) {
		return false, 0, nil
	}
	if at := add(op.Now, t.TTL); t.LeaseAt < o.TimeoutAt && at > t.LeaseAt {
		return true, at, nil
	}
	return true, 0, nil
}

// Renew is Lease with its effect: one record is written if the lease moves, and no index entry.
func (op *Op) Renew(id, pid string, version int64) (kept bool, err error) {
	kept, leaseAt, err := op.Lease(id, pid, version)
	if err != nil || leaseAt == 0 {
		return kept, err
	}
	o, err := op.State.Object(id)
	if err != nil {
		return false, err
	}
	o.Task.LeaseAt = leaseAt
	return true, op.State.Put(o)
}
