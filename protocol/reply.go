package protocol

// Reply is what the engine answers to one request. On any status but 200 (and 300 of task.suspend) Body
// is nil and Message is the answer's data, a text for a person.
type Reply struct {
	Status  int
	Message string
	Body    Body
}

// OK is a reply with status 200.
func OK(b Body) Reply { return Reply{Status: StatusOK, Body: b} }

// Fail is a reply without a body.
func Fail(status int, message string) Reply { return Reply{Status: status, Message: message} }

// Body is the data of a successful reply: one of the structs below. AppendJSON appends its JSON to dst.
type Body interface{ AppendJSON(dst []byte) []byte }

type (
	// EmptyBody is {}.
	EmptyBody struct{}
	// TickBody is [], the answer of debug.tick.
	TickBody struct{}
	// PromiseBody is {promise}.
	PromiseBody struct{ Promise Promise }
	// TaskBody is {task}.
	TaskBody struct{ Task Task }
	// ClaimBody is {task, promise, preload}: task.create and task.acquire.
	ClaimBody struct {
		Task    Task
		Promise Promise
		Preload []Promise
	}
	// PreloadBody is {preload}: task.suspend answered 300.
	PreloadBody struct{ Preload []Promise }
	// FenceBody is {action, preload}. Action is the reply of the inner request of kind ActionKind; on the
	// wire it is a whole envelope with the outer corrId.
	FenceBody struct {
		ActionKind Kind
		CorrID     string // set by whoever knows the envelope, before encoding
		Action     Reply
		Preload    []Promise
	}
	// HeartbeatBody is {}, or {lost} if some tasks were not renewed.
	HeartbeatBody struct{ Lost []string }
	// PromisesBody is {promises, cursor?}.
	PromisesBody struct {
		Promises []Promise
		Cursor   string
	}
	// TasksBody is {tasks, cursor?}.
	TasksBody struct {
		Tasks  []Task
		Cursor string
	}
	// ScheduleBody is {schedule}.
	ScheduleBody struct{ Schedule Schedule }
	// SchedulesBody is {schedules, cursor?}.
	SchedulesBody struct {
		Schedules []Schedule
		Cursor    string
	}
	// SnapBody is the answer of debug.snap, every list sorted by id.
	SnapBody struct {
		Promises        []Promise
		PromiseTimeouts []SnapTimeout // {id, timeout}
		Callbacks       []SnapCallback
		Listeners       []SnapListener
		Tasks           []Task
		TaskTimeouts    []SnapTaskTimeout
		Messages        []SnapMessage
	}
	// SnapTimeout is an armed promise timeout.
	SnapTimeout struct {
		ID      string
		Timeout int64
	}
	// SnapTaskTimeout is a task's retry (Type 0) or lease (Type 1).
	SnapTaskTimeout struct {
		ID      string
		Type    int
		Timeout int64
	}
	// SnapCallback is one callback.
	SnapCallback struct{ Awaiter, Awaited string }
	// SnapListener is one listener.
	SnapListener struct{ ID, Address string }
	// SnapMessage is one message in the outbox: an execute (Execute set) or an unblock (Unblock set).
	SnapMessage struct {
		Address string
		Execute *TaskRef
		Unblock *Promise
	}
)
