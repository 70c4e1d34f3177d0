package conform

import (
	"fmt"
	"net/http"
	"strings"

	"abide/protocol"
)

// quiet is a fraction of the wait, for messages that must not come.
const quiet = 20

// worker opens a stream and makes a row of its beginning; nil if there is none.
func (p *probe) worker(check, group, pid string) *stream {
	s, err := p.open(group, pid)
	if err != nil {
		p.row(check, "200 with headers at once", false, err.Error())
		return nil
	}
	good := s.status == http.StatusOK && strings.HasPrefix(s.header.Get("Content-Type"), "text/event-stream")
	p.row(check, "200, Content-Type text/event-stream, headers at once", good, fmt.Sprintf("%d, %s", s.status, s.header.Get("Content-Type")))
	if !good {
		s.stop()
		return nil
	}
	return s
}

// receives makes a row: a message of a kind about an id comes to s.
func (p *probe) receives(check string, s *stream, kind, id string) (message, bool) {
	m, ok := s.next(kind, id, p.config.Wait)
	p.row(check, fmt.Sprintf("%s of %s within %s", kind, id, p.config.Wait), ok, "nothing")
	return m, ok
}

func (p *probe) sendTo(id, address string) {
	p.ask("promise.create", object{"id": id, "timeoutAt": p.later(), "tags": object{protocol.TagTarget: address}})
}

func checkMessages(p *probe) {
	group := p.config.Prefix + "-group"
	s := p.worker("connect", group, "w1")
	if s == nil {
		return
	}
	defer s.stop()
	id := p.id("msg")
	p.sendTo(id, "poll://any@"+group)
	m, ok := p.receives("a new task", s, "execute", id)
	if !ok {
		return
	}
	p.row("its form", "one line of ASCII that begins with \"data: \"", strings.HasPrefix(m.line, "data: {") && ascii(m.line), m.line)
	_, serverURL := member(member(m.fields, "head"), "serverUrl").(string)
	p.row("its head", "serverUrl", serverURL, m.line)
	p.row("its version", "0", m.version() == 0, m.line)
	p.expect("acquire at that version", "task.acquire", claim(id, m.version(), "w1", leaseMs), 200, is("task.version", 1))
	p.ask("task.release", ref(id, 1))
	if m, ok = p.receives("a released task", s, "execute", id); !ok {
		return
	}
	p.row("its version", "1", m.version() == 1, m.line)
	awaited := p.plain("msg-on")
	p.ask("task.acquire", claim(id, 1, "w1", leaseMs))
	p.expect("suspend", "task.suspend", suspend(id, 2, awaited), 200)
	p.expect("settle what is awaited", "promise.settle", object{"id": awaited, "state": "resolved"}, 200)
	if m, ok = p.receives("a resumed task", s, "execute", id); !ok {
		return
	}
	p.row("its version", "2", m.version() == 2, m.line)
	p.expect("acquire with a short lease", "task.acquire", claim(id, 2, "w1", 300), 200)
	if m, ok = p.receives("a task whose lease has ended", s, "execute", id); ok {
		p.row("its version", "3", m.version() == 3, m.line)
	}
	checkUnblocks(p, s, group)
	p.ask("promise.settle", object{"id": id, "state": "resolved"})
}

func checkUnblocks(p *probe, s *stream, group string) {
	id := p.plain("msg-ünblock")
	p.expect("listen", "promise.register_listener", object{"awaited": id, "address": "poll://uni@" + group + "/w1"}, 200)
	p.expect("settle what is listened to", "promise.settle", object{"id": id, "state": "rejected", "value": object{"data": "ü💥"}}, 200)
	m, ok := p.receives("an unblock", s, "unblock", id)
	if !ok {
		return
	}
	promise := member(member(m.fields, "data"), "promise")
	p.row("its promise", "settled, with its value", member(promise, "state") == "rejected" && member(member(promise, "value"), "data") == "ü💥", m.line)
	if p.own {
		p.row("its form", "one line of ASCII", ascii(m.line), m.line)
	}
	timed := p.id("msg-timed")
	p.ask("promise.create", object{"id": timed, "timeoutAt": p.now() + 1500, "tags": object{protocol.TagTimer: "true", protocol.TagTarget: "poll://any@" + group}})
	p.ask("promise.register_listener", object{"awaited": timed, "address": "poll://uni@" + group + "/w1"})
	if m, ok = p.receives("an unblock of a timer that ends", s, "unblock", timed); ok {
		promise := member(member(m.fields, "data"), "promise")
		p.row("its promise", "resolved", member(promise, "state") == "resolved", m.line)
	}
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 126 || r < 32 }) < 0
}

func checkStreams(p *probe) {
	group := p.config.Prefix + "-streams"
	one, two := p.worker("a first worker", group, "w1"), p.worker("a second worker", group, "w2")
	if one == nil || two == nil {
		return
	}
	defer one.stop()
	defer two.stop()
	for n := range 3 {
		id := p.id(fmt.Sprintf("to-w2-%d", n))
		p.sendTo(id, []string{"poll://uni@" + group + "/w2", "poll://any@" + group + "/w2"}[n%2])
		p.receives("a task goes to the worker that its address names", two, "execute", id)
	}
	absent := p.id("to-absent")
	p.sendTo(absent, "poll://any@"+group+"/w3")
	m, ok := eitherOf(p, one, two, absent)
	p.row("a task that names an absent worker goes to another of its group", "execute of "+absent, ok, m.line)
	if !p.own {
		p.skip("waiting messages, names with any characters, the newest stream wins", "only servers with workspaces promise them")
		return
	}
	waiting := p.id("to-later")
	p.sendTo(waiting, "poll://uni@"+group+"/w4")
	_, early := one.next("execute", waiting, p.config.Wait/quiet)
	p.row("a task for an absent worker alone goes to no other", "no execute", !early, "it came")
	if four := p.worker("that worker connects", group, "w4"); four != nil {
		p.receives("and has what waited for it", four, "execute", waiting)
		newer := p.worker("the same worker connects again", group, "w4")
		if newer != nil {
			p.row("the older stream ends", "its end", four.ended(p.config.Wait), "it goes on")
			id := p.id("to-newer")
			p.sendTo(id, "poll://uni@"+group+"/w4")
			p.receives("the newer stream has the messages", newer, "execute", id)
			newer.stop()
		}
		four.stop()
	}
	strange := p.config.Prefix + " ü/%"
	if s := p.worker("a group of any characters", strange, "a/b"); s != nil {
		id := p.id("to-strange")
		p.sendTo(id, "poll://any@"+p.config.Prefix+"%20%C3%BC%2F%25/a/b")
		p.receives("has its messages", s, "execute", id)
		s.stop()
	}
}

// eitherOf waits for a message on two streams.
func eitherOf(p *probe, one, two *stream, id string) (message, bool) {
	for range 2 * quiet {
		for _, s := range []*stream{one, two} {
			if m, ok := s.next("execute", id, p.config.Wait/quiet/2); ok {
				return m, true
			}
		}
	}
	return message{}, false
}

// checkTime checks what only real time brings.
func checkTime(p *probe) {
	soon := func() int64 { return p.now() + 300 }
	id, timer := p.id("end"), p.id("end-timer")
	p.expect("a promise with a near deadline", "promise.create", object{"id": id, "timeoutAt": soon() + 700}, 200, is("promise.state", "pending"))
	p.until("is timed out after it", "promise.get", object{"id": id}, is("promise.state", "rejected_timedout"))
	p.expect("its settledAt is its deadline", "promise.get", object{"id": id}, 200, that("settledAt=timeoutAt", func(a answer) bool {
		return a.at("promise.settledAt") == a.at("promise.timeoutAt") && a.at("promise.timeoutAt") != nil
	}))
	p.expect("settle after the deadline changes nothing", "promise.settle", object{"id": id, "state": "resolved"}, 200, is("promise.state", "rejected_timedout"))
	awaiter := p.held("end-awaiter")
	p.ask("promise.create", object{"id": timer, "timeoutAt": soon() + 700, "tags": object{protocol.TagTimer: "true", protocol.TagTarget: "poll://any@" + p.config.Prefix + "-nobody"}})
	p.expect("suspend on a timer", "task.suspend", suspend(awaiter, 1, timer), 200)
	p.until("it resolves at its deadline", "promise.get", object{"id": timer}, is("promise.state", "resolved"))
	p.until("and resumes who waits", "task.get", object{"id": awaiter}, is("task.state", "pending"))
	lease := p.id("end-lease")
	short := p.begin(lease)
	short["ttl"] = 300
	p.expect("a short lease", "task.create", short, 200, is("task.state", "acquired"))
	p.until("ends", "task.get", object{"id": lease}, is("task.state", "pending"))
	p.expect("at the same version", "task.get", object{"id": lease}, 200, is("task.version", 1), lacks("task.pid"))
	if p.own {
		free := p.plain("end-free")
		late := p.held("end-late")
		p.ask("promise.create", object{"id": p.id("end-plain"), "timeoutAt": soon() + 700})
		p.expect("suspend on a plain promise with a deadline", "task.suspend", suspend(late, 1, p.id("end-plain"), free), 200)
		p.until("its timeout resumes who waits", "task.get", object{"id": late}, is("task.state", "pending"))
	}
}
