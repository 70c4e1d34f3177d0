package sim

import (
	"context"
	"slices"
	"time"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

const (
	// serversMax is how many servers a universe has at most.
	serversMax = 3
	// leaseFor is how long a server's row counts without a renewal.
	leaseFor = 3 * time.Second
	// skewMax is how far the wall clocks of two servers are apart at most. Beyond that a server is not ready, and nobody
	// should ask it anything. (docs/machine.md, Time)
	skewMax = 2 * time.Second
	// travelMax is how long the signals of one server take to another, where they travel at all.
	travelMax = 50 * time.Millisecond
)

// fleet is how many servers there are and what they know of each other without the store.
type fleet struct {
	servers int
	skewed  bool            // their wall clocks are apart
	travels bool            // signals go from one server to the others
	skew    []time.Duration // of each one's wall clock, from 0 to skewMax
	late    []time.Duration // when each one joins
}

// newFleet is the fleet of a seed: in one seed of two a single server.
func newFleet(seed uint64) fleet {
	r := newRand(seed, streamFleet)
	f := fleet{servers: 1}
	if chance(r, 0.5) {
		f.servers = 2 + r.IntN(serversMax-1)
	}
	return f
}

// fleet is that of the seed, with as many servers as the configuration says.
func (c Config) fleet() fleet {
	f := newFleet(c.Seed)
	if c.Servers > 0 {
		f.servers = min(c.Servers, serversMax)
	}
	return f
}

// lay decides what the fleet of a universe is like.
func (w *world) lay(c Config) {
	r := newRand(c.Seed, streamLayout)
	w.layout = c.fleet()
	w.layout.travels = chance(r, 0.5)
	w.layout.skewed = chance(r, 0.5) && w.shared()
	for i := range w.layout.servers {
		skew, late := time.Duration(0), time.Duration(0)
		if w.layout.skewed {
			skew = between(r, 0, skewMax)
		}
		if i > 0 && chance(r, 0.3) {
			late = between(r, 0, stormFor/2)
		}
		w.layout.skew = append(w.layout.skew, skew)
		w.layout.late = append(w.layout.late, late)
	}
}

// shared reports whether several servers share the store.
func (w *world) shared() bool { return w.layout.servers > 1 }

// populate makes the servers and starts those that are there from the beginning.
func (w *world) populate() {
	for i := range w.layout.servers {
		s := &server{world: w, index: i, downFor: time.Second, store: w.disk.store, offset: w.layout.skew[i]}
		if w.shared() {
			s.store = w.disk.memory.Handle()
			if w.config.Wrap != nil {
				s.store = w.config.Wrap(s.store)
			}
		}
		w.servers = append(w.servers, s)
	}
	w.stats.Servers = len(w.servers)
	for i, s := range w.servers {
		if w.layout.late[i] == 0 {
			s.boot()
		} else {
			w.after(w.layout.late[i], s.boot)
		}
	}
}

// leaseTTL is the lease that workers ask for. Where clocks are apart, a server may end it as much earlier as they are: a
// worker that renews it twice within its length would lose it over and over.
func (w *world) leaseTTL() time.Duration {
	if w.layout.skewed {
		return leaseTTL + skewMax
	}
	return leaseTTL
}

// anyServer is the first server that is up; nil for none.
func (w *world) anyServer() *server {
	for _, s := range w.servers {
		if s.up && s.asleep <= w.now {
			return s
		}
	}
	return nil
}

// carrySignals takes the signals of a server's commit to the others, but for those that are for itself alone.
func (w *world) carrySignals(from *server, signals []kv.Signal) {
	signals = slices.DeleteFunc(slices.Clone(signals), func(s kv.Signal) bool { return s.Local })
	if !w.layout.travels || len(signals) == 0 {
		return
	}
	for _, s := range w.servers {
		if s != from && s.up && s.hear != nil {
			s.handle.hint(signals, between(w.chaos, time.Millisecond, travelMax), s.hear)
		}
	}
}

// after makes a server do something, once it is awake.
func (s *server) after(d time.Duration, do func()) {
	s.world.after(d, func() {
		if wait := s.asleep - s.world.now; wait > 0 {
			s.after(wait, do)
			return
		}
		do()
	})
}

// sleep makes a server do nothing for a while: it is stopped, or its machine is. It does not notice.
func (s *server) sleep(d time.Duration) {
	w := s.world
	if !s.up {
		return
	}
	w.log("server %d is paused for %s", s.index, d)
	w.stats.Pauses++
	w.trouble(d)
	s.asleep = max(s.asleep, w.now+d)
}

// leave makes a server take its leave, and come back.
func (s *server) leave(away time.Duration) {
	w := s.world
	if !s.up || s.asleep > w.now {
		return
	}
	if p := s.pusher; p != nil {
		if !p.stopped {
			w.log("server %d pushes no more", s.index)
			p.drain(func() { s.depart(away) })
		}
		return
	}
	s.depart(away)
}

// depart is the rest of it.
func (s *server) depart(away time.Duration) {
	w := s.world
	w.log("server %d takes its leave", s.index)
	life := s.life
	err := s.engine.Stop(context.Background())
	if s.life != life {
		return
	}
	if err != nil {
		w.log("leave: %v", err)
	}
	w.stats.Leaves++
	s.downFor = away
	s.goDown()
}

// keepPlace is one pass of the loop that keeps a server's row.
func (s *server) keepPlace(life int) {
	if s.life != life {
		return
	}
	sleep, err := s.engine.MemberPass(context.Background())
	if s.life != life {
		return
	}
	if err != nil {
		s.world.log("servers: %v", err)
		sleep = passPause
	}
	s.after(sleep, func() { s.keepPlace(life) })
}

// stepClock moves the wall clock of a server. Of several on a store, all go along: they must not be too far apart.
func (w *world) stepClock(s *server, d time.Duration) {
	if !w.shared() {
		s.offset += d
		return
	}
	for _, each := range w.servers {
		each.offset += d
	}
}

// compareClocks takes note of how far the servers' clocks are apart.
func (w *world) compareClocks() {
	if !w.shared() {
		return
	}
	low, high := int64(0), int64(0)
	for _, s := range w.servers {
		if !s.up {
			continue
		}
		now := s.engine.Now()
		if low == 0 || now < low {
			low = now
		}
		high = max(high, now)
	}
	w.wereApart(high - low)
	w.furthest = max(w.furthest, high)
}

func (w *world) wereApart(ms int64) {
	if w.apart = max(w.apart, ms); w.apart > 0 {
		w.follower.model = nil // it knows one clock
	}
}

// starting is called when a server begins to open the store, and what it returns when it has. It begins above what
// all others had served when it read their ceilings; what they serve while it opens it cannot know of, and whoever
// does and dies before it is up is never compared with it. Nor is whoever was up then and has gone meanwhile: a live
// server whose clock is far ahead of the others' does not draw along those that start.
func (w *world) starting() (started func(now int64)) {
	if !w.shared() {
		return func(int64) {}
	}
	w.follow()
	latest, high := w.follower.latest, int64(0)
	for _, s := range w.servers {
		if s.up {
			high = max(high, s.engine.Now())
		}
	}
	return func(now int64) {
		w.follow()
		w.wereApart(high - now)
		if w.follower.latest > latest {
			w.wereApart(w.follower.latest - now)
		}
	}
}

// lateMs is how much later than a single server's a timer may fire when all is well: its owner may be one that does
// nothing, and the clocks of the two may differ.
func (w *world) lateMs() int64 {
	if !w.shared() {
		return 0
	}
	return 1500 + w.apart
}

// undecided reports whether a search that shows a promise as settled binds nobody yet: it rests on a deadline alone, by
// the clock of one of several servers, and nothing is stored. (docs/servers.md)
func (w *world) undecided(begin uint64, f *fact, p protocol.Promise) bool {
	if !w.shared() || p.SettledAt != p.TimeoutAt {
		return false
	}
	if f.settled {
		return f.settledAt > begin && !samePromise(f.result, p)
	}
	settled := false
	err := w.disk.store.View(context.Background(), func(s kv.Snapshot) error {
		b, err := s.Get(keyspace.For(protocol.DefaultWorkspace, layout).Object(p.ID))
		if err != nil || b == nil {
			return err
		}
		var o *machine.Object
		o, err = keyspace.Object(p.ID, b)
		settled = err == nil && o.State != protocol.Pending
		return err
	})
	if err != nil {
		w.fail("the record of %q cannot be read: %v", p.ID, err)
	}
	return !settled
}
