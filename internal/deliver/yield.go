package deliver

import (
	"slices"

	"abide/internal/cluster"
)

// reckon works out anew which servers may take what, from the seats of others and the connections of this server.
func (c *Core) reckon() {
	r := &c.roster
	live := map[string]bool{}
	for _, id := range r.standing.Live {
		live[id] = true
	}
	self := r.standing.Server
	r.groups, r.whole = map[groupKey]*rivals{}, map[string][]string{}
	join := func(key groupKey, server string) *rivals {
		g := r.groups[key]
		if g == nil {
			g = &rivals{pids: map[string]string{}}
			r.groups[key] = g
		}
		if live[server] && !slices.Contains(g.servers, server) {
			g.servers = append(g.servers, server)
		}
		if live[server] && !slices.Contains(r.whole[key.workspace], server) {
			r.whole[key.workspace] = append(r.whole[key.workspace], server)
		}
		return g
	}
	for _, cn := range c.order {
		join(cn.group.key, self)
	}
	for _, seat := range r.seats {
		key := groupKey{seat.Workspace, seat.Group}
		if g := join(key, seat.Server); live[seat.Server] {
			g.pids[seat.PID] = seat.Server
		}
	}
}

// mine reports whether f is this server's to deliver: to the worker that its address names, if that is connected here;
// else by rendezvous. What this server was hinted is its own where hints do not travel: nobody else has heard of it.
func (c *Core) mine(f *flight, hinted bool) bool {
	r := &c.roster
	switch {
	case r.calls == nil || f.target.uni:
		return true // whoever has the connection; of two the older is about to be closed
	case hinted && !r.standing.Travels:
		return true
	}
	servers := r.whole[f.workspace]
	if f.target.whole {
		if f.kind == kindUnblock {
			return true // each server tells its own connections
		}
	} else {
		g := r.groups[groupKey{f.workspace, f.target.group}]
		if g == nil {
			return false // not looked at yet
		}
		if f.target.pid != "" {
			if own := c.groups[groupKey{f.workspace, f.target.group}]; own != nil && own.byPID[f.target.pid] != nil {
				return true
			}
			if _, elsewhere := g.pids[f.target.pid]; elsewhere {
				return false
			}
		}
		servers = g.servers
	}
	return cluster.Owner(f.workspace+"\x00"+f.id, servers) == r.standing.Server
}

// yields reports whether f is left to another server for now.
func (c *Core) yields(nowMs int64, f *flight, hinted bool) bool {
	if c.mine(f, hinted) {
		return false
	}
	if c.roster.foreign[f.kind].waited(nowMs, c.roster.yieldMs, f) {
		return false
	}
	c.stats.Yielded++
	return true
}

const (
	// maxForeign is how many messages of each kind are remembered as others'. One that is not remembered is met again.
	maxForeign = 16_384
	// foreignMs is how long one is remembered: longer than it takes to be taken over, if there is room.
	foreignMs = 10_000
	// yieldedRows is how many messages of others a pass of a scan meets before it ends. The next one goes on where they
	// are delivered, or have waited for long enough.
	yieldedRows = 4 * MaxPage
)

// firstSight is when a message of another server was first seen.
type firstSight struct{ version, atMs int64 }

// foreign remembers since when messages that belong to other servers have been there.
type foreign struct {
	seen  map[flightKey]firstSight
	order []flightKey // as they were first seen
}

// waited reports whether f was first seen forMs ago or more, and remembers it if this is the first time.
func (o *foreign) waited(nowMs, forMs int64, f *flight) bool {
	o.expire(nowMs)
	key := f.key()
	if s, ok := o.seen[key]; ok && s.version == f.version {
		return nowMs-s.atMs >= forMs
	} else if !ok && len(o.seen) >= maxForeign {
		return false
	} else if !ok {
		o.order = append(o.order, key)
	}
	o.seen[key] = firstSight{f.version, nowMs}
	return false
}

// expire forgets those that were first seen long ago.
func (o *foreign) expire(nowMs int64) {
	n := 0
	for n < len(o.order) {
		s := o.seen[o.order[n]]
		if nowMs-s.atMs < foreignMs {
			break
		}
		delete(o.seen, o.order[n])
		n++
	}
	if n > 0 {
		o.order = append(o.order[:0], o.order[n:]...)
	}
}
