package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/memkv"
	"abide/protocol"
)

// retained lists a workspace's journal from its floor on.
func (f *fixture) retained(workspace string) (entries []kv.JournalEntry, floor kv.EntryPosition) {
	f.t.Helper()
	partition := keyspace.For(workspace, f.layout).Partition()
	err := f.store.View(context.Background(), func(s kv.Snapshot) (err error) {
		if floor, err = kv.Floor(s, partition); err != nil {
			return err
		}
		entries, err = s.Journal(partition, floor, 5000)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return entries, floor
}

// retainAll makes passes until a round has nothing left to do.
func (f *fixture) retainAll() (passes int) {
	f.t.Helper()
	for more := true; more; passes++ {
		var err error
		if more, err = f.Retain(context.Background()); err != nil {
			f.t.Fatal(err)
		}
		if passes > 1000 {
			f.t.Fatal("retention never has enough")
		}
	}
	return passes
}

// keeping sets what a fixture's engine keeps.
func (f *fixture) keeping(ageMs, entries int64) {
	f.retention = journal.Retention{AgeMs: ageMs, Entries: entries}
	f.retainer = retainer{}
}

// create makes n promises, each one journal entry, in a workspace.
func (f *fixture) create(workspace, prefix string, n int) {
	f.t.Helper()
	for i := range n {
		r := f.Do(context.Background(), workspace, &protocol.PromiseCreate{ID: fmt.Sprintf("%s%d", prefix, i), TimeoutAt: far}, nil)
		if r.Status != 200 {
			f.t.Fatal(r)
		}
	}
}

// Under continuous load the journal stays within its bound, the floor only rises, and the newest entries are kept.
func TestJournalStaysWithinItsNumber(t *testing.T) {
	f, _ := newHooked(t)
	f.keeping(far, 100)
	var last kv.EntryPosition
	for round := range 20 {
		f.create("default", fmt.Sprintf("r%d.", round), 40)
		f.retainAll()
		entries, floor := f.retained("default")
		if len(entries) > 100 || (round > 5 && len(entries) < 99) {
			t.Errorf("round %d: %d entries are kept", round, len(entries))
		}
		if floor.Compare(last) < 0 || (round > 5 && floor.Compare(last) == 0) {
			t.Errorf("round %d: the floor went from %v to %v", round, last, floor)
		}
		last = floor
		newest, err := keyspace.Entry(entries[len(entries)-1].Record)
		if want := fmt.Sprintf("r%d.39", round); err != nil || newest.ID != want {
			t.Errorf("the newest entry is of %q, want %q (%v)", newest.ID, want, err)
		}
	}
	if n := f.Counts().Compacted; n != 700 {
		t.Errorf("%d entries are counted as removed", n)
	}
	// Whoever stopped reading before the floor is told so, and where it is.
	err := f.store.View(context.Background(), func(s kv.Snapshot) error {
		_, err := s.Journal(keyspace.For("default", f.layout).Partition(), kv.EntryPosition{}, 1)
		return err
	})
	var expired *kv.Error
	if !errors.Is(err, kv.ErrExpired) || !errors.As(err, &expired) || expired.Floor != last {
		t.Errorf("a reader below the floor: %v", err)
	}
}

// What is too old goes, in every workspace, paused ones included, and none holds up another.
func TestJournalStaysWithinItsAge(t *testing.T) {
	f, _ := newHooked(t)
	f.keeping(1000, 1_000_000)
	f.do(200, &protocol.DebugStart{})
	workspaces := []string{"default"}
	for i := range retainWorkspaces + 10 {
		workspaces = append(workspaces, fmt.Sprintf("w%d", i))
	}
	for _, w := range workspaces {
		f.create(w, "old", 3)
	}
	f.clock.advance(900 * time.Millisecond)
	for _, w := range workspaces {
		f.create(w, "new", 2)
	}
	f.clock.advance(200 * time.Millisecond)
	if passes := f.retainAll(); passes != 2 {
		t.Errorf("%d passes over %d workspaces", passes, len(workspaces))
	}
	for _, w := range workspaces {
		if entries, _ := f.retained(w); len(entries) != 2 {
			t.Errorf("%s keeps %d entries", w, len(entries))
		}
	}
	f.clock.advance(time.Hour)
	f.retainAll()
	for _, w := range workspaces {
		if entries, _ := f.retained(w); len(entries) != 0 {
			t.Errorf("%s keeps %d entries for ever", w, len(entries))
		}
	}
}

// A pass does a bounded share of a long journal and comes back soon; a journal without end does not keep the others
// waiting; and a new life of the server finds its place again.
func TestRetentionIsBounded(t *testing.T) {
	f, s := newHooked(t)
	const entries = retainPage*retainPages + 3*kv.MaxCompactionEntries
	partition := keyspace.For("busy", f.layout).Partition()
	f.create("busy", "p", 1)
	f.create("calm", "p", 1)
	for done := 0; done < entries; done += 2000 {
		if _, err := s.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
			for range min(2000, entries-done) {
				e := journal.Entry{ID: "q", To: journal.State{Promise: protocol.Pending}, At: 1}
				if err := tx.Append(partition, keyspace.AppendEntry(nil, &e)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	f.damaged = true // its journal says things that never happened
	f.keeping(1000, 1_000_000)
	f.clock.advance(time.Hour)
	updates := s.updates.Load()
	if more, err := f.Retain(context.Background()); err != nil || !more {
		t.Errorf("more: %t, %v", more, err)
	}
	if n := s.updates.Load() - updates; n == 0 || n > retainSteps {
		t.Errorf("%d transactions in one pass", n)
	}
	f.retainer = retainer{} // another life
	f.retainAll()
	f.retainAll()
	for _, w := range []string{"busy", "calm"} {
		if left, _ := f.retained(w); len(left) != 0 {
			t.Errorf("%s keeps %d entries", w, len(left))
		}
	}
}

// Compaction yields to requests.
func TestRetentionIsBackgroundWork(t *testing.T) {
	f, s := newHooked(t)
	f.keeping(far, 1)
	f.create("default", "p", 10)
	n := 0
	s.set(func(s *hooked) {
		s.before = func(h kv.Hints) error {
			if n++; !h.Background {
				t.Error("retention writes as a request")
			}
			return nil
		}
	})
	f.retainAll()
	s.set(func(s *hooked) { s.before = nil })
	if n != 1 {
		t.Errorf("%d transactions for ten entries", n)
	}
}

// An entry that does not decode goes like any other; a floor that does not, keeps nobody else from being compacted.
func TestRetentionMeetsDamage(t *testing.T) {
	f, _ := newHooked(t)
	f.damaged = true
	f.keeping(far, 2)
	damaged := keyspace.For("damaged", f.layout).Partition()
	for _, w := range []string{"damaged", "good", "other"} {
		f.create(w, "p", 5)
	}
	if _, err := f.store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		return errors.Join(tx.Append(keyspace.For("good", f.layout).Partition(), []byte("nonsense")),
			tx.Put(kv.FloorKey(damaged), []byte("nonsense")))
	}); err != nil {
		t.Fatal(err)
	}
	f.retainAll()
	for _, w := range []string{"good", "other"} {
		if entries, _ := f.retained(w); len(entries) != 2 {
			t.Errorf("%s keeps %d entries", w, len(entries))
		}
	}
	if f.Counts().Failures != 1 {
		t.Errorf("%d failures", f.Counts().Failures)
	}
}

// When the store fails, the pass ends with its error and the next one goes on.
func TestRetentionMeetsAFailingStore(t *testing.T) {
	f, s := newHooked(t)
	f.keeping(far, 1)
	f.create("default", "p", 10)
	s.set(func(s *hooked) {
		s.before = func(kv.Hints) error { return &kv.Error{Is: kv.ErrUnavailable, Store: "test", Op: "update"} }
	})
	if _, err := f.Retain(context.Background()); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	s.set(func(s *hooked) { s.before = nil })
	f.retainAll()
	f.retainAll()
	if entries, _ := f.retained("default"); len(entries) != 1 {
		t.Errorf("%d entries", len(entries))
	}
}

// The loop runs by itself, and says so to whoever asks for the server's health.
func TestRetentionLoop(t *testing.T) {
	inner := memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register()})
	defer inner.Close()
	e, err := Open(context.Background(), inner, Options{JournalEntries: 5})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Engine: e, t: t, store: inner}
	f.create("default", "p", 200)
	e.Start(nil)
	defer e.Stop(context.Background())
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if entries, _ := f.retained("default"); len(entries) == 5 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the journal was not compacted")
		}
	}
	if err := e.loops.health(e.opt.Source.Mono() + loopStale + time.Hour); err == nil || !strings.Contains(err.Error(), "loop has had no good pass") {
		t.Errorf("health: %v", err)
	}
	var names []string
	for _, h := range e.loops.alive {
		names = append(names, h.name)
	}
	if !strings.Contains(strings.Join(names, " "), "journal") {
		t.Errorf("loops: %v", names)
	}
}
