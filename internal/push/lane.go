package push

import (
	"container/list"

	"abide/internal/loops"
	"abide/protocol"
)

// laneKey names a lane: two transports may use the same name.
type laneKey struct {
	transport int
	name      string
}

// lane is what messages wait in line for, such as a host. It has its own line, its own window of how many may be on their
// way, and its own pause.
//
// The window is what keeps a destination that hangs from holding many slots: it begins small, each message that is
// accepted makes it larger by one, and many failures in a row halve it down to one, which is then a probe after each pause.
// How many depends on the window, so that some messages that always fail do not make a good destination a bad one. A
// claim is as good as an answer: a worker that runs its function inside the request has taken its task long before it
// answers, and its request does not count in the window from then on.
type lane struct {
	key         laneKey
	transport   Transport
	concurrency int

	line     *list.List // of flights that are ready
	flights  int        // all of them
	inFlight int        // those with a slot
	claimed  int        // of them, those whose task is claimed
	window   int
	failures int   // in a row
	troubles int   // of them, those that made it pause
	untilMs  int64 // end of its pause
	askedMs  int64 // until when the destination has asked to be left alone: what it accepts meanwhile takes nothing off that
	lastErr  string
	failedMs int64 // when that was
	usedMs   int64 // when it last had anything to do

	ring   *list.Element // in one of the core's rings, while it may have something to send
	ringOf trust         // which one
	queues map[queueKey]*queue
	open   [kinds]*list.List // of queues that are to be looked into
	hungry [kinds]bool       // it is in the core's list of lanes with such queues, and with room
	starve bool              // it has such queues and no room, which may be others' doing
	denied bool              // the last message was refused, which has been told

	epoch        uint64 // of the servers that rank is about
	rank         int
	takenUntilMs int64
	watches      map[queueKey]*watch
}

// route is where messages to an address go; lane is empty for an address that nobody serves, and why says why.
type route struct {
	transport int
	lane      string
	why       string
}

// routeOf parses an address, once.
func (c *Core) routeOf(address string) route {
	if r, ok := c.routes[address]; ok {
		return r
	}
	if len(c.routes) >= maxRoutes {
		clear(c.routes)
	}
	r := c.newRoute(address)
	c.routes[address] = r
	return r
}

func (c *Core) newRoute(address string) route {
	a, err := protocol.ParseAddress(address)
	if err != nil {
		return route{why: err.Error()}
	}
	for i, t := range c.transports {
		for _, scheme := range t.Schemes {
			if scheme != a.Scheme {
				continue
			}
			name, err := t.Transport.Lane(a, address)
			if err != nil {
				return route{why: err.Error()}
			}
			return route{transport: i, lane: name}
		}
	}
	if a.Scheme == protocol.SchemePoll {
		return route{why: "no worker can have this address: it names no id"}
	}
	return route{why: "sending to " + a.Scheme + " addresses is turned off on this server"}
}

// laneOf is the lane of an address; nil if nobody serves it.
func (c *Core) laneOf(address string) *lane {
	r := c.routeOf(address)
	if r.lane == "" {
		return nil
	}
	key := laneKey{r.transport, r.lane}
	l := c.lanes[key]
	if l == nil {
		t := c.transports[r.transport].Transport
		l = &lane{
			key: key, transport: t, concurrency: max(1, t.Concurrency(r.lane)), line: list.New(), window: firstWindow, usedMs: c.nowMs,
			queues: map[queueKey]*queue{}, watches: map[queueKey]*watch{},
		}
		for k := range kinds {
			l.open[k] = list.New()
		}
		c.lanes[key] = l
	}
	return l
}

// room is how many more messages of l may wait in memory.
func (c *Core) room(l *lane) int {
	free := c.memory(l)
	if l.flights >= free || l.untilMs > c.nowMs && free < most(doubted, c.limits.MaxFlights)/2 {
		return 0 // where it is scarce, memory is not for waiting
	}
	return min(max(minReady, min(2*l.window, c.limits.MaxReady))-l.line.Len(), free)
}

// wants reports whether l has a message that may be sent now, but for the slots that others hold.
func (c *Core) wants(nowMs int64, l *lane) bool {
	return l.line.Len() > 0 && l.untilMs <= nowMs && l.inFlight-l.claimed < l.window && l.inFlight < l.concurrency
}

// share reports whether l may have one more of the slots, of which at least one is free for its trust. One that has shown that it is
// quick may have as many as are left to others. One that has not may have the less the fewer there are, but for the first,
// so that hundreds of destinations that hang leave room for one that does not.
func (c *Core) share(l *lane) bool {
	t := l.trust()
	free, all := left(t, &c.held, c.limits.MaxOutstanding), most(t, c.limits.MaxOutstanding)
	if l.window > firstWindow {
		return l.inFlight < free
	}
	return l.inFlight == 0 || l.inFlight < l.window*free/all*free/all
}

// rouse puts l into the ring of its trust if it has something to send.
func (c *Core) rouse(nowMs int64, l *lane) {
	if l.ring != nil && l.ringOf != l.trust() {
		c.rings[l.ringOf].Remove(l.ring)
		l.ring = nil
	}
	if l.ring == nil && c.wants(nowMs, l) {
		l.ringOf = l.trust()
		l.ring = c.rings[l.ringOf].PushBack(l)
	}
}

// dispatch gives slots to the lanes that have something to send, one each in turn.
func (c *Core) dispatch(nowMs int64) {
	for t := range trusts {
		c.dispatchTo(nowMs, t)
	}
}

// dispatchTo does that for the lanes of one trust.
func (c *Core) dispatchTo(nowMs int64, t trust) {
	ring := c.rings[t]
	for passed := 0; passed < ring.Len() && left(t, &c.held, c.limits.MaxOutstanding) > 0 && !c.draining; {
		place := ring.Front()
		l := place.Value.(*lane)
		if !c.mine(l) {
			c.leave(nowMs, l)
		}
		if !c.wants(nowMs, l) {
			ring.Remove(place)
			l.ring = nil
			continue
		}
		ring.MoveToBack(place)
		if !c.share(l) {
			passed++
			continue
		}
		passed = 0
		f := l.line.Remove(l.line.Front()).(*flight)
		f.place, f.state = nil, checking
		c.entrust(f)
		if !c.fits(f) {
			c.put(nowMs, f)
			continue
		}
		l.inFlight++
		c.busy++
		c.held[f.trust]++
		c.checks[f.kind].push(f)
		c.feed(l)
	}
}

// leave drops what waits in the line of a lane that is another server's by now.
func (c *Core) leave(nowMs int64, l *lane) {
	for l.line.Len() > 0 {
		c.drop(nowMs, l.line.Front().Value.(*flight))
	}
}

// release gives back the slot of a message.
func (c *Core) release(nowMs int64, f *flight) {
	f.lane.inFlight--
	if f.claimed {
		f.lane.claimed--
	}
	c.busy--
	c.held[f.trust]--
	c.large[f.trust] -= f.loaded
	f.loaded = 0
	c.rouse(nowMs, f.lane)
}

// progress takes in that l has accepted a message, or that the task of one was claimed.
func (c *Core) progress(nowMs int64, l *lane) {
	if l.troubles > 0 || l.denied {
		c.tell(l, Notice{})
	}
	l.failures, l.troubles, l.lastErr, l.denied = 0, 0, "", false
	if l.askedMs < l.untilMs {
		l.untilMs = l.askedMs
		c.alarm(alarm{atMs: l.untilMs, lane: l})
	}
	l.window = min(l.window+1, l.concurrency)
	c.rouse(nowMs, l)
	c.feed(l)
}

// failed takes in that l has not accepted a message. afterMs is what it asked for, 0 for nothing.
func (c *Core) failed(nowMs int64, l *lane, text string, afterMs int64) {
	l.failures++
	l.lastErr, l.failedMs = text, nowMs
	untilMs := nowMs + afterMs
	if afterMs > 0 {
		l.askedMs = max(l.askedMs, untilMs)
	}
	if l.failures >= max(failuresInRow, l.window/2) {
		if l.troubles++; l.troubles == 1 {
			c.tell(l, Notice{Failing: true, Error: text})
		}
		l.window = max(1, l.window/2)
		pauseMs := loops.Doubled(l.troubles, c.limits.RetryMsFirst, c.limits.RetryMsMax)
		untilMs = max(untilMs, nowMs+jittered(pauseMs, l.key.name, l.troubles))
	}
	if untilMs > nowMs {
		c.rest(l, untilMs)
	}
}

// rest makes l pause at least until then.
func (c *Core) rest(l *lane, untilMs int64) {
	if untilMs > l.untilMs {
		l.untilMs = untilMs
		c.alarm(alarm{atMs: untilMs, lane: l})
	}
}

// tell notes that something about l is worth a line in the log, unless there are very many: whoever makes promises names
// the destinations.
func (c *Core) tell(l *lane, n Notice) {
	if c.nowMs-c.toldSinceMs >= noticeSpanMs {
		c.told, c.toldSinceMs = 0, c.nowMs
	}
	if c.told >= maxNotices {
		c.omitted++
		return
	}
	c.told++
	n.Transport, n.Lane, n.Omitted = c.transports[l.key.transport].Name, l.key.name, c.omitted
	c.omitted = 0
	c.notices = append(c.notices, n)
}

// prune forgets lanes that have had nothing to do for long, and queues that no walk meets any more.
func (c *Core) prune(nowMs int64) {
	for key, l := range c.lanes {
		for _, q := range l.queues {
			if q.place == nil && !q.asking && nowMs-q.quietUntilMs > 2*quietMsMax {
				c.closeQueue(q)
			}
		}
		if l.flights > 0 || len(l.queues) > 0 || l.ring != nil {
			l.usedMs = nowMs
		} else if nowMs-l.usedMs >= laneIdleMs && l.untilMs <= nowMs && l.takenUntilMs <= nowMs {
			c.watching -= len(l.watches)
			delete(c.lanes, key)
		}
	}
}
