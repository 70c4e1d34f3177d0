package engine

import (
	"context"
	"sync"
	"time"

	"abide/internal/keyspace"
	"abide/kv"
)

// instant decides at which time an operation runs: the server's clock, or a debug time.
type instant struct {
	engine    *Engine
	workspace string
	debug     *int64
}

// enter reads the operation's instant within its transaction, so that instants follow the order of the
// transactions. On the real clock it also persists a higher ceiling if the instant needs one, and returns
// that; the caller tells the clock once it is durable.
func (i instant) enter(tx kv.Tx, t **ticket) (now, ceiling int64, err error) {
	if i.debug != nil {
		now, err = i.raiseMark(tx)
		return now, 0, err
	}
	now, ceiling = i.engine.clock.enter(t)
	if ceiling > 0 {
		err = tx.Put(keyspace.Server(i.engine.opt.ServerID), keyspace.AppendInstant(nil, ceiling))
	}
	return now, ceiling, err
}

// raiseMark is the debug time, raised to the workspace's largest debug instant, which it becomes.
func (i instant) raiseMark(tx kv.Tx) (int64, error) {
	key := keyspace.For(i.workspace, i.engine.layout).DebugClock()
	b, err := tx.Get(key)
	if err != nil {
		return 0, err
	}
	if b != nil {
		mark, err := keyspace.Instant("debug clock", b)
		if err != nil || mark >= *i.debug {
			return mark, err
		}
	}
	return *i.debug, tx.Put(key, keyspace.AppendInstant(nil, *i.debug))
}

// forRead is the instant of an operation that only reads. It waits for a raise of the ceiling, or of the
// workspace's debug mark, if the instant needs one.
func (i instant) forRead(ctx context.Context) (int64, error) {
	e := i.engine
	if i.debug == nil {
		now := e.clock.now()
		return now, e.raiseCeiling(ctx, now)
	}
	var now int64
	_, err := kv.Run(ctx, e.store, kv.Hints{Lane: i.workspace}, func(tx kv.Tx) (err error) {
		now, err = i.raiseMark(tx)
		return err
	})
	return now, err
}

// claimedSince is the instant from which on an empty heartbeat vouches for claims. Debug instants cannot be
// compared with this life's begin; with one, every claim counts.
func (i instant) claimedSince() int64 {
	if i.debug != nil {
		return 0
	}
	if i.engine.shared {
		// A claim is vouched for by whichever server; what was lost with one that died, none vouches for.
		if s := i.engine.members.standing.Load(); s != nil {
			return s.roster.LostMs
		}
	}
	return i.engine.born
}

// raiseCeiling makes a ceiling durable that covers an instant.
func (e *Engine) raiseCeiling(ctx context.Context, now int64) error {
	if e.clock.covered(now) {
		return nil
	}
	e.raising.Lock()
	defer e.raising.Unlock()
	if e.clock.covered(now) {
		return nil
	}
	var ceiling int64
	_, err := kv.Run(ctx, e.store, kv.Hints{}, func(tx kv.Tx) error {
		// Read within the transaction, as the writers do: then ceilings rise in the order of the commits, and
		// this one never replaces a higher one that a writer has made durable meanwhile.
		ceiling = e.clock.now() + ceilingAhead.Milliseconds()
		return tx.Put(keyspace.Server(e.opt.ServerID), keyspace.AppendInstant(nil, ceiling))
	})
	if err == nil {
		e.clock.raised(ceiling)
	}
	return err
}

// pauses are the workspaces between debug.start and debug.stop. A process starts with none.
type pauses struct {
	mu    sync.RWMutex
	names map[string]bool
}

func (p *pauses) set(workspace string, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = map[string]bool{}
	}
	if paused {
		p.names[workspace] = true
	} else {
		delete(p.names, workspace)
	}
}

func (p *pauses) has(workspace string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.names[workspace]
}

// realTime is the machine's own clock.
type realTime struct{ start time.Time }

func newRealTime() realTime { return realTime{start: time.Now()} }

func (realTime) Wall() time.Time       { return time.Now() }
func (r realTime) Mono() time.Duration { return time.Since(r.start) }

func (realTime) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
