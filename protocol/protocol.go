// Package protocol is the wire: the kinds of request, their data, the records and messages that answers
// carry, validation, addresses, and the JSON of all of them. It decides nothing and stores nothing.
//
// Version 2026-04-01 of the Distributed Async Await protocol, as the released Resonate SDKs speak it.
package protocol

// Version is the only protocol version that is spoken; head.version must equal it.
const Version = "2026-04-01"

// DefaultWorkspace is the workspace of requests that name none.
const DefaultWorkspace = "default"

// Limits of what a request may hold, checked at the door with a 400 that names the limit (413 for the
// body). Keys of the store derive from the first four: a workspace and two ids must fit into one.
const (
	// MaxBodyBytes is the largest request body.
	MaxBodyBytes = 2 << 20
	// MaxBodyMembers is the largest number of members that the objects of one body may have together. The largest
	// legitimate request, a heartbeat for MaxHeartbeatTasks, has some 20,000. It bounds what decoding takes.
	MaxBodyMembers = 32_768
	// MaxIDBytes is the longest promise, task or schedule id, in bytes of UTF-8.
	MaxIDBytes = 1024
	// MaxWorkspaceBytes is the longest workspace name.
	MaxWorkspaceBytes = 64
	// MaxAddressBytes is the longest address of a target or a listener.
	MaxAddressBytes = 1024
	// MaxPIDBytes is the longest process id of a worker.
	MaxPIDBytes = 1024
	// MaxTagsBytes bounds the names and values of one promise's tags together.
	MaxTagsBytes = 32 << 10
	// MaxCronBytes is the longest cron expression.
	MaxCronBytes = 256
	// MaxSuspendActions is the largest number of awaited promises in one task.suspend.
	MaxSuspendActions = 2000
	// MaxHeartbeatTasks is the largest number of tasks in one task.heartbeat.
	MaxHeartbeatTasks = 10_000
	// MaxSearchLimit is the largest page of a search.
	MaxSearchLimit = 1000
)

// Defaults of a search's limit.
const (
	DefaultPromiseSearchLimit  = 100
	DefaultTaskSearchLimit     = 100
	DefaultScheduleSearchLimit = 10
)

// The tags that mean something to the server. All others are the user's own.
const (
	TagTarget   = "resonate:target"   // address that executes the promise's task
	TagTimer    = "resonate:timer"    // "true": resolves at its deadline, has no task
	TagExternal = "resonate:external" // "true": its timeout is armed from birth
	TagDelay    = "resonate:delay"    // first dispatch not before this instant (decimal ms)
	TagOrigin   = "resonate:origin"   // root of the call tree; searched by `tree`
	TagBranch   = "resonate:branch"   // preload group
	TagParent   = "resonate:parent"   // filter only
	TagPrefix   = "resonate:prefix"   // filter only
	TagScope    = "resonate:scope"    // filter only
	TagSchedule = "resonate:schedule" // schedule that made the promise
)

// Kind is the kind of a request.
type Kind string

// Every kind of request, in the order of docs/machine.md section 3.
const (
	KindPromiseGet              Kind = "promise.get"
	KindPromiseCreate           Kind = "promise.create"
	KindPromiseSettle           Kind = "promise.settle"
	KindPromiseRegisterCallback Kind = "promise.register_callback"
	KindPromiseRegisterListener Kind = "promise.register_listener"
	KindPromiseSearch           Kind = "promise.search"
	KindTaskGet                 Kind = "task.get"
	KindTaskCreate              Kind = "task.create"
	KindTaskAcquire             Kind = "task.acquire"
	KindTaskFence               Kind = "task.fence"
	KindTaskHeartbeat           Kind = "task.heartbeat"
	KindTaskSuspend             Kind = "task.suspend"
	KindTaskFulfill             Kind = "task.fulfill"
	KindTaskRelease             Kind = "task.release"
	KindTaskHalt                Kind = "task.halt"
	KindTaskContinue            Kind = "task.continue"
	KindTaskSearch              Kind = "task.search"
	KindScheduleGet             Kind = "schedule.get"
	KindScheduleCreate          Kind = "schedule.create"
	KindScheduleDelete          Kind = "schedule.delete"
	KindScheduleSearch          Kind = "schedule.search"
	KindDebugStart              Kind = "debug.start"
	KindDebugStop               Kind = "debug.stop"
	KindDebugReset              Kind = "debug.reset"
	KindDebugSnap               Kind = "debug.snap"
	KindDebugTick               Kind = "debug.tick"
)

// Statuses of a reply; the HTTP status of the answer is the same number.
const (
	StatusOK              = 200
	StatusPreload         = 300 // task.suspend: an awaited promise is already settled
	StatusInvalid         = 400
	StatusUnauthorized    = 401
	StatusForbidden       = 403
	StatusNotFound        = 404
	StatusConflict        = 409
	StatusUnprocessable   = 422
	StatusTooManyRequests = 429 // the workspace has more than its share of the server; nothing was changed, come back after Retry-After
	StatusInternal        = 500
	StatusUnsupported     = 501
	StatusUnavailable     = 503
)
