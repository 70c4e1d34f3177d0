package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
)

const (
	// duePage is how many due entries are read at once.
	duePage = 256
	// duePerPass bounds what one pass of the loop takes of one kind and shard, so that no kind waits for
	// another's backlog.
	duePerPass = 4 * duePage
)

// Step is one internal step that is due: a timer entry that fires. It may be stale, late or a duplicate.
type Step struct {
	keyspace.Timer
}

// counters count what an operator wants to see; all of them only grow.
type counters struct {
	quarantined atomic.Int64                             // rows set aside
	steps       [keyspace.TimerSchedule + 1]atomic.Int64 // internal steps done, by the kind of their timer
	failures    atomic.Int64                             // internal steps that failed and will be tried again
	expired     atomic.Int64                             // unblock messages given up
	swept       atomic.Int64                             // expired promises that nobody had armed
	compacted   atomic.Int64                             // journal entries removed
}

// Counts is a reading of the engine's counters since the process started.
type Counts struct {
	Quarantined, Steps, Failures, ExpiredUnblocks, Swept, Compacted int64
	// StepsOf are the Steps by the kind of their timer. A stale one counts.
	StepsOf [keyspace.TimerSchedule + 1]int64
}

// Counts reads the counters.
func (e *Engine) Counts() Counts {
	c := Counts{
		Quarantined: e.counts.quarantined.Load(), Failures: e.counts.failures.Load(),
		ExpiredUnblocks: e.counts.expired.Load(), Swept: e.counts.swept.Load(), Compacted: e.counts.compacted.Load(),
	}
	for kind := range c.StepsOf {
		c.StepsOf[kind] = e.counts.steps[kind].Load()
		c.Steps += c.StepsOf[kind]
	}
	return c
}

// Now is the instant that the timer loop judges by.
func (e *Engine) Now() int64 { return e.clock.now() }

// Tick plans one pass of the internal steps at an instant: what is due, kind by kind and shard by shard, at
// most duePerPass of each. Steps of workspaces that debug.start has paused are left out. more reports whether
// a bound was reached, so that another pass should follow at once. The caller runs the steps with Fire, in any
// order and at any time.
func (e *Engine) Tick(ctx context.Context, now int64) (steps []Step, more bool, err error) {
	for _, kind := range keyspace.TimerKinds {
		for shard := range e.layout.Shards {
			n := 0
			full, err := e.due(ctx, kind, shard, now, func(t keyspace.Timer) bool {
				if !e.paused.has(t.Workspace) {
					steps = append(steps, Step{t})
					n++
				}
				return n < duePerPass
			})
			if err != nil {
				return nil, false, err
			}
			more = more || full
		}
	}
	return steps, more, nil
}

// due gives the due entries of one kind and shard to take, in the order of their instants, until take
// declines; it reports whether take declined. An entry whose key does not parse is set aside.
func (e *Engine) due(ctx context.Context, kind keyspace.TimerKind, shard, now int64, take func(keyspace.Timer) bool) (declined bool, err error) {
	all := keyspace.Timers(kind, shard, now)
	for from := all; ; {
		var rows []kv.Entry
		err := e.firstOf(ctx, []kv.Range{from}, duePage, func(s kv.Snapshot) (err error) {
			rows, err = s.Scan(from, duePage)
			return err
		})
		if err != nil {
			return false, err
		}
		for _, row := range rows {
			t, err := keyspace.ParseTimer(row.Key)
			if err != nil {
				if _, err := e.quarantine(ctx, row.Key, err); err != nil {
					return false, err
				}
				continue
			}
			if !take(t) {
				return true, nil
			}
		}
		if len(rows) < duePage {
			return false, nil
		}
		from = keyspace.After(all, rows[len(rows)-1].Key)
	}
}

// Fire does one internal step. A row that does not decode or breaks an invariant is set aside and counted,
// so that it holds up nobody else; that is not an error. Errors are the store's; the step stays due.
func (e *Engine) Fire(ctx context.Context, s Step) error {
	_, err := e.fire(ctx, s, instant{engine: e, workspace: s.Workspace})
	return err
}

// fire is Fire at an instant. more: the step was a bounded part, and the entry stands for the rest. With a debug
// time the whole is done.
func (e *Engine) fire(ctx context.Context, s Step, at instant) (more bool, err error) {
	w := work{cause: causes[s.Kind], background: at.debug == nil,
		reads: func(k keyspace.Keys) []kv.Range { return readsOfTimer(k, s.Timer) }}
	for {
		var damaged []byte
		err := e.update(ctx, s.Workspace, at, w, func(op *machine.Op, txn *store.Txn) (err error) {
			more, err = advance(op, txn, s.Timer)
			damaged = txn.Damaged()
			return err
		})
		if errors.Is(err, kv.ErrCorrupt) || errors.Is(err, machine.ErrInvariant) {
			again, err := e.setAside(ctx, s, damaged, err)
			if again {
				continue
			}
			return false, err
		}
		if err != nil {
			return false, err
		}
		e.counts.steps[s.Kind].Add(1)
		// The real-time loop comes back for what is left; debug.tick does the whole of it in one pass.
		if !more || at.debug == nil {
			return more, nil
		}
	}
}

// causes are the names under which the steps stand in the journal. A dispatch changes no state.
var causes = map[keyspace.TimerKind]journal.Cause{
	keyspace.TimerDrain: journal.CauseDrain, keyspace.TimerPromise: journal.CauseTimeout,
	keyspace.TimerLease: journal.CauseLease, keyspace.TimerSchedule: journal.CauseSchedule,
}

// advance does the step that a timer entry stands for, or the next bounded part of it. An entry that its
// record no longer calls for is removed: where an index may be a superset, whoever meets a stale entry
// clears it away.
func advance(op *machine.Op, txn *store.Txn, t keyspace.Timer) (more bool, err error) {
	did := false
	switch t.Kind {
	case keyspace.TimerDrain:
		more, err = op.Drain(t.ID)
	case keyspace.TimerPromise:
		if did, err = op.PromiseTimeout(t.ID); err == nil && did {
			return false, nil
		}
	case keyspace.TimerRetry:
		did, err = op.Dispatch(t.ID, false)
	case keyspace.TimerLease:
		did, err = op.LeaseExpiry(t.ID)
	case keyspace.TimerSchedule:
		more, err = op.RunSchedule(t.ID)
	}
	if err != nil || did || more {
		return more, err
	}
	return false, txn.ClearStale(t)
}

// setAside moves the row out of the way that a step could not be done for. A drain that meets a damaged waiter,
// or one whose task is damaged, gives up that waiter alone: again reports that the step can be tried once more.
// Any other step gives up its own entry.
func (e *Engine) setAside(ctx context.Context, s Step, damaged []byte, reason error) (again bool, err error) {
	if s.Kind == keyspace.TimerDrain && damaged != nil {
		waiter := damaged
		if row, err := keyspace.ParseRow(damaged, nil); err == nil && row.Kind == "object" && row.ID != s.ID {
			w := machine.Waiter{Awaited: s.ID, Kind: machine.WaiterCallback, To: row.ID}
			waiter = keyspace.For(s.Workspace, e.layout).Waiter(w)
		}
		if keyspace.Kind(waiter) == "waiter" {
			if again, err = e.quarantine(ctx, waiter, reason); again || err != nil {
				return again, err
			}
		}
	}
	_, err = e.quarantine(ctx, s.Key, reason)
	return false, err
}

// quarantine moves a row that cannot be processed out of the way, keeping it whole: abide check counts such
// rows and can put them back. moved is false if it is not there any more.
func (e *Engine) quarantine(ctx context.Context, key []byte, reason error) (moved bool, err error) {
	_, err = kv.Run(ctx, e.store, kv.Hints{Background: true}, func(tx kv.Tx) error {
		value, err := tx.Get(key)
		if moved = value != nil; err != nil || !moved {
			return err
		}
		row := keyspace.QuarantinedRow{Value: value, Reason: reason.Error(), FirstSeen: e.clock.now()}
		if err := tx.Put(keyspace.Quarantined(key), keyspace.AppendQuarantined(nil, row)); err != nil {
			return err
		}
		return tx.Delete(key)
	})
	if moved = moved && err == nil; moved {
		e.counts.quarantined.Add(1)
		e.log.Error("row set aside", "kind", keyspace.Kind(key), "reason", reason)
	}
	return moved, err
}

// NextDue returns when the earliest timer is due, ok is false if none is armed. Workspaces that debug.start has
// paused are passed over.
func (e *Engine) NextDue(ctx context.Context) (dueAt int64, ok bool, err error) {
	return e.nextDue(ctx, func(keyspace.Timer) bool { return false })
}

// nextDue is NextDue without the timers that skip names.
func (e *Engine) nextDue(ctx context.Context, skip func(keyspace.Timer) bool) (dueAt int64, ok bool, err error) {
	const forever = 1<<63 - 1
	passed := func(t keyspace.Timer) bool { return e.paused.has(t.Workspace) || skip(t) }
	hidden := map[[2]int64]bool{} // kinds and shards whose first entry is to be passed over
	first := func(t keyspace.Timer) {
		if !ok || t.DueAt < dueAt {
			dueAt, ok = t.DueAt, true
		}
	}
	var ranges []kv.Range
	for _, kind := range keyspace.TimerKinds {
		for shard := range e.layout.Shards {
			ranges = append(ranges, keyspace.Timers(kind, shard, forever))
		}
	}
	err = e.firstOf(ctx, ranges, 1, func(s kv.Snapshot) error {
		dueAt, ok = 0, false
		for _, kind := range keyspace.TimerKinds {
			for shard := range e.layout.Shards {
				rows, err := s.Scan(keyspace.Timers(kind, shard, forever), 1)
				if err != nil {
					return err
				}
				if len(rows) == 0 {
					continue
				}
				if t, err := keyspace.ParseTimer(rows[0].Key); err != nil || passed(t) {
					hidden[[2]int64{int64(kind), shard}] = true
				} else {
					first(t)
				}
			}
		}
		return nil
	})
	for at := range hidden {
		if err != nil {
			break
		}
		_, err = e.due(ctx, keyspace.TimerKind(at[0]), at[1], forever, func(t keyspace.Timer) bool {
			if passed(t) {
				return true
			}
			first(t)
			return false
		})
	}
	return dueAt, ok, err
}
