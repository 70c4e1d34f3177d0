package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

// layout is that of a store that a server has made.
var layout = keyspace.Layout{Shards: 1}

const (
	// inspectEvery is how many events pass between two inspections of the whole store.
	inspectEvery = 3000
	// watchEvery is how often it is looked whether everything has come to its end.
	watchEvery = time.Second
	// patience is how long after the calm everything must have come to its end. A pass of the timer loop comes once a
	// second at least, so this bounds the passes as well.
	patience = 3 * time.Minute
)

// inspect runs the full checker on the store. It may run between any two transactions.
func (w *world) inspect() store.Tally {
	if w.failure != nil {
		return nil
	}
	w.stats.Inspections++
	now := epoch + w.now.Milliseconds()
	for _, s := range w.servers {
		if s.up {
			now = s.engine.Now()
		}
	}
	now = max(now, w.furthest) // what has expired by one server's clock has
	tally, err := store.Check(context.Background(), w.disk.store, layout, now, func(p store.Problem) {
		w.fail("the checker finds: %s", p)
	})
	if err != nil {
		w.fail("the checker fails: %v", err)
	}
	if n := tally["quarantine"]; n > 0 {
		w.fail("%d rows were set aside", n)
	}
	w.compareFold()
	return tally
}

// audit inspects the store and asks a server that has just begun for everything that was ever acknowledged.
func (w *world) audit(s *server) {
	w.inspect()
	w.reread(s)
}

// reread asks a server for everything that was ever acknowledged.
func (w *world) reread(s *server) {
	w.exempt++
	defer func() { w.exempt-- }()
	for _, f := range w.ledger.order {
		if f.known && w.failure == nil {
			w.direct(s, &protocol.PromiseGet{ID: f.id})
		}
	}
}

// watch looks whether everything has come to its end, again and again.
func (w *world) watch() {
	missing := w.missing()
	switch {
	case missing == "":
		w.over = true
		return
	case w.now > w.plan.Calm+patience:
		w.fail("not at its end %s after the faults have stopped: %s", patience, missing)
		return
	}
	w.after(watchEvery, w.watch)
}

// missing says what has not come to its end; empty if everything has.
func (w *world) missing() string {
	s := w.anyServer()
	if s == nil {
		return "the servers are down"
	}
	for _, c := range w.clients {
		for _, wt := range c.waits {
			if !wt.heard {
				return fmt.Sprintf("%s has not heard of %q", c.pid, wt.id)
			}
		}
	}
	for _, root := range w.program.Roots {
		if w.ledger.fact(root.ID).settled {
			continue
		}
		reply, _ := w.direct(s, &protocol.PromiseGet{ID: root.ID})
		body, ok := reply.Body.(protocol.PromiseBody)
		if !ok || body.Promise.State == protocol.Pending {
			return fmt.Sprintf("%q, %d", root.ID, reply.Status)
		}
	}
	for _, state := range []protocol.TaskState{protocol.TaskPending, protocol.TaskAcquired, protocol.TaskSuspended, protocol.TaskHalted} {
		reply, _ := w.direct(s, &protocol.TaskSearch{State: state, Limit: 1})
		if body, ok := reply.Body.(protocol.TasksBody); !ok || len(body.Tasks) > 0 {
			return fmt.Sprintf("tasks: %+v", body.Tasks)
		}
	}
	if w.undelivered() { // told apart from the full inspection, which would take most of the time of a crowd
		return "unblock messages"
	}
	tally := w.inspect()
	for _, kind := range []string{"execute", "unblock", "drain"} {
		if tally[kind] > 0 {
			return fmt.Sprintf("%d rows of kind %s", tally[kind], kind)
		}
	}
	return ""
}

// undelivered reports whether any unblock message is queued.
func (w *world) undelivered() bool {
	var rows []kv.Entry
	err := w.disk.store.View(context.Background(), func(s kv.Snapshot) (err error) {
		rows, err = s.Scan(keyspace.AllUnblocks(), 1)
		return err
	})
	if err != nil {
		w.fail("the unblock messages cannot be read: %v", err)
	}
	return len(rows) > 0
}

// finish judges the end: every result is what the steps below it have made of it.
func (w *world) finish() {
	s := w.anyServer()
	w.reread(s)
	for _, root := range w.program.Roots {
		w.judge(s, &root.Node)
	}
	for _, c := range w.program.Crons {
		w.judgeCron(s, c)
	}
}

// record is a promise as it is at the end.
func (w *world) record(s *server, id string) (protocol.Promise, bool) {
	reply, _ := w.direct(s, &protocol.PromiseGet{ID: id})
	body, ok := reply.Body.(protocol.PromiseBody)
	return body.Promise, ok
}

// judge checks a node and all below it.
func (w *world) judge(s *server, n *Node) {
	p, ok := w.record(s, n.ID)
	if !ok {
		return // its flow ended before it came to it
	}
	for _, batch := range n.Steps {
		for _, child := range batch.Nodes {
			w.judge(s, child)
		}
	}
	ends := n.ends()
	if n.Kind == Sleep {
		ends = protocol.Resolved
	}
	switch {
	case p.State == protocol.RejectedTimedout && n.Kind != Sleep:
		if p.SettledAt != p.TimeoutAt {
			w.fail("%q has timed out at another instant than its deadline: %s", n.ID, showPromise(p))
		}
		return
	case p.State == protocol.Pending && n.Kind != Flow && n.Kind != Detached:
		return // its flow has ended without it
	case p.State != ends:
		w.fail("%q has ended as %s instead of %s", n.ID, p.State, ends)
	}
	if n.Kind != Flow && n.Kind != Detached {
		return
	}
	sum := fnv.New64a()
	for _, batch := range n.Steps {
		for _, child := range batch.Nodes {
			c, ok := w.record(s, child.ID)
			if !ok || (c.State == protocol.Pending && child.Kind != Detached && !batch.Any) {
				w.fail("%q has ended without its step %q", n.ID, child.ID)
				return
			}
			addResult(sum, batch, child, c)
		}
	}
	if data, _ := p.Value.Data(); data != fmt.Sprintf("%016x", sum.Sum64()) {
		w.fail("%q has the result %s, which is not that of its steps", n.ID, p.Value)
	}
}

// occurrence is a promise that a schedule has made, or that has taken the id of one.
type occurrence struct {
	at    int64 // epoch ms
	taken bool
}

// judgeCron checks that a schedule has made a promise for every instant of its life, and for none twice.
func (w *world) judgeCron(s *server, c *Cron) {
	list := w.occurrences(s, c)
	for len(list) > 0 && list[0].taken { // perhaps before the schedule's life
		list = list[1:]
	}
	for len(list) > 0 && list[len(list)-1].taken { // perhaps after it
		list = list[:len(list)-1]
	}
	w.stats.Occurrences += len(list)
	step := int64(c.EverySec) * 1000
	for i, o := range list {
		if o.at%step != 0 || (i > 0 && o.at != list[i-1].at+step) {
			w.fail("schedule %q has left out an instant before %d", c.ID, o.at)
		}
	}
}

// occurrences lists what a schedule has made, in the order of the instants.
func (w *world) occurrences(s *server, c *Cron) (list []occurrence) {
	req := &protocol.PromiseSearch{Tags: protocol.Tags{}.With(protocol.TagSchedule, c.ID), Limit: 100}
	for more := true; more; {
		reply, _ := w.direct(s, req)
		body, ok := reply.Body.(protocol.PromisesBody)
		if !ok {
			w.fail("the promises of schedule %q cannot be listed: %d %s", c.ID, reply.Status, reply.Message)
			return nil
		}
		for _, p := range body.Promises {
			at, err := strconv.ParseInt(strings.TrimPrefix(p.ID, c.ID+"."), 10, 64)
			param, _ := p.Param.Data()
			if err != nil || (p.CreatedAt != at && param != taken) {
				w.fail("schedule %q has made %s", c.ID, showPromise(p))
			}
			list = append(list, occurrence{at, param == taken})
		}
		req.Cursor, more = body.Cursor, body.Cursor != ""
	}
	return list
}

// treeLess is the order of searches.
func treeLess(a, b string) bool {
	if x, y := keyspace.Tree(a), keyspace.Tree(b); x != y {
		return x < y
	}
	return a < b
}

// show is a request in a trace; showReply an answer.
func show(req protocol.Request) string {
	return clip(protocol.AppendRequest(nil, protocol.Head{}, req))
}

func showReply(reply protocol.Reply) string {
	return clip(protocol.AppendResponse(nil, "", "", reply))
}

func showPromise(p protocol.Promise) string { return clip(p.AppendJSON(nil)) }

// clipBytes is how much of a request or an answer a trace shows.
const clipBytes = 2000

func clip(b []byte) string {
	if len(b) <= clipBytes {
		return string(b)
	}
	return fmt.Sprintf("%s... (%d bytes)", b[:clipBytes], len(b))
}
