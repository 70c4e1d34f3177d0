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
	if r.lane == "" {
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
	untilMs := l.untilMs
	f := c.flights[flightKey{KindExecute, workspace, body.Task.ID, body.Task.Version, ""}]
	switch {
	case f != nil && f.state == sending:
		body.Push, body.PushAttempts = protocol.PushSending, int64(f.attempts)
		return
	case f != nil && f.lastErr != "":
		body.PushAttempts, body.PushError = int64(f.attempts), f.lastErr
		if f.state == resting {
			untilMs = max(untilMs, f.untilMs)
		}
	case l.troubles > 0:
		body.PushError = l.lastErr
	}
	if body.PushError != "" || untilMs > nowMs {
		body.Push = protocol.PushPaused
	}
	if untilMs > nowMs {
		body.PushAt = body.Now + untilMs - nowMs
	}
}
