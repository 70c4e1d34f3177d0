package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"abide/kv"
)

var handleTests = []test{
	{name: "what one handle acknowledged, the other sees", run: testHandlesAgree, needs: needsSecond},
	{name: "increments through two handles are not lost", run: testHandlesIncrement, needs: needsSecond},
	{name: "two handles give one order of positions", run: testHandlesOrder, needs: needsSecond},
	{name: "one handle compacts what the other reads", run: testHandlesCompact, needs: needsSecond},
}

// handles are the fixture's store and a second one on the same data.
func (f *fixture) handles() [2]kv.Store {
	second := f.harness.Second(f.T, f.config)
	f.Cleanup(func() {
		if err := second.Close(); err != nil {
			f.Errorf("closing the second handle: %v", err)
		}
	})
	return [2]kv.Store{f.Store, second}
}

func testHandlesAgree(f *fixture) {
	handles := f.handles()
	for n := range uint64(40) {
		writer, reader := handles[n%2], handles[(n+1)%2]
		at, err := kv.Run(context.Background(), writer, kv.Hints{}, func(tx kv.Tx) error {
			value, err := tx.Get([]byte("k"))
			if err == nil && number(value) != n {
				err = fmt.Errorf("a transaction reads %d, want %d", number(value), n)
			}
			return errors.Join(err, tx.Put([]byte("k"), numberBytes(n+1)))
		})
		if err != nil {
			f.Fatal(err)
		}
		err = reader.View(context.Background(), func(s kv.Snapshot) error {
			value, err := s.Get([]byte("k"))
			if err == nil && number(value) != n+1 {
				err = fmt.Errorf("the other handle reads %d, want %d", number(value), n+1)
			}
			if s.Bound() != at {
				err = errors.Join(err, fmt.Errorf("the other handle's bound is %v after a commit at %v", s.Bound(), at))
			}
			return err
		})
		if err != nil {
			f.Fatal(err)
		}
	}
}

func testHandlesIncrement(f *fixture) {
	const workers, each = 8, 20
	handles := f.handles()
	concurrently(f.T, workers, func(worker int, _ *rand.Rand) error {
		for range each {
			_, err := kv.Run(context.Background(), handles[worker%2], kv.Hints{}, func(tx kv.Tx) error {
				value, err := tx.Get([]byte("counter"))
				return errors.Join(err, tx.Put([]byte("counter"), numberBytes(number(value)+1)))
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

// testHandlesOrder appends through both handles in turn: each commit begins after the last was acknowledged.
func testHandlesOrder(f *fixture) {
	handles := f.handles()
	var last kv.Position
	var want []string
	for n := range 30 {
		record := fmt.Sprint(n)
		at, err := kv.Run(context.Background(), handles[n*7%3%2], kv.Hints{}, func(tx kv.Tx) error { return appendAll(tx, "p", record) })
		if err != nil {
			f.Fatal(err)
		}
		if at.Compare(last) <= 0 {
			f.Errorf("the position %v after %v", at, last)
		}
		last = at
		want = append(want, record)
	}
	for i := range handles {
		f.Store = handles[i]
		wantStrings(f, fmt.Sprintf("the records through handle %d", i), showJournal(f.journal("p", kv.EntryPosition{}, 4)), want)
	}
	f.Store = handles[0]
}

func testHandlesCompact(f *fixture) {
	handles := f.handles()
	at := f.appendMany("p", 20)
	if _, _, err := kv.Compact(context.Background(), handles[1], []byte("p"), at[9]); err != nil {
		f.Fatal(err)
	}
	f.wantExpired("p", at[3], at[9])
	if got := f.journal("p", at[9], 4); len(got) != 10 {
		f.Errorf("%d entries are left, want 10", len(got))
	}
}
