package pgkv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/pgkv"
)

// 64 writers on three servers: positions are unique, in the order in which commits were acknowledged, and a reader
// that has seen one never finds a new entry at or below it. No transaction is tried again more than ten times.
func TestThreeServers(t *testing.T) {
	onEach(t, func(t *testing.T, version string) {
		const writers, each = 64, 10
		url := testenv.Postgres(t, version)
		var servers []*pgkv.Store
		for range 3 {
			servers = append(servers, open(t, pgkv.Options{URL: url}))
		}
		var wg, readers sync.WaitGroup
		done := make(chan struct{})
		for _, s := range servers {
			readers.Go(func() { follow(t, s, done, writers*each) })
		}
		var mu sync.Mutex
		given := map[kv.Position]bool{}
		for w := range writers {
			wg.Go(func() {
				var last kv.Position
				for range each {
					timing := &kv.Timing{Now: time.Now}
					at, err := kv.Run(kv.WithTiming(context.Background(), timing), servers[w%3], kv.Hints{}, func(tx kv.Tx) error {
						value, err := tx.Get([]byte("count"))
						if err != nil {
							return err
						}
						next := make([]byte, 8)
						if value != nil {
							binary.BigEndian.PutUint64(next, binary.BigEndian.Uint64(value)+1)
						}
						return errors.Join(tx.Put([]byte("count"), next), tx.Append([]byte("p"), next))
					})
					mu.Lock()
					if err != nil || given[at] || at.Compare(last) <= 0 {
						t.Errorf("%v after %v, %v; given before: %v", at, last, err, given[at])
					}
					given[at], last = true, at
					mu.Unlock()
					if n := timing.Spent().Conflicts; n > 10 {
						t.Errorf("a transaction was tried again %d times", n)
					}
				}
			})
		}
		wg.Wait()
		close(done)
		readers.Wait()
		for i, s := range servers {
			if stats := s.Stats(); stats.Commits == 0 || stats.Closures < stats.Commits {
				t.Errorf("server %d: %+v", i, stats)
			}
		}
	})
}

// follow reads the journal from what it has read on, until done and nothing is left: all in all it finds every
// entry, in order.
func follow(t *testing.T, s kv.Store, done chan struct{}, want int) {
	after := kv.EntryPosition{}
	count := uint64(0)
	for last := false; ; {
		select {
		case <-done:
			last = true
		default:
		}
		var page []kv.JournalEntry
		var bound kv.Position
		err := s.View(context.Background(), func(snap kv.Snapshot) (err error) {
			bound = snap.Bound()
			page, err = snap.Journal([]byte("p"), after, 1000)
			return err
		})
		if err != nil {
			t.Error(err)
			return
		}
		for _, e := range page {
			if n := binary.BigEndian.Uint64(e.Record); n != count {
				t.Errorf("entry %d is read at %v where %d was to come: it was not there when its place was passed", n, e.Position, count)
				return
			}
			count++
		}
		// Everything up to the bound has been seen: what comes is above it.
		after = kv.EntryPosition{Commit: bound, Index: kv.AfterCommit}
		if last && len(page) == 0 {
			break
		}
	}
	if count != uint64(want) {
		t.Errorf("a reader found %d entries, want %d", count, want)
	}
}

// A server hears of the commits of another, but not what is for the other alone, and not of its own twice.
func TestNotifications(t *testing.T) {
	onEach(t, func(t *testing.T, version string) {
		url := testenv.Postgres(t, version)
		a, b := open(t, pgkv.Options{URL: url}), open(t, pgkv.Options{URL: url})
		other := open(t, pgkv.Options{URL: url, Schema: "Another one"})
		for _, s := range []*pgkv.Store{a, b, other} {
			if err := testenv.Eventually(time.Minute, func() error {
				if !s.Stats().Listening {
					return errors.New("the store does not listen")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		heard := map[string][]kv.Signal{}
		for name, s := range map[string]*pgkv.Store{"a": a, "b": b, "other": other} {
			defer s.Signals(func(signals []kv.Signal) {
				mu.Lock()
				defer mu.Unlock()
				heard[name] = append(heard[name], signals...)
			})()
		}
		// Bytes that no text has, an empty body, and more than one notification holds.
		want := []kv.Signal{{Topic: "a\x00\xff", Body: ""}, {Topic: "", Body: "'\\"}}
		for i := range 12 {
			want = append(want, kv.Signal{Topic: fmt.Sprint("topic ", i), Body: string(make([]byte, 1500))})
		}
		_, err := a.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
			tx.Signal(kv.Signal{Topic: "a", Local: true})
			for _, s := range want {
				tx.Signal(s)
			}
			return tx.Put([]byte("k"), nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		err = testenv.Eventually(time.Minute, func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(heard["b"]) < len(want) {
				return fmt.Errorf("the other server heard %d of %d signals", len(heard["b"]), len(want))
			}
			return nil
		})
		mu.Lock()
		defer mu.Unlock()
		if err != nil || !slices.Equal(heard["b"], want) || !slices.Equal(heard["a"][1:], want) || len(heard["other"]) != 0 {
			t.Errorf("%v; a heard %d, b %d, the other store %d of %d", err, len(heard["a"]), len(heard["b"]), len(heard["other"]), len(want))
		}
	})
}

// Requests of one server share round trips and commits, the more the further away the database is.
func TestRoundTripsAreShared(t *testing.T) {
	const writers, each = 64, 6
	proxy, between := through(t, testenv.Postgres(t, oldest))
	s := open(t, pgkv.Options{URL: between})
	proxy.Latency(10 * time.Millisecond)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Appendf(nil, "k%02d", w)
				h := kv.Hints{Prefetch: []kv.Range{{Start: key, End: append(slices.Clone(key), 0)}}}
				_, err := kv.Run(context.Background(), s, h, func(tx kv.Tx) error {
					value, err := tx.Get(key)
					if err == nil && len(value) != i {
						err = fmt.Errorf("the value has %d bytes, want %d", len(value), i)
					}
					if err != nil {
						return err
					}
					// What no hint names: nobody has it, and everybody misses it together.
					_, err = tx.Get(append(key, '/'))
					return errors.Join(err, tx.Put(key, append(value[:i:i], 'x')))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stats := s.Stats()
	trips, commits := float64(stats.WriteTrips)/(writers*each), float64(stats.Commits)/(writers*each)
	if trips > 0.5 || commits > 0.1 {
		t.Errorf("%.2f round trips and %.2f commits a request: %+v", trips, commits, stats.Stats)
	}
}
