package store

import (
	"fmt"
	"maps"
	"testing"

	"abide/internal/keyspace"
	"abide/kv"
	"abide/protocol"
)

func (f *fixture) look(w *Watch) Queues {
	f.t.Helper()
	w.Store, w.Layout, w.RetryTimeoutMs = f.store, layout, 30_000
	q, err := w.Look(f.t.Context(), f.now)
	if err != nil {
		f.t.Fatal(err)
	}
	return q
}

func TestQueues(t *testing.T) {
	f := newFixture(t)
	w := &Watch{JournalAgeMs: 5000}
	if q := f.look(w); len(q.OverdueMs) != 0 || q.Executes != (Queue{}) || q.Unblocks != (Queue{}) || q.JournalLagMs != 0 || q.Quarantined != 0 {
		t.Errorf("of an empty store: %+v", q)
	}
	target := tags(protocol.TagTarget, "poll://any@g")
	f.do(&protocol.PromiseCreate{ID: "a", TimeoutAt: far, Tags: target},
		&protocol.PromiseCreate{ID: "delayed", TimeoutAt: far, Tags: target.With(protocol.TagDelay, "9000")},
		&protocol.PromiseCreate{ID: "p", TimeoutAt: far},
		&protocol.PromiseRegisterListener{Awaited: "p", Address: "poll://uni@g/w"})
	f.now = 3000
	f.do(&protocol.PromiseCreate{ID: "b", TimeoutAt: far, Tags: target},
		&protocol.TaskCreate{PID: "w", TTL: 500, Action: protocol.PromiseCreate{ID: "held", TimeoutAt: far, Tags: target}},
		&protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
	f.put(keyspace.Quarantined([]byte{1}), keyspace.AppendQuarantined(nil, keyspace.QuarantinedRow{}))
	f.now = 7000
	q := f.look(w)
	if q.Executes != (Queue{2, 6000}) || q.Unblocks != (Queue{1, 4000}) || q.Quarantined != 1 || q.JournalLagMs != 2000 { // the entries of this fixture are of the instant 0
		t.Errorf("%+v", q)
	}
	if want := map[keyspace.TimerKind]int64{keyspace.TimerLease: 3500}; !maps.Equal(q.OverdueMs, want) {
		t.Errorf("overdue: %v, want %v", q.OverdueMs, want)
	}

	// What has been compacted is not behind.
	if _, _, err := kv.Compact(t.Context(), f.store, f.keys.Partition(), kv.EntryPosition{Commit: f.bound(), Index: 0}); err != nil {
		t.Fatal(err)
	}
	f.now = 7500
	if q := f.look(w); q.JournalLagMs != 0 {
		t.Errorf("after compaction the journal is %d ms behind", q.JournalLagMs)
	}
}

// bound is the last commit.
func (f *fixture) bound() (at kv.Position) {
	f.t.Helper()
	if err := f.store.View(f.t.Context(), func(s kv.Snapshot) error { at = s.Bound(); return nil }); err != nil {
		f.t.Fatal(err)
	}
	return at
}

// TestLongQueues looks at a queue that takes three looks, and at one that shrinks.
func TestLongQueues(t *testing.T) {
	f := newFixture(t)
	const n = 2*MaxQueueRows + 10
	for i := 0; i < n; {
		var page []protocol.Request
		for range 300 {
			if i < n {
				page = append(page, &protocol.PromiseCreate{ID: fmt.Sprintf("p%06d", n-i), TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")})
				i++
			}
		}
		f.do(page...)
		f.now++
	}
	w := &Watch{}
	var counted []int64
	for range 4 {
		counted = append(counted, f.look(w).Executes.Messages)
	}
	// The oldest has the last id, so that it is met in the last look of a round.
	if want := []int64{MaxQueueRows, 2 * MaxQueueRows, n, n}; fmt.Sprint(counted) != fmt.Sprint(want) {
		t.Errorf("looks count %v, want %v", counted, want)
	}
	if q := f.look(w).Executes; q.OldestMs != f.now-1000 {
		t.Errorf("the oldest is %d ms old, want %d", q.OldestMs, f.now-1000)
	}
	f.update(func(tx kv.Tx) error {
		rows, err := tx.Scan(keyspace.AllExecutes(), 4900)
		for _, row := range rows {
			if err := tx.Delete(row.Key); err != nil {
				return err
			}
		}
		return err
	})
	for range 3 {
		f.look(w)
	}
	if got := f.look(w).Executes.Messages; got != n-4900 {
		t.Errorf("after some are gone %d are counted, want %d", got, n-4900)
	}
}
