package push

import (
	"container/heap"
	"container/list"
	"errors"
	"math"

	"abide/internal/deliver"
	"abide/internal/loops"
)

// Served is a transport and the schemes of addresses that it serves.
type Served struct {
	// Name is what metrics call it.
	Name      string
	Schemes   []string
	Transport Transport
}

// Core decides which message is sent when. It is a step function: every method takes the instant and one event, none
// blocks, none calls the store or a transport. Store calls are Jobs, and sends are Sends, that its owner takes, runs and
// hands back. The same events in the same order give the same decisions.
//
// The life of a message:
//
//	hint or page -> ready -> checking -> sending -> delivered -> reporting -> forgotten
//	                  ^                     |
//	                  +------ resting <-----+  (not accepted)
//
// It has one of the MaxOutstanding slots while it is checked and sent. A claim of its task ends it wherever it stands, but
// for one that is being sent: the request may be the execution itself. Its outbox entry goes only with the report, or with
// the claim, so that whatever is forgotten here is met again by a walk over the queues.
//
// nowMs is any clock in milliseconds that does not jump. Not safe for concurrent use.
type Core struct {
	limits     Limits
	transports []Served
	nowMs      int64

	routes  map[string]route
	lanes   map[laneKey]*lane
	flights map[flightKey]*flight
	tasks   map[taskKey][]*flight // the executes among them
	busy    int                   // slots that are taken
	held    [trusts]int           // of them, by the trust of the lane that has taken them
	kept    [trusts]int           // flights, likewise
	large   [trusts]int           // bytes of large messages that are with the transports, likewise
	rings   [trusts]*list.List    // of lanes that may have something to send
	alarms  alarms
	seq     uint64

	checks   [kinds]workQueue
	checkAt  [kinds]pause
	reports  [kinds]workQueue
	reportAt pause
	outgoing []*Send

	walks    [kinds]walk
	hungry   [kinds][]*lane
	queueN   int // queues that are remembered
	scanAt   [kinds]pause
	servers  servers
	watching int // queues of other servers that are remembered
	starving []*lane

	draining    bool
	notices     []Notice
	told        int   // notices of this noticeSpanMs
	toldSinceMs int64 // its beginning
	omitted     int   // notices that were too many
	stats       Stats
}

// pause is when calls of a sort may be made again.
type pause struct {
	atMs     int64
	failures int
}

// after takes in how a call has ended.
func (p *pause) after(nowMs int64, err error) {
	if err == nil {
		*p = pause{}
		return
	}
	p.failures++
	p.atMs = nowMs + loops.CallPauseMs(p.failures)
}

// NewCore returns a core that knows of no message.
func NewCore(l Limits, transports []Served) *Core {
	c := &Core{
		limits: l.withDefaults(), transports: transports,
		routes: map[string]route{}, lanes: map[laneKey]*lane{}, flights: map[flightKey]*flight{}, tasks: map[taskKey][]*flight{},
		stats: Stats{Transports: make([]TransportStats, len(transports))},
	}
	for t := range trusts {
		c.rings[t] = list.New()
	}
	return c
}

// advance lets time pass: pauses end.
func (c *Core) advance(nowMs int64) int64 {
	c.nowMs = max(c.nowMs, nowMs)
	for len(c.alarms) > 0 && c.alarms[0].atMs <= c.nowMs {
		a := heap.Pop(&c.alarms).(alarm)
		switch f := a.flight; {
		case a.lane != nil:
			c.rouse(c.nowMs, a.lane)
			c.feed(a.lane)
		case f.state == resting && f.untilMs <= c.nowMs:
			c.enqueue(c.nowMs, f)
		}
	}
	return c.nowMs
}

func (c *Core) alarm(a alarm) {
	c.seq++
	a.seq = c.seq
	heap.Push(&c.alarms, a)
}

// HintExecute takes in that a commit has just queued e.
func (c *Core) HintExecute(nowMs int64, e deliver.Execute) {
	nowMs = c.advance(nowMs)
	c.hint(nowMs, flight{kind: KindExecute, workspace: e.Workspace, id: e.ID, version: e.Version, address: e.Address})
	c.dispatch(nowMs)
}

// HintUnblock takes in that a commit has just queued an unblock.
func (c *Core) HintUnblock(nowMs int64, workspace string, ref deliver.UnblockRef) {
	nowMs = c.advance(nowMs)
	c.hint(nowMs, flight{kind: KindUnblock, workspace: workspace, id: ref.ID, address: ref.Address})
	c.dispatch(nowMs)
}

// HintClaimed takes in that a task is pending no longer at this version, or one before.
func (c *Core) HintClaimed(nowMs int64, workspace, id string, version int64) {
	of := c.tasks[taskKey{workspace, id}]
	if len(of) == 0 {
		return // the usual case: tasks of workers that poll
	}
	nowMs = c.advance(nowMs)
	for _, f := range append([]*flight(nil), of...) {
		switch {
		case f.version > version:
		case f.state == sending:
			if !f.claimed {
				f.claimed = true
				f.lane.claimed++
				c.progress(nowMs, f.lane)
				c.entrust(f)
			}
		default:
			if f.state <= resting && f.state != sending {
				c.of(f).Dropped++
			}
			c.drop(nowMs, f)
		}
	}
	c.dispatch(nowMs)
}

// hint takes in a message that was just queued, unless it is known. One for which there is no room is left to a look into
// its queue.
func (c *Core) hint(nowMs int64, h flight) {
	l := c.laneOf(h.address)
	if l == nil || !c.mine(l) {
		return
	}
	if f := c.flights[h.key()]; f != nil {
		f.again = f.again || f.state == reporting
		return
	}
	if c.room(l) <= 0 {
		c.stats.HintsDropped++
		c.look(l, queueKey{h.kind, Queue{h.workspace, h.address}}, true)
		return
	}
	h.lane = l
	c.track(nowMs, &h)
}

// track makes f known and puts it in line, unless a later version of its task is known; false then. Earlier ones are
// dropped, but for those that are being sent.
func (c *Core) track(nowMs int64, f *flight) bool {
	if f.kind == KindExecute {
		key := taskKey{f.workspace, f.id}
		for _, other := range append([]*flight(nil), c.tasks[key]...) {
			if other.version > f.version {
				return false
			}
			if other.state != sending {
				c.drop(nowMs, other)
			}
		}
		c.tasks[key] = append(c.tasks[key], f)
	}
	c.flights[f.key()] = f
	f.trust = f.lane.trust()
	c.kept[f.trust]++
	f.sinceMs = nowMs
	f.lane.flights++
	f.lane.usedMs = nowMs
	c.enqueue(nowMs, f)
	return true
}

// enqueue puts f at the end of its lane's line.
func (c *Core) enqueue(nowMs int64, f *flight) {
	f.state = ready
	f.place = f.lane.line.PushBack(f)
	c.rouse(nowMs, f.lane)
}

// drop ends f wherever it stands.
func (c *Core) drop(nowMs int64, f *flight) {
	switch f.state {
	case ready:
		f.lane.line.Remove(f.place)
		f.place = nil
	case checking, sending:
		c.release(nowMs, f)
	}
	c.forget(f)
}

// forget ends f, which holds no slot and stands in no line.
func (c *Core) forget(f *flight) {
	f.state = gone
	delete(c.flights, f.key())
	c.kept[f.trust]--
	if f.kind == KindExecute {
		key := taskKey{f.workspace, f.id}
		of := c.tasks[key][:0:0]
		for _, other := range c.tasks[key] {
			if other != f {
				of = append(of, other)
			}
		}
		if c.tasks[key] = of; len(of) == 0 {
			delete(c.tasks, key)
		}
	}
	f.lane.flights--
	f.lane.usedMs = c.nowMs
	c.feed(f.lane)
}

// Notice is that a destination has begun to fail, or works again.
type Notice struct {
	Transport, Lane string
	Failing         bool
	Error           string
	// Omitted is how many notices were left out before this one, of which there are too many at times.
	Omitted int
}

// TakeNotices returns what is new about destinations, in order.
func (c *Core) TakeNotices() []Notice {
	out := c.notices
	c.notices = nil
	return out
}

// TakeSends returns what is to be sent now, in order.
func (c *Core) TakeSends() []*Send {
	out := c.outgoing
	c.outgoing = nil
	return out
}

// Sent takes in what came of a send: an error as Transport.Send returns it.
func (c *Core) Sent(nowMs int64, s *Send, err error) {
	nowMs = c.advance(nowMs)
	f := s.flight
	if f.state != sending {
		return
	}
	c.release(nowMs, f)
	st := c.of(f)
	switch {
	case err == nil || errors.Is(err, ErrStale):
		if err == nil {
			st.Accepted++
		} else {
			st.Dropped++
		}
		c.progress(nowMs, f.lane)
		if f.claimed {
			c.forget(f) // the claim has removed its entry
			break
		}
		f.state = delivered
		c.reports[f.kind].push(f)
	case f.claimed:
		st.Failed++
		c.forget(f)
	case c.draining:
		st.Failed++
		c.forget(f) // cut off most likely; its entry stays
	default:
		c.unsent(nowMs, f, err)
	}
	c.dispatch(nowMs)
}

// unsent takes in that f was not accepted: it pauses, and its lane may.
func (c *Core) unsent(nowMs int64, f *flight, err error) {
	f.lastErr, f.triedMs, f.refused = bounded(err.Error()), nowMs, errors.Is(err, ErrRefused)
	pauseMs := jittered(loops.Doubled(f.attempts, c.limits.RetryMsFirst, c.limits.RetryMsMax), f.workspace+"\x00"+f.id, f.attempts)
	var later *LaterError
	switch {
	case f.refused:
		c.of(f).Refused++
		pauseMs = c.limits.RetryMsMax
		l := f.lane
		if l.lastErr, l.failedMs = f.lastErr, nowMs; !l.denied {
			l.denied = true
			c.tell(l, Notice{Failing: true, Error: f.lastErr})
		}
	case errors.As(err, &later):
		c.of(f).Failed++
		afterMs := min(max(later.AfterMs, 0), c.limits.MaxLaterMs)
		pauseMs = max(pauseMs, afterMs)
		c.failed(nowMs, f.lane, f.lastErr, afterMs)
	default:
		c.of(f).Failed++
		c.failed(nowMs, f.lane, f.lastErr, 0)
	}
	c.rouse(nowMs, f.lane)
	f.state = resting
	c.entrust(f)
	if f.trust == doubted && c.kept[doubted] >= most(doubted, c.limits.MaxFlights) {
		// Its place is for another message. Instead of it its lane pauses, until which no walk brings it back.
		l := f.lane
		pauseMs = max(pauseMs, jittered(loops.Doubled(l.failures, c.limits.RetryMsFirst, c.limits.RetryMsMax), l.key.name, l.failures))
		c.rest(l, nowMs+pauseMs)
		c.forget(f)
		return
	}
	f.untilMs = nowMs + pauseMs
	c.alarm(alarm{atMs: f.untilMs, flight: f})
}

// bounded is the beginning of a text.
func bounded(text string) string {
	if len(text) > maxErrorBytes {
		return text[:maxErrorBytes] + "..."
	}
	return text
}

// Drain begins no send from now on. What is on its way goes on.
func (c *Core) Drain(nowMs int64) {
	c.advance(nowMs)
	c.draining = true
	for _, f := range c.flights {
		if f.state == ready || f.state == checking {
			c.drop(c.nowMs, f)
		}
	}
}

// Unfinished counts the messages that are with a transport, and those whose report is still to be made.
func (c *Core) Unfinished() (sends, reports int) {
	for _, f := range c.flights {
		switch f.state {
		case sending:
			sends++
		case delivered, reporting:
			reports++
		}
	}
	return sends, reports
}

// of is where the counters of f's transport stand.
func (c *Core) of(f *flight) *TransportStats { return &c.stats.Transports[f.lane.key.transport] }

// never is the time of what is not due at all.
const never = math.MaxInt64
