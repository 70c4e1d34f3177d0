package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"abide/internal/cluster"
	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
)

const (
	// DefaultLeaseMs is how long a server's row counts without a renewal: after that others take over what was its
	// own, and until then it may be late.
	DefaultLeaseMs = 10_000
	// renewals is how many times a lease is renewed within its length, so that one that comes late is not the end. (D24)
	renewals = 3
	// MaxServers is how many servers may share a store.
	MaxServers = 256
	// sharedPollMs is the longest sleep between two looks where servers share a store and signals may not travel.
	sharedPollMs = 250
	// travelsFor is how long after the last signal of another server signals count as travelling.
	travelsFor = time.Minute
)

// Identity is what a server tells others, and people, of itself. All of it may be empty.
type Identity struct {
	Host      string
	ProcessID int64
	URL       string // where workers reach it
	Version   string // of the binary
}

// members is this server's place among those that share the store. On a store of one server nothing of it is used.
type members struct {
	standing atomic.Pointer[standing]
	heard    atomic.Int64 // when a signal of another server last came, on the source's steady clock; 0: never

	// The rest is used by one goroutine at a time, but for what mu guards.
	observer *cluster.Observer
	life     int64         // of this process, as its row has it; 0: not registered
	renewed  time.Duration // when the last good renewal began, steady
	usurper  usurper
	sweep    memberSweep

	mu   sync.Mutex
	lost error // why there is no lease; nil while there is one
}

// standing is what the last look at the other servers has shown. Never changed.
type standing struct {
	live     []string // those whose leases hold, sorted; this server among them
	until    time.Duration
	offsetMs int64
	roster   keyspace.Roster
}

// usurper is another process that runs under this server's name, as it was last seen.
type usurper struct {
	life, renewals int64
	since          time.Duration
}

// errNameTaken is why a server has no lease whose name another process has taken.
var errNameTaken = errors.New("another process runs under this server's name; give each server a name of its own, or end the other one")

// sharedBy reports whether several servers may write to a store.
func sharedBy(s kv.Store) bool {
	of, ok := s.(interface{ Shared() bool })
	return ok && of.Shared()
}

func (e *Engine) mono() time.Duration { return e.opt.Source.Mono() }

func (e *Engine) leaseFor() time.Duration { return time.Duration(e.opt.LeaseMs) * time.Millisecond }

// register writes this server's row: a new life of it, which has its whole lease. A row that is there already is that
// of an earlier process of this name, which has not taken its leave.
func (e *Engine) register(ctx context.Context) error {
	begun := e.mono()
	key := keyspace.MemberKey(e.opt.ServerID)
	var life int64
	_, err := kv.Run(ctx, e.store, kv.Hints{}, func(tx kv.Tx) error {
		b, err := tx.Get(key)
		if err != nil {
			return err
		}
		now := e.clock.now()
		life, err = raiseRoster(tx, b != nil, now)
		if err != nil {
			return err
		}
		return tx.Put(key, keyspace.AppendMember(nil, e.member(life, 0, now)))
	})
	if err != nil {
		if err = e.resolve(ctx, err); err != nil {
			return err
		}
	}
	m := &e.members
	m.life, m.renewed = life, begun
	m.holds(nil)
	return nil
}

// raiseRoster gives the roster its next number, and notes that a server was lost.
func raiseRoster(tx kv.Tx, lost bool, now int64) (number int64, err error) {
	b, err := tx.Get(keyspace.RosterKey())
	if err != nil {
		return 0, err
	}
	r, err := keyspace.ParseRoster(b)
	if err != nil {
		return 0, err
	}
	r.Number++
	if lost {
		r.LostMs = max(r.LostMs, now)
	}
	return r.Number, tx.Put(keyspace.RosterKey(), keyspace.AppendRoster(nil, r))
}

// member is this server's row.
func (e *Engine) member(life, renewals, now int64) keyspace.Member {
	m := keyspace.Member{
		Life: life, Renewals: renewals, LeaseMs: e.opt.LeaseMs, ClockMs: now, StartedMs: e.born,
		Host: e.opt.Identity.Host, ProcessID: e.opt.Identity.ProcessID, URL: e.opt.Identity.URL, Version: e.opt.Identity.Version,
		Derivation: keyspace.DerivationVersion,
	}
	if s := e.members.standing.Load(); s != nil {
		m.OffsetMs = s.offsetMs
	}
	return m
}

// renewLease keeps this server's row. Without one it was taken for dead: it registers again. A row of another life is that
// of another process; its name is free again once that has not renewed it for a lease.
func (e *Engine) renewLease(ctx context.Context) error {
	m, key := &e.members, keyspace.MemberKey(e.opt.ServerID)
	begun := e.mono()
	var found keyspace.Member
	var there bool
	_, err := kv.Run(ctx, e.store, kv.Hints{}, func(tx kv.Tx) error {
		b, err := tx.Get(key)
		if err != nil {
			return err
		}
		if there = b != nil; !there {
			return nil
		}
		tx.Signal(store.ServerSignal(e.opt.ServerID)) // with nothing else to tell, it tells that signals travel
		if found, err = keyspace.ParseMember(b); err != nil || found.Life != m.life {
			return err
		}
		return tx.Put(key, keyspace.AppendMember(nil, e.member(m.life, found.Renewals+1, e.clock.now())))
	})
	if err != nil {
		err = e.resolve(ctx, err)
	}
	switch {
	case err != nil && !errors.Is(err, kv.ErrCorrupt):
		return err
	case err == nil && there && found.Life == m.life:
		m.renewed = begun
		m.holds(nil)
		return nil
	case err == nil && there && !m.usurper.gone(found, e.mono()):
		m.holds(errNameTaken)
		return nil
	}
	e.log.Warn("this server's row in the store was lost: it was taken for dead, and registers again", "server", e.opt.ServerID)
	return e.register(ctx)
}

// gone takes in another process's row under this server's name and reports whether it has not changed for its lease.
func (u *usurper) gone(row keyspace.Member, now time.Duration) bool {
	if u.life != row.Life || u.renewals != row.Renewals {
		*u = usurper{row.Life, row.Renewals, now}
	}
	return now-u.since > time.Duration(row.LeaseMs)*time.Millisecond
}

func (m *members) holds(lost error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = lost
}

// lookAround reads everybody's row and judges by it.
func (e *Engine) lookAround(ctx context.Context) error {
	m := &e.members
	look := cluster.Look{Before: e.mono(), BeforeMs: e.clock.now()}
	var roster keyspace.Roster
	var damaged [][]byte
	ranges := []kv.Range{kv.Only(keyspace.RosterKey()), keyspace.Members()}
	read := func(s kv.Snapshot) error {
		look.Rows, damaged = look.Rows[:0], nil
		b, err := s.Get(keyspace.RosterKey())
		if err != nil {
			return err
		}
		if roster, err = keyspace.ParseRoster(b); err != nil {
			return err
		}
		rows, err := s.Scan(keyspace.Members(), MaxServers)
		if err != nil {
			return err
		}
		for _, row := range rows {
			sighting, err := sightingOf(row)
			if err != nil {
				damaged = append(damaged, row.Key)
				continue
			}
			look.Rows = append(look.Rows, sighting)
		}
		return nil
	}
	err := e.called(ctx, func(ctx context.Context) error { return e.firstOf(ctx, ranges, MaxServers, read) })
	if err != nil {
		return err
	}
	for _, key := range damaged {
		if _, err := e.quarantine(ctx, key, errors.New("a server's row does not decode")); err != nil {
			return err
		}
	}
	look.After, look.AfterMs = e.mono(), e.clock.now()
	m.observer.See(look)
	s := &standing{live: m.observer.Live(look.After), offsetMs: m.observer.OffsetMs(look.After), roster: roster}
	held := slices.ContainsFunc(look.Rows, func(row cluster.Sighting) bool { return row.ID == e.opt.ServerID && row.Life == m.life })
	if held {
		s.until = m.renewed + e.leaseFor()
		s.live = append(s.live, e.opt.ServerID)
		slices.Sort(s.live)
	}
	m.standing.Store(s)
	return nil
}

func sightingOf(row kv.Entry) (s cluster.Sighting, err error) {
	key, err := keyspace.ParseRow(row.Key, row.Value)
	if err != nil {
		return s, err
	}
	m, err := keyspace.ParseMember(row.Value)
	return cluster.Sighting{ID: key.ID, Life: m.Life, Renewals: m.Renewals, Lease: time.Duration(m.LeaseMs) * time.Millisecond, ClockMs: m.ClockMs}, err
}

// membership is one pass of the loop that keeps this server's row, looks at the others' and sweeps those of the dead.
func (e *Engine) membership(ctx context.Context) (time.Duration, error) {
	m := &e.members
	if e.mono() >= m.renewed+e.leaseFor()/renewals {
		if err := e.called(ctx, e.renewLease); err != nil {
			return 0, fmt.Errorf("the lease of this server's row cannot be renewed: %w", err)
		}
	}
	if err := e.lookAround(ctx); err != nil {
		return 0, err
	}
	return time.Duration(e.opt.PollIntervalMs) * time.Millisecond, e.sweepMembers(ctx)
}

// leave takes this server's row back, so that nobody waits for its lease to end.
func (e *Engine) leave(ctx context.Context) error {
	key := keyspace.MemberKey(e.opt.ServerID)
	_, err := kv.Run(ctx, e.store, kv.Hints{}, func(tx kv.Tx) error {
		b, err := tx.Get(key)
		if err != nil || b == nil {
			return err
		}
		if m, err := keyspace.ParseMember(b); err != nil || m.Life != e.members.life {
			return err
		}
		if _, err := raiseRoster(tx, false, 0); err != nil {
			return err
		}
		return tx.Delete(key)
	})
	return err
}

// holding is the last look, if this server's lease holds; nil else.
func (e *Engine) holding() *standing {
	s := e.members.standing.Load()
	if s == nil || e.mono() >= s.until {
		return nil
	}
	return s
}

// owns reports whether something is this server's to do, by its name. Of the servers that share the store one owns it,
// as long as they agree on who lives; that only saves work, for whatever is done re-checks in its transaction.
func (e *Engine) owns(key string) bool {
	if !e.shared {
		return true
	}
	s := e.holding()
	return s != nil && cluster.Owner(key, s.live) == e.opt.ServerID
}

// travels reports whether other servers' signals reach this one.
func (e *Engine) travels() bool {
	at := e.members.heard.Load()
	return at != 0 && e.mono()-time.Duration(at) < travelsFor
}

// readiness reports what is wrong with this server's place among the others.
func (e *Engine) readiness() error {
	if !e.shared {
		return nil
	}
	m := &e.members
	m.mu.Lock()
	lost := m.lost
	m.mu.Unlock()
	switch s := m.standing.Load(); {
	case lost != nil:
		return lost
	case s == nil:
		return errors.New("the other servers on this store have not been looked at yet")
	case e.mono() >= s.until:
		return fmt.Errorf("this server's lease has ended without a renewal for %s; until the store takes one, others do its work", e.leaseFor())
	case s.offsetMs > cluster.MaxOffsetMs || s.offsetMs < -cluster.MaxOffsetMs:
		return fmt.Errorf("this server's clock is %d ms off the median of the live servers' (%+d ms), and at most %d are allowed: set it right",
			max(s.offsetMs, -s.offsetMs), s.offsetMs, int64(cluster.MaxOffsetMs))
	}
	return nil
}

// whoRuns names the servers that have a row, for an error that says that this one cannot be among them; empty for none.
func (e *Engine) whoRuns(ctx context.Context) (names string) {
	_ = e.store.View(ctx, func(s kv.Snapshot) error {
		names = ""
		rows, err := s.Scan(keyspace.Members(), MaxServers)
		for _, row := range rows {
			if m, err := keyspace.ParseMember(row.Value); err == nil {
				names += fmt.Sprintf("; %s on %s is registered there, version %s, which writes version %d", m.URL, m.Host, m.Version, m.Derivation)
			}
		}
		return err
	})
	return names
}
