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
	{"a closed store says so", testClosed},
	{"closing under load loses nothing that was acknowledged", testCloseUnderLoad},
	{"everything survives reopening", testReopen},
	{"a token that is not the store's", testForeignToken},
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
	f.Store = f.harness.Reopen(f.T)
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
	if f.harness.Reopen == nil {
		f.Skip("nothing of this store survives its closing")
	}
	f.put("a", "1", "gone", "x")
	last := f.update(func(tx kv.Tx) error { return errors.Join(appendAll(tx, "p", "1", "2"), tx.Delete([]byte("gone"))) })
	for range 3 {
		if err := f.Store.Close(); err != nil {
			f.Fatal(err)
		}
		f.Store = f.harness.Reopen(f.T)
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

func testForeignToken(f *fixture) {
	for _, token := range []kv.Token{"", "x", "x/y", "another-1/1"} {
		outcome, at, err := f.Store.Resolve(context.Background(), token)
		if outcome != kv.OutcomeUnknown || !at.IsZero() || (err != nil && !errors.Is(err, kv.ErrLimit)) {
			f.Errorf("token %q: %v, %v, %v", token, outcome, at, err)
		}
	}
}
