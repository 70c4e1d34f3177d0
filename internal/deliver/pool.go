package deliver

import (
	"slices"

	"abide/protocol"
)

// pool is connections that may take the same messages: those of a group, or all of a workspace.
type pool struct {
	rings [kinds]ring
	room  [kinds]int   // sum over its connections
	lanes [kinds]*lane // messages that anybody in it may take
}

func (p *pool) open(d Destination) {
	for k := range kinds {
		p.lanes[k] = newLane(k, d, p, nil)
	}
}

// resize takes in that the room of cn has changed from what it was.
func (p *pool) resize(cn *conn, k kind, was int) {
	p.room[k] += cn.room[k] - was
	switch {
	case was == 0:
		p.rings[k].add(cn)
	case cn.room[k] == 0:
		p.rings[k].remove(cn)
	}
}

// group is the connections of one (workspace, group).
type group struct {
	pool
	key   groupKey
	byPID map[string]*conn
}

type groupKey struct{ workspace, name string }

// groupFor returns the group of a connection that is being made; a new one if it is the first.
func (c *Core) groupFor(key groupKey) *group {
	g := c.groups[key]
	if g == nil {
		g = &group{key: key, byPID: map[string]*conn{}}
		g.open(Destination{key.workspace, key.name, ""})
		c.groups[key] = g
	}
	return g
}

// workspace is the connections of all groups of one workspace, for the addresses that stand for all of it (see
// Destination).
type workspace struct {
	pool
	conns []*conn // by number
}

// workspaceFor is groupFor for the whole workspace; nil for the default one, which no address stands for.
func (c *Core) workspaceFor(name string) *workspace {
	if name == protocol.DefaultWorkspace {
		return nil
	}
	w := c.workspaces[name]
	if w == nil {
		w = &workspace{}
		w.open(Destination{name, "", ""})
		c.workspaces[name] = w
	}
	return w
}

// leave takes the closed connection cn out of its group and workspace.
func (c *Core) leave(cn *conn) {
	g := cn.group
	if g.byPID[cn.pid] == cn {
		delete(g.byPID, cn.pid)
	}
	if len(g.byPID) == 0 {
		delete(c.groups, g.key)
		c.retireAll(g.lanes)
	}
	if c.perWorkspace[g.key.workspace]--; c.perWorkspace[g.key.workspace] == 0 {
		delete(c.perWorkspace, g.key.workspace)
	}
	w := cn.workspace
	if w == nil {
		return
	}
	w.conns = without(w.conns, cn)
	if len(w.conns) == 0 {
		delete(c.workspaces, g.key.workspace)
		c.retireAll(w.lanes)
	}
}

// ring is the connections with room, taking turns.
type ring struct {
	conns []*conn
	turn  int
}

func (r *ring) add(cn *conn) { r.conns = append(r.conns, cn) }

func (r *ring) remove(cn *conn) {
	i := slices.Index(r.conns, cn)
	if i < 0 {
		return
	}
	r.conns = slices.Delete(r.conns, i, i+1)
	if i < r.turn {
		r.turn--
	}
}

// next returns the connection whose turn it is, nil if there is none.
func (r *ring) next() *conn {
	if len(r.conns) == 0 {
		return nil
	}
	if r.turn >= len(r.conns) {
		r.turn = 0
	}
	cn := r.conns[r.turn]
	r.turn++
	return cn
}
