package conform

import (
	"strconv"

	"abide/protocol"
)

// debugStart is the debug time at which these checks begin.
const debugStart = int64(2_000_000_000_000)

// checkDebug uses the debug clock, in a workspace of the checks' own: elsewhere it would stop the timers of
// others, or delete what they have.
func checkDebug(p *probe) {
	first := p.ask("debug.snap", object{})
	switch {
	case first.status == 403:
		p.judge("debug requests are refused", first, "debug.snap", lastCorrID(first), 403)
		p.skip("the debug clock", "the server does not allow debug requests")
		return
	case !p.own:
		p.skip("the debug clock", "the server has no workspace for these checks alone; debug requests would disturb others")
		return
	}
	p.expect("start", "debug.start", object{}, 200)
	p.expect("reset", "debug.reset", object{}, 200)
	p.made, p.order = map[string]bool{}, nil // the reset has deleted them
	at := debugStart
	p.clock = &at
	defer func() {
		p.clock = nil
		p.expect("stop", "debug.stop", object{}, 200)
		p.expect("reset at the end", "debug.reset", object{}, 200)
		p.made, p.order = map[string]bool{}, nil
	}()
	p.debugPromises(&at)
	p.debugTasks(&at)
	p.debugSchedules(&at)
	p.expect("a tick at another time than the request's", "debug.tick", object{"time": at + 1}, 400)
	p.expect("a tick without a time", "debug.tick", object{}, 400)
}

func lastCorrID(a answer) string {
	id, _ := member(member(a.fields, "head"), "corrId").(string)
	return id
}

// tick makes a pass after some milliseconds.
func (p *probe) tick(at *int64, afterMs int64) {
	*at += afterMs
	p.expect("tick", "debug.tick", object{"time": *at}, 200, is("", []any{}))
}

func (p *probe) debugPromises(at *int64) {
	id := p.id("d")
	p.expect("createdAt is the debug time", "promise.create", object{"id": id, "timeoutAt": *at + 100, "tags": object{protocol.TagTimer: "true"}}, 200,
		is("promise.createdAt", *at), is("promise.state", "pending"))
	*at += 99
	p.expect("pending a millisecond before the deadline", "promise.get", object{"id": id}, 200, is("promise.state", "pending"))
	*at++
	p.expect("over at the deadline, without a tick", "promise.get", object{"id": id}, 200, is("promise.state", "resolved"), is("promise.settledAt", *at))
	p.expect("the snapshot shows it", "debug.snap", object{}, 200, is("promises.0.state", "resolved"),
		has("promiseTimeouts"), has("callbacks"), has("listeners"), has("tasks"), has("taskTimeouts"), has("messages"))
	*at -= 50
	p.expect("an earlier debug time does not turn time back", "promise.create", object{"id": p.id("d-back"), "timeoutAt": *at + 1000}, 200,
		is("promise.createdAt", *at+50))
	*at += 50
}

func (p *probe) debugTasks(at *int64) {
	id, on := p.id("d-task"), p.id("d-on")
	begin := object{"pid": "v", "ttl": 1000, "action": action("promise.create", object{"id": id, "timeoutAt": *at + 1_000_000, "tags": p.target("-debug")})}
	p.expect("task.create", "task.create", begin, 200, is("task.version", 1))
	p.tick(at, 999)
	p.expect("the lease holds", "task.get", object{"id": id}, 200, is("task.state", "acquired"))
	p.tick(at, 1)
	p.expect("the lease ends", "task.get", object{"id": id}, 200, is("task.state", "pending"), is("task.version", 1))
	p.expect("acquire", "task.acquire", claim(id, 1, "v", 1000), 200)
	*at += 600
	p.expect("heartbeat", "task.heartbeat", object{"pid": "v", "tasks": []any{ref(id, 2)}}, 200, lacks("lost"))
	p.tick(at, 999)
	p.expect("the renewed lease holds", "task.get", object{"id": id}, 200, is("task.state", "acquired"))
	p.expect("a promise to wait for", "promise.create", object{"id": on, "timeoutAt": *at + 500}, 200)
	p.expect("suspend", "task.suspend", suspend(id, 2, on), 200)
	p.tick(at, 499)
	p.expect("still suspended", "task.get", object{"id": id}, 200, is("task.state", "suspended"))
	p.tick(at, 1)
	p.expect("the awaited promise's timeout resumes", "task.get", object{"id": id}, 200, is("task.state", "pending"), is("task.resumes", 1))
	p.expect("settle", "promise.settle", object{"id": id, "state": "resolved"}, 200, is("promise.settledAt", *at))
}

func (p *probe) debugSchedules(at *int64) {
	id := p.config.Prefix + "-debug"
	minute := (*at/60_000 + 1) * 60_000
	p.expect("a schedule of every minute", "schedule.create", object{
		"id": id, "cron": "* * * * *", "promiseId": p.config.Prefix + ".run-{{.timestamp}}", "promiseTimeout": 600_000, "promiseTags": p.target("-debug"),
	}, 200, is("schedule.nextRunAt", minute))
	p.tick(at, minute+120_000-*at)
	p.expect("missed runs are made up for", "schedule.get", object{"id": id}, 200, is("schedule.lastRunAt", minute+120_000), is("schedule.nextRunAt", minute+180_000))
	for n := range int64(3) {
		when := minute + n*60_000
		p.expect("a run", "promise.get", object{"id": p.run(when)}, 200, is("promise.createdAt", when), is("promise.timeoutAt", when+600_000),
			is("promise.tags."+protocol.TagSchedule, id), is("promise.tags."+protocol.TagOrigin, p.run(when)))
	}
	p.expect("delete", "schedule.delete", object{"id": id}, 200)
}

// run is the id of a schedule's promise.
func (p *probe) run(at int64) string { return p.id("run-" + strconv.FormatInt(at, 10)) }
