package machine

import (
	"fmt"

	"abide/protocol"
)

// Replies whose text never varies.
var (
	promiseUnknown = protocol.Fail(protocol.StatusNotFound, "Promise not found")
	taskUnknown    = protocol.Fail(protocol.StatusNotFound, "Task not found")
	empty          = protocol.OK(protocol.EmptyBody{})
)

// Writes reports whether a request of that kind may change anything. Those that do not are answered from
// a read transaction. (debug.* and the searches are not the machine's to route; task.heartbeat has its own
// path, Renew.)
func Writes(k protocol.Kind) bool {
	switch k {
	case protocol.KindPromiseGet, protocol.KindTaskGet, protocol.KindScheduleGet,
		protocol.KindPromiseSearch, protocol.KindTaskSearch, protocol.KindScheduleSearch,
		protocol.KindDebugSnap:
		return false
	}
	return true
}

// Names returns the ids of the objects that a request names, to be loaded together.
func Names(r protocol.Request) []string {
	switch r := r.(type) {
	case *protocol.PromiseGet:
		return []string{r.ID}
	case *protocol.PromiseCreate:
		return []string{r.ID}
	case *protocol.PromiseSettle:
		return []string{r.ID}
	case *protocol.PromiseRegisterCallback:
		return []string{r.Awaited, r.Awaiter}
	case *protocol.PromiseRegisterListener:
		return []string{r.Awaited}
	case *protocol.TaskGet:
		return []string{r.ID}
	case *protocol.TaskCreate:
		return []string{r.Action.ID}
	case *protocol.TaskAcquire:
		return []string{r.ID}
	case *protocol.TaskFence:
		if r.Create != nil {
			return []string{r.ID, r.Create.ID}
		}
		return []string{r.ID, r.Settle.ID}
	case *protocol.TaskSuspend:
		return append([]string{r.ID}, r.Awaited...)
	case *protocol.TaskFulfill:
		return []string{r.ID}
	case *protocol.TaskRelease:
		return []string{r.ID}
	case *protocol.TaskHalt:
		return []string{r.ID}
	case *protocol.TaskContinue:
		return []string{r.ID}
	}
	return nil
}

// Apply performs one request: guards in the order of docs/machine.md section 3, then the effect, then
// the answer. An error comes from the State alone. task.heartbeat and debug.* are not requests of one
// operation (see Renew and the engine) and are answered 501 here.
func (op *Op) Apply(r protocol.Request) (protocol.Reply, error) {
	if names := Names(r); len(names) > 1 {
		if err := op.State.Load(names); err != nil {
			return protocol.Reply{}, err
		}
	}
	switch r := r.(type) {
	case *protocol.PromiseGet:
		return op.promiseGet(r)
	case *protocol.PromiseCreate:
		return op.promiseCreate(r)
	case *protocol.PromiseSettle:
		return op.promiseSettle(r)
	case *protocol.PromiseRegisterCallback:
		return op.promiseRegisterCallback(r)
	case *protocol.PromiseRegisterListener:
		return op.promiseRegisterListener(r)
	case *protocol.PromiseSearch:
		return op.promiseSearch(r)
	case *protocol.TaskGet:
		return op.taskGet(r)
	case *protocol.TaskCreate:
		return op.taskCreate(r)
	case *protocol.TaskAcquire:
		return op.taskAcquire(r)
	case *protocol.TaskFence:
		return op.taskFence(r)
	case *protocol.TaskSuspend:
		return op.taskSuspend(r)
	case *protocol.TaskFulfill:
		return op.taskFulfill(r)
	case *protocol.TaskRelease:
		return op.taskRelease(r)
	case *protocol.TaskHalt:
		return op.taskHalt(r)
	case *protocol.TaskContinue:
		return op.taskContinue(r)
	case *protocol.TaskSearch:
		return op.taskSearch(r)
	case *protocol.ScheduleGet:
		return op.scheduleGet(r)
	case *protocol.ScheduleCreate:
		return op.scheduleCreate(r)
	case *protocol.ScheduleDelete:
		return op.scheduleDelete(r)
	case *protocol.ScheduleSearch:
		return op.scheduleSearch(r)
	}
	return protocol.Fail(protocol.StatusUnsupported, fmt.Sprintf("Unsupported operation: %s", r.Kind())), nil
}

// answer is 200 with the promise.
func (op *Op) answer(o *Object) (protocol.Reply, error) {
	p, err := op.promise(o)
	if err != nil {
		return protocol.Reply{}, err
	}
	return protocol.OK(protocol.PromiseBody{Promise: p}), nil
}

func (op *Op) promiseGet(r *protocol.PromiseGet) (protocol.Reply, error) {
	o, err := op.State.Object(r.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if o == nil {
		return promiseUnknown, nil
	}
	return op.answer(o)
}

func (op *Op) promiseCreate(r *protocol.PromiseCreate) (protocol.Reply, error) {
	o, err := op.State.Object(r.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if o == nil {
		o = op.birth(r, op.Now)
		if err := op.State.Put(o); err != nil {
			return protocol.Reply{}, err
		}
	}
	return op.answer(o)
}

func (op *Op) promiseSettle(r *protocol.PromiseSettle) (protocol.Reply, error) {
	o, err := op.State.Object(r.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if o == nil {
		return promiseUnknown, nil
	}
	if op.alive(o) {
		if err := op.settle(o, r.State, r.Value); err != nil {
			return protocol.Reply{}, err
		}
	}
	return op.answer(o)
}

func (op *Op) promiseRegisterCallback(r *protocol.PromiseRegisterCallback) (protocol.Reply, error) {
	awaited, err := op.State.Object(r.Awaited)
	if err != nil {
		return protocol.Reply{}, err
	}
	if awaited == nil {
		return promiseUnknown, nil
	}
	awaiter, err := op.State.Object(r.Awaiter)
	if err != nil {
		return protocol.Reply{}, err
	}
	if awaiter == nil {
		return protocol.Fail(protocol.StatusUnprocessable, "Awaiter not found"), nil
	}
	if awaiter.Task == nil {
		return protocol.Fail(protocol.StatusUnprocessable, "Awaiter has no task: its promise has no "+protocol.TagTarget+" tag"), nil
	}
	if op.alive(awaited) && op.alive(awaiter) {
		if err := op.wait(awaited, Waiter{r.Awaited, WaiterCallback, r.Awaiter}); err != nil {
			return protocol.Reply{}, err
		}
	}
	return op.answer(awaited)
}

func (op *Op) promiseRegisterListener(r *protocol.PromiseRegisterListener) (protocol.Reply, error) {
	o, err := op.State.Object(r.Awaited)
	if err != nil {
		return protocol.Reply{}, err
	}
	if o == nil {
		return promiseUnknown, nil
	}
	if op.alive(o) {
		if err := op.wait(o, Waiter{r.Awaited, WaiterListener, r.Address}); err != nil {
			return protocol.Reply{}, err
		}
	}
	return op.answer(o)
}

// wait adds a waiter to a promise that reads as pending, and arms its timeout if nothing did: whatever
// waits is always woken.
func (op *Op) wait(awaited *Object, w Waiter) error {
	if !awaited.Waited {
		awaited.Waited = true
		if err := op.State.Put(awaited); err != nil {
			return err
		}
	}
	return op.State.PutWaiter(w)
}

func (op *Op) scheduleGet(r *protocol.ScheduleGet) (protocol.Reply, error) {
	s, err := op.State.Schedule(r.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if s == nil {
		return protocol.Fail(protocol.StatusNotFound, "Schedule not found"), nil
	}
	return op.answerSchedule(s)
}

func (op *Op) answerSchedule(s *Schedule) (protocol.Reply, error) {
	record, err := op.schedule(s)
	if err != nil {
		return protocol.Reply{}, err
	}
	return protocol.OK(protocol.ScheduleBody{Schedule: record}), nil
}

// schedule is the record as an answer shows it. A disarmed one shows its last run as the next: SDKs
// require a number.
func (op *Op) schedule(s *Schedule) (protocol.Schedule, error) {
	param := s.PromiseParam.Inline
	if s.PromiseParam.Ref != "" && param == nil {
		var err error
		if param, err = op.State.SchedulePayload(s); err != nil {
			return protocol.Schedule{}, err
		}
	}
	return protocol.Schedule{
		ID: s.ID, Cron: s.Cron, PromiseID: s.PromiseID, PromiseTimeout: s.PromiseTimeout,
		PromiseParam: param, PromiseTags: s.PromiseTags, CreatedAt: s.CreatedAt,
		NextRunAt: s.NextRunAt, LastRunAt: s.LastRunAt, HasRun: s.HasRun,
	}, nil
}

func (op *Op) scheduleCreate(r *protocol.ScheduleCreate) (protocol.Reply, error) {
	s, err := op.State.Schedule(r.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if s == nil {
		var refusal string
		if s, refusal = op.newSchedule(r); refusal != "" {
			return protocol.Fail(protocol.StatusInvalid, refusal), nil
		}
		if err := op.State.PutSchedule(s); err != nil {
			return protocol.Reply{}, err
		}
	}
	return op.answerSchedule(s)
}

func (op *Op) scheduleDelete(r *protocol.ScheduleDelete) (protocol.Reply, error) {
	s, err := op.State.Schedule(r.ID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if s == nil {
		return protocol.Fail(protocol.StatusNotFound, "Schedule not found"), nil
	}
	return empty, op.State.DeleteSchedule(r.ID)
}
