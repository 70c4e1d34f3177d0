package push

import (
	"slices"

	"abide/internal/cluster"
)

// Where several servers share a store, each lane is one server's: of those that live the one with the highest rendezvous
// hash of its name, so that the limits and pauses of a destination are kept in one place. The others look at the heads of
// its queues now and then; what lies there for TakeOverMs makes the next in line serve the lane for a while as well. That
// only saves messages that nobody needs: whatever is sent is looked up before and after. (docs/push.md)

// servers are those that share the store. Alone, both fields are empty.
type servers struct {
	self  string
	live  []string
	epoch uint64 // counts the changes
}

// watch is the head of another server's queue as it was some time ago.
type watch struct {
	atMs int64
	seen map[flightKey]bool
}

// Servers takes in which servers live, as Outbox.Servers returns them.
func (c *Core) Servers(self string, live []string) {
	if c.servers.self == self && slices.Equal(c.servers.live, live) {
		return
	}
	c.servers = servers{self, slices.Clone(live), c.servers.epoch + 1}
}

// pollMs is the longest time between two walks.
func (c *Core) pollMs() int64 {
	if c.servers.self != "" {
		return min(c.limits.PollMs, sharedPollMs)
	}
	return c.limits.PollMs
}

// rankOf is this server's place in line for a lane, 0 for its own; negative if it is in no line, because its own lease has
// ended.
func (c *Core) rankOf(l *lane) int {
	if c.servers.self == "" {
		return 0
	}
	if l.epoch == c.servers.epoch {
		return l.rank
	}
	l.epoch, l.rank = c.servers.epoch, -1
	live := slices.Clone(c.servers.live)
	for rank := 0; len(live) > 0; rank++ {
		owner := cluster.Owner(l.key.name, live)
		if owner == c.servers.self {
			l.rank = rank
			break
		}
		live = slices.DeleteFunc(live, func(s string) bool { return s == owner })
	}
	return l.rank
}

// mine reports whether l is this server's to serve.
func (c *Core) mine(l *lane) bool {
	rank := c.rankOf(l)
	return rank == 0 || rank > 0 && l.takenUntilMs > c.nowMs
}

// waits reports whether a queue of another server's lane is left alone for now.
func (c *Core) waits(nowMs int64, l *lane, key queueKey) bool {
	rank := c.rankOf(l)
	if rank < 0 {
		return true
	}
	w := l.watches[key]
	return w != nil && nowMs-w.atMs < c.limits.TakeOverMs*int64(rank)
}

// overdue reports whether the head of another server's queue has lain there for too long; then its lane is taken over. Else
// it is remembered.
func (c *Core) overdue(nowMs int64, q *queue, head []*flight) bool {
	l := q.lane
	w := l.watches[q.key]
	rank := c.rankOf(l)
	if w != nil && rank > 0 && nowMs-w.atMs >= c.limits.TakeOverMs*int64(rank) {
		if slices.ContainsFunc(head, func(f *flight) bool { return w.seen[f.key()] }) {
			c.stats.TakenOver++
			l.takenUntilMs = nowMs + takenMs
			return true
		}
		delete(l.watches, q.key)
		c.watching--
		w = nil
	}
	if w != nil || len(head) == 0 || c.watching >= maxOpen {
		return false
	}
	seen := make(map[flightKey]bool, len(head))
	for _, f := range head {
		seen[f.key()] = true
	}
	l.watches[q.key] = &watch{nowMs, seen}
	c.watching++
	return false
}
