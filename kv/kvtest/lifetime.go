package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"abide/kv"
)

var lifetimeTests = []test{
	{name: "a closed store says so", run: testClosed},
	{name: "closing under load loses nothing that was acknowledged", run: testCloseUnderLoad},
	{name: "everything survives reopening", run: testReopen, needs: needsReopen},
	{name: "a scan goes on after a restart in the middle of it", run: testRestartInScan, needs: needsReopen},
	{name: "a reader of the journal goes on after a restart inside a commit", run: testRestartInJournal, needs: needsReopen},
	{name: "a snapshot outlives its store or says that it is closed", run: testSnapshotAtClose},
}

func testClosed(f *fixture) {
	f.put("a", "1")
	if err := errors.Join(f.Store.Close(), f.Store.Close()); err != nil {
		f.Fatalf("close: %v", err)
	}
	f.fails(kv.ErrClosed, func(tx kv.Tx) error { return tx.Put([]byte("b"), nil) })
	if err := f.Store.View(context.Background(), func(kv.Snapshot) error { return nil }); !errors.Is(err, kv.ErrClosed) {
		f.Errorf("a view of a closed store: %v", err)
	}
	if _, _, err := f.Store.Resolve(context.Background(), "a/1"); !errors.Is(err, kv.ErrClosed) {
		f.Errorf("a resolve on a closed store: %v", err)
	}
}

func testCloseUnderLoad(f *fixture) {
	const workers = 6
	var acknowledged [workers]atomic.Int64
	var total atomic.Int64
	concurrently(f.T, workers+1, func(worker int, _ *rand.Rand) error {
		if worker == workers {
			for total.Load() < 20 { // the others stop with ErrClosed
				f.update(func(kv.Tx) error { return nil })
			}
			return f.Store.Close()
		}
		for n := int64(1); ; n++ {
			_, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
				return tx.Put(fmt.Appendf(nil, "%d", worker), numberBytes(uint64(n)))
			})
			if errors.Is(err, kv.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			acknowledged[worker].Store(n)
			total.Add(1)
		}
	})
	if f.harness.Reopen == nil {
		return
	}
	f.Store = f.harness.Reopen(f.T, f.config)
	f.view(func(s kv.Snapshot) error {
		for w := range workers {
			value, err := s.Get(fmt.Appendf(nil, "%d", w))
			if err != nil {
				return err
			}
			if got, want := number(value), uint64(acknowledged[w].Load()); got != want {
				f.Errorf("worker %d: %d is stored, %d was acknowledged", w, got, want)
			}
		}
		return nil
	})
}

func testReopen(f *fixture) {
	f.put("a", "1", "gone", "x")
	last := f.update(func(tx kv.Tx) error { return errors.Join(appendAll(tx, "p", "1", "2"), tx.Delete([]byte("gone"))) })
	for range 3 {
		f.reopen()
		f.wantContent("a=1")
		f.view(func(s kv.Snapshot) error {
			if s.Bound() != last {
				f.Errorf("the bound is %v, want %v", s.Bound(), last)
			}
			return nil
		})
		at := f.update(func(tx kv.Tx) error { return appendAll(tx, "p", "more") })
		if at.Compare(last) <= 0 {
			f.Errorf("a position %v after %v", at, last)
		}
		last = at
	}
	wantStrings(f, "the records", showJournal(f.journal("p", kv.EntryPosition{}, 2)), []string{"1", "2", "more", "more", "more"})
}

// testRestartInScan closes the store between two pages: a cursor is a key, and means the same to the next process.
func testRestartInScan(f *fixture) {
	const n = 50
	f.update(func(tx kv.Tx) error {
		for i := range n {
			if err := tx.Put(fmt.Appendf(nil, "k%02d", i), nil); err != nil {
				return err
			}
		}
		return nil
	})
	start := []byte("k")
	for i := 0; i < n; {
		var page []kv.Entry
		f.view(func(s kv.Snapshot) (err error) {
			page, err = s.Scan(kv.Range{Start: start, End: []byte("l")}, 15)
			return err
		})
		if len(page) == 0 {
			f.Fatalf("the scan ends after %d of %d entries", i, n)
		}
		for _, e := range page {
			if want := fmt.Sprintf("k%02d", i); string(e.Key) != want {
				f.Fatalf("entry %d is %q, want %q", i, e.Key, want)
			}
			i++
		}
		f.reopen()
		start = append(page[len(page)-1].Key, 0)
	}
}

func testRestartInJournal(f *fixture) {
	var want []string
	for c := range 4 {
		records := []string{fmt.Sprint(c, ".0"), fmt.Sprint(c, ".1"), fmt.Sprint(c, ".2")}
		f.update(func(tx kv.Tx) error { return appendAll(tx, "p", records...) })
		want = append(want, records...)
	}
	var got []string
	var after kv.EntryPosition
	for {
		var page []kv.JournalEntry
		f.view(func(s kv.Snapshot) (err error) {
			page, err = s.Journal([]byte("p"), after, 2)
			return err
		})
		got = append(got, showJournal(page)...)
		if len(page) < 2 {
			break
		}
		after = page[1].Position
		f.reopen()
	}
	wantStrings(f, "the records read across restarts", got, want)
}

// testSnapshotAtClose closes the store while a snapshot is open: whatever the snapshot still says must be what
// it always said.
func testSnapshotAtClose(f *fixture) {
	f.put("a", "1")
	closed := make(chan error, 1)
	err := f.Store.View(context.Background(), func(s kv.Snapshot) error {
		go func() { closed <- f.Store.Close() }()
		for range 50 {
			value, err := s.Get([]byte("a"))
			if err != nil {
				return err
			}
			if string(value) != "1" {
				f.Errorf("the value became %q", value)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, kv.ErrClosed) {
		f.Errorf("a snapshot whose store is being closed: %v", err)
	}
	if err := <-closed; err != nil {
		f.Errorf("close: %v", err)
	}
}
