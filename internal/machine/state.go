// Package machine is the abstract machine: what every request and every internal step does to promises,
// tasks and schedules, as pure functions of (state, instant, input). It reads no clock, starts no
// goroutine, logs nothing, draws nothing at random and knows no storage; whatever it needs is in the
// State it is given. The rules are those of the Distributed Async Await specification; where the
// reference server or an SDK differs, docs/protocol.md has the answer.
//
// The files are split as the specification is: external.go (requests), internal.go (timeouts, retries,
// leases, schedules, drains), transition.go (birth, settlement, resume, dispatch, claim), state.go (what
// there is) and properties.go (what must always hold).
package machine

import (
	"math"

	"abide/protocol"
)

// Object is a promise together with its task, one record. A machine function that changes one tells the
// State by Put; it never changes Tags, nor the bytes of a Payload, in place.
type Object struct {
	ID        string
	State     protocol.PromiseState
	Param     Payload
	Value     Payload
	Tags      protocol.Tags
	TimeoutAt int64
	CreatedAt int64
	SettledAt int64 // meaningful once State is not pending
	// Waited is set with the first callback or listener and never cleared: it arms the timeout of a
	// promise that nothing else arms.
	Waited bool
	// Task is nil iff the promise is not targeted.
	Task *Task
	// Trace is the trace of the request that created a targeted promise; nil if there was none. It goes into every
	// execute, decides nothing, and never changes.
	Trace *protocol.Trace
}

// Task is the execution half of an Object. Fields that the state does not call for are zero.
type Task struct {
	State   protocol.TaskState
	Version int64
	Resumes int64 // awaited promises that settled since the last claim or suspend

	// While acquired: who holds it, for how long at a time, until when. ArmedAt is where the lease timer
	// stands, at or before LeaseAt: a heartbeat moves the lease and leaves the timer.
	PID     string
	TTL     int64
	LeaseAt int64
	ArmedAt int64

	// While pending: when it is dispatched (again), and whether its execute is queued now. Queued and an
	// armed retry timer exclude each other.
	RetryAt int64
	Queued  bool

	// ClaimedAt is the instant of the last claim; Hasty counts explicit releases in a row that came less
	// than a second after their claim.
	ClaimedAt int64
	Hasty     int64
}

// Payload is a param or a value. A large one may live outside its record: then Ref names it, and Inline
// is nil until State.Payload has read it.
type Payload struct {
	Inline protocol.Value
	Ref    string // opaque to the machine; empty if Inline is all there is
	Size   int64  // bytes of the payload's JSON
}

// WaiterKind says what a waiter row holds.
type WaiterKind int64

// The kinds of waiter. The numbers are stored.
const (
	WaiterCallback WaiterKind = 1 // Waiter.To is the id of the awaiting task
	WaiterListener WaiterKind = 2 // Waiter.To is an address
)

// Waiter is one callback or listener of an awaited promise.
type Waiter struct {
	Awaited string
	Kind    WaiterKind
	To      string
}

// Unblock is a listener that has turned due: the message is to be sent to Address until it is delivered.
type Unblock struct {
	ID      string // the settled promise
	Address string
	DueAt   int64 // when it was queued
}

// Schedule is the record of a schedule. A disarmed one has no match any more.
type Schedule struct {
	ID             string
	Cron           string
	PromiseID      string
	PromiseTimeout int64
	PromiseParam   Payload
	PromiseTags    protocol.Tags
	CreatedAt      int64
	NextRunAt      int64
	LastRunAt      int64
	HasRun         bool
	Disarmed       bool
}

// PathKind is a way to enumerate candidates of a search.
type PathKind int

// The access paths. Every one yields a superset of what it names, in (tree, id) order; the caller
// re-checks each candidate.
const (
	PathAll       PathKind = iota // every object
	PathTag                       // objects with a user tag (or resonate:schedule) of that name and value
	PathOrigin                    // objects whose resonate:origin is Value
	PathBranch                    // objects whose resonate:branch is Value
	PathOpenTasks                 // objects with a task that is not fulfilled
)

// Path is an access path with its arguments.
type Path struct {
	Kind  PathKind
	Name  string
	Value string
}

// Page is one bounded step of an enumeration.
type Page struct {
	Objects []*Object
	// Next is the id after which the next step continues; empty when the enumeration has ended. It may be
	// an id that is not among Objects.
	Next string
	// Scanned counts the reads that the step took of the store: rows passed over, entries, and the records that
	// they lead to.
	Scanned int
}

// State is what one operation reads and writes: the machine's whole view of a workspace within one
// transaction. Reads see the operation's own writes. Any error comes from the store, aborts the operation
// and is passed on unchanged. Not safe for concurrent use.
type State interface {
	// Object returns the object, or nil if there is none. Within one State the same id always gives the
	// same pointer; changes to it are kept by Put and lost otherwise.
	Object(id string) (*Object, error)
	// Load reads many objects at once, so that Object finds them at hand.
	Load(ids []string) error
	// Put writes o, new or changed.
	Put(o *Object) error
	// Payload returns the whole payload of p, which belongs to an object read from this State.
	Payload(o *Object, p *Payload) (protocol.Value, error)

	// Waiters returns the first limit waiters of a promise, callbacks first.
	Waiters(awaited string, limit int) ([]Waiter, error)
	// PutWaiter adds a waiter; one that is there already stays as it is. DeleteWaiter removes it.
	PutWaiter(w Waiter) error
	DeleteWaiter(w Waiter) error

	// Draining reports whether a drain obligation names the promise; SetDraining makes or removes it.
	Draining(id string) (bool, error)
	SetDraining(id string, draining bool) error

	// PutUnblock queues an unblock message; one that is queued already stays as it is.
	PutUnblock(u Unblock) error

	// Enumerate returns the next candidates of a path after the given id, at most limit.
	Enumerate(p Path, after string, limit int) (Page, error)

	// Schedule returns the schedule, or nil.
	Schedule(id string) (*Schedule, error)
	PutSchedule(s *Schedule) error
	DeleteSchedule(id string) error
	// SchedulePayload returns the whole promiseParam of a schedule read from this State.
	SchedulePayload(s *Schedule) (protocol.Value, error)
	// Schedules returns the next schedules after the given id, in byte order of ids, at most limit.
	Schedules(after string, limit int) ([]*Schedule, error)
}

// Config is what an operator sets about the machine. Times are milliseconds.
type Config struct {
	// RetryTimeoutMs is how long a dispatched task may stay unclaimed before it is dispatched again; > 0.
	RetryTimeoutMs int64
}

// Bounds of one operation. They keep every transaction within the limits of the storage contract.
const (
	// drainWaiters and drainBytes bound how much of a drain is part of one transaction.
	drainWaiters = 256
	drainBytes   = 1 << 20
	// claimPreload bounds the preload of a claim or a refused suspend; fencePreload that of a fence, which
	// a worker receives at every step.
	claimPreloadCount = 1000
	claimPreloadBytes = 1 << 20
	fencePreloadCount = 64
	fencePreloadBytes = 64 << 10
	// A search page ends after that many reads or bytes. The storage contract gives one snapshot 10,000 reads;
	// the last step of a page takes up to 2,000, the payloads of its promises as many.
	searchReads = 5_000
	searchBytes = 4 << 20
	searchStep  = 500
	// occurrences and occurrenceBytes bound what one schedule step creates.
	occurrences     = 64
	occurrenceBytes = 1 << 20
)

// The rule of hasty releases (docs/machine.md section 3): from the hastyFrom-th release in a row that
// came less than hastyWithinMs after its claim, the next dispatch waits hastyFirstMs, doubled each time up
// to hastyMaxMs.
const (
	hastyWithinMs = 1000
	hastyFrom     = 4
	hastyFirstMs  = 100
	hastyMaxMs    = 5000
)

// Op is one operation: a request or an internal step at one instant. Make a new one for every attempt.
type Op struct {
	State  State
	Now    int64 // epoch ms, read once
	Config Config
	// ClaimedSince is the instant from which on an empty heartbeat vouches for its pid's claims: the start
	// of this server's life. 0: for all. (docs/decisions/0010)
	ClaimedSince int64
	// Projected is set when the answer shows a promise as settled by its deadline that is not stored as
	// settled yet: such an answer is only final once no older operation is under way.
	Projected bool
}

// IsTimer reports whether the promise resolves at its deadline and has no task.
func IsTimer(tags protocol.Tags) bool { return hasTrue(tags, protocol.TagTimer) }

// IsTargeted reports whether the promise has a task.
func IsTargeted(tags protocol.Tags) bool {
	_, ok := tags.Get(protocol.TagTarget)
	return ok && !IsTimer(tags)
}

// IsExternal reports whether the promise's timeout is armed from birth.
func IsExternal(tags protocol.Tags) bool {
	return IsTargeted(tags) || IsTimer(tags) || hasTrue(tags, protocol.TagExternal)
}

func hasTrue(tags protocol.Tags, name string) bool {
	v, ok := tags.Get(name)
	return ok && v == "true"
}

// Armed reports whether the promise has a durable timeout entry.
func (o *Object) Armed() bool {
	return o.State == protocol.Pending && (o.Waited || IsExternal(o.Tags))
}

// Target is the address that executes the object's task.
func (o *Object) Target() string {
	t, _ := o.Tags.Get(protocol.TagTarget)
	return t
}

// expired reports whether a pending promise is past its deadline: timeout always wins.
func expired(o *Object, now int64) bool {
	return o.State == protocol.Pending && o.TimeoutAt <= now
}

// timeoutState is what a promise becomes at its deadline.
func timeoutState(tags protocol.Tags) protocol.PromiseState {
	if IsTimer(tags) {
		return protocol.Resolved
	}
	return protocol.RejectedTimedout
}

// alive reports whether the promise reads as pending.
func (op *Op) alive(o *Object) bool { return o.State == protocol.Pending && o.TimeoutAt > op.Now }

// taskState is the state that the task reads as: fulfilled once its promise reads as settled.
func (op *Op) taskState(o *Object) protocol.TaskState {
	if !op.alive(o) {
		op.Projected = op.Projected || o.State == protocol.Pending
		return protocol.TaskFulfilled
	}
	return o.Task.State
}

// add is a sum of times that saturates at 2^63-1.
func add(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
