package pgkv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/pgkv"
)

// long reports whether the long variants of tests are asked for.
func long() bool { return os.Getenv("ABIDE_LONG") == "1" }

// ledger is operations of which each may happen at most once, with what their callers heard.
type ledger struct {
	mu    sync.Mutex
	next  int
	heard map[int]error
}

// run does one operation through a store: it counts how often it has happened.
func (l *ledger) run(s kv.Store) error {
	l.mu.Lock()
	n := l.next
	l.next++
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := kv.Run(ctx, s, kv.Hints{}, func(tx kv.Tx) error {
		key := fmt.Appendf(nil, "op%06d", n)
		value, err := tx.Get(key)
		if err != nil {
			return err
		}
		return errors.Join(tx.Put(key, append([]byte{'x'}, value...)), tx.Append([]byte("p"), key))
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heard == nil {
		l.heard = map[int]error{}
	}
	l.heard[n] = err
	return err
}

// check holds the store against what was heard. It returns how many operations heard that they committed, that they
// did not, and that nobody knows.
func (l *ledger) check(t *testing.T, s kv.Store, resolve kv.Store) (committed, failed, unknown int) {
	t.Helper()
	entries := journalOf(t, s)
	for n := range l.next {
		key, want := fmt.Sprintf("op%06d", n), -1
		err := l.heard[n]
		var known *kv.Error
		switch {
		case err == nil:
			committed++
			want = 1
		case errors.Is(err, kv.ErrCommitUnknown) && errors.As(err, &known):
			unknown++
			outcome, _, err := resolve.Resolve(context.Background(), known.Token)
			if err != nil {
				t.Errorf("%s: resolve: %v", key, err)
			}
			if outcome != kv.OutcomeUnknown {
				want = map[kv.Outcome]int{kv.OutcomeCommitted: 1, kv.OutcomeNotCommitted: 0}[outcome]
			}
		default:
			failed++
			want = 0
		}
		got := 0
		if value := valueOf(t, s, key); value != nil {
			got = len(value)
		}
		if want >= 0 && got != want || got > 1 || entries[key] != got {
			t.Errorf("%s happened %d times and is in the journal %d times; its caller heard %v", key, got, entries[key], err)
		}
	}
	return committed, failed, unknown
}

func valueOf(t *testing.T, s kv.Store, key string) (value []byte) {
	t.Helper()
	err := s.View(context.Background(), func(snap kv.Snapshot) (err error) {
		value, err = snap.Get([]byte(key))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// journalOf counts the records of partition p, and checks that positions rise.
func journalOf(t *testing.T, s kv.Store) map[string]int {
	t.Helper()
	counts := map[string]int{}
	after := kv.EntryPosition{}
	for {
		var page []kv.JournalEntry
		err := s.View(context.Background(), func(snap kv.Snapshot) (err error) {
			page, err = snap.Journal([]byte("p"), after, 500)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			if e.Position.Compare(after) <= 0 {
				t.Errorf("the entry %q at %v comes after %v", e.Record, e.Position, after)
			}
			after = e.Position
			counts[string(e.Record)]++
		}
		if len(page) < 500 {
			return counts
		}
	}
}

// writers runs operations of the ledger on n goroutines until stop returns true.
func (l *ledger) writers(s kv.Store, n int, stop func() bool) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for !stop() {
				if l.run(s) != nil {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	return &wg
}

// through starts a proxy before the server of a URL.
func through(t *testing.T, server string) (*testenv.Proxy, string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p := testenv.NewProxy(t, u.Host)
	u.Host = p.Address
	return p, u.String()
}

// atCommit decides on the pieces that a COMMIT is in, by the name of its prepared statement; others pass.
func atCommit(decide func() testenv.Fate) func([]byte) testenv.Fate {
	return func(piece []byte) testenv.Fate {
		prepares := bytes.Contains(piece, []byte("COMMIT"))
		if prepares || !bytes.Contains(piece, []byte("abide_commit\x00")) {
			return testenv.Pass
		}
		return decide()
	}
}

// The connection is cut where a COMMIT is: before it reaches the server, at once after it, or with its answer.
// Everybody hears the truth, or honestly that nobody knows, and nothing happens twice.
func TestCutsAroundCommit(t *testing.T) {
	onEach(t, func(t *testing.T, version string) {
		t.Parallel()
		cuts := int64(50)
		if long() {
			cuts = 1000
		}
		server := testenv.Postgres(t, version)
		proxy, between := through(t, server)
		s := open(t, pgkv.Options{URL: between})
		var commits, cut atomic.Int64
		proxy.Decide(atCommit(func() testenv.Fate {
			if commits.Add(1)%3 != 0 {
				return testenv.Pass
			}
			n := cut.Add(1)
			return []testenv.Fate{testenv.CutBefore, testenv.CutAfter, testenv.CutAnswer, testenv.CutAnswer}[n%4]
		}))
		var l ledger
		l.writers(s, 8, func() bool { return cut.Load() >= cuts }).Wait()
		proxy.Decide(nil)
		committed, failed, unknown := l.check(t, open(t, pgkv.Options{URL: server}), s)
		stats := s.Stats()
		t.Logf("%d cuts: %d committed, %d not, %d unknown; %d resolved", cut.Load(), committed, failed, unknown, stats.Resolved)
		if int64(committed) < cuts || stats.Resolved < uint64(cuts)*9/10 {
			t.Errorf("%d operations committed, %d lost commits were resolved", committed, stats.Resolved)
		}
	})
}

// A COMMIT whose answer never comes, on a connection that nobody ends: the transaction is ended from another one, or
// found to be over.
func TestSilenceAfterCommit(t *testing.T) {
	t.Parallel() // it waits for a timeout
	server := testenv.Postgres(t, oldest)
	proxy, between := through(t, server)
	s := open(t, pgkv.Options{URL: between})
	var l ledger
	if err := l.run(s); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	proxy.Decide(atCommit(func() (fate testenv.Fate) {
		once.Do(func() { fate = testenv.Swallow })
		return fate
	}))
	for range 3 {
		if err := l.run(s); err != nil {
			t.Errorf("an operation that was resolved: %v", err)
		}
	}
	l.check(t, s, s)
}

// While the database cannot be reached the store says so; when it can, the store goes on by itself.
func TestLostConnections(t *testing.T) {
	onOne(t, newest, func(t *testing.T, version string) {
		proxy, between := through(t, testenv.Postgres(t, version))
		s := open(t, pgkv.Options{URL: between})
		var l ledger
		for range 5 {
			if err := l.run(s); err != nil {
				t.Fatal(err)
			}
			_ = valueOf(t, s, "x") // a reader's connection
			proxy.Cut()            // both are idle: nobody notices
		}
		proxy.Refuse(true)
		proxy.Cut()
		if err := l.run(s); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("a write without a database: %v", err)
		}
		if err := s.View(context.Background(), func(kv.Snapshot) error { return nil }); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("a view without a database: %v", err)
		}
		if s.Writable() == nil {
			t.Error("a store without a database is writable")
		}
		proxy.Refuse(false)
		if err := testenv.Eventually(time.Minute, s.Writable); err != nil {
			t.Errorf("the store does not come back by itself: %v", err)
		}
		if err := l.run(s); err != nil {
			t.Error(err)
		}
		l.check(t, s, s)
	})
}

// A database that lacks what was acknowledged, or is another one, is not written to.
func TestAnotherDatabase(t *testing.T) {
	onOne(t, oldest, func(t *testing.T, version string) {
		for name, forge := range map[string]string{
			"an older state":  `UPDATE abide.kv SET v = '\x0000000000000002' || substring(v FROM 9) WHERE k = '\xff7a'`,
			"another store":   `UPDATE abide.kv SET v = substring(v FOR 8) || '\x0102030405060708' WHERE k = '\xff7a'`,
			"an empty schema": `DROP TABLE abide.kv`,
			"an empty table":  `DELETE FROM abide.kv`,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := testenv.Postgres(t, version)
				s := open(t, pgkv.Options{URL: server})
				var l ledger
				for range 5 {
					if err := l.run(s); err != nil {
						t.Fatal(err)
					}
				}
				if err := testenv.Exec(server, "CREATE TABLE before AS SELECT * FROM abide.kv; "+forge); err != nil {
					t.Fatal(err)
				}
				if err := l.run(s); !errors.Is(err, kv.ErrUnavailable) {
					t.Errorf("a write: %v", err)
				}
				if err := s.View(context.Background(), func(kv.Snapshot) error { return nil }); !errors.Is(err, kv.ErrUnavailable) {
					t.Errorf("a view: %v", err)
				}
				if s.Writable() == nil {
					t.Error("the store says that it can write")
				}
				back := `CREATE TABLE IF NOT EXISTS abide.kv (k bytea PRIMARY KEY, v bytea NOT NULL); DELETE FROM abide.kv; INSERT INTO abide.kv SELECT * FROM before`
				if err := testenv.Exec(server, back); err != nil {
					t.Fatal(err)
				}
				if err := testenv.Eventually(time.Minute, s.Writable); err != nil {
					t.Errorf("the right database is back, and the store does not come back: %v", err)
				}
				if err := l.run(s); err != nil {
					t.Error(err)
				}
				l.check(t, s, s)
			})
		}
	})
}

// The server is killed under load, again and again: what was acknowledged is there.
func TestKilledServer(t *testing.T) {
	onOne(t, oldest, func(t *testing.T, version string) {
		t.Parallel()
		kills := 2
		if long() {
			kills = 20
		}
		server := testenv.StartPostgres(t, version)
		s := open(t, pgkv.Options{URL: server.URL})
		var stop atomic.Bool
		var l ledger
		wg := l.writers(s, 16, stop.Load)
		for range kills {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
		}
		if err := testenv.Eventually(time.Minute, s.Writable); err != nil {
			t.Errorf("the store does not come back: %v", err)
		}
		stop.Store(true)
		wg.Wait()
		committed, failed, unknown := l.check(t, s, s)
		t.Logf("%d committed, %d not, %d unknown", committed, failed, unknown)
	})
}
