package deliver

// Core decides which message goes to which connection, and when it counts as delivered. It is a step
// function: every method takes the instant and one event, none blocks, none calls the store. Store calls
// are Jobs that its owner takes, runs and hands back. The same events in the same order give the same
// decisions.
//
// The life of a message:
//
//	hint -> waiting -> checking -+
//	                             +-> buffered -> taken -> flushed -> delivered -> reporting -> forgotten
//	page of a scan --------------+                  (a window later)      (an execute: held -> forgotten)
//
// A claim ends it anywhere on that way, without a transaction of delivery's own. A connection that breaks
// before the window is over sends it back to waiting. The outbox entry goes only with the report, or with the
// claim, so that whatever is forgotten here is met again by a scan.
//
// A message holds a slot of its connection from when it is buffered: an unblock until its report, an execute
// until it is claimed. An execute that is reported and not claimed is held: no call is made about it any more,
// and its slot comes free with the claim; when its task is queued again, as a hint or a page shows, which is a
// new dispatch to whoever has room; with the end of its connection; or, hints being lossy, after Limits.HoldMs.
//
// nowMs is any clock in milliseconds that does not jump; an instant before the largest one seen counts as
// that one. Not safe for concurrent use.
type Core struct {
	limits Limits
	nowMs  int64

	groups     map[groupKey]*group
	workspaces map[string]*workspace // but the default one
	conns      map[ConnID]*conn
	// perWorkspace counts connections, of the default workspace too.
	perWorkspace map[string]int

	order    []*conn // the same by number: what is walked, so that no decision hangs on a map's order
	lastConn ConnID
	woken    []ConnID

	flights [kinds]map[flightKey]*flight
	checks  [kinds]workQueue
	window  flightList // flushed, by the end of their window
	holding flightList // held, by the end of their hold
	reports [kinds]workQueue

	reportFailures int
	reportAtMs     int64 // no report before

	lanes [kinds]laneHeap
	seq   uint64 // makes the order of lanes with equal times definite
	scans [kinds]scanMemory

	roster   roster
	targets  targets
	draining bool
	stats    Stats
}

// NewCore returns a core without connections.
func NewCore(l Limits) *Core {
	c := &Core{
		limits:       l.withDefaults(),
		groups:       map[groupKey]*group{},
		workspaces:   map[string]*workspace{},
		conns:        map[ConnID]*conn{},
		perWorkspace: map[string]int{},
		targets:      targets{},
		window:       flightList{slot: linkQueue},
		holding:      flightList{slot: linkQueue},
	}
	for k := range kinds {
		c.flights[k] = map[flightKey]*flight{}
		c.checks[k] = newWorkQueue()
		c.reports[k] = newWorkQueue()
	}
	return c
}

func (c *Core) advance(nowMs int64) int64 {
	c.nowMs = max(c.nowMs, nowMs)
	return c.nowMs
}

// HintExecute takes in that a commit has just queued e.
func (c *Core) HintExecute(nowMs int64, e Execute) {
	c.hint(c.advance(nowMs), flight{kind: kindExecute, workspace: e.Workspace, id: e.ID, address: e.Address, version: e.Version})
}

// HintUnblock takes in that a commit has just queued an unblock.
func (c *Core) HintUnblock(nowMs int64, workspace string, ref UnblockRef) {
	c.hint(c.advance(nowMs), flight{kind: kindUnblock, workspace: workspace, id: ref.ID, address: ref.Address})
}

// HintClaimed takes in that a task is pending no longer at this version, or one before: what was sent of it has
// its answer, whether its execute is still queued or was reported long ago.
func (c *Core) HintClaimed(nowMs int64, workspace, id string, version int64) {
	nowMs = c.advance(nowMs)
	f := c.flights[kindExecute][flightKey{workspace, id, ""}]
	if f == nil || f.version > version {
		return
	}
	switch s := &c.stats.Messages[kindExecute]; {
	case f.reported:
		s.Late++
	case f.conn != nil || f.state != waiting && f.state != checking:
		s.Claimed++
	}
	c.drop(nowMs, f)
}

// hint starts the flight h unless somebody has it in hand already.
func (c *Core) hint(nowMs int64, h flight) {
	t, ok := c.targets.parse(h.workspace, h.address)
	if !ok || t.nobody() {
		return
	}
	h.target = t
	l := c.laneOf(&h)
	if l == nil {
		return // nobody there: the scan at the next connect finds it
	}
	if !c.supersedes(nowMs, &h) || c.yields(nowMs, &h, true) {
		return
	}
	// A parked lane has more than its connections can take. What is hinted now then waits for its turn in
	// the scan, or else the newest tasks would starve those that are queued.
	if l.state == laneParked || c.roomOf(l) == 0 {
		c.missed(nowMs, l)
		return
	}
	if c.checks[h.kind].n >= c.limits.MaxHints {
		c.stats.HintsDropped++
		c.missed(nowMs, l)
		return
	}
	f := h
	f.state, f.hinted = waiting, true
	c.track(&f)
	c.checks[f.kind].push(&f)
}

// supersedes reports whether the hinted message must be sent although one with its key may be in flight, and
// ends that one if so. A hint says that the entry was queued just now. If the message in flight has been
// written before, it stands for an earlier dispatch (the task was halted and continued since, or the
// workspace was reset), and the worker must hear of this one. Unless a scan was faster than the hint: that
// looks the same, and the doubt is resolved by a check: when the window ends, instead of the report, or else as
// soon as no report is under way. So is the doubt about one that is held, which no other call will be made for.
// Its slot stays taken meanwhile. A hint of an earlier version than the one in flight was overtaken by it. (Or
// the workspace was reset; a scan finds the new task when the old one has been reported.)
func (c *Core) supersedes(nowMs int64, h *flight) bool {
	f := c.flights[h.kind][h.key()]
	switch {
	case f == nil:
		return true
	case f.version > h.version:
		if f.state == held {
			c.missedFlight(nowMs, h)
		}
		return false
	case f.version == h.version:
		late := !f.hinted
		f.hinted = true
		switch {
		case f.state == waiting || f.state == buffered || f.state == taken:
			return false // will be read or written after this commit anyway
		case f.state == checking || (f.state == flushed || f.state == reporting) && late:
			f.again = true // a check's answer may be from before
			return false
		case f.state == held || f.state == delivered && late:
			c.recheck(f)
			return false
		}
	}
	c.drop(nowMs, f)
	return true
}

// track makes f known as in flight.
func (c *Core) track(f *flight) { c.flights[f.kind][f.key()] = f }

// forget ends f. A connection's slot must have been given back before.
func (c *Core) forget(f *flight) {
	f.state = gone
	f.promise = nil
	delete(c.flights[f.kind], f.key())
	c.scans[f.kind].note(f)
}

// release gives back the slot that f holds, if any.
func (c *Core) release(nowMs int64, f *flight) {
	cn := f.conn
	if cn == nil {
		return
	}
	if f.state == buffered {
		cn.outBytes -= f.bytes
	}
	f.unlink(linkConn)
	f.conn = nil
	cn.used[f.kind]--
	for k := range kinds {
		c.refresh(nowMs, cn, k)
	}
}

// drop ends f wherever it stands.
func (c *Core) drop(nowMs int64, f *flight) {
	switch f.state {
	case waiting:
		c.checks[f.kind].remove(f)
	case delivered:
		c.reports[f.kind].remove(f)
	default:
		f.unlink(linkQueue)
	}
	c.release(nowMs, f)
	c.forget(f)
}
