package workload

import (
	"fmt"
	"strings"

	"abide/protocol"
)

// chooser makes requests for a state and an instant.
type chooser struct {
	*Generator
	s       *space
	now     int64
	pool    []string
	aspects groups
	roughs  groups
}

// groups are the ids of a pool by something that they have in common, in the order in which it first comes up.
type groups struct {
	names []string
	ids   map[string][]string
}

func groupBy(pool []string, name func(id string) string) groups {
	g := groups{ids: map[string][]string{}}
	for _, id := range pool {
		n := name(id)
		if g.ids[n] == nil {
			g.names = append(g.names, n)
		}
		g.ids[n] = append(g.ids[n], id)
	}
	return g
}

func (g *Generator) chooser(pool []string, s *space, now int64) chooser {
	return chooser{
		Generator: g, s: s, now: now, pool: pool,
		aspects: groupBy(pool, func(id string) string { return s.aspect(now, id) }),
		roughs:  groupBy(pool, func(id string) string { return s.rough(now, id) }),
	}
}

// any is an id of the pool. First an aspect is drawn, then an id that has it: rare states come up as often as
// common ones.
func (c chooser) any() string {
	return pick(c.Generator, c.aspects.ids[pick(c.Generator, c.aspects.names...)]...)
}

// like is any among the ids whose aspect contains word, if there are some.
func (c chooser) like(word string) string {
	var names []string
	for _, name := range c.aspects.names {
		if strings.Contains(name, word) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return c.any()
	}
	return pick(c.Generator, c.aspects.ids[pick(c.Generator, names...)]...)
}

// task is an id for a request that makes sense in one state of its task: that state half of the time.
func (c chooser) task(state string) string {
	if c.rng.IntN(2) == 0 {
		return c.like("task " + state)
	}
	return c.any()
}

// other is an id that is not id; rough aspects are drawn evenly.
func (c chooser) other(id string) string {
	for {
		if other := pick(c.Generator, c.roughs.ids[pick(c.Generator, c.roughs.names...)]...); other != id {
			return other
		}
	}
}

// version is mostly the current one.
func (c chooser) version(id string) int64 {
	current := int64(0)
	if t := c.s.tasks[id]; t != nil {
		current = t.version
	}
	if c.rng.IntN(4) == 0 {
		return max(0, current+pick(c.Generator, int64(-1), 1, 1, 1<<62))
	}
	return current
}

// holder is mostly the pid that holds the task.
func (c chooser) holder(id string) string {
	if t := c.s.tasks[id]; t != nil && t.pid != "" && c.rng.IntN(4) > 0 {
		return t.pid
	}
	return c.pid()
}

func (c chooser) make(kind protocol.Kind) protocol.Request {
	switch kind {
	case protocol.KindPromiseGet:
		return &protocol.PromiseGet{ID: c.any()}
	case protocol.KindPromiseCreate:
		return new(c.create(c.any()))
	case protocol.KindPromiseSettle:
		return new(c.settle(c.any()))
	case protocol.KindPromiseRegisterCallback:
		awaited := c.any()
		return &protocol.PromiseRegisterCallback{Awaited: awaited, Awaiter: c.other(awaited)}
	case protocol.KindPromiseRegisterListener:
		return &protocol.PromiseRegisterListener{Awaited: c.any(), Address: c.address()}
	case protocol.KindPromiseSearch:
		return &protocol.PromiseSearch{
			State: pick(c.Generator, "", protocol.Pending, protocol.Resolved, protocol.Rejected, protocol.RejectedCanceled, protocol.RejectedTimedout),
			Tags:  c.filter(), Limit: c.limit(len(c.s.promises)),
		}
	case protocol.KindScheduleGet:
		return &protocol.ScheduleGet{ID: pick(c.Generator, scheduleIDs...)}
	case protocol.KindScheduleCreate:
		return c.schedule()
	case protocol.KindScheduleDelete:
		return &protocol.ScheduleDelete{ID: pick(c.Generator, scheduleIDs...)}
	case protocol.KindScheduleSearch:
		return &protocol.ScheduleSearch{Tags: pick(c.Generator, nil, protocol.Tags{{Name: "k", Value: "v"}}), Limit: pick(c.Generator, 0, 1, 2, 1000)}
	case protocol.KindDebugTick:
		return &protocol.DebugTick{}
	default:
		return c.makeTask(kind)
	}
}

func (c chooser) makeTask(kind protocol.Kind) protocol.Request {
	switch kind {
	case protocol.KindTaskGet:
		return &protocol.TaskGet{ID: c.any()}
	case protocol.KindTaskCreate:
		return c.taskCreate()
	case protocol.KindTaskAcquire:
		id := c.task(pending)
		return &protocol.TaskAcquire{ID: id, Version: c.version(id), PID: c.pid(), TTL: c.ttl()}
	case protocol.KindTaskFence:
		return c.fence(c.task(acquired))
	case protocol.KindTaskHeartbeat:
		return c.heartbeat()
	case protocol.KindTaskSuspend:
		return c.suspend(c.task(acquired))
	case protocol.KindTaskFulfill:
		id := c.task(acquired)
		return &protocol.TaskFulfill{ID: id, Version: c.version(id), Action: c.settle(id)}
	case protocol.KindTaskRelease:
		id := c.task(acquired)
		return &protocol.TaskRelease{ID: id, Version: c.version(id)}
	case protocol.KindTaskHalt:
		return &protocol.TaskHalt{ID: c.any()}
	case protocol.KindTaskContinue:
		return &protocol.TaskContinue{ID: c.task(halted)}
	default:
		return &protocol.TaskSearch{
			State: pick(c.Generator, "", protocol.TaskPending, protocol.TaskAcquired, protocol.TaskSuspended, protocol.TaskHalted, protocol.TaskFulfilled),
			Limit: c.limit(len(c.s.tasks)),
		}
	}
}

// limit is a page that makes a walk over n of some pages.
func (c chooser) limit(n int) int { return pick(c.Generator, 0, 1000, n/2+1, n/3+1, max(1, n), n/8+1) }

func (c chooser) filter() protocol.Tags {
	return pick(c.Generator, nil, nil, protocol.Tags{{Name: "k", Value: "v"}}, protocol.Tags{{Name: protocol.TagBranch, Value: "b1"}},
		protocol.Tags{{Name: "k", Value: "v"}, {Name: protocol.TagTimer, Value: "true"}}, protocol.Tags{{Name: "k", Value: "none"}},
		protocol.Tags{{Name: protocol.TagOrigin, Value: "r0"}}, protocol.Tags{{Name: protocol.TagSchedule, Value: scheduleIDs[0]}})
}

func (c chooser) address() string {
	return pick(c.Generator, "poll://any@g1", "poll://any@g2/w1", "poll://uni@g1/w1", "http://host.test/hook", "gcps://project/topic", "bash://docker/image:1")
}

// create makes the data of a promise.create: every flavour, and tags that are filters only.
func (c chooser) create(id string) protocol.PromiseCreate {
	r := protocol.PromiseCreate{ID: id, TimeoutAt: c.timeout(c.now), Param: c.payload()}
	set := func(name, value string) { r.Tags = r.Tags.With(name, value) }
	switch c.rng.IntN(12) {
	case 0:
	case 1:
		set(protocol.TagExternal, pick(c.Generator, "true", "true", "false"))
	case 2:
		set(protocol.TagTimer, pick(c.Generator, "true", "true", "yes"))
	case 3:
		set(protocol.TagTimer, "true")
		set(protocol.TagTarget, c.address())
	case 4, 5:
		set(protocol.TagTarget, c.address())
		if at := c.now + pick(c.Generator, int64(-1), 0, 1, 5, 1_000); at >= 0 && at < r.TimeoutAt {
			set(protocol.TagDelay, fmt.Sprint(at))
		}
	default:
		set(protocol.TagTarget, c.address())
	}
	if _, targeted := r.Tags.Get(protocol.TagTarget); !targeted && c.rng.IntN(2) == 0 {
		r.TimeoutAt = c.now + c.rng.Int64N(20) // what has no worker is over or waited for before long
	}
	c.decorate(set)
	return r
}

func (c chooser) decorate(set func(name, value string)) {
	if c.rng.IntN(3) == 0 {
		set(protocol.TagBranch, pick(c.Generator, "b1", "b2", ""))
	}
	if c.rng.IntN(4) == 0 {
		set("k", pick(c.Generator, "v", "w", ""))
	}
	if c.rng.IntN(6) == 0 {
		set(protocol.TagOrigin, pick(c.Generator, "r0", "r1.2", "elsewhere"))
		set(protocol.TagParent, pick(c.Generator, "r0", "x:y"))
		set(protocol.TagPrefix, pick(c.Generator, "r0", "a.b"))
	}
}

func (c chooser) settle(id string) protocol.PromiseSettle {
	return protocol.PromiseSettle{ID: id, State: pick(c.Generator, protocol.Resolved, protocol.Rejected, protocol.RejectedCanceled), Value: c.payload()}
}

func (c chooser) taskCreate() protocol.Request {
	r := &protocol.TaskCreate{PID: c.pid(), TTL: c.ttl(), Action: protocol.PromiseCreate{ID: c.any(), TimeoutAt: c.timeout(c.now), Param: c.payload()}}
	set := func(name, value string) { r.Action.Tags = r.Action.Tags.With(name, value) }
	set(protocol.TagTarget, c.address())
	c.decorate(set)
	return r
}

func (c chooser) fence(id string) protocol.Request {
	r := &protocol.TaskFence{ID: id, Version: c.version(id)}
	if c.rng.IntN(2) == 0 {
		r.Create = new(c.create(c.other(id)))
	} else {
		r.Settle = new(c.settle(c.other(id)))
	}
	return r
}

func (c chooser) heartbeat() protocol.Request {
	switch c.rng.IntN(5) {
	case 0:
		return &protocol.TaskHeartbeat{PID: c.pid()}
	case 1:
		r := &protocol.TaskHeartbeat{PID: c.pid()}
		for range 2 + c.rng.IntN(6) {
			id := c.task(acquired)
			r.Tasks = append(r.Tasks, protocol.TaskRef{ID: id, Version: c.version(id)})
		}
		return r
	default:
		id := c.task(acquired)
		return &protocol.TaskHeartbeat{PID: c.holder(id), Tasks: []protocol.TaskRef{{ID: id, Version: c.version(id)}}}
	}
}

func (c chooser) suspend(id string) protocol.Request {
	r := &protocol.TaskSuspend{ID: id, Version: c.version(id)}
	for {
		r.Awaited = append(r.Awaited, c.other(id))
		if c.rng.IntN(3) > 0 {
			return r
		}
	}
}

// scheduleIDs are all the schedules that there can be.
var scheduleIDs = []string{"s1", "s.2", "s/é:3", "at{{.timestamp}}", strings.Repeat("S", 100), "absent"}

func (c chooser) schedule() protocol.Request {
	r := &protocol.ScheduleCreate{
		ID:             pick(c.Generator, scheduleIDs[:len(scheduleIDs)-1]...),
		Cron:           pick(c.Generator, "* * * * *", "*/2 * * * *", "30 * * * * *", "*/20 * * * * *", "@hourly", "@yearly", "0 58,59 23 31 12 ? 2026", "1-3 0 ? 1 6", "0 0 0 1 1 ? 2020"),
		PromiseID:      pick(c.Generator, "{{.id}}.{{.timestamp}}", "{{.timestamp}}:{{.id}}:{{.timestamp}}", "once-{{.id}}", "{{.id}}", strings.Repeat("{{.id}}", 11)),
		PromiseTimeout: pick(c.Generator, int64(0), 1, 30_000, 60_000, 120_000, 3_600_000, 1<<62),
		PromiseParam:   c.payload(),
	}
	created := c.create("x")
	r.PromiseTags = created.Tags
	return r
}

// spoil breaks a rule of validation, if req is of a kind for which there is one here.
func (c chooser) spoil(req protocol.Request) {
	badID := pick(c.Generator, "", strings.Repeat("y", 1025), "nul\x00")
	switch r := req.(type) {
	case *protocol.PromiseGet:
		r.ID = badID
	case *protocol.PromiseCreate:
		c.spoilCreate(r)
	case *protocol.PromiseSettle:
		r.State = pick(c.Generator, protocol.Pending, protocol.RejectedTimedout, "", "RESOLVED")
	case *protocol.PromiseRegisterCallback:
		r.Awaiter = pick(c.Generator, r.Awaited, badID)
	case *protocol.PromiseRegisterListener:
		r.Address = c.badAddress()
	case *protocol.PromiseSearch:
		r.Limit = pick(c.Generator, -1, 1001)
	case *protocol.TaskCreate:
		c.spoilTaskCreate(r)
	case *protocol.TaskAcquire:
		r.TTL = pick(c.Generator, int64(0), -1)
	case *protocol.TaskFence:
		c.spoilFence(r)
	case *protocol.TaskHeartbeat:
		r.PID = badID
	case *protocol.TaskSuspend:
		r.Awaited = pick(c.Generator, nil, append(r.Awaited, r.ID))
	case *protocol.TaskFulfill:
		r.Action.ID = c.other(r.ID)
	case *protocol.TaskRelease:
		r.Version = -1
	case *protocol.ScheduleCreate:
		r.Cron = pick(c.Generator, "", "* * * *", "61 * * * *", "* * * * 0", "@reboot", "x", "5-1 * * * *")
	}
}

func (c chooser) badAddress() string {
	return pick(c.Generator, "", "default", "poll://g", "poll://other@g", "poll://any@", "ftp://h", "http://", "gcps://p", "//h")
}

func (c chooser) spoilCreate(r *protocol.PromiseCreate) {
	switch c.rng.IntN(4) {
	case 0:
		r.TimeoutAt = -1
	case 1:
		r.Tags = r.Tags.With(protocol.TagTarget, c.badAddress())
	case 2:
		r.Tags = protocol.Tags{{Name: protocol.TagDelay, Value: pick(c.Generator, "1", "x", "-1", "", "1.5")}}
	case 3:
		r.Tags = protocol.Tags{{Name: protocol.TagDelay, Value: fmt.Sprint(max(0, r.TimeoutAt))}, {Name: protocol.TagTarget, Value: c.address()}}
	}
}

func (c chooser) spoilTaskCreate(r *protocol.TaskCreate) {
	switch c.rng.IntN(4) {
	case 0:
		r.Action.Tags = nil
	case 1:
		r.Action.Tags = r.Action.Tags.With(protocol.TagTimer, "true")
	case 2:
		r.Action.Tags = r.Action.Tags.With(protocol.TagDelay, "1")
	case 3:
		c.spoilCreate(&r.Action)
	}
}

func (c chooser) spoilFence(r *protocol.TaskFence) {
	switch {
	case r.Settle != nil:
		r.Settle.ID = r.ID
	case c.rng.IntN(2) == 0:
		r.Create.ID = r.ID
	default:
		c.spoilCreate(r.Create)
	}
}
