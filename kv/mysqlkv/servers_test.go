package mysqlkv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
)

// fleet is several stores on one database, with a tail of the journal through each.
type fleet struct {
	t      *testing.T
	stores []*Store

	mu        sync.Mutex
	positions map[kv.Position]string // of what was acknowledged
	tails     sync.WaitGroup
	seen      []map[string]kv.EntryPosition // by each tail
	ended     chan struct{}
}

func newFleet(t *testing.T, url string, size int) *fleet {
	f := &fleet{t: t, positions: map[kv.Position]string{}, ended: make(chan struct{})}
	for range size {
		s := openStore(t, Options{URL: url, Now: time.Now})
		t.Cleanup(func() { _ = s.Close() })
		f.stores = append(f.stores, s)
	}
	f.seen = make([]map[string]kv.EntryPosition, size)
	for i := range f.stores {
		f.seen[i] = map[string]kv.EntryPosition{}
		f.tails.Go(func() { f.tail(i) })
	}
	return f
}

// tail reads the journal as it grows. Having seen a position, it never finds a new entry at or below it: it asks only for
// what comes after, and at the end everything must have come by.
func (f *fleet) tail(i int) {
	var after kv.EntryPosition
	for last := false; ; {
		var page []kv.JournalEntry
		err := f.stores[i].View(context.Background(), func(v kv.Snapshot) (err error) {
			page, err = v.Journal([]byte("p"), after, 1000)
			if err == nil && len(page) < 1000 && !v.Bound().IsZero() {
				// All that the snapshot observes has been read.
				after = kv.EntryPosition{Commit: v.Bound(), Index: kv.AfterCommit}
			} else if len(page) > 0 {
				after = page[len(page)-1].Position
			}
			return err
		})
		if err != nil && !errors.Is(err, kv.ErrUnavailable) {
			f.t.Errorf("tail %d: %v", i, err)
			return
		}
		for _, e := range page {
			if at, ok := f.seen[i][string(e.Record)]; ok {
				f.t.Errorf("tail %d: %s came at %v and at %v", i, e.Record, at, e.Position)
			}
			f.seen[i][string(e.Record)] = e.Position
		}
		if last && err == nil && len(page) == 0 {
			return
		}
		select {
		case <-f.ended:
			last = true
		default:
		}
	}
}

// write commits through a store, and notes what was acknowledged.
func (f *fleet) write(i int, key string) {
	at, err := f.stores[i].Update(context.Background(), kv.Hints{}, counting(key))
	var known *kv.Error
	switch {
	case errors.Is(err, kv.ErrCommitUnknown) && errors.As(err, &known):
		var outcome kv.Outcome
		_ = testenv.Eventually(time.Minute, func() (err error) {
			outcome, at, err = f.stores[i].Resolve(context.Background(), known.Token)
			return err
		})
		if outcome != kv.OutcomeCommitted {
			if outcome == kv.OutcomeUnknown {
				f.t.Errorf("%s: the outcome stays unknown", key)
			}
			return
		}
	case errors.Is(err, kv.ErrUnavailable), errors.Is(err, kv.ErrConflict):
		time.Sleep(10 * time.Millisecond)
		return
	case err != nil:
		f.t.Errorf("%s: %v", key, err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if other, ok := f.positions[at]; ok {
		f.t.Errorf("%s and %s have the position %v", key, other, at)
	}
	f.positions[at] = key
}

// commits waits until that many more transactions have been acknowledged.
func (f *fleet) commits(more int) error {
	committed := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.positions)
	}
	before := committed()
	return testenv.Eventually(time.Minute, func() error {
		if n := committed(); n < before+more {
			return fmt.Errorf("only %d transactions committed, %d before", n, before)
		}
		return nil
	})
}

// check ends the tails and demands that everybody has seen exactly what was acknowledged, where it was.
func (f *fleet) check() {
	f.t.Helper()
	close(f.ended)
	f.tails.Wait()
	for i, seen := range f.seen {
		if len(seen) != len(f.positions) {
			f.t.Errorf("tail %d has seen %d entries, and %d were acknowledged", i, len(seen), len(f.positions))
		}
		for at, key := range f.positions {
			if seen[key].Commit != at {
				f.t.Errorf("tail %d has seen %s at %v, and it is at %v", i, key, seen[key], at)
			}
		}
	}
	wantCounted(f.t, f.stores[0], len(f.positions))
}

// run lets writers write, each through one of the stores, until stop returns true.
func (f *fleet) run(writers int, stop func(n int) bool) {
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := 0; !stop(n) && !f.t.Failed(); n++ {
				f.write(w%len(f.stores), fmt.Sprintf("w%d/%d", w, n))
			}
		})
	}
	wg.Wait()
}

func TestServersShareOneOrder(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, testenv.MySQL(t, kind), 3)
			each := long(10, 1000)
			f.run(64, func(n int) bool { return n == each })
			f.check()
			if got := len(f.positions); got != 64*each {
				t.Errorf("%d of %d transactions committed", got, 64*each)
			}
			var conflicts, unavailable uint64
			for _, s := range f.stores {
				conflicts += s.Stats().Conflicts
				unavailable += s.Stats().Unavailable
			}
			if conflicts+unavailable > 0 {
				t.Errorf("%d conflicts and %d failures without a fault", conflicts, unavailable)
			}
		})
	}
}

// A server of the database that is killed under load loses nothing that was acknowledged, nor anything that a reader was
// shown, and everybody goes on by themselves.
func TestKilledServer(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := testenv.StartMySQL(t, kind)
			f := newFleet(t, server.Database(t), 3)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range long(2, 20) {
					// However slow the machine is, there is something to lose.
					if err := f.commits(50); err != nil {
						t.Error(err)
					}
					if err := server.Kill(); err != nil {
						t.Error(err)
					}
					if err := server.Start(); err != nil {
						t.Error(err)
						return
					}
				}
			}()
			f.run(24, func(int) bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			})
			for _, s := range f.stores {
				if err := testenv.Eventually(time.Minute, s.Writable); err != nil {
					t.Error(err)
				}
			}
			f.check()
		})
	}
}
