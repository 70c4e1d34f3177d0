package conform

import (
	"fmt"
	"strings"

	"abide/protocol"
)

func checkPromises(p *probe) {
	id, later := p.id("p"), p.later()
	p.expect("get of an unknown id", "promise.get", object{"id": id}, 404)
	created := object{
		"id": id, "timeoutAt": later, "tags": object{"k": "v"},
		"param": object{"headers": object{"h": "ü"}, "data": "<payload> \"1\""},
	}
	p.expect("create", "promise.create", created, 200,
		is("promise.id", id), is("promise.state", "pending"), is("promise.timeoutAt", later), is("promise.tags.k", "v"),
		is("promise.param", created["param"]), is("promise.value", object{}), has("promise.createdAt"), lacks("promise.settledAt"))
	p.expect("get", "promise.get", object{"id": id}, 200, is("promise.state", "pending"), is("promise.param", created["param"]))
	p.expect("create again changes nothing", "promise.create", object{"id": id, "timeoutAt": later + 1, "tags": object{}}, 200,
		is("promise.timeoutAt", later), is("promise.tags.k", "v"))
	p.expect("settle of an unknown id", "promise.settle", object{"id": id + ".none", "state": "resolved"}, 404)
	for _, state := range []string{"resolved", "rejected", "rejected_canceled"} {
		one := p.id("p-" + state)
		value := object{"data": state}
		p.expect("create without param and tags", "promise.create", object{"id": one, "timeoutAt": later}, 200,
			is("promise.param", object{}), is("promise.tags", object{}))
		p.expect("settle as "+state, "promise.settle", object{"id": one, "state": state, "value": value}, 200,
			is("promise.state", state), is("promise.value", value), has("promise.settledAt"))
		p.expect("settle again changes nothing", "promise.settle", object{"id": one, "state": "resolved", "value": object{"data": "2"}}, 200,
			is("promise.state", state), is("promise.value", value))
		p.expect("create of a settled one changes nothing", "promise.create", object{"id": one, "timeoutAt": later}, 200, is("promise.state", state))
	}
	past := p.now() - 60_000
	p.expect("born after its deadline", "promise.create", object{"id": p.id("p-late"), "timeoutAt": past}, 200,
		is("promise.state", "rejected_timedout"), is("promise.createdAt", past), is("promise.settledAt", past))
	p.expect("a timer born after its deadline", "promise.create",
		object{"id": p.id("p-timer"), "timeoutAt": past, "tags": object{protocol.TagTimer: "true"}}, 200,
		is("promise.state", "resolved"), is("promise.settledAt", past))
	for n, strange := range []string{"ü/ö", "a b", `"quoted"`, "%2f", "日本", "💥", "'; --", "{{.id}}"} {
		one := p.id("p-" + strange)
		p.expect(fmt.Sprintf("strange id %d", n+1), "promise.create", object{"id": one, "timeoutAt": later}, 200, is("promise.id", one))
	}
}

func checkPromiseRules(p *probe) {
	id, later := p.id("rule"), p.later()
	tagged := func(tags object) object { return object{"id": id, "timeoutAt": later, "tags": tags} }
	p.expect("an empty id", "promise.get", object{"id": ""}, 400)
	p.expect("a timeoutAt below 0", "promise.create", object{"id": id, "timeoutAt": -1}, 400)
	p.expect("a tag that is no text", "promise.create", tagged(object{"k": 1}), 400)
	p.expect("a param with data that is no text", "promise.create", object{"id": id, "timeoutAt": later, "param": object{"data": 1}}, 400)
	p.expect("headers that are no texts", "promise.create", object{"id": id, "timeoutAt": later, "param": object{"headers": object{"h": 1}}}, 400)
	for _, address := range []string{"", "default", "poll://group", "poll://other@group", "poll://any@", "ftp://host", "gcps://project"} {
		p.expect(fmt.Sprintf("the target %q", address), "promise.create", tagged(object{protocol.TagTarget: address}), 400)
	}
	for n, address := range []string{"poll://any@g", "poll://any@g/w", "poll://uni@g/w", "http://host.test/x", "https://host.test"} {
		one := p.id(fmt.Sprintf("rule-target-%d", n))
		p.expect(fmt.Sprintf("the target %q", address), "promise.create",
			object{"id": one, "timeoutAt": 0, "tags": object{protocol.TagTarget: address}}, 200, is("promise.tags."+protocol.TagTarget, address))
	}
	delayed := func(delay string) object {
		return tagged(object{protocol.TagTarget: "poll://any@g", protocol.TagDelay: delay})
	}
	p.expect("a delay that is no number", "promise.create", delayed("soon"), 400)
	p.expect("a delay not before the deadline", "promise.create", delayed(fmt.Sprint(later)), 400)
	p.expect("a delay without a target", "promise.create", tagged(object{protocol.TagDelay: "1"}), 400)
	for _, state := range []string{"pending", "rejected_timedout", "done", ""} {
		p.expect(fmt.Sprintf("settle as %q", state), "promise.settle", object{"id": id, "state": state}, 400)
	}
	p.expect("nothing of this was created", "promise.get", object{"id": id}, 404)
	if !p.own {
		p.skip("limits and foreign ids", "only servers with workspaces promise them")
		return
	}
	p.expect("an id of 1024 bytes", "promise.create", object{"id": p.long(1024), "timeoutAt": later}, 200)
	p.expect("an id of 1025 bytes", "promise.create", object{"id": p.long(1024) + "x", "timeoutAt": later}, 400)
	p.expect("an id with NUL", "promise.create", object{"id": id + "\x00", "timeoutAt": later}, 400)
	p.expect("an id foreign to its origin tag", "promise.create",
		object{"id": p.id("rule-foreign"), "timeoutAt": later, "tags": object{protocol.TagOrigin: "elsewhere.x", protocol.TagParent: "a:b"}}, 200)
	p.expect("a timer with a target has no task", "promise.create",
		object{"id": p.id("rule-timer"), "timeoutAt": later, "tags": object{protocol.TagTimer: "true", protocol.TagTarget: "poll://any@g"}}, 200)
	p.expect("no task of that timer", "task.get", object{"id": p.id("rule-timer")}, 404)
}

// long makes an id of n bytes.
func (p *probe) long(n int) string {
	short := len(p.config.Prefix) + 1
	return p.id(strings.Repeat("l", n-short))
}

func checkListeners(p *probe) {
	id := p.id("listen")
	address := "poll://uni@" + p.config.Prefix + "-nobody/w"
	listen := func(id, address string) object { return object{"awaited": id, "address": address} }
	p.expect("a listener of an unknown promise", "promise.register_listener", listen(id, address), 404)
	p.expect("a bad address comes before an unknown promise", "promise.register_listener", listen(id, "nowhere"), 400)
	p.expect("create", "promise.create", object{"id": id, "timeoutAt": p.later()}, 200)
	p.expect("a listener", "promise.register_listener", listen(id, address), 200, is("promise.state", "pending"), is("promise.id", id))
	p.expect("the same listener", "promise.register_listener", listen(id, address), 200, is("promise.state", "pending"))
	p.expect("a bad address", "promise.register_listener", listen(id, "poll://group"), 400)
	p.expect("settle", "promise.settle", object{"id": id, "state": "resolved", "value": object{"data": "7"}}, 200)
	p.expect("a listener of a settled promise gets it at once", "promise.register_listener", listen(id, address), 200,
		is("promise.state", "resolved"), is("promise.value", object{"data": "7"}))
}
