package engine

import (
	"context"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

// resetRows is how many rows one transaction of debug.reset deletes, each with its entries: an object with the
// longest names and as many tags as are indexed calls for about 45 KiB of keys, a transaction has 4 MiB.
const resetRows = 50

// debugTick runs exactly one pass of the internal steps at a debug time, on one workspace: open drain
// obligations, promise timeouts with their drains, dispatches, lease expiries, schedules. What is due is
// collected as each stage begins; what becomes due because of this pass waits for the next.
// (docs/machine.md section 4, "Order in one pass")
func (e *Engine) debugTick(ctx context.Context, workspace string, at instant) error {
	now, err := at.forRead(ctx)
	if err != nil {
		return err
	}
	for _, kind := range keyspace.TimerKinds {
		if kind == keyspace.TimerRetry {
			if err := e.dispatchAgain(ctx, workspace, now, at); err != nil {
				return err
			}
			continue
		}
		steps, err := e.dueIn(ctx, workspace, kind, now)
		if err != nil {
			return err
		}
		for _, s := range steps {
			if _, err := e.fire(ctx, s, at); err != nil {
				return err
			}
			if kind != keyspace.TimerPromise {
				continue
			}
			key := keyspace.For(workspace, e.layout).DeriveDrain(s.ID).Key
			drain := Step{keyspace.Timer{Key: key, Kind: keyspace.TimerDrain, Workspace: workspace, ID: s.ID}}
			if _, err := e.fire(ctx, drain, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// dueIn lists what is due of one kind in one workspace.
func (e *Engine) dueIn(ctx context.Context, workspace string, kind keyspace.TimerKind, now int64) ([]Step, error) {
	var steps []Step
	for shard := range e.layout.Shards {
		_, err := e.due(ctx, kind, shard, now, func(t keyspace.Timer) bool {
			if t.Workspace == workspace {
				steps = append(steps, Step{t})
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// dispatchAgain dispatches every pending task whose retry has come, queued ones included. It scans the open
// tasks, since a queued task has no timer.
func (e *Engine) dispatchAgain(ctx context.Context, workspace string, now int64, at instant) error {
	var ids []string
	for after, more := "", true; more; {
		var page machine.Page
		err := e.store.View(ctx, func(s kv.Snapshot) (err error) {
			page, err = store.Read(s, workspace, e.layout).Enumerate(machine.Path{Kind: machine.PathOpenTasks}, after, duePage)
			return err
		})
		if err != nil {
			return err
		}
		for _, o := range page.Objects {
			if o.Task != nil && o.Task.State == protocol.TaskPending && o.Task.RetryAt <= now {
				ids = append(ids, o.ID)
			}
		}
		after, more = page.Next, page.Next != ""
	}
	for _, id := range ids {
		err := e.update(ctx, workspace, at, work{}.reading(id), func(op *machine.Op, _ *store.Txn) error {
			_, err := op.Dispatch(id, true)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// reset deletes everything in a workspace, and its debug clock, in bounded transactions. The journal stays and
// records every deletion: whoever follows it learns of the reset.
func (e *Engine) reset(ctx context.Context, workspace string) error {
	keys := keyspace.For(workspace, e.layout)
	// Schedules first, or one that catches up would make new promises all the while.
	schedules := keys.Schedules()
	err := e.clear(ctx, workspace, schedules, func(txn *store.Txn, tx kv.Tx, row kv.Entry) error {
		id, err := keyspace.ParseLast(schedules, row.Key)
		if err != nil {
			return tx.Delete(row.Key)
		}
		return txn.RemoveSchedule(id)
	})
	if err != nil {
		return err
	}
	err = e.clear(ctx, workspace, keys.All(), func(txn *store.Txn, _ kv.Tx, row kv.Entry) error { return txn.Remove(row) })
	if err != nil {
		return err
	}
	_, err = kv.Run(ctx, e.store, kv.Hints{Lane: workspace}, func(tx kv.Tx) error { return tx.Delete(keys.DebugClock()) })
	return err
}

// clear removes the rows of a range, resetRows at a time.
func (e *Engine) clear(ctx context.Context, workspace string, r kv.Range, remove func(*store.Txn, kv.Tx, kv.Entry) error) error {
	for more := true; more; {
		_, err := kv.Run(ctx, e.store, kv.Hints{Lane: workspace}, func(tx kv.Tx) error {
			rows, err := tx.Scan(r, resetRows)
			if err != nil {
				return err
			}
			txn := store.Write(tx, workspace, e.layout).Caused(journal.Cause(protocol.KindDebugReset), e.clock.now())
			for _, row := range rows {
				if err := remove(txn, tx, row); err != nil {
					return err
				}
			}
			more = len(rows) == resetRows
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
