package workload

import (
	"maps"
	"math"

	"abide/protocol"
)

// Answer is what a request must be answered: a status, and data as encoding/json would decode it, but
// with int64 for numbers. Data is nil where it is a text for a person, whose wording is free.
type Answer struct {
	Status int
	Data   any
}

func fail(status int) Answer { return Answer{Status: status} }

func ok(data any) Answer { return Answer{Status: protocol.StatusOK, Data: data} }

// object is a JSON object.
type object = map[string]any

func empty() object { return object{} }

// Model is the state of a server, all workspaces of it. It is not safe for concurrent use.
type Model struct {
	retryMs int64
	spaces  map[string]*space
}

// NewModel returns an empty server whose retry timeout is retryMs milliseconds, at least 1.
func NewModel(retryMs int64) *Model {
	return &Model{retryMs: retryMs, spaces: map[string]*space{}}
}

// space is the state of one workspace.
type space struct {
	retryMs   int64
	mark      int64 // largest debug instant of a request so far (section "Time")
	promises  map[string]*promise
	tasks     map[string]*task
	schedules map[string]*schedule
	executes  map[string]int64 // queued execute: task id -> version
	unblocks  map[unblock]bool

	// draining tells that a promise with many waiters was settled and no pass has finished since: a server may
	// still have some of them to wake, and what it shows until then is not compared.
	draining bool
}

// wholeDrain is how many waiters any server is taken to wake in the transaction of the settlement. Section 3 of
// docs/machine.md gives no figure.
const wholeDrain = 100

type promise struct {
	state        string
	param, value string // JSON
	tags         map[string]string
	timeoutAt    int64
	createdAt    int64
	settledAt    int64
	callbacks    map[string]bool
	listeners    map[string]bool
	waited       bool // a callback or listener was registered once
}

type task struct {
	state     string
	version   int64
	resumes   int64
	pid       string
	ttl       int64
	lease     int64
	retryAt   int64
	claimedAt int64
	hasty     int // explicit releases in a row, each less than a second after its claim
}

type schedule struct {
	cron           string
	promiseID      string
	promiseTimeout int64
	param          string
	tags           map[string]string
	createdAt      int64
	nextRunAt      int64
	lastRunAt      int64
	hasRun         bool
	over           bool // its cron never matches again
}

type unblock struct{ id, address string }

// States of promises and tasks, in this package's own spelling of the wire.
const (
	pending   = "pending"
	resolved  = "resolved"
	rejected  = "rejected"
	canceled  = "rejected_canceled"
	timedout  = "rejected_timedout"
	acquired  = "acquired"
	suspended = "suspended"
	halted    = "halted"
	fulfilled = "fulfilled"
)

func (m *Model) space(name string) *space {
	s := m.spaces[name]
	if s == nil {
		s = &space{retryMs: m.retryMs}
		s.clear()
		m.spaces[name] = s
	}
	return s
}

// clear is debug.reset.
func (s *space) clear() {
	*s = space{
		retryMs:   s.retryMs,
		promises:  map[string]*promise{},
		tasks:     map[string]*task{},
		schedules: map[string]*schedule{},
		executes:  map[string]int64{},
		unblocks:  map[unblock]bool{},
	}
}

// Apply does one request in a workspace at a debug instant, epoch milliseconds, and returns its answer. An
// instant before the workspace's mark is raised to it. A request that is refused with a 400 changes nothing,
// the mark included. Cursors are not modelled: a search answers everything that it finds, in order.
func (m *Model) Apply(workspace string, at int64, req protocol.Request) Answer {
	s := m.space(workspace)
	if at < 0 || !valid(req) {
		return fail(protocol.StatusInvalid)
	}
	if tick, is := req.(*protocol.DebugTick); is && tick.Time != at {
		return fail(protocol.StatusInvalid)
	}
	now := max(at, s.mark)
	s.mark = now
	return s.request(now, req)
}

// request is the table of section 3.
func (s *space) request(now int64, req protocol.Request) Answer {
	switch r := req.(type) {
	case *protocol.PromiseGet:
		return s.promiseGet(now, r.ID)
	case *protocol.PromiseCreate:
		return s.promiseCreate(now, r)
	case *protocol.PromiseSettle:
		return s.promiseSettle(now, r)
	case *protocol.PromiseRegisterCallback:
		return s.registerCallback(now, r.Awaited, r.Awaiter)
	case *protocol.PromiseRegisterListener:
		return s.registerListener(now, r.Awaited, r.Address)
	case *protocol.PromiseSearch:
		return s.promiseSearch(now, string(r.State), asMap(r.Tags))
	case *protocol.ScheduleGet:
		return s.scheduleGet(r.ID)
	case *protocol.ScheduleCreate:
		return s.scheduleCreate(now, r)
	case *protocol.ScheduleDelete:
		return s.scheduleDelete(r.ID)
	case *protocol.ScheduleSearch:
		return s.scheduleSearch(asMap(r.Tags))
	case *protocol.DebugSnap:
		return ok(s.snap(now))
	case *protocol.DebugReset:
		s.clear()
		return ok(empty())
	case *protocol.DebugTick:
		s.tick(now)
		return ok([]any{})
	case *protocol.DebugStart, *protocol.DebugStop:
		return ok(empty())
	default:
		return s.taskRequest(now, req)
	}
}

func (s *space) taskRequest(now int64, req protocol.Request) Answer {
	switch r := req.(type) {
	case *protocol.TaskGet:
		return s.taskGet(now, r.ID)
	case *protocol.TaskCreate:
		return s.taskCreate(now, r)
	case *protocol.TaskAcquire:
		return s.taskAcquire(now, r)
	case *protocol.TaskFence:
		return s.taskFence(now, r)
	case *protocol.TaskHeartbeat:
		return s.taskHeartbeat(now, r)
	case *protocol.TaskSuspend:
		return s.taskSuspend(now, r)
	case *protocol.TaskFulfill:
		return s.taskFulfill(now, r)
	case *protocol.TaskRelease:
		return s.taskRelease(now, r)
	case *protocol.TaskHalt:
		return s.taskHalt(now, r.ID)
	case *protocol.TaskContinue:
		return s.taskContinue(now, r.ID)
	case *protocol.TaskSearch:
		return s.taskSearch(now, string(r.State))
	default:
		return fail(protocol.StatusInvalid)
	}
}

// plus is a sum of times: it saturates.
func plus(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func asMap(tags protocol.Tags) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[t.Name] = t.Value
	}
	return out
}

// clone copies everything that a request may change.
func (m *Model) clone() *Model {
	out := NewModel(m.retryMs)
	for name, s := range m.spaces {
		c := &space{
			retryMs:   s.retryMs,
			mark:      s.mark,
			promises:  make(map[string]*promise, len(s.promises)),
			tasks:     make(map[string]*task, len(s.tasks)),
			schedules: make(map[string]*schedule, len(s.schedules)),
			executes:  maps.Clone(s.executes),
			unblocks:  maps.Clone(s.unblocks),
			draining:  s.draining,
		}
		for id, p := range s.promises {
			q := *p
			q.callbacks, q.listeners = maps.Clone(p.callbacks), maps.Clone(p.listeners)
			c.promises[id] = &q
		}
		for id, t := range s.tasks {
			u := *t
			c.tasks[id] = &u
		}
		for id, sc := range s.schedules {
			d := *sc
			c.schedules[id] = &d
		}
		out.spaces[name] = c
	}
	return out
}
