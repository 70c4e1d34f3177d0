package kvtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"abide/kv"
)

var isolationTests = []test{
	{name: "a snapshot does not move", run: testSnapshotStands},
	{name: "increments are not lost", run: testIncrements},
	{name: "no write skew", run: testWriteSkew},
	{name: "no phantoms", run: testPhantoms},
	{name: "no update is lost that rests on a scan", run: testScanThenInsert},
	{name: "the ring stays one ring", run: testRing},
	{name: "the bank's money stays the same", run: testBank},
	{name: "a snapshot observes exactly the commits up to its bound", run: testSnapshotExact},
	{name: "a snapshot waits for no transaction", run: testViewDoesNotWait},
	{name: "a transaction sees what was acknowledged before it began", run: testReadsAcknowledged},
}

func testSnapshotStands(f *fixture) {
	f.put("a", "1", "b", "1")
	f.view(func(s kv.Snapshot) error {
		for round := range 3 {
			for _, key := range []string{"a", "b"} {
				value, err := s.Get([]byte(key))
				if err != nil || string(value) != "1" {
					f.Errorf("round %d: %s is %q, %v", round, key, value, err)
				}
			}
			entries, err := s.Scan(everything, 10)
			if err != nil {
				return err
			}
			wantStrings(f, "the snapshot's entries", showEntries(entries), []string{"a=1", "b=1"})
			f.put("a", "2", fmt.Sprintf("c%d", round), "new")
			f.update(func(tx kv.Tx) error { return tx.Delete([]byte("b")) })
		}
		return nil
	})
	f.wantContent("a=2", "c0=new", "c1=new", "c2=new")
}

// concurrently runs fn in several goroutines, each with its own source of randomness.
func concurrently(t *testing.T, workers int, fn func(worker int, r *rand.Rand) error) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			if err := fn(w, rand.New(rand.NewPCG(uint64(w), 7))); err != nil {
				t.Errorf("worker %d: %v", w, err)
			}
		})
	}
	wg.Wait()
}

func number(value []byte) uint64 {
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

func numberBytes(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func testIncrements(f *fixture) {
	const workers, each = 8, 25
	concurrently(f.T, workers, func(int, *rand.Rand) error {
		for range each {
			_, err := kv.Run(context.Background(), f.Store, kv.Hints{}, func(tx kv.Tx) error {
				value, err := tx.Get([]byte("counter"))
				if err != nil {
					return err
				}
				return tx.Put([]byte("counter"), numberBytes(number(value)+1))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	f.view(func(s kv.Snapshot) error {
		value, err := s.Get([]byte("counter"))
		if n := number(value); n != workers*each {
			f.Errorf("the counter is %d after %d increments", n, workers*each)
		}
		return err
	})
}

// Each transaction takes one only if both together leave one. Under snapshot isolation both may be taken.
func testWriteSkew(f *fixture) {
	for round := range 20 {
		f.put("x", "1", "y", "1")
		concurrently(f.T, 2, func(worker int, _ *rand.Rand) error {
			_, err := kv.Run(context.Background(), f.Store, kv.Hints{}, func(tx kv.Tx) error {
				values, err := tx.GetMany([][]byte{[]byte("x"), []byte("y")})
				if err != nil || string(values[0]) != "1" || string(values[1]) != "1" {
					return err
				}
				return tx.Put([]byte{byte('x' + worker)}, []byte("0"))
			})
			return err
		})
		if x, y := f.get("x"), f.get("y"); x == y {
			f.Fatalf("round %d: x=%s and y=%s", round, x, y)
		}
	}
}

// The nodes form a ring, each holding the next. A transaction takes a node out of its place and puts it
// behind another one; readers follow the ring all the time. Any interleaving that is not serializable breaks
// the ring or splits it.
func testRing(f *fixture) {
	const nodes, workers, each = 12, 4, 30
	key := func(n uint64) []byte { return fmt.Appendf(nil, "node%02d", n) }
	f.update(func(tx kv.Tx) error {
		for n := range uint64(nodes) {
			if err := tx.Put(key(n), numberBytes((n+1)%nodes)); err != nil {
				return err
			}
		}
		return nil
	})
	next := func(r kv.Reader, n uint64) (uint64, error) {
		value, err := r.Get(key(n))
		if err == nil && len(value) != 8 {
			err = fmt.Errorf("node %d holds %q", n, value)
		}
		return number(value), err
	}
	move := func(r *rand.Rand) func(kv.Tx) error {
		start := uint64(r.IntN(nodes))
		return func(tx kv.Tx) error { // a->b->c->d becomes a->c->b->d
			a := start
			b, err1 := next(tx, a)
			c, err2 := next(tx, b)
			d, err3 := next(tx, c)
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
			return errors.Join(tx.Put(key(a), numberBytes(c)), tx.Put(key(c), numberBytes(b)), tx.Put(key(b), numberBytes(d)))
		}
	}
	follow := func(s kv.Snapshot) error {
		at := uint64(0)
		for step := range nodes {
			if at == 0 && step > 0 {
				return fmt.Errorf("the ring closes after %d of %d nodes", step, nodes)
			}
			var err error
			if at, err = next(s, at); err != nil {
				return err
			}
		}
		if at != 0 {
			return fmt.Errorf("the ring does not close after %d nodes", nodes)
		}
		return nil
	}
	concurrently(f.T, workers+2, func(worker int, r *rand.Rand) error {
		for range each {
			var err error
			if worker < workers {
				_, err = kv.Run(context.Background(), f.Store, kv.Hints{Lane: fmt.Sprint(worker % 2), Background: worker == 0}, move(r))
			} else {
				err = f.Store.View(context.Background(), follow)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	f.view(follow)
}

func testReadsAcknowledged(f *fixture) {
	concurrently(f.T, 6, func(worker int, _ *rand.Rand) error {
		key := fmt.Appendf(nil, "own%d", worker)
		for n := range uint64(20) {
			at, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
				value, err := tx.Get(key)
				if err == nil && number(value) != n {
					err = fmt.Errorf("a transaction reads %d, want %d", number(value), n)
				}
				return errors.Join(err, tx.Put(key, numberBytes(n+1)))
			})
			if err != nil {
				return err
			}
			err = f.Store.View(context.Background(), func(s kv.Snapshot) error {
				value, err := s.Get(key)
				if err == nil && number(value) != n+1 {
					err = fmt.Errorf("a snapshot reads %d, want %d", number(value), n+1)
				}
				if s.Bound().Compare(at) < 0 {
					err = errors.Join(err, fmt.Errorf("the bound %v is before the commit at %v", s.Bound(), at))
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
