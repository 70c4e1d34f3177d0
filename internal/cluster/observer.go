package cluster

import (
	"slices"
	"strings"
	"time"
)

// MaxOffsetMs is how far a server's time may be from the median of the live servers' for it to be ready.
// (docs/machine.md, Time)
const MaxOffsetMs = 2000

// Sighting is what one look at the store shows of a server's row.
type Sighting struct {
	ID       string
	Life     int64 // which of its processes
	Renewals int64 // changes with every renewal
	Lease    time.Duration
	ClockMs  int64 // its time at the renewal, epoch ms
}

// Look is what one server reads of all rows in one snapshot, and its own clocks just before and just after it.
type Look struct {
	Before, After     time.Duration // steady
	BeforeMs, AfterMs int64         // its time, epoch ms
	Rows              []Sighting
}

// Observer remembers what earlier looks have shown. Not safe for concurrent use.
type Observer struct {
	self  string
	peers map[string]*peer
	last  Look // without its rows
	seen  bool // whether there was one
}

// peer is what is known of another server.
type peer struct {
	Sighting
	since time.Duration // when this state of its row was first seen, later by the time in which nobody looked
	// low and high bound how far its clock is ahead of the observer's, ms; known says that they do.
	low, high int64
	known     bool
}

// NewObserver makes an observer for the server with an id.
func NewObserver(self string) *Observer { return &Observer{self: self, peers: map[string]*peer{}} }

// blindParts is which part of a lease the time between two looks counts as at most.
const blindParts = 4

// blind is how much of the time since the last look says nothing of a server with a lease. A store that was away for the
// observer was most likely away for everybody, and nobody could renew: what is longer than a quarter of the lease does not count,
// so that the first server that reaches the store again does not take the others for dead. (D20)
func (o *Observer) blind(l Look, lease time.Duration) time.Duration {
	if !o.seen {
		return 0
	}
	return max(0, l.After-o.last.After-lease/blindParts)
}

// See takes in a look. Looks come in the order in which they were made.
func (o *Observer) See(l Look) {
	there := make(map[string]bool, len(l.Rows))
	for _, row := range l.Rows {
		if row.ID == o.self {
			continue
		}
		there[row.ID] = true
		p := o.peers[row.ID]
		switch {
		case p == nil || p.Life != row.Life:
			o.peers[row.ID] = &peer{Sighting: row, since: l.After}
		case p.Renewals != row.Renewals:
			p.Sighting, p.since = row, l.After
			if o.seen {
				p.narrow(row.ClockMs-l.AfterMs, row.ClockMs-o.last.BeforeMs)
			}
		default:
			p.since += o.blind(l, p.Lease)
		}
	}
	for id := range o.peers {
		if !there[id] {
			delete(o.peers, id)
		}
	}
	l.Rows = nil
	o.last, o.seen = l, true
}

// narrow takes in that the row's clock was read between two looks. What contradicts the earlier bounds replaces them: a
// clock was stepped.
func (p *peer) narrow(low, high int64) {
	if p.known && max(low, p.low) <= min(high, p.high) {
		p.low, p.high = max(low, p.low), min(high, p.high)
		return
	}
	p.low, p.high, p.known = low, high, true
}

func (p *peer) dead(now time.Duration) bool { return now-p.since > p.Lease }

// Live lists the other servers that are not dead, sorted.
func (o *Observer) Live(now time.Duration) []string {
	var live []string
	for id, p := range o.peers {
		if !p.dead(now) {
			live = append(live, id)
		}
	}
	slices.Sort(live)
	return live
}

// Dead lists the others whose rows have not changed for their lease, by id.
func (o *Observer) Dead(now time.Duration) []Sighting {
	var dead []Sighting
	for _, p := range o.peers {
		if p.dead(now) {
			dead = append(dead, p.Sighting)
		}
	}
	slices.SortFunc(dead, func(a, b Sighting) int { return strings.Compare(a.ID, b.ID) })
	return dead
}

// OffsetMs is how far the observer's time is ahead of the median of the live servers', itself among them; negative:
// behind. Of an even number the lower of the middle two counts, so that of two servers the one that is ahead is in the
// wrong: a clock that is ahead ends what it should not.
func (o *Observer) OffsetMs(now time.Duration) int64 {
	ahead := []int64{0}
	for _, p := range o.peers {
		if p.known && !p.dead(now) {
			ahead = append(ahead, p.low+(p.high-p.low)/2)
		}
	}
	slices.Sort(ahead)
	return -ahead[(len(ahead)-1)/2]
}
