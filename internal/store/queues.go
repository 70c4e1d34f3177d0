package store

import (
	"context"
	"errors"

	"abide/internal/keyspace"
	"abide/kv"
)

// Limits of one look of a Watch.
const (
	// MaxQueueRows is how many queued messages of each kind a look reads. A longer queue is read in several looks.
	MaxQueueRows = 4000
	// MaxQueueJournals is how many workspaces' journals a look reads.
	MaxQueueJournals = 64
	// MaxQuarantineCount is how many quarantined rows are counted.
	MaxQuarantineCount = 1000
	// queuePage is how many rows are read in one snapshot, each with its record.
	queuePage = 500
)

// Queues is how much waits in a store, and for how long. Ages are in milliseconds; 0 where nothing waits.
type Queues struct {
	// OverdueMs is how long the oldest due timer of each kind is due.
	OverdueMs map[keyspace.TimerKind]int64
	// Executes and Unblocks are the messages that have not been delivered, and the age of the oldest. Of a queue that
	// takes several looks, what the last whole round has found, or this one if that is more.
	Executes, Unblocks Queue
	// JournalLagMs is how much older than the retention age the oldest entry of a journal is that is still kept. The
	// same holds for it in a store of many workspaces.
	JournalLagMs int64
	// Quarantined is how many rows are set aside, at most MaxQuarantineCount.
	Quarantined int64
}

// Queue is one queue of messages.
type Queue struct {
	Messages int64
	OldestMs int64
}

// Watch looks at the queues of a store. Every look is bounded, and goes on where the last one ended. Not safe for
// concurrent use.
type Watch struct {
	Store  kv.Store
	Layout keyspace.Layout
	// RetryTimeoutMs and JournalAgeMs are the engine's options: a queued task says when it will be sent again.
	RetryTimeoutMs int64
	JournalAgeMs   int64

	executes, unblocks, journals round
}

// round goes round a range, in several looks if it must.
type round struct {
	after     []byte // where the round stands; nil: about to begin
	now, last Queue  // what this round has found, and the last whole one
}

// Look reads the queues at an instant, epoch ms. Rows that do not decode are passed over: the engine sets them aside.
// Errors: the store's.
func (w *Watch) Look(ctx context.Context, now int64) (q Queues, err error) {
	q.OverdueMs = map[keyspace.TimerKind]int64{}
	err = w.Store.View(ctx, func(s kv.Snapshot) error {
		clear(q.OverdueMs)
		for _, kind := range keyspace.TimerKinds {
			for shard := range w.Layout.Shards {
				due, err := s.Scan(keyspace.Timers(kind, shard, now), 1)
				if err != nil {
					return err
				}
				for _, row := range due {
					if t, err := keyspace.ParseTimer(row.Key); err == nil {
						q.OverdueMs[kind] = max(q.OverdueMs[kind], now-t.DueAt)
					}
				}
			}
		}
		aside, err := s.Scan(keyspace.Quarantine(), MaxQuarantineCount)
		q.Quarantined = int64(len(aside))
		return err
	})
	if err != nil {
		return q, err
	}
	if q.Executes, err = w.executes.look(ctx, w.Store, keyspace.AllExecutes(), MaxQueueRows, w.executeAge(now)); err != nil {
		return q, err
	}
	if q.Unblocks, err = w.unblocks.look(ctx, w.Store, keyspace.AllUnblocks(), MaxQueueRows, w.unblockAge(now)); err != nil {
		return q, err
	}
	lag, err := w.journals.look(ctx, w.Store, keyspace.Workspaces(), MaxQueueJournals, w.journalLag(now))
	q.JournalLagMs = lag.OldestMs
	return q, err
}

// look reads at most limit rows further. age says how old what a row stands for is; ok is false for a row that does not count.
func (r *round) look(ctx context.Context, s kv.Store, all kv.Range, limit int,
	age func(s kv.Snapshot, row kv.Entry) (ms int64, ok bool, err error)) (Queue, error) {
	for read := 0; read < limit; {
		next, n, found := all, 0, Queue{}
		if r.after != nil {
			next = keyspace.After(all, r.after)
		}
		var last []byte
		page := min(queuePage, limit-read)
		err := s.View(ctx, func(v kv.Snapshot) error {
			found = Queue{}
			rows, err := v.Scan(next, page)
			if err != nil {
				return err
			}
			n = len(rows)
			for _, row := range rows {
				last = row.Key
				ms, ok, err := age(v, row)
				switch {
				case errors.Is(err, kv.ErrCorrupt):
				case err != nil:
					return err
				case ok:
					found.Messages++
					found.OldestMs = max(found.OldestMs, ms)
				}
			}
			return nil
		})
		if err != nil {
			return Queue{}, err
		}
		read += n
		r.now.Messages += found.Messages
		r.now.OldestMs = max(r.now.OldestMs, found.OldestMs)
		if r.after = last; n < page {
			r.last, r.now, r.after = r.now, Queue{}, nil
			return r.last, nil
		}
	}
	return Queue{Messages: max(r.last.Messages, r.now.Messages), OldestMs: max(r.last.OldestMs, r.now.OldestMs)}, nil
}

// executeAge is how long a task's execute is queued: its record holds when it would be sent again after a delivery now.
func (w *Watch) executeAge(now int64) func(kv.Snapshot, kv.Entry) (int64, bool, error) {
	return func(s kv.Snapshot, row kv.Entry) (int64, bool, error) {
		at, err := keyspace.ParseRow(row.Key, row.Value)
		if err != nil {
			return 0, false, err
		}
		o, err := Read(s, at.Workspace, w.Layout).Object(at.ID)
		if err != nil || o == nil || o.Task == nil || !o.Task.Queued {
			return 0, false, err
		}
		return max(0, now-(o.Task.RetryAt-w.RetryTimeoutMs)), true, nil
	}
}

// unblockAge is how long an unblock message is queued.
func (w *Watch) unblockAge(now int64) func(kv.Snapshot, kv.Entry) (int64, bool, error) {
	return func(s kv.Snapshot, row kv.Entry) (int64, bool, error) {
		u, err := keyspace.ParseUnblockEntry(row.Key, row.Value)
		if err != nil {
			return 0, false, err
		}
		queued, ok, err := Read(s, u.Workspace, w.Layout).UnblockDueAt(u.ID, u.Address)
		return max(0, now-queued), ok, err
	}
}

// journalLag is by how much the oldest entry of a workspace's journal is over the retention age.
func (w *Watch) journalLag(now int64) func(kv.Snapshot, kv.Entry) (int64, bool, error) {
	return func(s kv.Snapshot, row kv.Entry) (int64, bool, error) {
		at, err := keyspace.ParseRow(row.Key, row.Value)
		if err != nil {
			return 0, false, err
		}
		partition := keyspace.For(at.Workspace, w.Layout).Partition()
		floor, err := kv.Floor(s, partition)
		if err != nil {
			return 0, false, err
		}
		oldest, err := s.Scan(kv.EntriesAfter(partition, floor), 1)
		if err != nil || len(oldest) == 0 {
			return 0, false, err
		}
		entry, err := keyspace.Entry(oldest[0].Value)
		if err != nil {
			return 0, false, err
		}
		return max(0, now-entry.At-w.JournalAgeMs), true, nil
	}
}
