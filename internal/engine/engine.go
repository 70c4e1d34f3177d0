// Package engine turns requests and due timers into transactions: one request is one kv.Run around the
// machine (a heartbeat and a debug.tick are several, bounded). It owns the server's clock, and the loops
// that fire timers, sweep and compact journals; it names no backend and knows no HTTP.
//
// The files: engine.go (requests), clock.go (time), instant.go (which instant an operation runs at),
// heartbeat.go, tick.go (internal steps as a function of now), sweep.go, retention.go (what is kept of the
// journal), outbox.go (what delivery reads and writes), debug.go and snap.go (debug.*), loop.go (the real-time
// shell: the only goroutines), errors.go (what a failed transaction is answered).
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"abide/internal/cluster"
	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

// Options are what an operator sets about the engine. Zero fields have the defaults stated.
type Options struct {
	// RetryTimeoutMs is how long a dispatched task may stay unclaimed before it is dispatched again.
	// Default 30,000.
	RetryTimeoutMs int64
	// PollIntervalMs is how often the timer loop looks even if nothing woke it. Default 1,000.
	PollIntervalMs int64
	// UnblockExpiryMs is how long an unblock message is kept that cannot be delivered. Default one day.
	UnblockExpiryMs int64
	// JournalAgeMs and JournalEntries say how much of each workspace's journal is kept: the newest entries up to that
	// number (at most journal.MaxEntries), as far as they are not older than that. Defaults: journal.DefaultAgeMs,
	// journal.DefaultEntries.
	JournalAgeMs   int64
	JournalEntries int64
	// MaxWorkspaces is how many workspaces the store may have; a request that would make one more is refused. Of several
	// servers each counts by itself, every recountInterval. Default DefaultMaxWorkspaces.
	MaxWorkspaces int
	// ServerID names this server's rows in the store. Default "server". Where several share a store each needs its own.
	ServerID string
	// Identity is what others are told of this server, where several share a store.
	Identity Identity
	// LeaseMs is how long this server's row counts without a renewal. Default DefaultLeaseMs.
	LeaseMs int64
	// Shared says that other servers may use the store. It is set for a store that says so itself, with a method
	// Shared() bool.
	Shared bool
	// Source is the clock. Default: the machine's.
	Source Source
	// Log takes what an operator should know. Default: nothing is logged.
	Log *slog.Logger
	// Sequential makes the engine do one thing after the other on the caller's goroutine, and set no deadlines of
	// real time: for a simulator, where the order of the store's calls must follow from the seed alone.
	Sequential bool
}

func (o *Options) setDefaults() {
	if o.RetryTimeoutMs == 0 {
		o.RetryTimeoutMs = 30_000
	}
	if o.PollIntervalMs == 0 {
		o.PollIntervalMs = 1_000
	}
	if o.UnblockExpiryMs == 0 {
		o.UnblockExpiryMs = (24 * time.Hour).Milliseconds()
	}
	if o.JournalAgeMs == 0 {
		o.JournalAgeMs = journal.DefaultAgeMs
	}
	if o.JournalEntries == 0 {
		o.JournalEntries = journal.DefaultEntries
	}
	if o.MaxWorkspaces == 0 {
		o.MaxWorkspaces = DefaultMaxWorkspaces
	}
	if o.ServerID == "" {
		o.ServerID = "server"
	}
	if o.LeaseMs == 0 {
		o.LeaseMs = DefaultLeaseMs
	}
	if o.Shared {
		o.PollIntervalMs = min(o.PollIntervalMs, sharedPollMs)
	}
	if o.Source == nil {
		o.Source = newRealTime()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Engine answers requests and does the internal steps. All methods are safe for concurrent use.
type Engine struct {
	opt    Options
	store  kv.Store
	config machine.Config
	layout keyspace.Layout
	clock  *clock
	born   int64 // when this life of the server began, epoch ms
	log    *slog.Logger
	counts counters

	failures failureLog

	raising    sync.Mutex // one raise of the ceiling at a time
	workspaces sync.Map   // name -> struct{}: workspaces whose record exists
	existing   workspaceCount
	paused     pauses
	hints      hints
	loops      loops
	sweeper    sweeper
	retention  journal.Retention
	retainer   retainer
	shared     bool // several servers may use the store
	prefetches bool // the store makes use of hints of what is read
	members    members
	duties     duties
}

// Open makes an engine over a store, and brings the store's format record and this server's clock into
// being. It waits for up to a second if the clock is behind what an earlier life of this server has served.
// The store stays the caller's to close, after Stop.
func Open(ctx context.Context, s kv.Store, opt Options) (*Engine, error) {
	opt.Shared = opt.Shared || sharedBy(s)
	opt.setDefaults()
	e := &Engine{
		opt:    opt,
		shared: opt.Shared, prefetches: prefetches(s),
		store:  s,
		config: machine.Config{RetryTimeoutMs: opt.RetryTimeoutMs},
		log:    opt.Log,

		existing:  workspaceCount{turn: make(chan struct{}, 1)},
		retention: journal.Retention{AgeMs: opt.JournalAgeMs, Entries: opt.JournalEntries},
	}
	if err := e.openFormat(ctx); err != nil {
		return nil, err
	}
	ceiling, err := e.storedCeiling(ctx)
	if err != nil {
		return nil, err
	}
	if e.clock, err = newClock(ctx, opt.Source, ceiling); err != nil {
		return nil, err
	}
	e.born = e.clock.now()
	if e.shared {
		e.members.observer = cluster.NewObserver(opt.ServerID)
		if err := e.register(ctx); err != nil {
			return nil, fmt.Errorf("cannot register among the servers on this store: %w", err)
		}
		if err := e.lookAround(ctx); err != nil {
			return nil, fmt.Errorf("cannot read the other servers' rows: %w", err)
		}
	}
	return e, nil
}

// openFormat reads the store's format record, or writes it into a new store.
func (e *Engine) openFormat(ctx context.Context) error {
	var found keyspace.StoreFormat
	_, err := kv.Run(ctx, e.store, kv.Hints{}, func(tx kv.Tx) error {
		b, err := tx.Get(keyspace.Format())
		if err != nil {
			return err
		}
		if b == nil {
			found = keyspace.StoreFormat{Derivation: keyspace.DerivationVersion, Shards: 1}
			return tx.Put(keyspace.Format(), keyspace.AppendFormat(nil, found))
		}
		found, err = keyspace.ParseFormat(b)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot read the store's format record: %w", err)
	}
	if found.Derivation != keyspace.DerivationVersion {
		return fmt.Errorf("the store's index entries are of version %d, this server writes version %d: use the release that wrote the store%s",
			found.Derivation, keyspace.DerivationVersion, e.whoRuns(ctx))
	}
	if found.Shards < 1 {
		return fmt.Errorf("the store's format record is damaged: %d shards", found.Shards)
	}
	e.layout = keyspace.Layout{Shards: found.Shards}
	return nil
}

// storedCeiling is the instant below which this server must serve none, as the rows of all servers' clocks say.
func (e *Engine) storedCeiling(ctx context.Context) (ceiling int64, err error) {
	err = e.store.View(ctx, func(s kv.Snapshot) error {
		rows, err := s.Scan(keyspace.Servers(), kv.MaxScanRows/4)
		if err != nil {
			return err
		}
		var ceilings []cluster.Ceiling
		for _, row := range rows {
			key, err := keyspace.ParseRow(row.Key, row.Value)
			if err != nil {
				return err
			}
			c := cluster.Ceiling{ID: key.ID}
			if c.Ms, err = keyspace.Instant("server", row.Value); err != nil {
				return err
			}
			if c.Live, err = e.seemsLive(s, key.ID); err != nil {
				return err
			}
			ceilings = append(ceilings, c)
		}
		ceiling = cluster.StartMs(e.opt.ServerID, ceilings)
		return nil
	})
	return ceiling, err
}

// seemsLive reports whether a server's row says, on this machine's clock, that its lease holds. A server that starts has
// nothing better to go by.
func (e *Engine) seemsLive(s kv.Snapshot, id string) (bool, error) {
	if !e.shared {
		return false, nil
	}
	b, err := s.Get(keyspace.MemberKey(id))
	if err != nil || b == nil {
		return false, err
	}
	m, err := keyspace.ParseMember(b)
	if err != nil {
		return false, nil // whose it is cannot be told; looking at the others sets it aside
	}
	return m.ClockMs+m.LeaseMs >= e.opt.Source.Wall().UnixMilli(), nil
}

// Do answers one request in a workspace. debugTime, if not nil, replaces the clock (docs/machine.md,
// Time). ctx bounds the whole: when it ends before the commit is under way, nothing was changed.
func (e *Engine) Do(ctx context.Context, workspace string, req protocol.Request, debugTime *int64) protocol.Reply {
	at := instant{engine: e, workspace: workspace, debug: debugTime}
	reply, err := e.do(ctx, workspace, req, at)
	if err != nil {
		return e.failure(req, err)
	}
	return reply
}

func (e *Engine) do(ctx context.Context, workspace string, req protocol.Request, at instant) (protocol.Reply, error) {
	switch r := req.(type) {
	case *protocol.TaskHeartbeat:
		return e.heartbeat(ctx, workspace, r, at)
	case *protocol.TaskExplain:
		return e.explain(ctx, workspace, r, at)
	case *protocol.DebugStart:
		e.paused.set(workspace, true)
		return protocol.OK(protocol.EmptyBody{}), nil
	case *protocol.DebugStop:
		e.paused.set(workspace, false)
		e.loops.wake()
		return protocol.OK(protocol.EmptyBody{}), nil
	case *protocol.DebugReset:
		return protocol.OK(protocol.EmptyBody{}), e.reset(ctx, workspace)
	case *protocol.DebugSnap:
		return e.snap(ctx, workspace, at)
	case *protocol.DebugTick:
		at.debug = &r.Time
		return protocol.OK(protocol.TickBody{}), e.debugTick(ctx, workspace, at)
	}
	if !machine.Writes(req.Kind()) {
		return e.read(ctx, workspace, req, at)
	}
	return e.write(ctx, workspace, req, at)
}

// write answers a request in a read-write transaction.
func (e *Engine) write(ctx context.Context, workspace string, req protocol.Request, at instant) (reply protocol.Reply, err error) {
	if err := e.ensureWorkspace(ctx, workspace); err != nil {
		return protocol.Reply{}, err
	}
	reply, err = e.apply(ctx, workspace, req, at)
	if r, ok := req.(*protocol.TaskSuspend); ok && errors.Is(err, kv.ErrTooLarge) {
		return e.suspendInParts(ctx, workspace, r, at)
	}
	return reply, err
}

// suspendPart is how many callbacks one transaction of a suspend in parts registers: each may rewrite a record
// of 36 KiB.
const suspendPart = 100

// suspendInParts is a suspend whose callbacks do not fit into one transaction: an SDK cannot split it, so the
// server does. The guards are checked for all first, so that a refused one changes nothing.
func (e *Engine) suspendInParts(ctx context.Context, workspace string, r *protocol.TaskSuspend, at instant) (reply protocol.Reply, err error) {
	answered := false
	part := func(ids []string) error {
		return e.update(ctx, workspace, at, request(r.Kind()), func(op *machine.Op, _ *store.Txn) (err error) {
			reply, answered, err = op.SuspendPart(r, ids)
			return err
		})
	}
	if err := part(nil); err != nil || answered {
		return reply, err
	}
	for ids := range slices.Chunk(r.Awaited, suspendPart) {
		if err := part(ids); err != nil || answered {
			return reply, err
		}
	}
	err = e.update(ctx, workspace, at, request(r.Kind()), func(op *machine.Op, _ *store.Txn) (err error) {
		reply, err = op.SuspendRegistered(r)
		return err
	})
	return reply, err
}

// work is what an update is for.
type work struct {
	cause      journal.Cause // as journal entries name it
	background bool          // no client waits for it
	// reads names what it will probably read, as kv.Hints.Prefetch; asked only if the store makes use of that.
	reads func(keyspace.Keys) []kv.Range
}

// request is the work of a request.
func request(kind protocol.Kind) work { return work{cause: journal.Cause(kind)} }

// reading is w with the objects that it reads.
func (w work) reading(ids ...string) work {
	w.reads = func(k keyspace.Keys) []kv.Range { return readsOfObjects(k, ids...) }
	return w
}

// update runs fn as one operation in a read-write transaction, at an instant that is read within it and is
// covered by the clock's durable ceiling when the operation is acknowledged. A commit whose outcome the
// store cannot tell at once is resolved before update gives up.
func (e *Engine) update(ctx context.Context, workspace string, at instant, w work, fn func(*machine.Op, *store.Txn) error) error {
	var ticket *ticket
	var ceiling int64
	hints := kv.Hints{Background: w.background, Lane: workspace}
	if e.prefetches && w.reads != nil {
		keys := keyspace.For(workspace, e.layout)
		if hints.Prefetch = w.reads(keys); at.debug != nil {
			hints.Prefetch = append(hints.Prefetch, kv.Only(keys.DebugClock()))
		}
	}
	_, err := kv.Run(ctx, e.store, hints, func(tx kv.Tx) error {
		now, raise, err := at.enter(tx, &ticket)
		if err != nil {
			return err
		}
		ceiling = raise
		txn := store.Write(tx, workspace, e.layout).Caused(w.cause, now)
		if e.shared {
			txn.SignedBy(e.opt.ServerID)
		}
		return fn(&machine.Op{State: txn, Now: now, Config: e.config, ClaimedSince: at.claimedSince()}, txn)
	})
	if err != nil {
		err = e.resolve(ctx, err)
	}
	if err == nil && ceiling > 0 {
		e.clock.raised(ceiling)
	}
	e.clock.leave(ticket)
	return err
}

// read answers a request from a snapshot. If the answer shows a promise as settled by its deadline alone,
// an operation that began before that deadline may still be about to settle it otherwise; then the answer is
// worked out again once no such operation is under way.
func (e *Engine) read(ctx context.Context, workspace string, req protocol.Request, at instant) (reply protocol.Reply, err error) {
	if at.debug != nil && !isSearch(req.Kind()) {
		// Time is an input here, and only the writers' order makes it go forward for everybody.
		return e.apply(ctx, workspace, req, at)
	}
	err = e.settled(ctx, workspace, at, func(try int) (expired []string, err error) {
		reply, err = e.view(ctx, workspace, at, req, func(op *machine.Op, _ kv.Snapshot) (protocol.Reply, error) {
			reply, err := op.Apply(req)
			expired = e.restsOn(req.Kind(), at, op, try)
			return reply, err
		})
		return expired, err
	})
	return reply, err
}

// view works the answer to a request out on a snapshot, as read says; fn may run several times.
func (e *Engine) view(ctx context.Context, workspace string, at instant, req protocol.Request, fn func(*machine.Op, kv.Snapshot) (protocol.Reply, error)) (protocol.Reply, error) {
	now, err := at.forRead(ctx)
	if err != nil {
		return protocol.Reply{}, err
	}
	foreseen := func(k keyspace.Keys) []kv.Range { return readsOf(k, req) }
	for settled := false; ; settled = true {
		var reply protocol.Reply
		op := machine.Op{Now: now, Config: e.config}
		err := e.snapshotOnce(ctx, workspace, foreseen, func(s kv.Snapshot) (err error) {
			op.State = store.Read(s, workspace, e.layout)
			reply, err = fn(&op, s)
			return err
		})
		// With a debug time the answer is final as it is: writers with one are in the order of their instants.
		if err != nil || !op.Projected || settled || at.debug != nil {
			return reply, err
		}
		if err := e.clock.settle(ctx, now); err != nil {
			return protocol.Reply{}, err
		}
	}
}

func isSearch(k protocol.Kind) bool {
	return k == protocol.KindPromiseSearch || k == protocol.KindTaskSearch || k == protocol.KindScheduleSearch
}

// apply is one request in the order of the writers.
func (e *Engine) apply(ctx context.Context, workspace string, req protocol.Request, at instant) (reply protocol.Reply, err error) {
	w := request(req.Kind())
	w.reads = func(k keyspace.Keys) []kv.Range { return readsOf(k, req) }
	err = e.settled(ctx, workspace, at, func(try int) (expired []string, err error) {
		err = e.update(ctx, workspace, at, w, func(op *machine.Op, _ *store.Txn) (err error) {
			if reply, err = op.Apply(req); err != nil {
				return err
			}
			if expired = e.restsOn(req.Kind(), at, op, try); expired != nil {
				return errRestsOnDeadlines
			}
			return nil
		})
		if errors.Is(err, errRestsOnDeadlines) {
			return expired, nil
		}
		return nil, err
	})
	return reply, err
}

// Ready reports nil if the store answers and the loops are alive.
func (e *Engine) Ready(ctx context.Context) error {
	err := e.store.View(ctx, func(s kv.Snapshot) error {
		_, err := s.Get(keyspace.Format())
		return err
	})
	if err != nil {
		return err
	}
	if err := e.readiness(); err != nil {
		return err
	}
	return e.loops.health(e.opt.Source.Mono())
}
