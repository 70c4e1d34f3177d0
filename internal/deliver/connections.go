package deliver

import (
	"errors"
	"slices"
	"sort"
)

// Why a connection is refused.
var (
	// ErrFull: Limits.MaxConnections streams are open.
	ErrFull = errors.New("the largest number of worker connections is reached; close some or raise the limit")
	// ErrWorkspaceFull: Limits.MaxWorkspaceConnections streams of the workspace are open.
	ErrWorkspaceFull = errors.New("the largest number of worker connections of this workspace is reached; close some or raise the limit")
	// ErrGroupFull: Limits.MaxGroupConnections streams of the group are open.
	ErrGroupFull = errors.New("the largest number of connections of this group of workers is reached; close some or raise the limit")
	// ErrDraining: the server is stopping.
	ErrDraining = errors.New("the server is stopping; connect again in a moment")
)

// ConnID numbers the connections of one Core in the order in which they were made; of two with the same
// group and pid the higher one is the newer one.
type ConnID uint64

// connState is where a connection stands.
type connState int

const (
	connOpen      connState = iota
	connFinishing           // takes no new message; what is buffered is still written
	connClosed              // deregistered
)

// conn is one stream to one worker.
type conn struct {
	id        ConnID
	group     *group
	workspace *workspace // nil in the default one, and if it takes only what is for its group
	pid       string
	state     connState
	number    int64  // in the roster; 0: not recorded
	round     uint64 // of looks: the last one in which it was there

	lanes    [kinds]*lane // its own queues: messages to this pid alone
	used     [kinds]int   // slots in use
	room     [kinds]int   // slots free, 0 while it takes nothing; as the pools' sums count it
	flights  flightList   // everything that holds a slot
	out      flightList   // buffered, in order
	outBytes int
	writing  flightList // taken, until the flush is reported
}

// Connect registers a stream of a worker. The newest connection of a pid wins: an older one is closed, and
// what it was handed and has not kept for a window is sent again. Errors: ErrFull, ErrWorkspaceFull, ErrGroupFull, ErrDraining.
func (c *Core) Connect(nowMs int64, workspace, groupName, pid string) (ConnID, error) {
	return c.connect(nowMs, groupKey{workspace, groupName}, pid, true)
}

// ConnectToGroup is Connect for a worker that takes no messages for the whole workspace.
func (c *Core) ConnectToGroup(nowMs int64, workspace, groupName, pid string) (ConnID, error) {
	return c.connect(nowMs, groupKey{workspace, groupName}, pid, false)
}

func (c *Core) connect(nowMs int64, key groupKey, pid string, whole bool) (ConnID, error) {
	nowMs = c.advance(nowMs)
	var older *conn
	if g := c.groups[key]; g != nil {
		older = g.byPID[pid]
	}
	if c.draining {
		return 0, ErrDraining
	}
	if older == nil {
		if err := c.room(key); err != nil {
			c.stats.Refused++
			return 0, err
		}
	}
	g := c.groupFor(key)
	var w *workspace
	if whole {
		w = c.workspaceFor(key.workspace)
	}
	c.lastConn++
	cn := &conn{id: c.lastConn, group: g, workspace: w, pid: pid, flights: flightList{slot: linkConn}}
	for k := range kinds {
		cn.lanes[k] = newLane(k, Destination{key.workspace, key.name, pid}, &g.pool, cn)
	}
	g.byPID[pid] = cn
	if w != nil {
		w.conns = append(w.conns, cn)
	}
	c.conns[cn.id] = cn
	c.perWorkspace[key.workspace]++
	c.order = append(c.order, cn)
	c.enrol(cn)
	for k := range kinds {
		c.refresh(nowMs, cn, k)
		c.missed(nowMs, cn.lanes[k])
		c.missed(nowMs, g.lanes[k])
		if w != nil {
			c.missed(nowMs, w.lanes[k])
		}
	}
	if older != nil {
		c.stats.Replaced++
		c.wake(older)
		c.close(nowMs, older)
	}
	return cn.id, nil
}

// room reports why there is no room for one more connection of a group, nil if there is.
func (c *Core) room(key groupKey) error {
	g := c.groups[key]
	switch {
	case len(c.conns) >= c.limits.MaxConnections:
		return ErrFull
	case c.perWorkspace[key.workspace] >= c.limits.MaxWorkspaceConnections:
		return ErrWorkspaceFull
	case g != nil && len(g.byPID) >= c.limits.MaxGroupConnections:
		return ErrGroupFull
	}
	return nil
}

// Finish makes a connection take no further message, so that its stream can be ended once what is
// buffered is written.
func (c *Core) Finish(nowMs int64, id ConnID) {
	nowMs = c.advance(nowMs)
	if cn := c.conns[id]; cn != nil {
		c.finish(nowMs, cn)
	}
}

func (c *Core) finish(nowMs int64, cn *conn) {
	cn.state = connFinishing
	for k := range kinds {
		c.refresh(nowMs, cn, k)
	}
	c.wake(cn)
}

// Disconnect deregisters a connection, however its stream ended. Messages that it did not keep for a
// window go to somebody else. Unknown and already replaced connections are ignored.
func (c *Core) Disconnect(nowMs int64, id ConnID) {
	nowMs = c.advance(nowMs)
	if cn := c.conns[id]; cn != nil {
		c.close(nowMs, cn)
	}
}

// Drain refuses new connections and finishes all that there are.
func (c *Core) Drain(nowMs int64) {
	nowMs = c.advance(nowMs)
	c.draining = true
	for _, cn := range c.order {
		c.finish(nowMs, cn)
	}
}

// close takes cn out of the registry and gives back what it holds.
func (c *Core) close(nowMs int64, cn *conn) {
	cn.state = connClosed
	delete(c.conns, cn.id)
	c.order = without(c.order, cn)
	c.strike(cn)
	for k := range kinds {
		c.refresh(nowMs, cn, k)
	}
	c.retireAll(cn.lanes)
	c.leave(cn)
	for cn.flights.front != nil {
		c.giveBack(nowMs, cn, cn.flights.popFront())
	}
}

// without removes cn from conns, which are by number.
func without(conns []*conn, cn *conn) []*conn {
	i := sort.Search(len(conns), func(i int) bool { return conns[i].id >= cn.id })
	return slices.Delete(conns, i, i+1)
}

// giveBack decides what becomes of a message that the closing connection cn held.
func (c *Core) giveBack(nowMs int64, cn *conn, f *flight) {
	f.conn = nil
	cn.used[f.kind]--
	switch {
	case f.state == delivered || f.state == reporting:
		return
	case f.state == flushed && f.untilMs <= nowMs:
		return // it stayed healthy long enough; the report is only waiting for company
	case f.state == waiting || f.state == checking:
		return // so did it, and if it is queued again it goes to somebody else
	case f.state == held:
		f.unlink(linkQueue)
		c.forget(f) // the retry of its task is armed
		return
	}
	if f.state == flushed || f.state == taken {
		c.stats.Messages[f.kind].Resent++
	}
	f.unlink(linkQueue)
	f.promise = nil
	if c.laneOf(f) == nil {
		c.forget(f) // still in the outbox; whoever connects next gets it
		return
	}
	f.state = waiting
	c.checks[f.kind].push(f)
}

// refresh recomputes cn's room for messages of one kind after anything that it depends on has changed.
func (c *Core) refresh(nowMs int64, cn *conn, k kind) {
	room := 0
	if cn.state == connOpen && cn.outBytes < c.limits.BufferBytes {
		room = max(0, c.slots(k)-cn.used[k])
	}
	was, g, w := cn.room[k], cn.group, cn.workspace
	if room == was {
		return
	}
	cn.room[k] = room
	g.resize(cn, k, was)
	if w != nil {
		w.resize(cn, k, was)
	}
	if room < was {
		return
	}
	c.unpark(nowMs, cn.lanes[k])
	switch {
	case w == nil:
		c.unpark(nowMs, g.lanes[k])
	case w.lanes[k].seq < g.lanes[k].seq: // the one that was served longer ago first, or else it would starve
		c.unpark(nowMs, w.lanes[k])
		c.unpark(nowMs, g.lanes[k])
	default:
		c.unpark(nowMs, g.lanes[k])
		c.unpark(nowMs, w.lanes[k])
	}
}

// slots is how many messages of one kind a connection may hold.
func (c *Core) slots(k kind) int {
	if k == kindExecute {
		return c.limits.MaxExecutes
	}
	return c.limits.MaxUnblocks
}

// choose returns the connection that f goes to. With none, possible says whether there is one that could take
// it but has no room.
func (c *Core) choose(f *flight) (cn *conn, possible bool) {
	if f.target.whole {
		w := c.workspaces[f.workspace]
		if w == nil {
			return nil, false
		}
		return w.rings[f.kind].next(), true
	}
	g := c.groups[groupKey{f.workspace, f.target.group}]
	if g == nil || f.target.nobody() {
		return nil, false
	}
	named := g.byPID[f.target.pid]
	if named != nil && named.room[f.kind] > 0 {
		return named, true
	}
	if f.target.uni {
		return nil, named != nil
	}
	return g.rings[f.kind].next(), true
}

// hand puts f into cn's buffer. Of an unblock for the whole workspace, where nobody but the worker itself
// knows that it waits, the others get copies.
func (c *Core) hand(nowMs int64, cn *conn, f *flight) {
	f.state, f.conn = buffered, cn
	cn.flights.pushBack(f)
	cn.out.pushBack(f)
	cn.outBytes += f.bytes
	cn.used[f.kind]++
	for k := range kinds {
		c.refresh(nowMs, cn, k)
	}
	c.wake(cn)
	if f.target.whole && f.kind == kindUnblock {
		c.copyToOthers(nowMs, f)
	}
}

// copyToOthers buffers a copy of the unblock f for every connection of the workspace but the one that holds
// f. A copy takes no slot, and nobody asks what became of it: one for a full buffer is dropped, one on a
// stream that breaks is lost, and the worker that waited for it hears of its promise when it registers its
// listener again, as the TypeScript SDK does once a minute.
func (c *Core) copyToOthers(nowMs int64, f *flight) {
	for _, cn := range f.conn.workspace.conns {
		switch {
		case cn == f.conn || cn.state != connOpen:
			continue
		case cn.outBytes >= c.limits.BufferBytes:
			c.stats.CopiesDropped++
			continue
		}
		c.stats.Copies++
		cn.out.pushBack(&flight{kind: f.kind, workspace: f.workspace, id: f.id, copy: true, promise: f.promise, bytes: f.bytes})
		cn.outBytes += f.bytes
		for k := range kinds {
			c.refresh(nowMs, cn, k)
		}
		c.wake(cn)
	}
}

// wake notes that cn's writer has something to do.
func (c *Core) wake(cn *conn) { c.woken = append(c.woken, cn.id) }

// Woken returns the connections whose writers have something to do since the last call: to write, or to
// end. An id may come twice. The slice is valid until the next call of any method.
func (c *Core) Woken() []ConnID {
	w := c.woken
	c.woken = c.woken[:0]
	return w
}
