package deliver

import (
	"container/heap"

	"abide/internal/loops"
)

// takeScan begins the next pages of the lanes that are due. The end of a hold is its business too, because it makes room to
// scan for.
func (c *Core) takeScan(nowMs int64, cl Class) *Job {
	k := kindOf(cl)
	if k == kindExecute {
		c.endHolds(nowMs)
	}
	j := &Job{Class: cl, kind: k}
	for h := &c.lanes[k]; len(*h) > 0 && c.joins(nowMs, j, (*h)[0]); {
		l := heap.Pop(h).(*lane)
		room := c.roomOf(l)
		if room == 0 {
			l.state = laneParked
			continue
		}
		l.state = laneScanning
		if l.cursor == "" {
			l.again = false // the pass that begins here sees all that was committed until now
			l.yielded = 0
		}
		j.lanes = append(j.lanes, l)
		j.asks = append(j.asks, Ask{l.dest, l.cursor, c.pageFor(k, room)})
	}
	if len(j.lanes) == 0 {
		return nil
	}
	j.Workspace = j.lanes[0].dest.Workspace
	c.scans[k].begin()
	return j
}

// joins reports whether the lane that is due first is read now, with the others of j. One that holds much, or whose
// reading has failed, is read alone: it must not cost the others their turn. With one that is due those go that will be
// soon, so that lanes of about the same rhythm come to share their calls.
func (c *Core) joins(nowMs int64, j *Job, l *lane) bool {
	if len(j.lanes) == 0 {
		return l.atMs <= nowMs
	}
	alone := func(l *lane) bool { return l.long || l.failures > 0 }
	return len(j.lanes) < MaxAsks && l.atMs <= nowMs+c.limits.PollMs/4 && !alone(l) && !alone(j.lanes[0])
}

// pageFor is how many messages a scan reads at once for so much room. Where others' are among them, more than there is
// room for.
func (c *Core) pageFor(k kind, room int) int {
	if len(c.roster.standing.Live) > 1 {
		return pageOf(k)
	}
	return min(room, pageOf(k))
}

func (c *Core) doneScan(nowMs int64, j *Job, r Result) {
	for i, l := range j.lanes {
		page := scanned{err: r.Err}
		if i < len(r.ExecutePages) {
			page.read(l, r.ExecutePages[i])
		}
		if i < len(r.UnblockPages) {
			page.readUnblocks(l, r.UnblockPages[i])
		}
		for _, f := range page.flights {
			page.full = !c.found(nowMs, l, f) || page.full
		}
		if l.state != laneDead {
			c.paged(nowMs, l, page)
		}
	}
	c.scans[j.kind].end()
}

// scanned is what came of one lane's ask.
type scanned struct {
	answered bool
	flights  []*flight
	next     string
	full     bool // nobody had room for some of it
	err      error
}

func (s *scanned) read(l *lane, p ExecutePage) {
	s.answered, s.next = true, p.Next
	for i := range p.Executes {
		e := &p.Executes[i]
		s.flights = append(s.flights, &flight{kind: kindExecute, workspace: l.dest.Workspace, id: e.ID, address: e.Address, version: e.Version, trace: e.Trace})
	}
}

func (s *scanned) readUnblocks(l *lane, p UnblockPage) {
	s.answered, s.next = true, p.Next
	for i := range p.Unblocks {
		u := &p.Unblocks[i]
		s.flights = append(s.flights, &flight{kind: kindUnblock, workspace: l.dest.Workspace, id: u.ID, address: u.Address, promise: &u.Promise})
	}
}

// longLane is how many messages of one page make a lane one that is read alone.
const longLane = MaxPage / 8

// paged says when a lane goes on after a page.
func (c *Core) paged(nowMs int64, l *lane, page scanned) {
	if page.err != nil {
		l.failures++
		l.cursor = "" // perhaps it was the cursor that could not be read
		l.again = true
		c.schedule(l, nowMs+loops.CallPauseMs(l.failures))
		return
	}
	l.failures = 0
	if !page.answered { // the call ended before its turn came
		c.schedule(l, nowMs)
		return
	}
	l.long = page.next != "" || len(page.flights) > longLane
	if page.full { // the same page again when there is room; what has been handed out of it is passed over then
		c.schedule(l, nowMs)
		return
	}
	l.cursor = page.next
	if l.yielded >= yieldedRows {
		l.cursor = ""
		c.schedule(l, nowMs+c.limits.PollMs)
		return
	}
	if l.cursor != "" || l.again {
		c.schedule(l, nowMs)
	} else {
		c.schedule(l, nowMs+c.pollFor(l))
	}
}

// found hands out one entry of a page. It returns false if the page must be read again because nobody had room.
func (c *Core) found(nowMs int64, l *lane, f *flight) bool {
	old := c.flights[f.kind][f.key()]
	if old != nil && old.state != held && old.version >= f.version {
		return true
	}
	if v, ok := c.scans[f.kind].gone[f.key()]; ok && v >= f.version {
		return true
	}
	t, ok := c.targets.parse(f.workspace, f.address)
	if !ok {
		return true
	}
	if old != nil {
		// Of an earlier version, and so it was claimed, or held and so it is queued again; the hint was
		// lost. Its slot is free either way.
		c.drop(nowMs, old)
	}
	f.target = t
	if c.yields(nowMs, f, false) {
		l.yielded++
		return true
	}
	f.bytes = c.sizeOf(f)
	cn, possible := c.choose(f)
	if cn == nil {
		// Only what this lane is for may stop it: an entry for one full worker must not hold up the group.
		return !possible || c.laneOf(f) != l
	}
	c.track(f)
	c.hand(nowMs, cn, f)
	return true
}
