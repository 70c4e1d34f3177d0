package sim

import (
	"context"
	"time"

	"abide/protocol"
)

// requestTimeout is how long a client waits for an answer.
const requestTimeout = 5 * time.Second

// latency is how long one message takes.
func (w *world) latency() time.Duration {
	d := between(w.net, 100*time.Microsecond, 3*time.Millisecond)
	if chance(w.net, w.weather.p(Delay)) {
		w.stats.Delayed++
		d += between(w.net, time.Millisecond, 400*time.Millisecond)
	}
	return d
}

func (w *world) lost() bool {
	if chance(w.net, w.weather.p(LoseMessages)) {
		w.stats.Lost++
		return true
	}
	return false
}

// call is one request on its way.
type call struct {
	who  string
	req  protocol.Request
	done func(reply protocol.Reply, ok bool)
	sure bool // it is neither lost, nor late, nor doubled; it may still meet a server that is down
}

// send sends a request. done is called once: with the answer, or with ok false if none came. Who sends takes care by
// itself that it is still the one that asked.
func (w *world) send(who string, req protocol.Request, done func(reply protocol.Reply, ok bool)) {
	w.dispatch(&call{who: who, req: req, done: done})
}

// sendSurely is send without the network's faults, for requests of which a late double would undo what came after
// them.
func (w *world) sendSurely(who string, req protocol.Request, done func(reply protocol.Reply, ok bool)) {
	w.dispatch(&call{who: who, req: req, done: done, sure: true})
}

func (w *world) dispatch(c *call) {
	w.after(requestTimeout, func() { c.finish(protocol.Reply{}, false) })
	if c.sure {
		w.after(time.Millisecond, func() { w.arrive(c) })
		return
	}
	if !w.lost() {
		w.after(w.latency(), func() { w.arrive(c) })
	}
	if chance(w.net, w.weather.p(Duplicate)) {
		w.stats.Duplicated++
		w.after(w.latency(), func() { w.arrive(c) })
	}
}

func (c *call) finish(reply protocol.Reply, ok bool) {
	if done := c.done; done != nil {
		c.done = nil
		done(reply, ok)
	}
}

// arrive is a request at the server's door.
func (w *world) arrive(c *call) {
	s := w.servers[0]
	if n := len(w.servers); n > 1 {
		s = w.servers[w.net.IntN(n)]
	}
	if c.sure && s.asleep > w.now { // it would be done late
		if s = w.anyServer(); s == nil {
			w.answer(c, protocol.Reply{}, false)
			return
		}
	}
	if s.asleep > w.now {
		w.after(s.asleep-w.now, func() { w.arriveAt(c, s) })
		return
	}
	w.arriveAt(c, s)
}

// arriveAt is a request at the door of one server.
func (w *world) arriveAt(c *call, s *server) {
	if !s.up {
		w.answer(c, protocol.Reply{}, false)
		return
	}
	w.stats.Requests++
	if c.req.Kind() == protocol.KindTaskHeartbeat {
		w.stats.Heartbeats++
	}
	life := s.life
	begin := w.ledger.begin()
	a := w.asks(s, c.req)
	reply := s.engine.Do(context.Background(), protocol.DefaultWorkspace, c.req, nil)
	if s.life != life { // it died over it
		w.answered(a, reply, true)
		w.log("%s: %s: the server died", c.who, show(c.req))
		w.answer(c, protocol.Reply{}, false)
		return
	}
	if w.tracing() {
		w.log("%s: %s -> %s", c.who, show(c.req), showReply(reply))
	}
	w.ledger.observe(begin, c.req, reply)
	w.ledger.leases(life, a.began, c.req, reply)
	w.answered(a, reply, false)
	w.answer(c, reply, true)
}

// answer sends an answer back; not ok: the connection was refused or broke.
func (w *world) answer(c *call, reply protocol.Reply, ok bool) {
	if c.done == nil || (!c.sure && w.lost()) {
		return
	}
	w.after(w.latency(), func() { c.finish(reply, ok) })
}

// Direct asks the first server that is up without a network, as an audit does; ok is false if it died over it.
func (w *world) direct(s *server, req protocol.Request) (reply protocol.Reply, ok bool) {
	life := s.life
	begin := w.ledger.begin()
	reply = s.engine.Do(context.Background(), protocol.DefaultWorkspace, req, nil)
	if s.life != life {
		return reply, false
	}
	w.ledger.observe(begin, req, reply)
	return reply, true
}
