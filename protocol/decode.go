package protocol

import "abide/internal/cron"

// decoder reads the data of one kind of request.
type decoder func(d *decode, v value) Request

// reader makes a decoder from the members of T. Check judges what one member alone cannot; it runs only
// if no member was refused.
func reader[T any, P interface {
	*T
	Request
}](fields []field[T], check func(d *decode, r *T)) decoder {
	return func(d *decode, v value) Request {
		r := new(T)
		object(d, v, fields, r)
		if check != nil && d.ok() {
			check(d, r)
		}
		return P(r)
	}
}

// decoders lists every kind there is.
var decoders = map[Kind]decoder{
	KindPromiseGet:    reader([]field[PromiseGet]{{"id", required, func(d *decode, v value, r *PromiseGet) { r.ID = d.id(v) }}}, nil),
	KindPromiseCreate: reader(promiseCreateFields, checkPromiseCreate),
	KindPromiseSettle: reader(promiseSettleFields, nil),
	KindPromiseRegisterCallback: reader(registerCallbackFields, func(d *decode, r *PromiseRegisterCallback) {
		if r.Awaited == r.Awaiter {
			d.rule("awaited and awaiter must be different promises")
		}
	}),
	KindPromiseRegisterListener: reader(registerListenerFields, nil),
	KindPromiseSearch:           reader(promiseSearchFields, nil),
	KindTaskGet:                 reader([]field[TaskGet]{{"id", required, func(d *decode, v value, r *TaskGet) { r.ID = d.id(v) }}}, nil),
	KindTaskCreate:              reader(taskCreateFields, checkTaskCreate),
	KindTaskAcquire:             reader(taskAcquireFields, nil),
	KindTaskFence:               reader(taskFenceFields, checkTaskFence),
	KindTaskHeartbeat:           reader(taskHeartbeatFields, nil),
	KindTaskSuspend:             decodeTaskSuspend,
	KindTaskFulfill: reader(taskFulfillFields, func(d *decode, r *TaskFulfill) {
		if r.Action.ID != r.ID {
			d.rule("action.data.id must be the task's own id")
		}
	}),
	KindTaskRelease:    reader(taskReleaseFields, nil),
	KindTaskHalt:       reader([]field[TaskHalt]{{"id", required, func(d *decode, v value, r *TaskHalt) { r.ID = d.id(v) }}}, nil),
	KindTaskContinue:   reader([]field[TaskContinue]{{"id", required, func(d *decode, v value, r *TaskContinue) { r.ID = d.id(v) }}}, nil),
	KindTaskSearch:     reader(taskSearchFields, nil),
	KindTaskExplain:    reader([]field[TaskExplain]{{"id", required, func(d *decode, v value, r *TaskExplain) { r.ID = d.id(v) }}}, nil),
	KindScheduleGet:    reader([]field[ScheduleGet]{{"id", required, func(d *decode, v value, r *ScheduleGet) { r.ID = d.id(v) }}}, nil),
	KindScheduleCreate: reader(scheduleCreateFields, checkScheduleCreate),
	KindScheduleDelete: reader([]field[ScheduleDelete]{{"id", required, func(d *decode, v value, r *ScheduleDelete) { r.ID = d.id(v) }}}, nil),
	KindScheduleSearch: reader(scheduleSearchFields, nil),
	KindDebugStart:     reader[DebugStart](nil, nil),
	KindDebugStop:      reader[DebugStop](nil, nil),
	KindDebugReset:     reader[DebugReset](nil, nil),
	KindDebugSnap:      reader[DebugSnap](nil, nil),
	KindDebugTick:      reader([]field[DebugTick]{{"time", required, func(d *decode, v value, r *DebugTick) { r.Time = d.instant(v) }}}, nil),
}

// Known reports whether kind is the kind of a request.
func Known(kind string) bool {
	_, ok := decoders[Kind(kind)]
	return ok
}

// DecodeRequest reads the data of a request and checks everything that can be checked without the state
// of the server; Data comes from DecodeEnvelope. The result shares no memory with it. The error is a
// *RequestError that names every violation, up to a few. (docs/protocol.md, Kinds; docs/machine.md 3 and 7)
func DecodeRequest(kind string, data Data) (Request, error) {
	read, ok := decoders[Kind(kind)]
	if !ok {
		return nil, &RequestError{UnknownKind, "Unknown operation: " + clip(kind, 64)}
	}
	d := decode{path: make([]step, 0, 6)}
	req := read(&d, whole(data))
	if err := d.err("Invalid request: "); err != nil {
		return nil, err
	}
	return req, nil
}

var promiseCreateFields = []field[PromiseCreate]{
	{"id", required, func(d *decode, v value, r *PromiseCreate) { r.ID = d.id(v) }},
	{"timeoutAt", required, func(d *decode, v value, r *PromiseCreate) { r.TimeoutAt = d.instant(v) }},
	{"param", optional, func(d *decode, v value, r *PromiseCreate) { r.Param = d.payload(v) }},
	{"tags", optional, func(d *decode, v value, r *PromiseCreate) { r.Tags = d.tags(v) }},
}

func checkPromiseCreate(d *decode, r *PromiseCreate) {
	target, targeted := r.Tags.Get(TagTarget)
	if targeted {
		checkTarget(d, target)
	}
	tag, ok := r.Tags.Get(TagDelay)
	if !ok {
		return
	}
	at, ok := delay(tag)
	switch {
	case !ok:
		d.rule("the tag %s must be an instant in decimal milliseconds, not %s", TagDelay, quote(tag))
	case at >= r.TimeoutAt:
		d.rule("the tag %s (%d) must be less than timeoutAt (%d)", TagDelay, at, r.TimeoutAt)
	case !targeted:
		d.rule("the tag %s needs the tag %s: only a task can be delayed", TagDelay, TagTarget)
	}
}

func checkTarget(d *decode, address string) {
	if _, err := ParseAddress(address); err != nil {
		d.rule("Invalid %s address: %s", TagTarget, err)
	}
}

var promiseSettleFields = []field[PromiseSettle]{
	{"id", required, func(d *decode, v value, r *PromiseSettle) { r.ID = d.id(v) }},
	{"state", required, func(d *decode, v value, r *PromiseSettle) {
		r.State = state(d, v, Resolved, Rejected, RejectedCanceled)
	}},
	{"value", optional, func(d *decode, v value, r *PromiseSettle) { r.Value = d.payload(v) }},
}

var registerCallbackFields = []field[PromiseRegisterCallback]{
	{"awaited", required, func(d *decode, v value, r *PromiseRegisterCallback) { r.Awaited = d.id(v) }},
	{"awaiter", required, func(d *decode, v value, r *PromiseRegisterCallback) { r.Awaiter = d.id(v) }},
}

var registerListenerFields = []field[PromiseRegisterListener]{
	{"awaited", required, func(d *decode, v value, r *PromiseRegisterListener) { r.Awaited = d.id(v) }},
	{"address", required, func(d *decode, v value, r *PromiseRegisterListener) { r.Address = d.address(v) }},
}

var promiseSearchFields = []field[PromiseSearch]{
	{"state", nullable, func(d *decode, v value, r *PromiseSearch) {
		r.State = state(d, v, Pending, Resolved, Rejected, RejectedCanceled, RejectedTimedout)
	}},
	{"tags", nullable, func(d *decode, v value, r *PromiseSearch) { r.Tags = d.tags(v) }},
	{"limit", nullable, func(d *decode, v value, r *PromiseSearch) { r.Limit = d.limit(v) }},
	{"cursor", nullable, func(d *decode, v value, r *PromiseSearch) { r.Cursor, _ = d.text(v) }},
}

// action is a request inside a request: {kind, head, data}. Its head means nothing to the server.
type action struct {
	kind string
	data value
}

var actionFields = []field[action]{
	{"kind", required, func(d *decode, v value, a *action) { a.kind, _ = d.text(v) }},
	{"head", required, func(*decode, value, *action) {}},
	{"data", required, func(_ *decode, v value, a *action) { a.data = v }},
}

// fencedFields are those of task.fence, where the head may be missing.
var fencedFields = []field[action]{actionFields[0], actionFields[2]}

// actionData reads an action whose data becomes a T.
func actionData[T any](d *decode, v value, fields []field[T], into *T) {
	var a action
	object(d, v, actionFields, &a)
	if a.data != nil {
		d.push("data")
		object(d, a.data, fields, into)
		d.pop()
	}
}

var taskCreateFields = []field[TaskCreate]{
	{"pid", required, func(d *decode, v value, r *TaskCreate) { r.PID = d.pid(v) }},
	{"ttl", required, func(d *decode, v value, r *TaskCreate) { r.TTL = d.ttl(v) }},
	{"action", required, func(d *decode, v value, r *TaskCreate) { actionData(d, v, promiseCreateFields, &r.Action) }},
}

func checkTaskCreate(d *decode, r *TaskCreate) {
	tags := r.Action.Tags
	target, targeted := tags.Get(TagTarget)
	if targeted {
		checkTarget(d, target)
	} else {
		d.rule("the action must carry the tag %s: a promise without it has no task", TagTarget)
	}
	if timer, _ := tags.Get(TagTimer); timer == "true" {
		d.rule("the action must not carry the tag %s: a timer has no task", TagTimer)
	}
	if _, delayed := tags.Get(TagDelay); delayed {
		d.rule("the action must not carry the tag %s: its task is acquired at once", TagDelay)
	}
}

var taskAcquireFields = []field[TaskAcquire]{
	{"id", required, func(d *decode, v value, r *TaskAcquire) { r.ID = d.id(v) }},
	{"version", required, func(d *decode, v value, r *TaskAcquire) { r.Version = d.version(v) }},
	{"pid", required, func(d *decode, v value, r *TaskAcquire) { r.PID = d.pid(v) }},
	{"ttl", required, func(d *decode, v value, r *TaskAcquire) { r.TTL = d.ttl(v) }},
}

var taskFenceFields = []field[TaskFence]{
	{"id", required, func(d *decode, v value, r *TaskFence) { r.ID = d.id(v) }},
	{"version", required, func(d *decode, v value, r *TaskFence) { r.Version = d.version(v) }},
	{"action", required, readFenced},
}

// readFenced reads the action of a task.fence, whose kind decides what its data must be.
func readFenced(d *decode, v value, r *TaskFence) {
	var a action
	object(d, v, fencedFields, &a)
	if a.data == nil || !d.ok() {
		return
	}
	d.push("data")
	defer d.pop()
	switch Kind(a.kind) {
	case KindPromiseCreate:
		r.Create = new(PromiseCreate)
		object(d, a.data, promiseCreateFields, r.Create)
	case KindPromiseSettle:
		r.Settle = new(PromiseSettle)
		object(d, a.data, promiseSettleFields, r.Settle)
	default:
		d.rule("action.kind must be %s or %s, not %s", KindPromiseCreate, KindPromiseSettle, quote(a.kind))
	}
}

func checkTaskFence(d *decode, r *TaskFence) {
	var id string
	if r.Create != nil {
		id = r.Create.ID
		checkPromiseCreate(d, r.Create)
	} else {
		id = r.Settle.ID
	}
	if id == r.ID {
		d.rule("action.data.id must not be the task's own id")
	}
}

var taskRefFields = []field[TaskRef]{
	{"id", required, func(d *decode, v value, r *TaskRef) { r.ID = d.id(v) }},
	{"version", required, func(d *decode, v value, r *TaskRef) { r.Version = d.version(v) }},
}

var taskHeartbeatFields = []field[TaskHeartbeat]{
	{"pid", required, func(d *decode, v value, r *TaskHeartbeat) { r.PID = d.pid(v) }},
	{"tasks", required, func(d *decode, v value, r *TaskHeartbeat) {
		d.list(v, MaxHeartbeatTasks, "MaxHeartbeatTasks", func(v value) {
			var ref TaskRef
			object(d, v, taskRefFields, &ref)
			r.Tasks = append(r.Tasks, ref)
		})
	}},
}

// suspension is a task.suspend together with the awaiters that its actions name.
type suspension struct {
	TaskSuspend
	awaiters []string
}

var taskSuspendFields = []field[suspension]{
	{"id", required, func(d *decode, v value, r *suspension) { r.ID = d.id(v) }},
	{"version", required, func(d *decode, v value, r *suspension) { r.Version = d.version(v) }},
	{"actions", required, func(d *decode, v value, r *suspension) {
		d.list(v, MaxSuspendActions, "MaxSuspendActions", func(v value) {
			var c PromiseRegisterCallback
			actionData(d, v, registerCallbackFields, &c)
			r.Awaited = append(r.Awaited, c.Awaited)
			r.awaiters = append(r.awaiters, c.Awaiter)
		})
		if len(r.Awaited) == 0 && v.isArray() {
			d.invalid("must not be empty")
		}
	}},
}

func decodeTaskSuspend(d *decode, v value) Request {
	var r suspension
	object(d, v, taskSuspendFields, &r)
	if !d.ok() {
		return nil
	}
	for i, awaited := range r.Awaited {
		if r.awaiters[i] != r.ID {
			d.rule("actions[%d].data.awaiter must be the task's own id", i)
		}
		if awaited == r.ID {
			d.rule("actions[%d].data.awaited must not be the task's own id", i)
		}
	}
	return &r.TaskSuspend
}

var taskFulfillFields = []field[TaskFulfill]{
	{"id", required, func(d *decode, v value, r *TaskFulfill) { r.ID = d.id(v) }},
	{"version", required, func(d *decode, v value, r *TaskFulfill) { r.Version = d.version(v) }},
	{"action", required, func(d *decode, v value, r *TaskFulfill) { actionData(d, v, promiseSettleFields, &r.Action) }},
}

var taskReleaseFields = []field[TaskRelease]{
	{"id", required, func(d *decode, v value, r *TaskRelease) { r.ID = d.id(v) }},
	{"version", required, func(d *decode, v value, r *TaskRelease) { r.Version = d.version(v) }},
}

var taskSearchFields = []field[TaskSearch]{
	{"state", nullable, func(d *decode, v value, r *TaskSearch) {
		r.State = state(d, v, TaskPending, TaskAcquired, TaskSuspended, TaskHalted, TaskFulfilled)
	}},
	{"limit", nullable, func(d *decode, v value, r *TaskSearch) { r.Limit = d.limit(v) }},
	{"cursor", nullable, func(d *decode, v value, r *TaskSearch) { r.Cursor, _ = d.text(v) }},
}

var scheduleCreateFields = []field[ScheduleCreate]{
	{"id", required, func(d *decode, v value, r *ScheduleCreate) { r.ID = d.id(v) }},
	{"cron", required, func(d *decode, v value, r *ScheduleCreate) { r.Cron = d.name(v, MaxCronBytes, "MaxCronBytes") }},
	{"promiseId", required, func(d *decode, v value, r *ScheduleCreate) { r.PromiseID = d.id(v) }},
	{"promiseTimeout", required, func(d *decode, v value, r *ScheduleCreate) { r.PromiseTimeout = d.instant(v) }},
	{"promiseParam", optional, func(d *decode, v value, r *ScheduleCreate) { r.PromiseParam = d.payload(v) }},
	{"promiseTags", required, func(d *decode, v value, r *ScheduleCreate) { r.PromiseTags = d.tags(v) }},
}

func checkScheduleCreate(d *decode, r *ScheduleCreate) {
	if _, err := cron.Parse(r.Cron); err != nil {
		d.rule("Invalid cron expression: %s", err)
	}
	if target, ok := r.PromiseTags.Get(TagTarget); ok {
		checkTarget(d, target)
	}
	if tag, ok := r.PromiseTags.Get(TagDelay); ok {
		if _, ok := delay(tag); !ok {
			d.rule("the tag %s must be an instant in decimal milliseconds, not %s", TagDelay, quote(tag))
		}
	}
}

var scheduleSearchFields = []field[ScheduleSearch]{
	{"tags", nullable, func(d *decode, v value, r *ScheduleSearch) { r.Tags = d.tags(v) }},
	{"limit", nullable, func(d *decode, v value, r *ScheduleSearch) { r.Limit = d.limit(v) }},
	{"cursor", nullable, func(d *decode, v value, r *ScheduleSearch) { r.Cursor, _ = d.text(v) }},
}
