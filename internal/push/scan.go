package push

import "container/list"

// The queues are found in two steps. A walk lists those that hold messages, all of them once a poll interval. What a walk
// or a hint has shown is opened: its pages are asked for as long as its lane has room.

// queueKey names a queue of one kind.
type queueKey struct {
	kind Kind
	Queue
}

// queue is one that is to be looked into, is being looked into, or was found to hold nothing new.
type queue struct {
	key    queueKey
	lane   *lane
	place  *list.Element // while it is open
	asking bool          // a call about it is under way
	cursor string
	found  bool // this pass has met a message that was not known
	met    bool // this pass has met any
	again  bool // there is something new that this pass may have missed

	quietMs      int64 // how long it was left alone after the last pass
	quietUntilMs int64
}

// walk is a pass over all queues of a kind.
type walk struct {
	cursor    string
	steps     int
	startedMs int64
	atMs      int64 // of its next step
	unserved  int   // queues met that nobody serves
	asksLast  bool  // the last call was one of asks: a step that is due comes first
}

// look opens a queue; fresh says that something was queued in it just now.
func (c *Core) look(l *lane, key queueKey, fresh bool) {
	q := l.queues[key]
	if q == nil {
		// A lane that has room has one in any case, whatever others have left no room for.
		if c.queueN >= maxOpen && (l.open[key.kind].Len() > 0 || c.room(l) <= 0) {
			return // the next walk meets it
		}
		q = &queue{key: key, lane: l}
		l.queues[key] = q
		c.queueN++
	}
	q.again = q.again || fresh && (q.asking || q.place != nil)
	if fresh {
		q.quietMs, q.quietUntilMs = 0, 0
	}
	if !q.asking && q.place == nil && q.quietUntilMs <= c.nowMs {
		q.cursor, q.found, q.met = "", false, false
		c.open(q)
	}
}

func (c *Core) open(q *queue) {
	q.place = q.lane.open[q.key.kind].PushBack(q)
	c.feed(q.lane)
}

// closeQueue forgets a queue.
func (c *Core) closeQueue(q *queue) {
	delete(q.lane.queues, q.key)
	c.queueN--
}

// feed notes that l has queues to look into and room for what they hold.
func (c *Core) feed(l *lane) {
	for k := range kinds {
		switch {
		case l.hungry[k] || l.open[k].Len() == 0:
		case c.room(l) > 0:
			l.hungry[k] = true
			c.hungry[k] = append(c.hungry[k], l)
		case !l.starve:
			l.starve = true
			c.starving = append(c.starving, l)
		}
	}
}

// feedAll feeds the lanes that had no room because others had it all.
func (c *Core) feedAll() {
	starving := c.starving
	c.starving = nil
	for _, l := range starving {
		l.starve = false
		c.feed(l)
	}
}

// takeScan returns the next step of a walk, or asks.
func (c *Core) takeScan(nowMs int64, cl Class) *Job {
	k := cl.kind()
	w := &c.walks[k]
	if c.draining || nowMs < c.scanAt[k].atMs {
		return nil
	}
	walkDue := nowMs >= w.atMs
	if !walkDue || !w.asksLast {
		if j := c.takeAsks(cl); j != nil {
			w.asksLast = true
			return j
		}
	}
	w.asksLast = false
	if !walkDue {
		return nil
	}
	if w.cursor == "" {
		w.startedMs, w.steps, w.unserved = nowMs, 0, 0
	}
	return &Job{Class: cl, kind: k, walk: true, cursor: w.cursor}
}

// takeAsks asks for pages of queues whose lanes have room.
func (c *Core) takeAsks(cl Class) *Job {
	k := cl.kind()
	j := &Job{Class: cl, kind: k}
	var again []*lane
	for len(c.hungry[k]) > 0 && len(j.asks) < MaxAsks {
		l := c.hungry[k][0]
		c.hungry[k] = c.hungry[k][1:]
		l.hungry[k] = false
		room := c.room(l)
		if room <= 0 || l.open[k].Len() == 0 {
			c.feed(l) // others have taken the room: it comes back when there is some
			continue
		}
		q := l.open[k].Remove(l.open[k].Front()).(*queue)
		q.place, q.asking = nil, true
		limit := min(max(room, minPage), MaxPage)
		if !c.mine(l) {
			limit = watched
		}
		j.queues = append(j.queues, q)
		j.asks = append(j.asks, Ask{q.key.Queue, q.cursor, limit})
		if l.open[k].Len() > 0 {
			l.hungry[k] = true
			again = append(again, l)
		}
		if len(c.hungry[k]) == 0 {
			c.hungry[k], again = again, nil
		}
	}
	c.hungry[k] = append(c.hungry[k], again...)
	if len(j.asks) == 0 {
		return nil
	}
	return j
}

func (c *Core) doneScan(nowMs int64, j *Job, r Result) {
	c.scanAt[j.kind].after(nowMs, r.Err)
	if j.walk {
		if r.Err == nil {
			c.walked(nowMs, j.kind, r)
		}
		return
	}
	for i, q := range j.queues {
		q.asking = false
		switch {
		case j.kind == KindExecute && i < len(r.ExecutePages) && r.Err == nil:
			p := r.ExecutePages[i]
			found := make([]*flight, len(p.Executes))
			for n, e := range p.Executes {
				found[n] = &flight{kind: KindExecute, workspace: e.Workspace, id: e.ID, version: e.Version, address: e.Address, lane: q.lane}
			}
			c.paged(nowMs, q, found, p.Next)
		case j.kind == KindUnblock && i < len(r.UnblockPages) && r.Err == nil:
			p := r.UnblockPages[i]
			found := make([]*flight, len(p.Unblocks))
			for n, u := range p.Unblocks {
				found[n] = &flight{kind: KindUnblock, workspace: q.key.Workspace, id: u.ID, address: u.Address, lane: q.lane}
			}
			c.paged(nowMs, q, found, p.Next)
		default:
			c.open(q) // not answered
		}
	}
}

// walked takes in a step of a walk.
func (c *Core) walked(nowMs int64, k Kind, r Result) {
	w := &c.walks[k]
	for _, q := range r.Queues {
		l := c.laneOf(q.Address)
		if l == nil {
			w.unserved++
			continue
		}
		key := queueKey{k, q}
		if !c.mine(l) && c.waits(nowMs, l, key) {
			continue
		}
		c.look(l, key, false)
	}
	w.steps++
	switch w.cursor = r.Next; {
	case w.cursor == "":
		w.atMs = max(nowMs, w.startedMs+c.pollMs())
		c.stats.Unserved[k] = w.unserved
		c.prune(nowMs)
		c.feedAll()
	case w.steps < quickSteps:
		w.atMs = nowMs
	default:
		w.atMs = nowMs + c.pollMs()/pacedSteps
	}
}

// paged takes in a page of q.
func (c *Core) paged(nowMs int64, q *queue, found []*flight, next string) {
	if !c.mine(q.lane) && !c.overdue(nowMs, q, found) {
		c.closeQueue(q)
		return
	}
	for _, f := range found {
		q.met = true
		if c.flights[f.key()] != nil {
			continue
		}
		if c.memory(q.lane) <= 0 {
			c.open(q) // this page once more, when there is room
			return
		}
		q.found = c.track(nowMs, f) || q.found
	}
	switch {
	case next != "":
		q.cursor = next
		c.open(q)
	case q.again:
		q.cursor, q.found, q.met, q.again = "", false, false, false
		c.open(q)
	case q.met && !q.found && c.queueN <= maxOpen:
		q.quietMs = min(max(2*q.quietMs, c.pollMs()), quietMsMax)
		q.quietUntilMs = nowMs + q.quietMs
	default:
		c.closeQueue(q)
	}
}
