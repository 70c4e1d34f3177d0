package deliver

import (
	"context"
	"slices"

	"abide/internal/loops"
)

// Where several servers share a store, each worker is connected to one of them, and each message is one server's to
// deliver: of those with a connection that may take it, the one with the highest rendezvous hash of its id. Others may
// when it is still queued a second after its owner would have reported it as delivered. Both only save messages that
// nobody needs: a message that comes twice is claimed once. (docs/servers.md)

const (
	// graceMs is how long after its owner would have reported a message as delivered others take it over. One that was
	// delivered and not claimed is queued until then.
	graceMs = 1000
	// sharedPollMs is the longest time between two scans, and two looks at the other servers.
	sharedPollMs = 250
	// ownPollMs is the longest time between two scans for one worker alone where servers share a store. There are as many
	// such lanes as connections: they are scanned a connection a millisecond, so that idle ones do not occupy the store.
	ownPollMs = 1000
	// MaxSeats is how many connections one call to Roster.Record is about.
	MaxSeats = 128
)

// Seat is one connection, as all servers on a store know it.
type Seat struct {
	Workspace, Group, PID string
	Server                string
	Number                int64 // of two connections of one worker, the higher is the newer; positive
}

// Standing is what a server knows of the others on its store.
type Standing struct {
	Server  string   // this server
	Live    []string // the servers whose leases hold, sorted; this one among them if its own does
	Travels bool     // other servers' hints reach this one
	Number  int64    // of the last change of the roster
	// Seats are the connections of all servers, at Number or newer; unset if nothing has changed since the number that
	// was asked about.
	Changed bool
	Seats   []Seat
}

// Roster is how servers on one store know of each other's connections. The engine implements it. All methods may be
// called concurrently, with a context that has a deadline (Limits.CallTimeoutMs). They must not keep or change the
// slices they are given. An error means that the whole call failed; the caller comes back later.
type Roster interface {
	// Record writes down connections of this server, at most MaxSeats in all: those just made, each now the newest of its
	// worker; those whose row was lost, unless a newer connection of the worker is there; and removes those that have
	// ended. numbers are those of made, then of again; 0 for one of again that a newer connection has replaced, -1 for
	// one that is not recorded, because no address can name its worker.
	Record(ctx context.Context, made, again, ended []Seat) (numbers []int64, err error)
	// Look returns the present standing, with the seats if the roster's number is not after.
	Look(ctx context.Context, after int64) (Standing, error)
	// Unclaimed returns those of the executes, all of one workspace and at most MaxPage, whose task is still pending at
	// their version, queued or not. In any order.
	Unclaimed(ctx context.Context, workspace string, sent []Execute) ([]Execute, error)
}

// roster is what a Core knows of the other servers.
type roster struct {
	calls   Roster // nil: this is the only server
	yieldMs int64  // for how long a message is left to the server that it belongs to

	standing Standing // but for its seats
	groups   map[groupKey]*rivals
	whole    map[string][]string // workspace -> live servers with any connection in it
	seats    []Seat              // of other servers, as the last look showed them

	made, again []*conn // to be recorded
	ended       []Seat
	recordAtMs  int64
	lookAtMs    int64
	failures    int // in a row, of any call
	round       uint64

	claims     []*flight // of this round, still to be asked about
	claimsAtMs int64

	foreign [kinds]foreign
}

// rivals are the live servers that are connected to one group, this one among them.
type rivals struct {
	servers []string
	pids    map[string]string // of workers at other servers -> which
}

// Share makes the core one of several on the outbox's store. Call it before anything else.
func (c *Core) Share(r Roster) {
	c.limits.PollMs = min(c.limits.PollMs, sharedPollMs)
	c.roster = roster{calls: r, yieldMs: c.limits.WindowMs + c.limits.GatherMs + graceMs, groups: map[groupKey]*rivals{}, whole: map[string][]string{}}
	for k := range kinds {
		c.roster.foreign[k].seen = map[flightKey]firstSight{}
	}
}

// pollFor is the longest time between two passes of a lane.
func (c *Core) pollFor(l *lane) int64 {
	if c.roster.calls == nil || l.conn == nil {
		return c.limits.PollMs
	}
	return max(c.limits.PollMs, min(int64(len(c.order)), ownPollMs))
}

// enrol notes that a connection was made.
func (c *Core) enrol(cn *conn) {
	if c.roster.calls != nil {
		c.roster.made = append(c.roster.made, cn)
	}
}

// strike notes that a connection has ended.
func (c *Core) strike(cn *conn) {
	if c.roster.calls != nil && cn.number != 0 {
		c.roster.ended = append(c.roster.ended, cn.seat())
	}
}

func (cn *conn) seat() Seat {
	return Seat{Workspace: cn.group.key.workspace, Group: cn.group.key.name, PID: cn.pid, Number: cn.number}
}

// nextRosterMs is when takeRoster may have a job.
func (c *Core) nextRosterMs() int64 {
	r := &c.roster
	if r.calls == nil {
		return never
	}
	at := r.lookAtMs
	if len(r.made)+len(r.again)+len(r.ended) > 0 {
		at = min(at, r.recordAtMs)
	}
	if len(r.claims) > 0 {
		at = c.nowMs
	} else if c.asksForClaims() {
		at = min(at, r.claimsAtMs)
	}
	return at
}

// takeRoster returns the next call about the other servers, nil if none is due.
func (c *Core) takeRoster(nowMs int64) *Job {
	r := &c.roster
	if r.calls == nil {
		return nil
	}
	j := &Job{Class: RosterCalls, roster: r.calls}
	if nowMs >= r.recordAtMs && c.takeRecord(j) {
		return j
	}
	if nowMs >= r.lookAtMs {
		j.look, j.number = true, r.standing.Number
		return j
	}
	if c.takeClaims(nowMs, j) {
		return j
	}
	return nil
}

// takeRecord fills j with what is to be recorded; false if nothing is.
func (c *Core) takeRecord(j *Job) bool {
	r := &c.roster
	open := func(list []*conn, room int) (taken, rest []*conn) {
		for i, cn := range list {
			if len(taken) == room {
				return taken, list[i:]
			}
			if cn.state != connClosed {
				taken = append(taken, cn)
			}
		}
		return taken, nil
	}
	// Ends first: they are of connections made before.
	n := min(len(r.ended), MaxSeats)
	j.ended, r.ended = r.ended[:n:n], r.ended[n:]
	j.made, r.made = open(r.made, MaxSeats-n)
	j.again, r.again = open(r.again, MaxSeats-n-len(j.made))
	j.seatsMade, j.seatsAgain = seats(j.made), seats(j.again)
	return len(j.ended)+len(j.made)+len(j.again) > 0
}

func seats(conns []*conn) []Seat {
	out := make([]Seat, len(conns))
	for i, cn := range conns {
		out[i] = cn.seat()
	}
	return out
}

// runRoster makes the call of a roster job.
func (j *Job) runRoster(ctx context.Context) (r Result) {
	switch {
	case j.look:
		r.Standing, r.Err = j.roster.Look(ctx, j.number)
	case j.executes != nil:
		r.Executes, r.Err = j.roster.Unclaimed(ctx, j.Workspace, j.executes)
	default:
		r.Numbers, r.Err = j.roster.Record(ctx, j.seatsMade, j.seatsAgain, j.ended)
	}
	return r
}

// doneRoster takes in what came of such a call.
func (c *Core) doneRoster(nowMs int64, j *Job, res Result) {
	r := &c.roster
	if res.Err != nil {
		r.failures++
		pause := nowMs + loops.CallPauseMs(r.failures)
		switch {
		case j.look:
			r.lookAtMs = pause
		case j.executes != nil:
			r.claims, r.claimsAtMs = nil, pause
		default:
			r.made, r.again, r.ended = append(j.made, r.made...), append(j.again, r.again...), append(j.ended, r.ended...)
			r.recordAtMs = pause
		}
		return
	}
	r.failures = 0
	switch {
	case j.look:
		r.lookAtMs = nowMs + c.limits.PollMs
		c.looked(nowMs, res.Standing)
	case j.executes != nil:
		c.claimed(nowMs, j, res.Executes)
	default:
		c.recorded(nowMs, append(j.made, j.again...), res.Numbers)
		r.lookAtMs = nowMs
	}
}

// recorded takes in the numbers of connections.
func (c *Core) recorded(nowMs int64, conns []*conn, numbers []int64) {
	for i, cn := range conns {
		if i >= len(numbers) {
			return
		}
		switch number := numbers[i]; {
		case number < 0:
		case cn.state == connClosed && number > 0:
			cn.number = number
			c.strike(cn)
		case cn.state == connClosed:
		case number == 0:
			c.replaced(nowMs, cn)
		default:
			cn.number = number
		}
	}
}

// replaced closes a connection whose worker has a newer one.
func (c *Core) replaced(nowMs int64, cn *conn) {
	c.stats.Replaced++
	c.wake(cn)
	cn.number = 0 // its row is the newer one's
	c.close(nowMs, cn)
}

// looked takes in the present standing.
func (c *Core) looked(nowMs int64, s Standing) {
	r := &c.roster
	same := !s.Changed && slices.Equal(s.Live, r.standing.Live) && s.Server == r.standing.Server
	was := r.standing
	r.standing = s
	r.standing.Seats = nil
	if s.Changed {
		c.seated(nowMs, s)
	} else {
		r.standing.Number = was.Number
	}
	if same {
		return
	}
	c.reckon()
	for _, cn := range c.order { // what was others' may be this server's now
		for k := range kinds {
			c.missed(nowMs, cn.group.lanes[k])
			if cn.workspace != nil {
				c.missed(nowMs, cn.workspace.lanes[k])
			}
		}
	}
}

// seated compares the seats with the connections that this server has, and remembers those of others.
func (c *Core) seated(nowMs int64, s Standing) {
	r := &c.roster
	r.round++
	r.seats = r.seats[:0]
	for _, seat := range s.Seats {
		var cn *conn
		if g := c.groups[groupKey{seat.Workspace, seat.Group}]; g != nil {
			cn = g.byPID[seat.PID]
		}
		switch {
		case cn != nil && cn.number != 0 && seat.Number > cn.number && seat.Server != s.Server:
			c.replaced(nowMs, cn)
			r.seats = append(r.seats, seat)
		case seat.Server != s.Server:
			r.seats = append(r.seats, seat)
		case cn != nil && cn.number == seat.Number:
			cn.round = r.round
		case cn == nil || cn.number > seat.Number:
			r.ended = append(r.ended, seat) // of an earlier life, or its end was not recorded
		}
	}
	for _, cn := range c.order {
		if cn.number != 0 && cn.number <= s.Number && cn.round != r.round {
			r.again = append(r.again, cn)
		}
	}
}
