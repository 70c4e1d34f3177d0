package deliver

import (
	"slices"

	"abide/protocol"
)

// Explain completes an answer of task.explain with what only delivery knows, and returns all others as they are.
func (d *Deliverer) Explain(workspace string, reply protocol.Reply) protocol.Reply {
	if body, ok := reply.Body.(protocol.ExplainBody); ok {
		body.Workers, body.HasWorkers = d.Reachable(workspace, body.Target)
		reply.Body = body
	}
	return reply
}

// Reachable counts the connected workers that an execute with that address could go to now, by its address alone: not how
// much room they have. Those of other live servers on the store count as this one last saw them. Not ok for what is no poll address. It walks the connections; for people
// who ask why a task does not run.
func (d *Deliverer) Reachable(workspace, address string) (workers int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.reachable(workspace, address)
}

func (c *Core) reachable(workspace, address string) (workers int, ok bool) {
	t, ok := c.targets.parse(workspace, address)
	if !ok {
		return 0, false
	}
	for _, cn := range c.order {
		here := cn.state == connOpen && cn.group.key.workspace == workspace
		if here && (t.whole || cn.group.key.name == t.group && (!t.uni || cn.pid == t.pid)) {
			workers++
		}
	}
	for _, seat := range c.roster.seats {
		there := seat.Workspace == workspace && slices.Contains(c.roster.standing.Live, seat.Server)
		if there && (t.whole || seat.Group == t.group && (!t.uni || seat.PID == t.pid)) {
			workers++
		}
	}
	return workers, true
}
