package workload

import (
	"fmt"

	"abide/protocol"
)

// plan is a story of several requests that chance alone would hardly tell.
func (g *Generator) plan() []planned {
	switch n := g.rng.IntN(12); {
	case n < 5:
		return g.corner()
	case n == 5 && g.BigDrain > 0:
		return g.bigDrain()
	}
	switch g.rng.IntN(9) {
	case 0:
		return g.hastyReleases()
	case 1:
		return g.concurrentAcquires()
	case 2:
		return g.lapsedLease()
	case 3:
		return g.manyAwaits()
	case 4:
		return g.lateAwaiter()
	case 5:
		return g.catchUp()
	case 6, 7:
		return g.resumedWhileHeld()
	default:
		return g.timers()
	}
}

// corner brings a promise into one of the states that there are, and another one, and surveys the two.
func (g *Generator) corner() []planned {
	id, other := g.freshID(), g.freshID()
	life := pick(g, int64(100), farMs)
	tags := flavours[2] // of the others there is less to see
	if g.rng.IntN(4) == 0 {
		tags = pick(g, flavours...)
	}
	create := at(0, func(now int64) protocol.Request {
		return &protocol.PromiseCreate{ID: id, TimeoutAt: now + life, Tags: tags}
	})
	dispatchAfterMs := pick(g, 50, life-1) // before and after what lives shortest
	delay := at(0, func(now int64) protocol.Request {
		return &protocol.PromiseCreate{ID: id, TimeoutAt: now + life, Tags: flavours[2].With(protocol.TagDelay, fmt.Sprint(now+dispatchAfterMs))}
	})
	suspended := []planned{create, acquire(id, "p1", 0, 1_000), resolvable(id + "-z"), suspend(id, 0, id+"-z")}
	halted := []planned{create, about(&protocol.TaskHalt{ID: id})}
	steps := pick(g,
		suspended, suspended, halted, halted,
		[]planned{create}, []planned{delay}, []planned{delay}, []planned{delay, pass(60)}, []planned{create, pass(30_000)},
		[]planned{create, acquire(id, "p1", 0, 1_000)}, []planned{create, acquire(id, "p1", 0, 10), pass(20)},
		[]planned{create, resolve(id, 0)}, nil)
	waited := at(0, func(int64) protocol.Request {
		return &protocol.PromiseRegisterListener{Awaited: id, Address: "poll://uni@plan/l"}
	})
	if g.rng.IntN(2) == 0 && len(steps) > 0 {
		steps = append(steps[:1:1], append([]planned{waited}, steps[1:]...)...)
	}
	otherLife, otherTags := pick(g, int64(100), farMs), pick(g, flavours[0], flavours[2], flavours[2], flavours[4])
	createOther := at(0, func(now int64) protocol.Request {
		return &protocol.PromiseCreate{ID: other, TimeoutAt: now + otherLife, Tags: otherTags}
	})
	steps = append(steps, pick(g, nil, []planned{createOther}, []planned{createOther}, []planned{createOther, resolve(other, 0)})...)
	steps = append(steps, pass(pick(g, int64(0), 100)))
	return append(steps, g.survey(id, other)...)
}

// survey asks about a corner: first some of what its task's worker could ask, right or wrong, which is refused and so
// leaves the corner as it is unless the task is held; then anything.
func (g *Generator) survey(id, other string) []planned {
	var steps []planned
	for _, n := range g.rng.Perm(surveyKinds)[:surveyed] {
		steps = append(steps, planned{0, func(s *space, _ int64) protocol.Request {
			version := int64(0)
			if t := s.tasks[id]; t != nil {
				version = t.version
			}
			return surveyRequest(n, id, other, version)
		}})
	}
	for range 2 {
		steps = append(steps, planned{0, func(s *space, now int64) protocol.Request {
			return g.leastTried(g.chooser([]string{id, other}, s, now), candidates)
		}})
	}
	return steps
}

// surveyed is how many of the surveyKinds different requests of surveyRequest a corner is asked.
const (
	surveyKinds = 14
	surveyed    = 8
)

// surveyRequest is the n-th request about id that looks at its version, at another promise, or at both.
func surveyRequest(n int, id, other string, version int64) protocol.Request {
	if n%2 == 1 {
		version++
	}
	settle := &protocol.PromiseSettle{ID: other, State: protocol.Resolved}
	switch n / 2 {
	case 0:
		return &protocol.TaskFence{ID: id, Version: version, Create: &protocol.PromiseCreate{ID: other}}
	case 1:
		return &protocol.TaskFence{ID: id, Version: version, Settle: settle}
	case 2:
		return &protocol.TaskSuspend{ID: id, Version: version, Awaited: []string{other}}
	case 3:
		return &protocol.TaskHeartbeat{PID: "p1", Tasks: []protocol.TaskRef{{ID: id, Version: version}}}
	case 4:
		return &protocol.TaskRelease{ID: id, Version: version}
	case 5:
		return &protocol.TaskFulfill{ID: id, Version: version, Action: protocol.PromiseSettle{ID: id, State: protocol.Rejected}}
	default:
		if n%2 == 1 {
			id, other = other, id
		}
		return &protocol.PromiseRegisterCallback{Awaited: id, Awaiter: other}
	}
}

// pass lets time pass, with a request that changes nothing else.
func pass(after int64) planned {
	return at(after, func(int64) protocol.Request { return &protocol.PromiseGet{ID: "absent"} })
}

func resolvable(id string) planned {
	return at(0, func(now int64) protocol.Request { return &protocol.PromiseCreate{ID: id, TimeoutAt: now + farMs} })
}

// about is a step that needs to know nothing.
func about(req protocol.Request) planned {
	return at(0, func(int64) protocol.Request { return req })
}

// at makes a step that needs to know the instant only.
func at(after int64, make func(now int64) protocol.Request) planned {
	return planned{after, func(_ *space, now int64) protocol.Request { return make(now) }}
}

func (g *Generator) newTask(id string, lifeMs int64) planned {
	return at(0, func(now int64) protocol.Request {
		return &protocol.PromiseCreate{ID: id, TimeoutAt: plus(now, lifeMs), Tags: protocol.Tags{{Name: protocol.TagTarget, Value: "poll://any@plan"}}}
	})
}

// acquire claims a task at its current version.
func acquire(id, pid string, after, ttl int64) planned {
	return planned{after, func(s *space, _ int64) protocol.Request {
		if s.tasks[id] == nil {
			return nil
		}
		return &protocol.TaskAcquire{ID: id, Version: s.tasks[id].version, PID: pid, TTL: ttl}
	}}
}

func release(id string, after int64) planned {
	return planned{after, func(s *space, _ int64) protocol.Request {
		if s.tasks[id] == nil {
			return nil
		}
		return &protocol.TaskRelease{ID: id, Version: s.tasks[id].version}
	}}
}

func suspend(id string, after int64, awaited ...string) planned {
	return planned{after, func(s *space, _ int64) protocol.Request {
		if s.tasks[id] == nil {
			return nil
		}
		return &protocol.TaskSuspend{ID: id, Version: s.tasks[id].version, Awaited: awaited}
	}}
}

func tick(after int64) planned {
	return at(after, func(now int64) protocol.Request { return &protocol.DebugTick{Time: now} })
}

func snap() planned { return about(&protocol.DebugSnap{}) }

func resolve(id string, after int64) planned {
	return at(after, func(int64) protocol.Request { return &protocol.PromiseSettle{ID: id, State: protocol.Resolved} })
}

// hastyReleases makes a row of them, and breaks it now and then in one of the ways there are.
func (g *Generator) hastyReleases() []planned {
	id := g.freshID()
	steps := []planned{g.newTask(id, farMs)}
	for range 6 + g.rng.IntN(8) {
		steps = append(steps, acquire(id, "p1", pick(g, int64(0), 100, 200, 5000), 60_000))
		pause := pick(g, int64(0), 0, 0, 1, 999)
		switch g.rng.IntN(14) {
		case 0:
			pause = 1000
		case 1:
			steps = append(steps, g.resumed(id)...)
		case 2:
			steps = append(steps, about(&protocol.TaskHalt{ID: id}), about(&protocol.TaskContinue{ID: id}), acquire(id, "p1", 0, 60_000))
		case 3:
			child := g.freshID()
			steps = append(steps, resolvable(child), suspend(id, 0, child), resolve(child, 0), acquire(id, "p1", 0, 60_000))
		case 4:
			steps = append(steps, tick(60_000), acquire(id, "p1", 0, 60_000))
		}
		steps = append(steps, release(id, pause), snap())
	}
	return append(steps, tick(pick(g, int64(0), 99, 100, 199, 400, 5000)), snap())
}

// resumed lets a promise settle that a task waits for, whatever state the task is in.
func (g *Generator) resumed(id string) []planned {
	child := g.freshID()
	return []planned{
		resolvable(child), about(&protocol.PromiseRegisterCallback{Awaited: child, Awaiter: id}), resolve(child, 0), about(&protocol.TaskGet{ID: id}),
	}
}

// resumedWhileHeld counts resumes in a task that is held, halted or pending, and has it suspend then.
func (g *Generator) resumedWhileHeld() []planned {
	id, ready, child := g.freshID(), g.freshID(), g.freshID()
	steps := []planned{g.newTask(id, farMs), resolvable(ready), resolve(ready, 0), resolvable(child)}
	if g.rng.IntN(2) == 0 {
		steps = append(steps, g.resumed(id)...)
	}
	steps = append(steps, acquire(id, "p1", 0, 5_000))
	for range 1 + g.rng.IntN(2) {
		steps = append(steps, g.resumed(id)...)
	}
	steps = append(steps, pick(g,
		[]planned{suspend(id, 0, child)}, []planned{suspend(id, 0, child, ready)}, []planned{suspend(id, 0, ready)}, []planned{release(id, 0)}, []planned{tick(5_000)},
		[]planned{about(&protocol.TaskHalt{ID: id}), about(&protocol.TaskContinue{ID: id})})...)
	return append(steps, about(&protocol.TaskGet{ID: id}), resolve(child, 0), about(&protocol.TaskGet{ID: id}), acquire(id, "p1", 0, 5_000), snap())
}

func (g *Generator) concurrentAcquires() []planned {
	id := g.freshID()
	return []planned{
		g.newTask(id, farMs), acquire(id, "p1", 0, 5_000),
		at(0, func(int64) protocol.Request {
			return &protocol.TaskAcquire{ID: id, Version: 0, PID: "p2", TTL: 5_000}
		}),
		acquire(id, "p2", 0, 5_000), release(id, 0),
		at(0, func(int64) protocol.Request {
			return &protocol.TaskAcquire{ID: id, Version: 0, PID: "p2", TTL: 5_000}
		}),
		acquire(id, "p2", 0, 5_000), snap(),
	}
}

// lapsedLease lets a lease end, has the task claimed again, and lets the first worker act on.
func (g *Generator) lapsedLease() []planned {
	id := g.freshID()
	old := func(after int64) planned {
		return at(after, func(int64) protocol.Request {
			return &protocol.TaskHeartbeat{PID: "p1", Tasks: []protocol.TaskRef{{ID: id, Version: 1}}}
		})
	}
	return []planned{
		g.newTask(id, farMs), acquire(id, "p1", 0, 50), tick(49), old(0), tick(pick(g, int64(49), 50, 51)), snap(), old(0),
		acquire(id, "p2", pick(g, int64(0), 1), 50), old(0),
		about(&protocol.TaskRelease{ID: id, Version: 1}),
		at(0, func(int64) protocol.Request {
			return &protocol.TaskFulfill{ID: id, Version: 1, Action: protocol.PromiseSettle{ID: id, State: protocol.Resolved}}
		}),
		snap(), tick(50), snap(),
	}
}

// manyAwaits suspends on several promises, which settle one after the other.
func (g *Generator) manyAwaits() []planned {
	id := g.freshID()
	steps := []planned{g.newTask(id, farMs), acquire(id, "p1", 0, 5_000)}
	var awaited []string
	for range 2 + g.rng.IntN(3) {
		child := g.freshID()
		awaited = append(awaited, child)
		life := pick(g, int64(farMs), 20, 2_000)
		steps = append(steps, at(0, func(now int64) protocol.Request { return &protocol.PromiseCreate{ID: child, TimeoutAt: now + life} }))
	}
	steps = append(steps, suspend(id, 0, append(awaited, awaited[0])...), snap())
	for i, child := range awaited {
		steps = append(steps, pick(g, resolve(child, 1), tick(20), tick(2_000)))
		if i == 0 {
			steps = append(steps, acquire(id, "p1", 0, 5_000), suspend(id, 0, awaited[len(awaited)-1]))
		}
		steps = append(steps, snap())
	}
	return steps
}

// lateAwaiter suspends a task on a promise that outlives it.
func (g *Generator) lateAwaiter() []planned {
	id, child := g.freshID(), g.freshID()
	return []planned{
		g.newTask(id, 100), acquire(id, "p1", 0, 5_000), g.newTask(child, farMs), suspend(id, 0, child),
		pick(g, tick(99), snap()), resolve(child, pick(g, int64(0), 1, 100)), snap(), tick(0), snap(),
	}
}

// timers sleeps the two ways SDKs do, each with somebody who waits.
func (g *Generator) timers() []planned {
	id, timer := g.freshID(), g.freshID()
	tags := protocol.Tags{{Name: protocol.TagTimer, Value: "true"}}
	if g.rng.IntN(2) == 0 {
		tags = tags.With(protocol.TagTarget, "poll://any@plan")
	}
	return []planned{
		g.newTask(id, farMs), acquire(id, "p1", 0, 5_000),
		at(0, func(now int64) protocol.Request {
			return &protocol.PromiseCreate{ID: timer, TimeoutAt: now + 50, Tags: tags}
		}),
		suspend(id, 0, timer), tick(pick(g, int64(49), 50)), snap(), tick(1), acquire(id, "p1", 0, 5_000), snap(),
	}
}

// catchUp lets a schedule miss more occurrences than a server makes in one transaction.
func (g *Generator) catchUp() []planned {
	id := scheduleIDs[0]
	tags := protocol.Tags{{Name: "k", Value: "v"}}
	if g.rng.IntN(2) == 0 {
		tags = tags.With(protocol.TagTarget, "poll://any@plan")
	}
	life := pick(g, int64(farMs), 30_000, 0)
	return []planned{
		about(&protocol.ScheduleDelete{ID: id}),
		at(0, func(int64) protocol.Request {
			return &protocol.ScheduleCreate{ID: id, Cron: "* * * * * *", PromiseID: "{{.id}}:{{.timestamp}}", PromiseTimeout: life, PromiseTags: tags}
		}),
		tick(pick(g, int64(999), 1_000, 3_000, 70_000)), about(&protocol.ScheduleGet{ID: id}),
		about(&protocol.ScheduleDelete{ID: id}), snap(),
	}
}

// bigDrain gives a promise more listeners and waiters than a server wakes in one transaction, and settles it.
// Right after that a pass finishes what was left, so that the state is comparable again.
func (g *Generator) bigDrain() []planned {
	awaited := g.freshID()
	steps := []planned{at(0, func(now int64) protocol.Request { return &protocol.PromiseCreate{ID: awaited, TimeoutAt: now + farMs} })}
	for i := range g.BigDrain {
		if i%10 == 0 {
			waiter := g.freshID()
			steps = append(steps, g.newTask(waiter, farMs), acquire(waiter, "p1", 0, 60_000), suspend(waiter, 0, awaited))
		}
		steps = append(steps, at(0, func(int64) protocol.Request {
			return &protocol.PromiseRegisterListener{Awaited: awaited, Address: fmt.Sprintf("poll://uni@big/%d", i)}
		}))
	}
	if g.rng.IntN(2) == 0 {
		return append(steps, snap(), tick(farMs), snap())
	}
	return append(steps, snap(), resolve(awaited, 0), tick(0), snap())
}
