package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"abide/kv"
)

var contextTests = []test{
	{name: "a cancelled context commits nothing", run: testCancelled},
	{name: "a caller who goes away learns the outcome, whole", run: testCancelledUnderLoad},
	{name: "a snapshot ends with its caller", run: testCancelledView},
	{name: "Run gives up when its context ends, and says why", run: testRunGivesUp},
}

func testCancelled(f *fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	ran := false
	_, err := f.Store.Update(ctx, kv.Hints{}, func(tx kv.Tx) error { ran = true; return tx.Put([]byte("a"), nil) })
	if !errors.Is(err, context.Canceled) || ran {
		f.Errorf("an update with a cancelled context: %v, ran: %v", err, ran)
	}
	if err := f.Store.View(ctx, func(kv.Snapshot) error { return nil }); !errors.Is(err, context.Canceled) {
		f.Errorf("a view with a cancelled context: %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	at, err := f.Store.Update(ctx, kv.Hints{}, func(tx kv.Tx) error {
		cancel() // too late: the closure runs, and a commit is never interrupted
		return tx.Put([]byte("b"), nil)
	})
	if err != nil || at.IsZero() {
		f.Errorf("an update whose context ended while it ran: %v, %v", at, err)
	}
	f.wantContent("b=")
}

// testCancelledUnderLoad cancels at random moments. Whatever a caller hears must be what happened: both keys
// and the entry, or none of them.
func testCancelledUnderLoad(f *fixture) {
	const workers, each = 8, 25
	var mu sync.Mutex
	committed := map[string]kv.Position{}
	key := func(worker, i int, half string) string { return fmt.Sprintf("k%d/%02d/%s", worker, i, half) }
	concurrently(f.T, workers, func(worker int, r *rand.Rand) error {
		for i := range each {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(800))*time.Microsecond)
			at, err := f.Store.Update(ctx, kv.Hints{}, func(tx kv.Tx) error {
				return errors.Join(tx.Put([]byte(key(worker, i, "a")), nil), tx.Put([]byte(key(worker, i, "b")), nil),
					appendAll(tx, "p", key(worker, i, "")))
			})
			cancel()
			if err == nil {
				mu.Lock()
				committed[key(worker, i, "")] = at
				mu.Unlock()
			} else if !errors.Is(err, context.DeadlineExceeded) || !at.IsZero() {
				return fmt.Errorf("an update whose caller went away: %v, %w", at, err)
			}
		}
		return nil
	})
	present := map[string]int{}
	f.view(func(s kv.Snapshot) error {
		entries, err := s.Scan(everything, kv.MaxScanRows)
		for _, e := range entries {
			present[string(e.Key[:len(e.Key)-1])]++
		}
		return err
	})
	for _, e := range f.journal("p", kv.EntryPosition{}, 100) {
		if present[string(e.Record)]++; committed[string(e.Record)] != e.Position.Commit {
			f.Errorf("%s is in the journal at %v, and its caller heard %v", e.Record, e.Position, committed[string(e.Record)])
		}
	}
	if len(present) != len(committed) {
		f.Errorf("%d transactions are there, %d were acknowledged", len(present), len(committed))
	}
	for name, n := range present {
		if n != 3 {
			f.Errorf("of %s there are %d parts of 3", name, n)
		}
	}
}

func testCancelledView(f *fixture) {
	f.put("a", "1")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := f.Store.View(ctx, func(s kv.Snapshot) error {
		cancel()
		for name, call := range map[string]func() error{
			"get":     func() error { _, err := s.Get([]byte("a")); return err },
			"scan":    func() error { _, err := s.Scan(everything, 1); return err },
			"journal": func() error { _, err := s.Journal(nil, kv.EntryPosition{}, 1); return err },
		} {
			if err := call(); !errors.Is(err, context.Canceled) {
				f.Errorf("%s: %v, want context.Canceled", name, err)
			}
		}
		return nil
	})
	if err != nil {
		f.Errorf("the view: %v", err)
	}
	if got := f.get("a"); got != "1" {
		f.Errorf("afterwards a is %q", got)
	}
}

func testRunGivesUp(f *fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	runs := 0
	_, err := kv.Run(ctx, f.Store, kv.Hints{}, func(kv.Tx) error {
		if runs++; runs > 5 {
			cancel()
		}
		return kv.ErrConflict // as a store says it
	})
	if !errors.Is(err, kv.ErrConflict) || runs < 6 {
		f.Errorf("Run ended with %v after %d runs", err, runs)
	}
}
