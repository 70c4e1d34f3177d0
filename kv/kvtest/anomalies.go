package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"abide/kv"
)

// testPhantoms lets two transactions at a time look whether a range is empty and, if so, put a key of their own
// into it. At most one may find it empty.
func testPhantoms(f *fixture) {
	for round := range 30 {
		prefix := fmt.Sprintf("r%02d/", round)
		concurrently(f.T, 3, func(worker int, _ *rand.Rand) error {
			_, err := kv.Run(context.Background(), f.Store, kv.Hints{}, func(tx kv.Tx) error {
				entries, err := tx.Scan(span(prefix, prefix+"\xFF"), 1+worker)
				if err != nil || len(entries) > 0 {
					return err
				}
				return tx.Put(fmt.Appendf(nil, "%s%d", prefix, worker), nil)
			})
			return err
		})
		f.view(func(s kv.Snapshot) error {
			entries, err := s.Scan(span(prefix, prefix+"\xFF"), 10)
			if len(entries) != 1 {
				f.Errorf("round %d: the range holds %q", round, showEntries(entries))
			}
			return err
		})
	}
}

// testScanThenInsert takes the next free number by looking at all that are taken, and puts it back now and then.
func testScanThenInsert(f *fixture) {
	const workers, each = 6, 15
	concurrently(f.T, workers, func(worker int, r *rand.Rand) error {
		for i := range each {
			_, err := kv.Run(context.Background(), f.Store, kv.Hints{}, func(tx kv.Tx) error {
				entries, err := tx.Scan(span("n", "o"), kv.MaxScanRows)
				if err != nil {
					return err
				}
				for at, e := range entries {
					if string(e.Key) != fmt.Sprintf("n%04d", at) {
						return fmt.Errorf("number %d is %q", at, e.Key)
					}
				}
				if i%5 == 4 && len(entries) > 0 {
					return tx.Delete(entries[len(entries)-1].Key)
				}
				return tx.Put(fmt.Appendf(nil, "n%04d", len(entries)), fmt.Append(nil, worker))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	f.view(func(s kv.Snapshot) error {
		entries, err := s.Scan(span("n", "o"), kv.MaxScanRows)
		if want := workers * (each - 2*(each/5)); len(entries) != want {
			f.Errorf("%d numbers are taken, want %d", len(entries), want)
		}
		return err
	})
}

// testBank moves money between accounts, opens and closes accounts, and lets readers count it: every snapshot
// and every transaction must find the same sum.
func testBank(f *fixture) {
	const accounts, workers, each, money = 10, 4, 30, 1000
	f.update(func(tx kv.Tx) error {
		for a := range accounts {
			if err := tx.Put(fmt.Appendf(nil, "account%02d", a), numberBytes(money)); err != nil {
				return err
			}
		}
		return nil
	})
	count := func(r kv.Reader) (entries []kv.Entry, err error) {
		entries, err = r.Scan(span("account", "b"), 100)
		sum := uint64(0)
		for _, e := range entries {
			sum += number(e.Value)
		}
		if err == nil && sum != accounts*money {
			err = fmt.Errorf("%d accounts hold %d, want %d", len(entries), sum, accounts*money)
		}
		return entries, err
	}
	move := func(r *rand.Rand) func(kv.Tx) error {
		from, to, part := r.IntN(100), r.IntN(accounts+5), uint64(r.IntN(4))
		return func(tx kv.Tx) error {
			entries, err := count(tx)
			if err != nil {
				return err
			}
			source := entries[from%len(entries)]
			target := fmt.Appendf(nil, "account%02d", to) // perhaps one that is not open
			if string(source.Key) == string(target) {
				return nil
			}
			there, err := tx.Get(target)
			if err != nil {
				return err
			}
			amount := number(source.Value) * part / 3
			if left := number(source.Value) - amount; left > 0 || len(entries) == 1 {
				err = tx.Put(source.Key, numberBytes(left))
			} else {
				err = tx.Delete(source.Key)
			}
			return errors.Join(err, tx.Put(target, numberBytes(number(there)+amount)))
		}
	}
	concurrently(f.T, workers+2, func(worker int, r *rand.Rand) error {
		for range each {
			var err error
			if worker < workers {
				_, err = kv.Run(context.Background(), f.Store, kv.Hints{Lane: fmt.Sprint(worker)}, move(r))
			} else {
				err = f.Store.View(context.Background(), func(s kv.Snapshot) error { _, err := count(s); return err })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	f.view(func(s kv.Snapshot) error { _, err := count(s); return err })
}

// sight is what one snapshot saw.
type sight struct {
	bound         kv.Position
	keys, entries map[string]bool
}

func (f *fixture) look() (sight, error) {
	seen := sight{keys: map[string]bool{}, entries: map[string]bool{}}
	err := f.Store.View(context.Background(), func(s kv.Snapshot) error {
		keys, err := s.Scan(everything, kv.MaxScanRows)
		entries, journalErr := s.Journal([]byte("p"), kv.EntryPosition{}, kv.MaxScanRows)
		for _, e := range keys {
			seen.keys[string(e.Key)] = true
		}
		for _, e := range entries {
			seen.entries[string(e.Record)] = true
		}
		seen.bound = s.Bound()
		return errors.Join(err, journalErr)
	})
	return seen, err
}

// testSnapshotExact writes from several sides while snapshots are taken, and afterwards holds each of them
// against the commits: all up to its bound must be in it, and none beyond, in the keys and in the journal.
func testSnapshotExact(f *fixture) {
	const writers, readers, each = 5, 2, 20
	var mu sync.Mutex
	commits := map[string]kv.Position{}
	var sights []sight
	concurrently(f.T, writers+readers, func(worker int, _ *rand.Rand) error {
		for i := range each {
			if worker < writers {
				name := fmt.Sprintf("k%d/%02d", worker, i)
				at, err := kv.Run(context.Background(), f.Store, kv.Hints{}, func(tx kv.Tx) error {
					return errors.Join(tx.Put([]byte(name), nil), appendAll(tx, "p", name))
				})
				if err != nil {
					return err
				}
				mu.Lock()
				commits[name] = at
				mu.Unlock()
			}
			if worker >= writers || i%4 == 0 { // a writer's own sights always have commits after them
				seen, err := f.look()
				if err != nil {
					return err
				}
				mu.Lock()
				sights = append(sights, seen)
				mu.Unlock()
			}
		}
		return nil
	})
	for _, s := range sights {
		for name, at := range commits {
			if want := at.Compare(s.bound) <= 0; s.keys[name] != want || s.entries[name] != want {
				f.Fatalf("a snapshot with the bound %v has %s of commit %v: key %v, journal %v", s.bound, name, at, s.keys[name], s.entries[name])
			}
		}
	}
}

// testViewDoesNotWait opens a snapshot while a transaction stands still.
func testViewDoesNotWait(f *fixture) {
	f.put("a", "1")
	inside, gate := make(chan struct{}), make(chan struct{})
	var entered sync.Once
	result := make(chan error, 1)
	go func() {
		_, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
			err := tx.Put([]byte("a"), []byte("2"))
			entered.Do(func() { close(inside) })
			<-gate
			return err
		})
		result <- err
	}()
	<-inside
	if got := f.get("a"); got != "1" { // would stand still with it, and fail by the test's own time limit
		f.Errorf("a snapshot during the transaction reads %q", got)
	}
	close(gate)
	if err := <-result; err != nil {
		f.Error(err)
	}
	if got := f.get("a"); got != "2" {
		f.Errorf("after it a is %q", got)
	}
}
