package conform

// suspend is the data of a task.suspend.
func suspend(id string, version int64, awaited ...string) object {
	actions := []any{}
	for _, a := range awaited {
		actions = append(actions, action("promise.register_callback", object{"awaited": a, "awaiter": id}))
	}
	return object{"id": id, "version": version, "actions": actions}
}

func checkSuspends(p *probe) {
	checkCallbacks(p)
	id, a, b := p.held("susp"), p.plain("susp-a"), p.plain("susp-b")
	p.expect("without actions", "task.suspend", suspend(id, 1), 400)
	p.expect("on itself", "task.suspend", suspend(id, 1, id), 400)
	foreign := suspend(id, 1, a)
	foreign["actions"] = []any{action("promise.register_callback", object{"awaited": a, "awaiter": b})}
	p.expect("for another awaiter", "task.suspend", foreign, 400)
	p.expect("on an unknown promise", "task.suspend", suspend(id, 1, p.config.Prefix+".none"), 422)
	p.expect("on two promises", "task.suspend", suspend(id, 1, a, b, a), 200)
	p.expect("suspended: same version, no holder", "task.get", object{"id": id}, 200,
		is("task.state", "suspended"), is("task.version", 1), is("task.resumes", 0), lacks("task.pid"))
	p.expect("suspend of a suspended one", "task.suspend", suspend(id, 1, a), 409)
	p.expect("acquire of a suspended one", "task.acquire", claim(id, 1, "v", leaseMs), 409)
	p.expect("create of a suspended one", "task.create", p.begin(id), 409)
	p.expect("an awaited promise settles", "promise.settle", object{"id": a, "state": "resolved"}, 200)
	p.until("which resumes the task", "task.get", object{"id": id}, is("task.state", "pending"))
	p.expect("with one resume, at the same version", "task.get", object{"id": id}, 200, is("task.version", 1), is("task.resumes", 1))
	p.expect("the other promise settles too", "promise.settle", object{"id": b, "state": "rejected"}, 200)
	p.until("which adds a resume", "task.get", object{"id": id}, is("task.resumes", 2))
	p.expect("acquire clears the resumes", "task.acquire", claim(id, 1, "v", leaseMs), 200, is("task.version", 2), is("task.resumes", 0))
	p.expect("on a promise that is settled", "task.suspend", suspend(id, 2, b), 300, has("preload"))
	p.expect("it goes on", "task.get", object{"id": id}, 200, is("task.state", "acquired"), is("task.version", 2))
	c := p.plain("susp-c")
	p.expect("on one that is pending and one that is settled", "task.suspend", suspend(id, 2, c, a), 300)
	p.expect("on the pending one alone", "task.suspend", suspend(id, 2, c), 200)
	p.expect("settle of the suspended task's own promise", "promise.settle", object{"id": id, "state": "resolved"}, 200)
	p.expect("what it awaited settles", "promise.settle", object{"id": c, "state": "resolved"}, 200)
	p.expect("nothing is resumed any more", "task.get", object{"id": id}, 200, is("task.state", "fulfilled"), is("task.resumes", 0))
}

func checkCallbacks(p *probe) {
	awaiter, awaited := p.queued("call"), p.plain("call-on")
	pair := func(awaited, awaiter string) object { return object{"awaited": awaited, "awaiter": awaiter} }
	none := p.config.Prefix + ".none"
	p.expect("a callback on itself", "promise.register_callback", pair(awaiter, awaiter), 400)
	p.expect("a callback on an unknown promise", "promise.register_callback", pair(none, awaiter), 404)
	p.expect("a callback of an unknown awaiter", "promise.register_callback", pair(awaited, none), 422)
	p.expect("a callback of an awaiter without a task", "promise.register_callback", pair(awaited, p.plain("call-plain")), 422)
	p.expect("a callback", "promise.register_callback", pair(awaited, awaiter), 200, is("promise.id", awaited), is("promise.state", "pending"))
	p.expect("the same callback", "promise.register_callback", pair(awaited, awaiter), 200)
	p.expect("settle", "promise.settle", object{"id": awaited, "state": "resolved"}, 200)
	p.until("a task that is not suspended counts one resume", "task.get", object{"id": awaiter}, is("task.resumes", 1))
	p.expect("a callback on a settled promise", "promise.register_callback", pair(awaited, awaiter), 200, is("promise.state", "resolved"))
	p.expect("adds nothing", "task.get", object{"id": awaiter}, 200, is("task.resumes", 1), is("task.state", "pending"))
}
