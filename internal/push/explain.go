package push

import "abide/protocol"

// Explain completes an answer of task.explain with what push knows of a queued execute, and returns all others as they are.
func (p *Pusher) Explain(workspace string, reply protocol.Reply) protocol.Reply {
	body, ok := reply.Body.(protocol.ExplainBody)
	if !ok || !body.Queued || body.HasWorkers {
		return reply
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.core.explain(p.options.NowMs(), workspace, &body)
	reply.Body = body
	return reply
}

func (c *Core) explain(nowMs int64, workspace string, body *protocol.ExplainBody) {
	r := c.routeOf(body.Target)
	if body.PushTo = r.lane; r.lane == "" {
		body.Push, body.PushError = protocol.PushUnserved, r.why
		return
	}
	body.Push = protocol.PushWaiting
	l := c.lanes[laneKey{r.transport, r.lane}]
	if l == nil {
		return
	}
	if !c.mine(l) {
		body.Push = protocol.PushElsewhere
		return
	}
	instant := func(ms int64) int64 { return body.Now + ms - nowMs }
	f := c.flights[flightKey{KindExecute, workspace, body.Task.ID, body.Task.Version, ""}]
	untilMs := l.untilMs
	switch {
	case f != nil && f.state == sending:
		body.Push, body.PushAttempts, body.PushTriedAt = protocol.PushSending, int64(f.attempts), instant(f.triedMs)
		return
	case f != nil && f.lastErr != "":
		body.Push, body.PushAttempts, body.PushError, body.PushTriedAt = told(f.refused), int64(f.attempts), f.lastErr, instant(f.triedMs)
		if f.state == resting {
			untilMs = max(untilMs, f.untilMs)
		}
	case l.troubles > 0 || l.denied:
		body.Push, body.PushError, body.PushTriedAt = told(l.troubles == 0), l.lastErr, instant(l.failedMs)
	case untilMs > nowMs:
		body.Push = protocol.PushPaused
	case left(l.trust(), &c.held, c.limits.MaxOutstanding) <= 0:
		body.Push, body.PushOpen = protocol.PushBusy, int64(c.busy)
	case l.inFlight-l.claimed >= l.window || l.inFlight >= l.concurrency || !c.share(l):
		body.Push, body.PushOpen = protocol.PushFull, int64(l.inFlight)
	}
	if untilMs > nowMs {
		body.PushAt = instant(untilMs)
	}
}

// told is the word for a message that was not accepted.
func told(refused bool) string {
	if refused {
		return protocol.PushRefused
	}
	return protocol.PushPaused
}
