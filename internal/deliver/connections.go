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
	id    ConnID
	group *group
	pid   string
	state connState

	lanes    [kinds]*lane // its own queues: messages to this pid alone
	held     [kinds]int   // slots in use
	room     [kinds]int   // slots free, 0 while it takes nothing; as the group's sums count it
	flights  flightList   // everything that holds a slot
	out      flightList   // buffered, in order
	outBytes int
	writing  flightList // taken, until the flush is reported
}

// group is the connections of one (workspace, group).
type group struct {
	key   groupKey
	byPID map[string]*conn
	rings [kinds]ring
	room  [kinds]int   // sum over its connections
	lanes [kinds]*lane // messages that anybody may take
}

type groupKey struct{ workspace, name string }

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

// Connect registers a stream of a worker. The newest connection of a pid wins: an older one is closed, and
// what it was handed and has not kept for a window is sent again. Errors: ErrFull, ErrDraining.
func (c *Core) Connect(nowMs int64, workspace, groupName, pid string) (ConnID, error) {
	nowMs = c.advance(nowMs)
	key := groupKey{workspace, groupName}
	g := c.groups[key]
	var older *conn
	if g != nil {
		older = g.byPID[pid]
	}
	if c.draining {
		return 0, ErrDraining
	}
	if older == nil && len(c.conns) >= c.limits.MaxConnections {
		c.stats.Refused++
		return 0, ErrFull
	}
	if g == nil {
		g = &group{key: key, byPID: map[string]*conn{}}
		for k := range kinds {
			g.lanes[k] = newLane(k, Destination{workspace, groupName, ""}, g, nil)
		}
		c.groups[key] = g
	}
	c.lastConn++
	cn := &conn{id: c.lastConn, group: g, pid: pid, flights: flightList{slot: linkConn}}
	for k := range kinds {
		cn.lanes[k] = newLane(k, Destination{workspace, groupName, pid}, g, cn)
	}
	g.byPID[pid] = cn
	c.conns[cn.id] = cn
	c.order = append(c.order, cn)
	for k := range kinds {
		c.refresh(nowMs, cn, k)
		c.missed(nowMs, cn.lanes[k])
		c.missed(nowMs, g.lanes[k])
	}
	if older != nil {
		c.stats.Replaced++
		c.wake(older)
		c.close(nowMs, older)
	}
	return cn.id, nil
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
	g := cn.group
	cn.state = connClosed
	delete(c.conns, cn.id)
	i := sort.Search(len(c.order), func(i int) bool { return c.order[i].id >= cn.id })
	c.order = slices.Delete(c.order, i, i+1)
	if g.byPID[cn.pid] == cn {
		delete(g.byPID, cn.pid)
	}
	for k := range kinds {
		c.refresh(nowMs, cn, k)
		c.retire(cn.lanes[k])
	}
	if len(g.byPID) == 0 {
		delete(c.groups, g.key)
		for k := range kinds {
			c.retire(g.lanes[k])
		}
	}
	for cn.flights.front != nil {
		c.giveBack(nowMs, cn, cn.flights.popFront())
	}
}

// giveBack decides what becomes of a message that the closing connection cn held.
func (c *Core) giveBack(nowMs int64, cn *conn, f *flight) {
	f.conn = nil
	cn.held[f.kind]--
	switch {
	case f.state == delivered || f.state == reporting:
		return
	case f.state == flushed && f.untilMs <= nowMs:
		return // it stayed healthy long enough; the report is only waiting for company
	}
	if f.state == flushed || f.state == taken {
		c.stats.Messages[f.kind].Resent++
	}
	f.unlink(linkQueue)
	f.promise = nil
	g := c.groups[cn.group.key]
	if g == nil || f.target.uni && g.byPID[f.target.pid] == nil {
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
		room = max(0, c.slots(k)-cn.held[k])
	}
	was, g := cn.room[k], cn.group
	if room == was {
		return
	}
	cn.room[k] = room
	g.room[k] += room - was
	switch {
	case was == 0:
		g.rings[k].add(cn)
	case room == 0:
		g.rings[k].remove(cn)
	}
	if room > was {
		c.unpark(nowMs, cn.lanes[k])
		c.unpark(nowMs, g.lanes[k])
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

// hand puts f into cn's buffer.
func (c *Core) hand(nowMs int64, cn *conn, f *flight) {
	f.state, f.conn = buffered, cn
	cn.flights.pushBack(f)
	cn.out.pushBack(f)
	cn.outBytes += f.bytes
	cn.held[f.kind]++
	for k := range kinds {
		c.refresh(nowMs, cn, k)
	}
	c.wake(cn)
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
