package deliver

import (
	"context"
	"math"
	"slices"

	"abide/internal/loops"
	"abide/protocol"
)

// Class is a sort of store call. One call of each class at a time is enough; that a slow one holds up
// none of another class is why there are several.
type Class int

// The classes of jobs.
const (
	CheckExecutes Class = iota
	CheckUnblocks
	ScanExecutes
	ScanUnblocks
	Report
	RosterCalls // about other servers on the store, if there are any
	Classes     // how many there are
)

// String names the class as health and logs show it.
func (cl Class) String() string {
	return [...]string{"check executes", "check unblocks", "scan executes", "scan unblocks", "report delivered", "roster"}[cl]
}

// Job is one call to the Outbox. Run it, then hand it to Core.Done with what came out.
type Job struct {
	Class     Class
	Workspace string

	kind     kind
	lanes    []*lane      // of a scan
	asks     []Ask        // what it asks of each
	executes []Execute    // of a check or report
	unblocks []UnblockRef // of a check or report
	flights  []*flight    // the same, one by one

	// Of a call about other servers, which is a look, a record or, with executes, a question for claims.
	roster                Roster
	look                  bool
	number                int64
	made, again           []*conn
	seatsMade, seatsAgain []Seat
	ended                 []Seat
}

// Result is what the Outbox answered to a Job.
type Result struct {
	Executes     []Execute // of a check, like Unblocks
	Unblocks     []Unblock
	ExecutePages []ExecutePage // of a scan, like UnblockPages
	UnblockPages []UnblockPage

	Standing Standing
	Numbers  []int64
	Err      error
}

// Run makes the call. It touches nothing but its own job, so it needs no lock.
func (j *Job) Run(ctx context.Context, o Outbox) (r Result) {
	switch j.Class {
	case RosterCalls:
		return j.runRoster(ctx)
	case CheckExecutes:
		r.Executes, r.Err = o.CheckExecutes(ctx, j.Workspace, j.executes)
	case CheckUnblocks:
		r.Unblocks, r.Err = o.CheckUnblocks(ctx, j.Workspace, j.unblocks)
	case ScanExecutes:
		r.ExecutePages, r.Err = o.Executes(ctx, j.asks)
	case ScanUnblocks:
		r.UnblockPages, r.Err = o.Unblocks(ctx, j.asks)
	case Report:
		if j.kind == kindExecute {
			r.Err = o.ExecutesDelivered(ctx, j.Workspace, j.executes)
		} else {
			r.Err = o.UnblocksDelivered(ctx, j.Workspace, j.unblocks)
		}
	}
	return r
}

// never is the time of what is not due at all.
const never = math.MaxInt64

// NextMs is when Take may have a job of the class: an instant that has passed, or will; math.MaxInt64 if
// only an event can make one.
func (c *Core) NextMs(cl Class) int64 {
	switch cl {
	case CheckExecutes, CheckUnblocks:
		if c.checks[kindOf(cl)].n > 0 {
			return c.nowMs
		}
	case ScanExecutes, ScanUnblocks:
		at := int64(never)
		if h := c.lanes[kindOf(cl)]; len(h) > 0 {
			at = h[0].atMs
		}
		if cl == ScanExecutes && c.holding.front != nil {
			at = min(at, c.holding.front.untilMs)
		}
		return at
	case RosterCalls:
		return c.nextRosterMs()
	case Report:
		at := int64(never)
		if c.window.front != nil {
			at = c.window.front.untilMs + c.limits.GatherMs
		}
		if c.reports[kindExecute].n+c.reports[kindUnblock].n > 0 {
			at = c.nowMs
		}
		return max(at, c.reportAtMs)
	}
	return never
}

// kindOf is the kind of a check's or scan's messages.
func kindOf(cl Class) kind {
	if cl == CheckUnblocks || cl == ScanUnblocks {
		return kindUnblock
	}
	return kindExecute
}

// Take returns the next job of a class, nil if none is due.
func (c *Core) Take(nowMs int64, cl Class) *Job {
	nowMs = c.advance(nowMs)
	switch cl {
	case Report:
		return c.takeReport(nowMs)
	case RosterCalls:
		return c.takeRoster(nowMs)
	}
	if cl == CheckExecutes || cl == CheckUnblocks {
		return c.takeCheck(cl)
	}
	return c.takeScan(nowMs, cl)
}

// Done takes in what came of a job.
func (c *Core) Done(nowMs int64, j *Job, r Result) {
	nowMs = c.advance(nowMs)
	if r.Err != nil {
		c.stats.Errors[j.Class]++
	}
	switch j.Class {
	case CheckExecutes, CheckUnblocks:
		c.doneCheck(nowMs, j, r)
	case ScanExecutes, ScanUnblocks:
		c.doneScan(nowMs, j, r)
	case Report:
		c.doneReport(nowMs, j, r)
	case RosterCalls:
		c.doneRoster(nowMs, j, r)
	}
}

func pageOf(k kind) int {
	if k == kindExecute {
		return MaxPage
	}
	return MaxUnblockPage
}

// job names the flights to the store.
func job(cl Class, k kind, workspace string, flights []*flight) *Job {
	j := &Job{Class: cl, Workspace: workspace, kind: k, flights: flights}
	if k == kindExecute {
		j.executes = make([]Execute, len(flights))
		for i, f := range flights {
			j.executes[i] = f.execute()
		}
		return j
	}
	j.unblocks = make([]UnblockRef, len(flights))
	for i, f := range flights {
		j.unblocks[i] = UnblockRef{f.id, f.address}
	}
	return j
}

func (c *Core) takeCheck(cl Class) *Job {
	k := kindOf(cl)
	workspace, flights := c.checks[k].take(func(*flight) int { return pageOf(k) })
	if len(flights) == 0 {
		return nil
	}
	for _, f := range flights {
		f.state, f.again = checking, false
	}
	return job(cl, k, workspace, flights)
}

func (c *Core) doneCheck(nowMs int64, j *Job, r Result) {
	if r.Err != nil {
		for _, f := range j.flights {
			if f.state == checking {
				c.hold(nowMs, f) // if somebody has it; else that is the end of it
				c.missedFlight(nowMs, f)
			}
		}
		return
	}
	promises := make(map[flightKey]*protocol.Promise, len(r.Unblocks))
	for i := range r.Unblocks {
		u := &r.Unblocks[i]
		promises[flightKey{j.Workspace, u.ID, u.Address}] = &u.Promise
	}
	// An answer as long as the question says yes to all, which is the usual case.
	all := len(r.Executes) == len(j.flights)
	var found map[string]*Execute
	if j.kind == kindExecute && !(all && untraced(r.Executes)) {
		found = make(map[string]*Execute, len(r.Executes))
		for i := range r.Executes {
			found[r.Executes[i].ID] = &r.Executes[i]
		}
	}
	for _, f := range j.flights {
		if f.state != checking {
			continue // claimed meanwhile
		}
		yes := all
		f.trace = nil
		if j.kind == kindUnblock {
			f.promise, yes = promises[f.key()]
		} else if found != nil {
			e := found[f.id]
			if yes = e != nil && e.Version == f.version; yes {
				f.trace = e.Trace
			}
		}
		c.checked(nowMs, f, yes)
	}
}

// untraced reports whether none of some executes is part of a trace.
func untraced(executes []Execute) bool {
	return !slices.ContainsFunc(executes, func(e Execute) bool { return e.Trace != nil })
}

// checked hands f out if its check said yes. One that was being checked again has a slot, which a yes frees.
func (c *Core) checked(nowMs int64, f *flight, yes bool) {
	switch {
	case yes:
		f.again = false // it is written after that hint
		if f.conn == nil || c.redispatch(nowMs, f) {
			f.bytes = c.sizeOf(f)
			if cn, _ := c.choose(f); cn != nil {
				c.hand(nowMs, cn, f)
				return
			}
		}
		c.drop(nowMs, f)
		c.missedFlight(nowMs, f) // no room by now, or not its turn
	case f.again:
		f.state = waiting
		c.checks[f.kind].push(f)
	case f.reported:
		c.hold(nowMs, f)
	default:
		c.drop(nowMs, f)
	}
}

// missedFlight leaves f to the scan of its lane, if there is anybody to scan for.
func (c *Core) missedFlight(nowMs int64, f *flight) {
	if l := c.laneOf(f); l != nil {
		c.missed(nowMs, l)
	}
}

// takeReport moves what is past its window to the reports and begins the next one.
func (c *Core) takeReport(nowMs int64) *Job {
	if nowMs < c.reportAtMs {
		return nil
	}
	if w := &c.window; w.front != nil && w.front.untilMs+c.limits.GatherMs <= nowMs {
		for w.front != nil && w.front.untilMs <= nowMs {
			f := w.popFront()
			if f.again {
				c.recheck(f)
				continue
			}
			f.state = delivered
			c.reports[f.kind].push(f)
		}
	}
	for k := range kinds {
		workspace, flights := c.reports[k].take(reportBatch)
		if len(flights) == 0 {
			continue
		}
		for _, f := range flights {
			f.state = reporting
		}
		return job(Report, k, workspace, flights)
	}
	return nil
}

// reportBatch is how many messages may be reported together with f: fewer after each failure, so that one
// entry that cannot be reported ends up alone.
func reportBatch(f *flight) int { return max(1, MaxPage>>(2*f.attempts)) }

func (c *Core) doneReport(nowMs int64, j *Job, r Result) {
	if r.Err != nil {
		c.reportFailures++
		c.reportAtMs = nowMs + loops.CallPauseMs(c.reportFailures)
	} else {
		c.reportFailures = 0
	}
	for _, f := range j.flights {
		if f.state == reporting {
			c.reported(nowMs, f, r.Err == nil)
		}
	}
}

// reported takes in that a report of f has ended.
func (c *Core) reported(nowMs int64, f *flight, ok bool) {
	f.reported = true
	s := &c.stats.Messages[f.kind]
	switch {
	case ok:
		s.Delivered++
	case f.again:
	default:
		if f.attempts++; f.attempts < maxReportAttempts {
			f.state = delivered
			c.reports[f.kind].push(f)
			return
		}
		s.GivenUp++
	}
	if f.again {
		c.recheck(f)
		return
	}
	c.hold(nowMs, f)
}
