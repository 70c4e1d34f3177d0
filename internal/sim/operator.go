package sim

import (
	"fmt"
	"slices"
	"time"

	"abide/protocol"
)

// operator looks at everything, halts and continues, makes schedules and removes them. It shares the client's way of
// sending.
type operator struct {
	client
	looks int
}

// plan makes the operator do its part of the program.
func (o *operator) plan(p *Program) {
	w := o.world
	for _, root := range p.Roots {
		if root.HaltAt == 0 {
			continue
		}
		w.after(root.HaltAt, func() {
			o.insist(&protocol.TaskHalt{ID: root.ID}, true, func(protocol.Reply) bool {
				w.after(between(w.play, 10*time.Millisecond, 3*time.Second), func() {
					o.insist(&protocol.TaskContinue{ID: root.ID}, true, accepted)
				})
				return true
			})
		})
	}
	for _, c := range p.Crons {
		w.after(c.At, func() {
			o.insist(c.taken(w), true, accepted)
			o.insist(c.create(), true, accepted)
		})
		w.after(c.At+c.For, func() { o.insist(&protocol.ScheduleDelete{ID: c.ID}, true, accepted) })
	}
	if c := p.Crowd; c != nil {
		w.after(c.At, func() { o.gather(c) })
	}
	w.after(500*time.Millisecond, o.look)
}

// gather makes a crowd, and settles its promise.
func (o *operator) gather(c *Crowd) {
	create := &protocol.PromiseCreate{ID: c.ID, TimeoutAt: o.world.wallMs(deadline), Tags: protocol.Tags{}}
	o.insist(create, true, func(protocol.Reply) bool {
		for i := range c.Listeners {
			o.world.send(o.pid, &protocol.PromiseRegisterListener{Awaited: c.ID, Address: fmt.Sprintf("poll://uni@nobody/%d", i)},
				func(protocol.Reply, bool) {})
		}
		return true
	})
	o.world.after(c.SettleAt-c.At, func() { o.settle(&protocol.PromiseSettle{ID: c.ID, State: protocol.Resolved}, retryPause) })
}

// create is the request that makes a schedule.
func (c *Cron) create() *protocol.ScheduleCreate {
	req := &protocol.ScheduleCreate{
		ID: c.ID, Cron: fmt.Sprintf("*/%d * * * * *", c.EverySec), PromiseID: "{{.id}}.{{.timestamp}}",
		PromiseTimeout: deadline.Milliseconds(), PromiseTags: protocol.Tags{},
	}
	if c.Target != "" {
		req.PromiseTags = req.PromiseTags.With(protocol.TagTarget, c.Target)
	}
	return req
}

// taken is a request that takes the id of an occurrence a few seconds ahead. The schedule must leave that promise alone.
func (c *Cron) taken(w *world) *protocol.PromiseCreate {
	step := int64(c.EverySec) * 1000
	at := (w.wallMs(5*time.Second)/step + 1) * step
	return &protocol.PromiseCreate{
		ID: fmt.Sprintf("%s.%d", c.ID, at), TimeoutAt: w.wallMs(deadline), Param: protocol.MakeValue(nil, taken),
		Tags: protocol.Tags{}.With(protocol.TagSchedule, c.ID),
	}
}

// taken is the param of promises that take the id of an occurrence.
const taken = "taken"

// look asks for something, every now and then, until the calm.
func (o *operator) look() {
	w := o.world
	if w.calm {
		return
	}
	o.looks++
	id := w.program.Roots[w.play.IntN(len(w.program.Roots))].ID
	nobody := func(protocol.Reply, bool) {}
	switch o.looks % 8 {
	case 0:
		o.walk(&protocol.PromiseSearch{State: protocol.Pending, Limit: 20}, "")
	case 1:
		o.walk(&protocol.PromiseSearch{Tags: protocol.Tags{}.With(protocol.TagOrigin, id), Limit: 10}, "")
	case 2:
		o.walk(&protocol.TaskSearch{State: protocol.TaskSuspended, Limit: 10}, "")
	case 3:
		w.send(o.pid, &protocol.PromiseGet{ID: id}, nobody)
	case 4:
		w.send(o.pid, &protocol.TaskGet{ID: id}, nobody)
	case 5:
		w.send(o.pid, &protocol.ScheduleSearch{Limit: 10}, nobody)
	case 6:
		o.pretend(id)
	case 7: // one wake-up too many for whoever that is
		if other := w.program.Roots[w.play.IntN(len(w.program.Roots))].ID; other != id {
			w.send(o.pid, &protocol.PromiseRegisterCallback{Awaited: id, Awaiter: other}, nobody)
		}
	}
	w.after(between(w.play, 50*time.Millisecond, time.Second), o.look)
}

// pretend sends a heartbeat for a task that somebody else holds, if anybody does.
func (o *operator) pretend(id string) {
	held := latest(o.world.ledger.fact(id).claims, o.world.ledger.begin())
	if held < 0 {
		return
	}
	beat := &protocol.TaskHeartbeat{PID: o.pid, Tasks: []protocol.TaskRef{{ID: id, Version: held}}}
	o.world.send(o.pid, beat, func(reply protocol.Reply, ok bool) {
		body, is := reply.Body.(protocol.HeartbeatBody)
		if ok && is && !slices.Contains(body.Lost, id) {
			o.world.fail("the heartbeat of a stranger renews the lease of %q", id)
		}
	})
}

// walk reads a search to its end, page by page. Ids ascend through all pages.
func (o *operator) walk(req protocol.Request, last string) {
	o.world.send(o.pid, req, func(reply protocol.Reply, ok bool) {
		if !ok {
			return
		}
		switch body := reply.Body.(type) {
		case protocol.PromisesBody:
			for _, p := range body.Promises {
				last = o.ascends(last, p.ID)
			}
			if body.Cursor != "" {
				again := *req.(*protocol.PromiseSearch)
				again.Cursor = body.Cursor
				o.walk(&again, last)
			}
		case protocol.TasksBody:
			for _, t := range body.Tasks {
				last = o.ascends(last, t.ID)
			}
			if body.Cursor != "" {
				again := *req.(*protocol.TaskSearch)
				again.Cursor = body.Cursor
				o.walk(&again, last)
			}
		}
	})
}

// ascends checks that an id comes after the last one of the walk: by its tree, then by itself.
func (o *operator) ascends(last, id string) string {
	if last != "" && !treeLess(last, id) {
		o.world.fail("a search shows %q after %q", id, last)
	}
	return id
}
