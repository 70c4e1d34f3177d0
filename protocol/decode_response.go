package protocol

import (
	"errors"
	"math"
)

// What follows is the client's half: it reads what encode.go and message.go write, as any server of the
// protocol may write it. Members that it does not know are ignored.

// Response is an answer before its data is looked at. Data aliases the text.
type Response struct {
	Kind    string
	CorrID  string
	Status  int
	Version string
	Data    Data
}

var responseFields = []field[Response]{
	{"kind", required, func(d *decode, v value, r *Response) { r.Kind, _ = d.text(v) }},
	{"head", required, func(d *decode, v value, r *Response) { object(d, v, responseHeadFields, r) }},
	{"data", required, func(_ *decode, v value, r *Response) { r.Data = Data(v) }},
}

var responseHeadFields = []field[Response]{
	{"corrId", required, func(d *decode, v value, r *Response) { r.CorrID, _ = d.text(v) }},
	{"status", required, func(d *decode, v value, r *Response) { r.Status = int(min(d.integer(v, 0), math.MaxInt32)) }},
	{"version", nullable, func(d *decode, v value, r *Response) { r.Version, _ = d.text(v) }},
}

// DecodeResponse reads the envelope of an answer.
func DecodeResponse(text []byte) (Response, error) {
	if err := checkJSON(text); err != nil {
		return Response{}, err
	}
	return decodeFields(text, responseFields)
}

// Message returns the text for a person that an answer without a result carries; empty if the data is no
// string.
func (r Response) Message() string {
	s, _ := value(r.Data).text()
	return s
}

// decodeFields reads an object that has been checked.
func decodeFields[T any](text []byte, fields []field[T]) (T, error) {
	var out T
	var d decode
	object(&d, whole(text), fields, &out)
	if !d.ok() {
		return out, errors.New(d.message())
	}
	return out, nil
}

var promiseFields = []field[Promise]{
	{"id", required, func(d *decode, v value, p *Promise) { p.ID, _ = d.text(v) }},
	{"state", required, func(d *decode, v value, p *Promise) {
		p.State = state(d, v, Pending, Resolved, Rejected, RejectedCanceled, RejectedTimedout)
	}},
	{"param", required, func(d *decode, v value, p *Promise) { p.Param = d.payload(v) }},
	{"value", required, func(d *decode, v value, p *Promise) { p.Value = d.payload(v) }},
	{"tags", required, func(d *decode, v value, p *Promise) { p.Tags = d.tags(v) }},
	{"timeoutAt", required, func(d *decode, v value, p *Promise) { p.TimeoutAt = d.integer(v, math.MinInt64) }},
	{"createdAt", required, func(d *decode, v value, p *Promise) { p.CreatedAt = d.integer(v, math.MinInt64) }},
	{"settledAt", optional, func(d *decode, v value, p *Promise) { p.SettledAt = d.integer(v, math.MinInt64) }},
}

var taskFields = []field[Task]{
	{"id", required, func(d *decode, v value, t *Task) { t.ID, _ = d.text(v) }},
	{"state", required, func(d *decode, v value, t *Task) {
		t.State = state(d, v, TaskPending, TaskAcquired, TaskSuspended, TaskHalted, TaskFulfilled)
	}},
	{"version", required, func(d *decode, v value, t *Task) { t.Version = d.integer(v, 0) }},
	{"resumes", required, func(d *decode, v value, t *Task) { t.Resumes = d.integer(v, 0) }},
	{"ttl", optional, func(d *decode, v value, t *Task) { t.TTL = d.integer(v, 0) }},
	{"pid", optional, func(d *decode, v value, t *Task) { t.PID, _ = d.text(v) }},
}

var scheduleFields = []field[Schedule]{
	{"id", required, func(d *decode, v value, s *Schedule) { s.ID, _ = d.text(v) }},
	{"cron", required, func(d *decode, v value, s *Schedule) { s.Cron, _ = d.text(v) }},
	{"promiseId", required, func(d *decode, v value, s *Schedule) { s.PromiseID, _ = d.text(v) }},
	{"promiseTimeout", required, func(d *decode, v value, s *Schedule) { s.PromiseTimeout = d.integer(v, 0) }},
	{"promiseParam", required, func(d *decode, v value, s *Schedule) { s.PromiseParam = d.payload(v) }},
	{"promiseTags", required, func(d *decode, v value, s *Schedule) { s.PromiseTags = d.tags(v) }},
	{"createdAt", required, func(d *decode, v value, s *Schedule) { s.CreatedAt = d.integer(v, math.MinInt64) }},
	{"nextRunAt", required, func(d *decode, v value, s *Schedule) { s.NextRunAt = d.integer(v, math.MinInt64) }},
	{"lastRunAt", optional, func(d *decode, v value, s *Schedule) {
		s.LastRunAt, s.HasRun = d.integer(v, math.MinInt64), true
	}},
}

func readPromise(d *decode, v value, into *Promise) { object(d, v, promiseFields, into) }

// listOf reads an array of objects.
func listOf[T any](d *decode, v value, fields []field[T]) []T {
	out := []T{}
	d.list(v, math.MaxInt, "", func(v value) {
		var one T
		object(d, v, fields, &one)
		out = append(out, one)
	})
	return out
}

// DecodePromiseBody reads {promise}: the answer of promise.get, create, settle, register_callback and
// register_listener and of task.fulfill.
func DecodePromiseBody(data Data) (PromiseBody, error) {
	return decodeFields(data, []field[PromiseBody]{
		{"promise", required, func(d *decode, v value, b *PromiseBody) { readPromise(d, v, &b.Promise) }},
	})
}

// DecodeTaskBody reads {task}: the answer of task.get.
func DecodeTaskBody(data Data) (TaskBody, error) {
	return decodeFields(data, []field[TaskBody]{
		{"task", required, func(d *decode, v value, b *TaskBody) { object(d, v, taskFields, &b.Task) }},
	})
}

var claimFields = []field[ClaimBody]{
	{"task", required, func(d *decode, v value, b *ClaimBody) { object(d, v, taskFields, &b.Task) }},
	{"promise", required, func(d *decode, v value, b *ClaimBody) { readPromise(d, v, &b.Promise) }},
	{"preload", required, func(d *decode, v value, b *ClaimBody) { b.Preload = listOf(d, v, promiseFields) }},
}

// DecodeClaimBody reads {task, promise, preload}: the answer of task.create and task.acquire.
func DecodeClaimBody(data Data) (ClaimBody, error) { return decodeFields(data, claimFields) }

// DecodePreloadBody reads {preload}: the answer 300 of task.suspend.
func DecodePreloadBody(data Data) (PreloadBody, error) {
	return decodeFields(data, []field[PreloadBody]{
		{"preload", required, func(d *decode, v value, b *PreloadBody) { b.Preload = listOf(d, v, promiseFields) }},
	})
}

// Fenced is the answer of task.fence: that of the inner request, and the preload.
type Fenced struct {
	Action  Response
	Preload []Promise
}

var fencedBodyFields = []field[Fenced]{
	{"action", required, func(d *decode, v value, b *Fenced) { object(d, v, responseFields, &b.Action) }},
	{"preload", required, func(d *decode, v value, b *Fenced) { b.Preload = listOf(d, v, promiseFields) }},
}

// DecodeFenceBody reads {action, preload}.
func DecodeFenceBody(data Data) (Fenced, error) { return decodeFields(data, fencedBodyFields) }

// DecodeHeartbeatBody reads {} or {lost}.
func DecodeHeartbeatBody(data Data) (HeartbeatBody, error) {
	return decodeFields(data, []field[HeartbeatBody]{
		{"lost", optional, func(d *decode, v value, b *HeartbeatBody) {
			d.list(v, math.MaxInt, "", func(v value) {
				id, _ := d.text(v)
				b.Lost = append(b.Lost, id)
			})
		}},
	})
}

// DecodePromisesBody reads {promises, cursor?}.
func DecodePromisesBody(data Data) (PromisesBody, error) {
	return decodeFields(data, []field[PromisesBody]{
		{"promises", required, func(d *decode, v value, b *PromisesBody) { b.Promises = listOf(d, v, promiseFields) }},
		{"cursor", nullable, func(d *decode, v value, b *PromisesBody) { b.Cursor, _ = d.text(v) }},
	})
}

// DecodeTasksBody reads {tasks, cursor?}.
func DecodeTasksBody(data Data) (TasksBody, error) {
	return decodeFields(data, []field[TasksBody]{
		{"tasks", required, func(d *decode, v value, b *TasksBody) { b.Tasks = listOf(d, v, taskFields) }},
		{"cursor", nullable, func(d *decode, v value, b *TasksBody) { b.Cursor, _ = d.text(v) }},
	})
}

// DecodeScheduleBody reads {schedule}.
func DecodeScheduleBody(data Data) (ScheduleBody, error) {
	return decodeFields(data, []field[ScheduleBody]{
		{"schedule", required, func(d *decode, v value, b *ScheduleBody) { object(d, v, scheduleFields, &b.Schedule) }},
	})
}

// DecodeSchedulesBody reads {schedules, cursor?}.
func DecodeSchedulesBody(data Data) (SchedulesBody, error) {
	return decodeFields(data, []field[SchedulesBody]{
		{"schedules", required, func(d *decode, v value, b *SchedulesBody) { b.Schedules = listOf(d, v, scheduleFields) }},
		{"cursor", nullable, func(d *decode, v value, b *SchedulesBody) { b.Cursor, _ = d.text(v) }},
	})
}

// Message is a message to a worker: Task is set in an execute, Promise in an unblock.
type Message struct {
	Kind      string
	ServerURL string
	Task      TaskRef
	Promise   Promise
	// Trace is the trace that an execute's task is part of; nil if its head says none.
	Trace *Trace
}

// DecodeMessage reads a message as AppendExecute and AppendUnblock write it. A message of another kind
// has only its kind set.
func DecodeMessage(text []byte) (Message, error) {
	if err := checkJSON(text); err != nil {
		return Message{}, err
	}
	kind, ok := stringMember(whole(text), "kind")
	if !ok {
		return Message{}, errors.New("the message has no kind")
	}
	m := Message{Kind: kind}
	head := anyMember(whole(text), "head")
	m.ServerURL, _ = stringMember(head, "serverUrl")
	parent, _ := stringMember(head, "traceparent")
	state, _ := stringMember(head, "tracestate")
	m.Trace = ParseTrace(parent, state)
	data := anyMember(whole(text), "data")
	var err error
	switch kind {
	case MessageExecute:
		m.Task, err = decodeFields(anyMember(data, "task"), taskRefFields)
	case MessageUnblock:
		m.Promise, err = decodeFields(anyMember(data, "promise"), promiseFields)
	}
	return m, err
}

// DecodeSnapBody reads the answer of debug.snap.
func DecodeSnapBody(data Data) (SnapBody, error) { return decodeFields(data, snapFields) }

var snapFields = []field[SnapBody]{
	{"promises", required, func(d *decode, v value, b *SnapBody) { b.Promises = listOf(d, v, promiseFields) }},
	{"promiseTimeouts", required, func(d *decode, v value, b *SnapBody) { b.PromiseTimeouts = listOf(d, v, snapTimeoutFields) }},
	{"callbacks", required, func(d *decode, v value, b *SnapBody) { b.Callbacks = listOf(d, v, snapCallbackFields) }},
	{"listeners", required, func(d *decode, v value, b *SnapBody) { b.Listeners = listOf(d, v, snapListenerFields) }},
	{"tasks", required, func(d *decode, v value, b *SnapBody) { b.Tasks = listOf(d, v, taskFields) }},
	{"taskTimeouts", required, func(d *decode, v value, b *SnapBody) { b.TaskTimeouts = listOf(d, v, snapTaskTimeoutFields) }},
	{"messages", required, func(d *decode, v value, b *SnapBody) { b.Messages = listOf(d, v, snapMessageFields) }},
}

var snapTimeoutFields = []field[SnapTimeout]{
	{"id", required, func(d *decode, v value, t *SnapTimeout) { t.ID, _ = d.text(v) }},
	{"timeout", required, func(d *decode, v value, t *SnapTimeout) { t.Timeout = d.integer(v, math.MinInt64) }},
}

var snapTaskTimeoutFields = []field[SnapTaskTimeout]{
	{"id", required, func(d *decode, v value, t *SnapTaskTimeout) { t.ID, _ = d.text(v) }},
	{"type", required, func(d *decode, v value, t *SnapTaskTimeout) { t.Type = int(min(d.integer(v, 0), math.MaxInt32)) }},
	{"timeout", required, func(d *decode, v value, t *SnapTaskTimeout) { t.Timeout = d.integer(v, math.MinInt64) }},
}

var snapCallbackFields = []field[SnapCallback]{
	{"awaiter", required, func(d *decode, v value, c *SnapCallback) { c.Awaiter, _ = d.text(v) }},
	{"awaited", required, func(d *decode, v value, c *SnapCallback) { c.Awaited, _ = d.text(v) }},
}

var snapListenerFields = []field[SnapListener]{
	{"id", required, func(d *decode, v value, l *SnapListener) { l.ID, _ = d.text(v) }},
	{"address", required, func(d *decode, v value, l *SnapListener) { l.Address, _ = d.text(v) }},
}

var snapMessageFields = []field[SnapMessage]{
	{"address", required, func(d *decode, v value, m *SnapMessage) { m.Address, _ = d.text(v) }},
	{"message", required, func(d *decode, v value, m *SnapMessage) {
		data := anyMember(v, "data")
		if task := anyMember(data, "task"); task != nil {
			m.Execute = new(TaskRef)
			object(d, task, taskRefFields, m.Execute)
		} else if promise := anyMember(data, "promise"); promise != nil {
			m.Unblock = new(Promise)
			readPromise(d, promise, m.Unblock)
		}
	}},
}
