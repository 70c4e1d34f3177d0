package deliver

// What becomes of an execute between its report and its claim, and of a message about which there is a doubt.

// hold keeps the slot of f taken although its entry may have gone from the outbox: its worker has it and has
// not claimed it, and must not be handed more than it claims. No call to the store comes of it. An unblock, which nobody
// claims, ends here, and so does what no connection has any longer: the retry of its task is armed.
func (c *Core) hold(nowMs int64, f *flight) {
	if f.kind != kindExecute || f.conn == nil {
		c.drop(nowMs, f)
		return
	}
	f.state, f.untilMs = held, nowMs+c.limits.HoldMs
	c.holding.pushBack(f)
	c.scans[f.kind].note(f) // a page that was read before the report still shows it
}

// endHolds gives back the slots of those that have been held for long enough: the hint of their claim was
// lost, or it is time to let another task have a try.
func (c *Core) endHolds(nowMs int64) {
	for f := c.holding.front; f != nil && f.untilMs <= nowMs; f = c.holding.front {
		c.stats.Messages[f.kind].Expired++
		c.drop(nowMs, f)
	}
}

// recheck asks the store whether f, which has been written, is queued: then it was dispatched anew. Until the
// answer is there f keeps its slot. MaxHints does not count here: the slots are bound enough.
func (c *Core) recheck(f *flight) {
	if f.state == delivered {
		c.reports[f.kind].remove(f)
	} else {
		f.unlink(linkQueue)
	}
	f.state = waiting
	c.checks[f.kind].push(f)
}

// redispatch begins the delivery of f anew, whose check said that it is queued again. It reports whether f may be
// handed out at once. While its lane has a backlog it may not: those that a worker leaves unclaimed
// would then be sent to it again and again before others had their first turn.
func (c *Core) redispatch(nowMs int64, f *flight) bool {
	l := c.laneOf(f)
	behind := l != nil && (l.state == laneParked || l.cursor != "" || l.again)
	c.release(nowMs, f)
	f.reported, f.attempts = false, 0
	return !behind
}
