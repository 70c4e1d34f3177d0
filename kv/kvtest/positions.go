package kvtest

import (
	"context"
	"errors"
	"sync"

	"abide/kv"
)

var positionTests = []test{
	{name: "positions rise with every write and nothing else", run: testPositionsRise},
	{name: "a snapshot's bound is the last commit it observes", run: testBound},
	{name: "positions follow the order of acknowledgement", run: testPositionsFollowAcknowledgement},
}

func testPositionsRise(f *fixture) {
	var last kv.Position
	next := func(what string, fn func(kv.Tx) error) {
		f.Helper()
		at := f.update(fn)
		if at.Compare(last) <= 0 {
			f.Errorf("%s has the position %v after %v", what, at, last)
		}
		if at.Incarnation() == 0 {
			f.Errorf("%s has a position without an incarnation", what)
		}
		last = at
	}
	nothing := func(what string, fn func(kv.Tx) error) {
		f.Helper()
		if at := f.update(fn); !at.IsZero() {
			f.Errorf("%s has the position %v", what, at)
		}
	}
	nothing("a closure that does nothing", func(kv.Tx) error { return nil })
	next("a put", func(tx kv.Tx) error { return tx.Put([]byte("a"), nil) })
	nothing("a read", func(tx kv.Tx) error { _, err := tx.Get([]byte("a")); return err })
	next("a put of the same value", func(tx kv.Tx) error { return tx.Put([]byte("a"), nil) })
	nothing("a signal alone", func(tx kv.Tx) error { tx.Signal(kv.Signal{Topic: "t"}); return nil })
	next("a delete", func(tx kv.Tx) error { return tx.Delete([]byte("a")) })
	f.fails(errOwn, func(tx kv.Tx) error { return errors.Join(tx.Put([]byte("a"), nil), errOwn) })
	next("an append alone", func(tx kv.Tx) error { return tx.Append([]byte("p"), nil) })
}

func testBound(f *fixture) {
	bound := func() (at kv.Position) {
		f.view(func(s kv.Snapshot) error { at = s.Bound(); return nil })
		return at
	}
	if at := bound(); !at.IsZero() {
		f.Errorf("an empty store has the bound %v", at)
	}
	for range 3 {
		written := f.put("a", "1")
		if at := bound(); at != written {
			f.Errorf("the bound is %v after a commit at %v", at, written)
		}
		f.update(func(tx kv.Tx) error { _, err := tx.Get([]byte("a")); return err })
	}
	f.view(func(s kv.Snapshot) error {
		before := s.Bound()
		done := make(chan error, 1)
		go func() {
			_, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte("b"), nil) })
			done <- err
		}()
		if err := <-done; err != nil {
			return err
		}
		value, err := s.Get([]byte("b"))
		if value != nil || s.Bound() != before {
			f.Error("a snapshot observes a commit that came after it")
		}
		return err
	})
}

// Each worker's commits rise, no position is given twice, and a commit that began after another one was
// acknowledged comes after it.
func testPositionsFollowAcknowledgement(f *fixture) {
	const workers, each = 8, 30
	var mu sync.Mutex
	var acknowledged kv.Position // the highest so far
	seen := make(map[kv.Position]bool)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				mu.Lock()
				before := acknowledged
				mu.Unlock()
				at, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte("k"), nil) })
				if err != nil {
					f.Error(err)
					return
				}
				mu.Lock()
				if at.Compare(before) <= 0 {
					f.Errorf("a commit at %v began after one at %v was acknowledged", at, before)
				}
				if seen[at] {
					f.Errorf("the position %v was given twice", at)
				}
				seen[at] = true
				if at.Compare(acknowledged) > 0 {
					acknowledged = at
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != workers*each {
		f.Errorf("%d positions, want %d", len(seen), workers*each)
	}
}
