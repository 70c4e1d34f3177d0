package pgkv_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/pgkv"
)

// Callers who give up, wherever their call is, leave no transaction open: not while it waits for a connection, for its
// batch, for a round trip, nor between two of them. (G10)
func TestCancelledCallsLeaveNoTransaction(t *testing.T) {
	const callers, each = 24, 10
	server := testenv.Postgres(t, oldest)
	proxy, between := through(t, server)
	s := open(t, pgkv.Options{URL: between, Readers: 4})
	proxy.Latency(4 * time.Millisecond)
	hints := []kv.Range{{Start: []byte("a"), End: []byte("a\x00")}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	ended := map[string]int{}
	for c := range callers {
		wg.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond<<rand.N(14))
				read := func(r kv.Reader) error {
					for k := range 3 { // a round trip each
						if _, err := r.Get(fmt.Append(nil, "k", k)); err != nil {
							return err
						}
					}
					return nil
				}
				view := func(snap kv.Snapshot) error { return read(snap) }
				var err error
				switch c % 3 {
				case 0:
					_, err = s.Update(ctx, kv.Hints{}, func(tx kv.Tx) error {
						if err := read(tx); err != nil {
							return err
						}
						return tx.Put([]byte("k0"), nil)
					})
				case 1:
					err = s.View(ctx, view)
				default:
					err = s.ViewOnce(ctx, hints, 0, view)
				}
				cancel()
				mu.Lock()
				ended[fmt.Sprint(c%3, err == nil)]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(ended) != 6 {
		t.Errorf("not every kind of call both succeeded and was cancelled: %v", ended)
	}
	const check = "DO $$ BEGIN IF EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%') " +
		"THEN RAISE 'a session is idle in a transaction'; END IF; END $$"
	if err := testenv.Eventually(time.Minute, func() error { return testenv.Exec(server, check) }); err != nil {
		t.Error(err)
	}
	if err := s.View(context.Background(), func(kv.Snapshot) error { return nil }); err != nil {
		t.Errorf("after all that a view fails: %v", err)
	}
}
