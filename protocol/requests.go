package protocol

// Request is the validated data of one request. The concrete types are the structs of this file; a
// handler may rely on everything that validation checks.
type Request interface{ Kind() Kind }

type (
	// PromiseGet reads a promise.
	PromiseGet struct{ ID string }
	// PromiseCreate creates a promise, and its task if it is targeted. Also the action of task.create and
	// of task.fence. Trace is not in the data: whoever received the request sets it to the trace that the request is
	// part of.
	PromiseCreate struct {
		ID        string
		TimeoutAt int64
		Param     Value
		Tags      Tags
		Trace     *Trace
	}
	// PromiseSettle settles a promise. State is resolved, rejected or rejected_canceled. Also the action
	// of task.fulfill and of task.fence.
	PromiseSettle struct {
		ID    string
		State PromiseState
		Value Value
	}
	// PromiseRegisterCallback makes the settlement of Awaited resume the task Awaiter. They differ.
	PromiseRegisterCallback struct{ Awaited, Awaiter string }
	// PromiseRegisterListener makes the settlement of Awaited send an unblock message to Address.
	PromiseRegisterListener struct{ Awaited, Address string }
	// PromiseSearch lists promises. An empty State and nil Tags filter nothing. Within is not on the wire: whoever
	// authenticated the request sets it to the prefix of the ids that it may see, and empty is all of them. The
	// same for the other searches and for TaskHeartbeat.
	PromiseSearch struct {
		State  PromiseState
		Tags   Tags
		Limit  int
		Cursor string
		Within string
	}

	// TaskGet reads a task.
	TaskGet struct{ ID string }
	// TaskCreate creates a promise with its task already acquired. Action is targeted.
	TaskCreate struct {
		PID    string
		TTL    int64
		Action PromiseCreate
	}
	// TaskAcquire claims a pending task at its current version.
	TaskAcquire struct {
		ID      string
		Version int64
		PID     string
		TTL     int64
	}
	// TaskFence runs one inner request if the task is still held at Version. Exactly one of Create and
	// Settle is set; neither names the task itself.
	TaskFence struct {
		ID      string
		Version int64
		Create  *PromiseCreate
		Settle  *PromiseSettle
	}
	// TaskHeartbeat renews the leases of the named tasks, or of all tasks held by PID if Tasks is empty: then of
	// those whose ids begin with Within.
	TaskHeartbeat struct {
		PID    string
		Tasks  []TaskRef
		Within string
	}
	// TaskSuspend suspends a held task until one of Awaited settles. Repeated ids are allowed.
	TaskSuspend struct {
		ID      string
		Version int64
		Awaited []string
	}
	// TaskFulfill settles the promise of a held task. Action.ID is ID.
	TaskFulfill struct {
		ID      string
		Version int64
		Action  PromiseSettle
	}
	// TaskRelease gives a held task back.
	TaskRelease struct {
		ID      string
		Version int64
	}
	// TaskHalt stops a task from being dispatched until it is continued.
	TaskHalt struct{ ID string }
	// TaskContinue ends a halt.
	TaskContinue struct{ ID string }
	// TaskSearch lists tasks.
	TaskSearch struct {
		State  TaskState
		Limit  int
		Cursor string
		Within string
	}

	// ScheduleGet reads a schedule.
	ScheduleGet struct{ ID string }
	// ScheduleCreate creates a schedule. Cron parses; that it still has a match is the machine's to check.
	ScheduleCreate struct {
		ID             string
		Cron           string
		PromiseID      string
		PromiseTimeout int64
		PromiseParam   Value
		PromiseTags    Tags
	}
	// ScheduleDelete removes a schedule; promises that it made stay.
	ScheduleDelete struct{ ID string }
	// ScheduleSearch lists schedules.
	ScheduleSearch struct {
		Tags   Tags
		Limit  int
		Cursor string
		Within string
	}

	// DebugStart pauses the background loops for the request's workspace.
	DebugStart struct{}
	// DebugStop ends DebugStart.
	DebugStop struct{}
	// DebugReset deletes everything in the request's workspace.
	DebugReset struct{}
	// DebugSnap reads the whole state of the request's workspace.
	DebugSnap struct{}
	// DebugTick runs one pass of the internal steps at Time.
	DebugTick struct{ Time int64 }
)

// Creates is the creation of a promise that a request is or has in it; nil if it has none.
func Creates(r Request) *PromiseCreate {
	switch r := r.(type) {
	case *PromiseCreate:
		return r
	case *TaskCreate:
		return &r.Action
	case *TaskFence:
		return r.Create
	}
	return nil
}

// The kind of each request.
func (*PromiseGet) Kind() Kind              { return KindPromiseGet }
func (*PromiseCreate) Kind() Kind           { return KindPromiseCreate }
func (*PromiseSettle) Kind() Kind           { return KindPromiseSettle }
func (*PromiseRegisterCallback) Kind() Kind { return KindPromiseRegisterCallback }
func (*PromiseRegisterListener) Kind() Kind { return KindPromiseRegisterListener }
func (*PromiseSearch) Kind() Kind           { return KindPromiseSearch }
func (*TaskGet) Kind() Kind                 { return KindTaskGet }
func (*TaskCreate) Kind() Kind              { return KindTaskCreate }
func (*TaskAcquire) Kind() Kind             { return KindTaskAcquire }
func (*TaskFence) Kind() Kind               { return KindTaskFence }
func (*TaskHeartbeat) Kind() Kind           { return KindTaskHeartbeat }
func (*TaskSuspend) Kind() Kind             { return KindTaskSuspend }
func (*TaskFulfill) Kind() Kind             { return KindTaskFulfill }
func (*TaskRelease) Kind() Kind             { return KindTaskRelease }
func (*TaskHalt) Kind() Kind                { return KindTaskHalt }
func (*TaskContinue) Kind() Kind            { return KindTaskContinue }
func (*TaskSearch) Kind() Kind              { return KindTaskSearch }
func (*ScheduleGet) Kind() Kind             { return KindScheduleGet }
func (*ScheduleCreate) Kind() Kind          { return KindScheduleCreate }
func (*ScheduleDelete) Kind() Kind          { return KindScheduleDelete }
func (*ScheduleSearch) Kind() Kind          { return KindScheduleSearch }
func (*DebugStart) Kind() Kind              { return KindDebugStart }
func (*DebugStop) Kind() Kind               { return KindDebugStop }
func (*DebugReset) Kind() Kind              { return KindDebugReset }
func (*DebugSnap) Kind() Kind               { return KindDebugSnap }
func (*DebugTick) Kind() Kind               { return KindDebugTick }
