package conform

import (
	"abide/protocol"
)

// leaseMs is a lease that outlasts the checks of one task.
const leaseMs = 60_000

// action wraps the data of a request inside another.
func action(kind string, data object) object {
	return object{"kind": kind, "head": object{}, "data": data}
}

// begin is the data of a task.create.
func (p *probe) begin(id string) object {
	return object{"pid": "v1", "ttl": leaseMs, "action": action("promise.create", object{"id": id, "timeoutAt": p.later(), "tags": p.target("-nobody")})}
}

// held makes a task that is acquired at version 1.
func (p *probe) held(name string) string {
	id := p.id(name)
	p.ask("task.create", p.begin(id))
	return id
}

// queued makes a task that is pending at version 0.
func (p *probe) queued(name string) string {
	id := p.id(name)
	p.ask("promise.create", object{"id": id, "timeoutAt": p.later(), "tags": p.target("-nobody")})
	return id
}

// open makes a plain promise.
func (p *probe) plain(name string) string {
	id := p.id(name)
	p.ask("promise.create", object{"id": id, "timeoutAt": p.later()})
	return id
}

func ref(id string, version int64) object { return object{"id": id, "version": version} }

func claim(id string, version int64, pid string, ttl int64) object {
	return object{"id": id, "version": version, "pid": pid, "ttl": ttl}
}

func fulfil(id string, version int64, inner string) object {
	return object{"id": id, "version": version, "action": action("promise.settle", object{"id": inner, "state": "resolved", "value": object{"data": "1"}})}
}

func checkTasks(p *probe) {
	id := p.id("t")
	p.expect("get of an unknown task", "task.get", object{"id": id}, 404)
	p.expect("create", "task.create", p.begin(id), 200,
		is("task.id", id), is("task.state", "acquired"), is("task.version", 1), is("task.resumes", 0), is("task.pid", "v1"), is("task.ttl", leaseMs),
		is("promise.id", id), is("promise.state", "pending"), is("preload", []any{}))
	p.expect("create of an acquired one", "task.create", p.begin(id), 409)
	p.expect("get", "task.get", object{"id": id}, 200, is("task.state", "acquired"), is("task.version", 1))
	p.expect("acquire of an acquired one", "task.acquire", claim(id, 1, "v2", leaseMs), 409)
	p.expect("release at another version", "task.release", ref(id, 0), 409)
	p.expect("release", "task.release", ref(id, 1), 200)
	p.expect("released: pending, same version, no holder", "task.get", object{"id": id}, 200,
		is("task.state", "pending"), is("task.version", 1), lacks("task.pid"), lacks("task.ttl"))
	p.expect("release of a pending one", "task.release", ref(id, 1), 409)
	p.expect("acquire at an old version", "task.acquire", claim(id, 0, "v2", leaseMs), 409)
	p.expect("acquire", "task.acquire", claim(id, 1, "v2", leaseMs), 200,
		is("task.state", "acquired"), is("task.version", 2), is("task.pid", "v2"), is("promise.id", id), has("preload"))
	p.expect("fulfil at an old version", "task.fulfill", fulfil(id, 1, id), 409)
	p.expect("fulfil", "task.fulfill", fulfil(id, 2, id), 200, is("promise.state", "resolved"), is("promise.value", object{"data": "1"}))
	p.expect("fulfil again", "task.fulfill", fulfil(id, 2, id), 409)
	p.expect("fulfilled: same version, no holder", "task.get", object{"id": id}, 200,
		is("task.state", "fulfilled"), is("task.version", 2), is("task.resumes", 0), lacks("task.pid"))
	p.expect("create of a fulfilled one", "task.create", p.begin(id), 200, is("task.state", "fulfilled"), is("promise.state", "resolved"))
	p.expect("acquire of a fulfilled one", "task.acquire", claim(id, 2, "v1", leaseMs), 409)
	p.expect("create of a pending one claims it", "task.create", p.begin(p.queued("t-queued")), 200, is("task.state", "acquired"), is("task.version", 1))
	p.expect("create of a promise without a task", "task.create", p.begin(p.plain("t-plain")), 422)
	p.expect("get of a promise without a task", "task.get", object{"id": p.id("t-plain")}, 404)
	settled := p.held("t-settled")
	p.expect("settle of the promise of an acquired task", "promise.settle", object{"id": settled, "state": "rejected"}, 200, is("promise.state", "rejected"))
	p.expect("fulfils it", "task.get", object{"id": settled}, 200, is("task.state", "fulfilled"))
	late := p.begin(p.id("t-late"))
	late["action"].(object)["data"].(object)["timeoutAt"] = 1
	p.expect("create after its deadline", "task.create", late, 200,
		is("task.state", "fulfilled"), is("task.version", 0), is("promise.state", "rejected_timedout"), is("preload", []any{}))
}

// checkTaskOrder checks that a request is judged in the order 400, 404, 409, 422, 300.
func checkTaskOrder(p *probe) {
	none := p.config.Prefix + ".no-task"
	id := p.held("order")
	p.expect("a bad ttl before an unknown task", "task.acquire", claim(none, 0, "v", 0), 400)
	p.expect("a bad version before an unknown task", "task.release", ref(none, -1), 400)
	p.expect("an empty pid before an unknown task", "task.acquire", claim(none, 0, "", 1), 400)
	p.expect("another id inside before an unknown task", "task.fulfill", fulfil(none, 0, id), 400)
	p.expect("an empty suspend before an unknown task", "task.suspend", object{"id": none, "version": 0, "actions": []any{}}, 400)
	for _, kind := range []string{"task.release", "task.halt", "task.continue"} {
		p.expect(kind+" of an unknown task", kind, ref(none, 0), 404)
	}
	p.expect("task.acquire of an unknown task", "task.acquire", claim(none, 0, "v", 1), 404)
	p.expect("task.fulfill of an unknown task", "task.fulfill", fulfil(none, 0, none), 404)
	p.expect("task.suspend of an unknown task", "task.suspend", suspend(none, 0, id), 404)
	p.expect("task.fence of an unknown task", "task.fence", fence(none, 0, "promise.settle", object{"id": id, "state": "resolved"}), 404)
	p.expect("an old version before an unknown awaited", "task.suspend", suspend(id, 0, none), 409)
	settled := p.plain("order-settled")
	p.ask("promise.settle", object{"id": settled, "state": "resolved"})
	p.expect("an unknown awaited before a settled one", "task.suspend", suspend(id, 1, settled, none), 422)
	p.expect("still held", "task.get", object{"id": id}, 200, is("task.state", "acquired"), is("task.version", 1))
	untargeted := object{"pid": "v", "ttl": 1, "action": action("promise.create", object{"id": p.id("order-free"), "timeoutAt": p.later()})}
	p.expect("task.create without a target", "task.create", untargeted, 400)
	delayed := p.begin(p.id("order-free"))
	delayed["action"].(object)["data"].(object)["tags"].(object)[protocol.TagDelay] = "1"
	p.expect("task.create with a delay", "task.create", delayed, 400)
	p.expect("nothing was created", "promise.get", object{"id": p.id("order-free")}, 404)
}

func fence(id string, version int64, kind string, data object) object {
	return object{"id": id, "version": version, "action": action(kind, data)}
}

func checkFences(p *probe) {
	id, child := p.held("fence"), p.id("fence-child")
	create := object{"id": child, "timeoutAt": p.later()}
	settle := object{"id": child, "state": "resolved", "value": object{"data": "c"}}
	inner := func(kind string, status int) []fact {
		return []fact{is("action.kind", kind), is("action.head.status", status), is("action.head.version", protocol.Version), has("action.head.corrId"), has("preload")}
	}
	p.expect("an unknown promise inside", "task.fence", fence(id, 1, "promise.settle", settle), 200,
		append(inner("promise.settle", 404), that("action.data is a text", func(a answer) bool { _, text := a.at("action.data").(string); return text }))...)
	p.expect("a create inside", "task.fence", fence(id, 1, "promise.create", create), 200,
		append(inner("promise.create", 200), is("action.data.promise.id", child), is("action.data.promise.state", "pending"))...)
	p.expect("a settle inside", "task.fence", fence(id, 1, "promise.settle", settle), 200,
		append(inner("promise.settle", 200), is("action.data.promise.state", "resolved"), is("action.data.promise.value", object{"data": "c"}))...)
	p.expect("settled", "promise.get", object{"id": child}, 200, is("promise.state", "resolved"))
	p.expect("the task's own id inside", "task.fence", fence(id, 1, "promise.settle", object{"id": id, "state": "resolved"}), 400)
	p.expect("another kind inside", "task.fence", fence(id, 1, "promise.get", object{"id": child}), 400)
	p.expect("a bad state inside", "task.fence", fence(id, 1, "promise.settle", object{"id": child, "state": "pending"}), 400)
	stale := p.id("fence-stale")
	p.expect("an old version", "task.fence", fence(id, 0, "promise.create", object{"id": stale, "timeoutAt": p.later()}), 409)
	p.ask("task.release", ref(id, 1))
	p.expect("a task that is not held", "task.fence", fence(id, 1, "promise.create", object{"id": stale, "timeoutAt": p.later()}), 409)
	p.expect("nothing happened inside", "promise.get", object{"id": stale}, 404)
	branch := object{protocol.TagBranch: p.config.Prefix + "-branch", protocol.TagTarget: "poll://any@" + p.config.Prefix + "-nobody"}
	if !p.own {
		return
	}
	holder := p.begin(p.id("fence-branch"))
	holder["action"].(object)["data"].(object)["tags"] = branch
	p.ask("task.create", holder)
	sibling := object{"id": p.id("fence-sibling"), "timeoutAt": p.later(), "tags": object{protocol.TagBranch: branch[protocol.TagBranch]}}
	p.expect("the preload holds what the fence made", "task.fence", fence(p.id("fence-branch"), 1, "promise.create", sibling), 200,
		is("preload.0.id", sibling["id"]))
}

func checkHalts(p *probe) {
	id := p.held("halt")
	p.expect("continue of a task that is not halted", "task.continue", object{"id": id}, 409)
	p.expect("halt of an acquired one", "task.halt", object{"id": id}, 200)
	p.expect("halted", "task.get", object{"id": id}, 200, is("task.state", "halted"), is("task.version", 1), lacks("task.pid"))
	p.expect("halt again", "task.halt", object{"id": id}, 200)
	p.expect("the holder's release", "task.release", ref(id, 1), 409)
	p.expect("acquire of a halted one", "task.acquire", claim(id, 1, "v2", leaseMs), 409)
	p.expect("create of a halted one", "task.create", p.begin(id), 409)
	p.expect("continue", "task.continue", object{"id": id}, 200)
	p.expect("continued", "task.get", object{"id": id}, 200, is("task.state", "pending"), is("task.version", 1))
	p.expect("settle", "promise.settle", object{"id": id, "state": "resolved"}, 200)
	p.expect("halt of a fulfilled one", "task.halt", object{"id": id}, 409)
	p.expect("continue of a fulfilled one", "task.continue", object{"id": id}, 409)
}

func checkHeartbeats(p *probe) {
	id := p.held("beat")
	beat := func(pid string, refs ...any) object { return object{"pid": pid, "tasks": append([]any{}, refs...)} }
	p.expect("of a task that is held", "task.heartbeat", beat("v1", ref(id, 1)), 200, lacks("lost"))
	p.expect("of a task at another version", "task.heartbeat", beat("v1", ref(id, 0)), 200)
	p.expect("by another pid", "task.heartbeat", beat("v2", ref(id, 1)), 200)
	p.expect("of an unknown task", "task.heartbeat", beat("v1", ref(p.config.Prefix+".none", 0)), 200)
	p.expect("an empty pid", "task.heartbeat", beat("", ref(id, 1)), 400)
	p.expect("no list", "task.heartbeat", object{"pid": "v1"}, 400)
	if !p.own {
		p.skip("empty lists and lost tasks", "only servers with workspaces promise them")
		return
	}
	p.expect("an empty list", "task.heartbeat", beat("v1"), 200, lacks("lost"))
	p.expect("what is not renewed is named", "task.heartbeat", beat("v1", ref(id, 1), ref(p.config.Prefix+".none", 0)), 200,
		is("lost", []any{p.config.Prefix + ".none"}))
}
