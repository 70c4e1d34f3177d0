package push

import (
	"context"

	"abide/internal/deliver"
)

// Class is a sort of store call. One call of each class at a time is enough.
type Class int

// The classes of jobs.
const (
	CheckExecutes Class = iota
	CheckUnblocks
	ScanExecutes
	ScanUnblocks
	Report
	Classes // how many there are
)

// String names the class as health, metrics and logs show it.
func (cl Class) String() string {
	return [...]string{"check executes", "check unblocks", "scan executes", "scan unblocks", "report delivered"}[cl]
}

// kind is that of a check's or scan's messages.
func (cl Class) kind() Kind {
	if cl == CheckUnblocks || cl == ScanUnblocks {
		return KindUnblock
	}
	return KindExecute
}

// Job is one call to the Outbox. Run it, then hand it to Core.Done with what came out.
type Job struct {
	Class     Class
	Workspace string // empty for a scan

	kind     Kind
	walk     bool // a step of a walk, from cursor; else asks
	cursor   string
	queues   []*queue // of asks
	asks     []Ask
	flights  []*flight // of a check or report
	executes []deliver.Execute
	unblocks []deliver.UnblockRef
}

// Result is what the Outbox answered to a Job.
type Result struct {
	Executes     []deliver.Execute // of a check, like Unblocks
	Unblocks     []deliver.Unblock
	Queues       []Queue // of a walk
	Next         string
	ExecutePages []deliver.ExecutePage // of asks, like UnblockPages
	UnblockPages []UnblockPage
	Err          error
}

// Run makes the call. It touches nothing but its own job, so it needs no lock.
func (j *Job) Run(ctx context.Context, o Outbox) (r Result) {
	switch {
	case j.Class == CheckExecutes:
		r.Executes, r.Err = o.CheckExecutes(ctx, j.Workspace, j.executes)
	case j.Class == CheckUnblocks:
		r.Unblocks, r.Err = o.CheckUnblocks(ctx, j.Workspace, j.unblocks)
	case j.Class == Report && j.kind == KindExecute:
		r.Err = o.ExecutesDelivered(ctx, j.Workspace, j.executes)
	case j.Class == Report:
		r.Err = o.UnblocksDelivered(ctx, j.Workspace, j.unblocks)
	case j.walk:
		r.Queues, r.Next, r.Err = o.Queues(ctx, j.kind, j.cursor)
	case j.kind == KindExecute:
		r.ExecutePages, r.Err = o.Executes(ctx, j.asks)
	default:
		r.UnblockPages, r.Err = o.Unblocks(ctx, j.asks)
	}
	return r
}

// NextMs is when Take may have a job of the class: an instant that has passed, or will; math.MaxInt64 if only an event can
// make one. Pauses of messages and lanes end with a Take of CheckExecutes.
func (c *Core) NextMs(cl Class) int64 {
	at := int64(never)
	switch cl {
	case CheckExecutes, CheckUnblocks:
		if c.checks[cl.kind()].n > 0 {
			at = max(c.nowMs, c.checkAt[cl.kind()].atMs)
		}
		if cl == CheckExecutes && len(c.alarms) > 0 {
			at = min(at, c.alarms[0].atMs)
		}
	case ScanExecutes, ScanUnblocks:
		if c.draining {
			return never
		}
		k := cl.kind()
		at = c.walks[k].atMs
		if len(c.hungry[k]) > 0 {
			at = min(at, c.nowMs)
		}
		at = max(at, c.scanAt[k].atMs)
	case Report:
		if c.reports[KindExecute].n+c.reports[KindUnblock].n > 0 {
			at = max(c.nowMs, c.reportAt.atMs)
		}
	}
	return at
}

// Take returns the next job of a class, nil if none is due.
func (c *Core) Take(nowMs int64, cl Class) (j *Job) {
	nowMs = c.advance(nowMs)
	switch cl {
	case CheckExecutes, CheckUnblocks:
		j = c.takeCheck(nowMs, cl)
	case ScanExecutes, ScanUnblocks:
		j = c.takeScan(nowMs, cl)
	case Report:
		j = c.takeReport(nowMs)
	}
	c.dispatch(nowMs)
	return j
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
	}
	c.dispatch(nowMs)
}

// job names the flights to the store.
func job(cl Class, k Kind, workspace string, flights []*flight) *Job {
	j := &Job{Class: cl, Workspace: workspace, kind: k, flights: flights}
	for _, f := range flights {
		if k == KindExecute {
			j.executes = append(j.executes, deliver.Execute{Workspace: workspace, ID: f.id, Version: f.version, Address: f.address})
		} else {
			j.unblocks = append(j.unblocks, deliver.UnblockRef{ID: f.id, Address: f.address})
		}
	}
	return j
}

func (c *Core) takeCheck(nowMs int64, cl Class) *Job {
	k := cl.kind()
	if nowMs < c.checkAt[k].atMs {
		return nil
	}
	limit := MaxPage
	if k == KindUnblock {
		limit = MaxUnblockCheck
	}
	workspace, flights := c.checks[k].take(checking, func(*flight) int { return limit })
	if len(flights) == 0 {
		return nil
	}
	return job(cl, k, workspace, flights)
}

// doneCheck hands over what is still to be sent.
func (c *Core) doneCheck(nowMs int64, j *Job, r Result) {
	c.checkAt[j.kind].after(nowMs, r.Err)
	found := make(map[flightKey]Send, len(j.flights)) // with only what the store adds
	for _, e := range r.Executes {
		found[flightKey{KindExecute, j.Workspace, e.ID, e.Version, ""}] = Send{Trace: e.Trace}
	}
	for i := range r.Unblocks {
		u := &r.Unblocks[i]
		found[flightKey{KindUnblock, j.Workspace, u.ID, 0, u.Address}] = Send{Promise: &u.Promise}
	}
	for _, f := range j.flights {
		if f.state != checking {
			continue // claimed meanwhile
		}
		s, yes := found[f.key()]
		if s.Promise != nil {
			f.bytes = len(s.Promise.Param) + len(s.Promise.Value)
		}
		switch {
		case r.Err != nil:
			c.checks[j.kind].push(f)
		case !yes:
			c.of(f).Dropped++
			c.drop(nowMs, f)
		case !c.fits(f):
			c.release(nowMs, f)
			c.put(nowMs, f)
		default:
			c.load(f)
			f.state = sending
			f.attempts++
			f.triedMs = c.nowMs
			s.Transport, s.flight = f.lane.transport, f
			s.Kind, s.Workspace, s.Address, s.ID, s.Version, s.Attempt = f.kind, f.workspace, f.address, f.id, f.version, f.attempts
			c.outgoing = append(c.outgoing, &s)
		}
	}
}

func (c *Core) takeReport(nowMs int64) *Job {
	if nowMs < c.reportAt.atMs {
		return nil
	}
	for k := range kinds {
		workspace, flights := c.reports[k].take(delivered, reportBatch)
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

// reportBatch is how many messages may be reported together with f: fewer after each failure, so that one entry that
// cannot be reported ends up alone.
func reportBatch(f *flight) int { return max(1, MaxPage>>(2*f.reports)) }

func (c *Core) doneReport(nowMs int64, j *Job, r Result) {
	c.reportAt.after(nowMs, r.Err)
	for _, f := range j.flights {
		if f.state != reporting {
			continue // claimed meanwhile
		}
		switch {
		case r.Err == nil && f.again:
			f.again, f.attempts = false, 0
			c.enqueue(nowMs, f) // the entry may be a new one; the check tells
		case r.Err == nil:
			c.forget(f)
		default:
			if f.reports++; f.reports < maxReportAttempts {
				f.state = delivered
				c.reports[f.kind].push(f)
				continue
			}
			c.stats.GivenUp++
			c.forget(f)
		}
	}
}
