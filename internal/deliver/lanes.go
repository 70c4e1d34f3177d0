package deliver

import "container/heap"

// lane is the scanning of one destination for messages of one kind. A pass reads the queue page by page
// from its start to its end; passes begin at a connect, when something may have been missed, and at least
// once a poll interval, as long as somebody has room.
type lane struct {
	kind  kind
	dest  Destination
	pool  *pool // whose queue it is, unless
	conn  *conn // it is this one's own
	state laneState

	cursor   string // where the pass goes on; "" between passes
	again    bool   // something may have been missed since the pass began: begin another after it
	failures int    // in a row
	yielded  int    // messages of other servers that the pass has met
	long     bool   // the last page was a long one

	atMs int64 // when it is due, while scheduled
	seq  uint64
	pos  int // in the heap
}

type laneState int

const (
	laneParked    laneState = iota // nobody has room; room wakes it
	laneScheduled                  // in the heap
	laneScanning                   // its page is with the store
	laneDead                       // its connection, or its pool's last one, is gone
)

func newLane(k kind, d Destination, p *pool, cn *conn) *lane {
	return &lane{kind: k, dest: d, pool: p, conn: cn}
}

// laneOf returns the lane whose scan would find f; nil if nobody who may take f is connected.
func (c *Core) laneOf(f *flight) *lane {
	if f.target.whole {
		if w := c.workspaces[f.workspace]; w != nil {
			return w.lanes[f.kind]
		}
		return nil
	}
	g := c.groups[groupKey{f.workspace, f.target.group}]
	switch {
	case g == nil:
		return nil
	case !f.target.uni:
		return g.lanes[f.kind]
	}
	if cn := g.byPID[f.target.pid]; cn != nil {
		return cn.lanes[f.kind]
	}
	return nil
}

// roomOf is how many messages those who may take from the lane have room for.
func (c *Core) roomOf(l *lane) int {
	if l.conn != nil {
		return l.conn.room[l.kind]
	}
	return l.pool.room[l.kind]
}

// refill is the room at which a parked lane goes on: an eighth of one connection's, so that a scan
// brings more than one message when a worker claims them one by one. A worker is not idle until then: it has
// the rest unclaimed, and what it leaves so comes free when its hold ends.
func (c *Core) refill(k kind) int { return max(1, c.slots(k)/8) }

func (c *Core) unpark(nowMs int64, l *lane) {
	if l.state == laneParked && c.roomOf(l) >= c.refill(l.kind) {
		c.schedule(l, nowMs)
	}
}

// missed notes that the lane's queue may hold something that no hint will bring.
func (c *Core) missed(nowMs int64, l *lane) {
	l.again = true
	if l.state == laneScheduled && l.failures == 0 && l.atMs > nowMs {
		l.atMs = nowMs
		heap.Fix(&c.lanes[l.kind], l.pos)
	}
}

func (c *Core) schedule(l *lane, atMs int64) {
	l.state, l.atMs = laneScheduled, atMs
	c.seq++
	l.seq = c.seq
	heap.Push(&c.lanes[l.kind], l)
}

func (c *Core) retire(l *lane) {
	if l.state == laneScheduled {
		heap.Remove(&c.lanes[l.kind], l.pos)
	}
	l.state = laneDead
}

func (c *Core) retireAll(lanes [kinds]*lane) {
	for _, l := range lanes {
		c.retire(l)
	}
}

// scanMemory is which messages were resolved while a page was being read. Such a page may still show them;
// they must not be sent a second time on its word.
type scanMemory struct {
	out  int // pages with the store
	gone map[flightKey]int64
}

func (m *scanMemory) begin() { m.out++ }

func (m *scanMemory) end() {
	if m.out--; m.out == 0 {
		m.gone = nil
	}
}

func (m *scanMemory) note(f *flight) {
	if m.out == 0 {
		return
	}
	if m.gone == nil {
		m.gone = map[flightKey]int64{}
	}
	m.gone[f.key()] = f.version
}

// laneHeap orders scheduled lanes by time, then by when they were scheduled.
type laneHeap []*lane

// The methods of heap.Interface.

func (h laneHeap) Len() int { return len(h) }

func (h laneHeap) Less(i, j int) bool {
	if h[i].atMs != h[j].atMs {
		return h[i].atMs < h[j].atMs
	}
	return h[i].seq < h[j].seq
}

func (h laneHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *laneHeap) Push(x any) {
	l := x.(*lane)
	l.pos = len(*h)
	*h = append(*h, l)
}

func (h *laneHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return l
}
