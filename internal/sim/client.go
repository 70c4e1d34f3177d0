package sim

import (
	"strconv"
	"time"

	"abide/internal/deliver"
	"abide/protocol"
)

// retryPause is how long a client waits before it sends a request again that was not answered.
const retryPause = 700 * time.Millisecond

// client starts roots, settles externals and waits for what comes of them.
type client struct {
	world    *world
	pid      string
	stream   *stream
	waits    []*wait // in the order in which they began
	doubtful bool    // a stream of its has swallowed messages that the server must take for delivered
}

// wait is one promise that a client wants to hear of.
type wait struct {
	id         string
	address    string // where it is told
	registered bool   // the server has acknowledged it
	heard      bool
	told       bool // by a message
	result     protocol.Promise
}

const clientGroup = "clients"

func (c *client) boot() { c.stream = c.world.connect(c, clientGroup, c.pid) }

// insist sends a request until it is answered with what done accepts. An answer of 5xx is none.
func (c *client) insist(req protocol.Request, sure bool, done func(protocol.Reply) bool) {
	w := c.world
	answered := func(reply protocol.Reply, ok bool) {
		if !ok || reply.Status >= 500 || !done(reply) {
			w.after(retryPause, func() { c.insist(req, sure, done) })
		}
	}
	if sure {
		w.sendSurely(c.pid, req, answered)
	} else {
		w.send(c.pid, req, answered)
	}
}

func accepted(protocol.Reply) bool { return true }

// plan makes the client do its part of the program.
func (c *client) plan(p *Program) {
	for _, root := range p.Roots {
		c.world.after(root.At, func() { c.begin(root) })
		c.settleBelow(&root.Node, root.At)
	}
}

// begin starts a root.
func (c *client) begin(root *Root) {
	w := c.world
	create := &protocol.PromiseCreate{
		ID: root.ID, TimeoutAt: w.wallMs(root.Timeout), Tags: rootTags(&root.Node), Param: protocol.MakeValue(nil, "root"),
	}
	pause := time.Duration(0)
	switch root.Start {
	case ByWorker:
		w.workers[w.play.IntN(len(w.workers))].invoke(create)
		pause = 2 * time.Second // somebody else takes care of it if that worker does not
	case Later:
		create.Tags = create.Tags.With(protocol.TagDelay, strconv.FormatInt(w.wallMs(1500*time.Millisecond), 10))
	}
	w.after(pause, func() {
		c.insist(create, false, func(reply protocol.Reply) bool {
			if root.Listens {
				for i, each := range w.clients {
					each.listen(root.ID, "poll://uni@"+clientGroup+"/"+each.pid)
					if w.listensByPush {
						each.listen(root.ID, w.hosts[i%len(w.hosts)].name+ear+each.pid)
					}
				}
			}
			return true
		})
	})
}

// settleBelow settles the externals of a call tree, each some time after its root has begun.
func (c *client) settleBelow(n *Node, begun time.Duration) {
	for _, batch := range n.Steps {
		for _, child := range batch.Nodes {
			if child.Kind == External && !child.Never {
				settle := &protocol.PromiseSettle{ID: child.ID, State: child.ends(), Value: protocol.MakeValue(nil, "of "+child.ID)}
				c.world.after(begun+child.For, func() { c.settle(settle, retryPause) })
			}
			c.settleBelow(child, begun)
		}
	}
}

// settle settles an external once it exists. One whose flow ends before it creates it never does.
func (c *client) settle(settle *protocol.PromiseSettle, pause time.Duration) {
	c.world.send(c.pid, settle, func(reply protocol.Reply, ok bool) {
		if ok && reply.Status == protocol.StatusOK {
			return
		}
		c.world.after(pause, func() { c.settle(settle, min(2*pause, 4*time.Second)) })
	})
}

// listen registers a listener.
func (c *client) listen(id, address string) {
	wt := &wait{id: id, address: address}
	c.waits = append(c.waits, wt)
	c.register(wt)
}

func (c *client) register(wt *wait) {
	req := &protocol.PromiseRegisterListener{Awaited: wt.id, Address: wt.address}
	c.insist(req, false, func(reply protocol.Reply) bool {
		body, ok := reply.Body.(protocol.PromiseBody)
		if !ok {
			return false
		}
		wt.registered = true
		if body.Promise.State != protocol.Pending {
			wt.hear(c.world, body.Promise)
		}
		return true
	})
}

// hear takes in the end of a promise. It may be heard of several times, never differently.
func (wt *wait) hear(w *world, p protocol.Promise) {
	if wt.heard && !samePromise(wt.result, p) {
		w.fail("a listener hears of %q again, differently: %s, before %s", wt.id, showPromise(p), showPromise(wt.result))
	}
	wt.heard, wt.result = true, p
}

// receive implements listener.
func (c *client) receive(m deliver.Message) {
	w := c.world
	if m.Promise == nil {
		w.fail("client %s is sent an execute of %q", c.pid, m.Task.ID)
		return
	}
	w.log("%s hears of %q", c.pid, m.Promise.ID)
	w.ledger.told(*m.Promise)
	for _, wt := range c.waits {
		if wt.id == m.Promise.ID && !pushed(wt.address) {
			wt.told = true
			wt.hear(w, *m.Promise)
		}
	}
}

// disconnected implements listener.
func (c *client) disconnected(st *stream) {
	if c.stream != st {
		return
	}
	c.world.after(reconnectPause, func() {
		c.stream = c.world.connect(c, clientGroup, c.pid)
		if c.doubtful { // what was lost on a mute stream, it has to ask for
			for _, wt := range c.waits {
				if wt.registered && !wt.heard {
					c.register(wt)
				}
			}
		}
	})
}
