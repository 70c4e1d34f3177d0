package mysqlkv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/batch"
)

// long is n, or the larger number where ABIDE_LONG=1.
func long(n, many int) int {
	if os.Getenv("ABIDE_LONG") == "1" {
		return many
	}
	return n
}

// kinds are the servers that most tests run on: all where engines are required, or the tests are long. Where a person
// waits, one is enough.
func kinds() []string {
	if os.Getenv("ABIDE_LONG") == "1" || os.Getenv("ABIDE_REQUIRE_ENGINES") == "1" {
		return testenv.MySQLKinds
	}
	return []string{testenv.MariaDB10}
}

// Cuts before a commit, after it, and between it and its answer: whoever hears something hears the truth, and nothing
// is applied twice.
func TestLostAnswers(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			proxy, url := throughProxy(t, testenv.MySQL(t, kind))
			s := openStore(t, Options{URL: url, Now: time.Now})
			defer s.Close()
			var cuts atomic.Int64
			many := int64(long(50, 1000))
			fates := []testenv.Fate{testenv.CutBefore, testenv.CutAfter, testenv.CutAnswer}
			proxy.Decide(func(piece []byte) testenv.Fate {
				if onCommit(testenv.CutAnswer)(piece) == testenv.CutAnswer && rand.N(3) > 0 {
					return fates[cuts.Add(1)%3]
				}
				if rand.N(20) == 0 { // what else goes back and forth
					return fates[rand.N(3)]
				}
				return testenv.Pass
			})
			const workers = 8
			outcomes := make([]map[kv.Outcome]int, workers)
			var wg sync.WaitGroup
			for w := range workers {
				outcomes[w] = map[kv.Outcome]int{}
				wg.Go(func() {
					for n := 0; cuts.Load() < many && !t.Failed(); n++ {
						outcomes[w][addOnce(t, s, fmt.Sprintf("w%d/%d", w, n))]++
					}
				})
			}
			wg.Wait()
			proxy.Decide(nil)
			total := map[kv.Outcome]int{}
			for _, o := range outcomes {
				for outcome, n := range o {
					total[outcome] += n
				}
			}
			wantCounted(t, s, total[kv.OutcomeCommitted])
			if total[kv.OutcomeUnknown] > 0 {
				t.Errorf("%d outcomes stayed unknown although the server was there", total[kv.OutcomeUnknown])
			}
			if stats := s.Stats(); stats.Resolved == 0 || total[kv.OutcomeNotCommitted] == 0 || total[kv.OutcomeCommitted] == 0 {
				t.Errorf("outcomes %v, statistics %+v: the test has tested nothing", total, stats)
			}
		})
	}
}

// addOnce puts a key, appends an entry and counts, and says what it heard.
func addOnce(t *testing.T, s *Store, key string) kv.Outcome {
	at, err := s.Update(context.Background(), kv.Hints{}, counting(key))
	switch {
	case err == nil:
		return kv.OutcomeCommitted
	case !errors.Is(err, kv.ErrCommitUnknown):
		if !at.IsZero() || !errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, kv.ErrConflict) {
			t.Errorf("%s: %v, %v", key, at, err)
		}
		return kv.OutcomeNotCommitted
	}
	var known *kv.Error
	errors.As(err, &known)
	outcome, _, err := s.Resolve(context.Background(), known.Token)
	if err != nil && !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("%s: resolve: %v", key, err)
	}
	return outcome
}

// counting puts a key, appends it to the journal and adds one to a counter.
func counting(key string) func(kv.Tx) error {
	return func(tx kv.Tx) error {
		value, err := tx.Get([]byte("counter"))
		if err != nil {
			return err
		}
		var n int
		_, _ = fmt.Sscan(string(value), &n) // none is 0
		return errors.Join(tx.Put([]byte("counter"), fmt.Append(nil, n+1)), tx.Put([]byte("k"+key), nil), tx.Append([]byte("p"), []byte(key)))
	}
}

// wantCounted demands that counter, keys and entries all say that so many closures committed.
func wantCounted(t *testing.T, s *Store, want int) {
	t.Helper()
	var counter, keys, entries int
	var after kv.EntryPosition
	from, more := []byte("k"), true
	var err error
	for err == nil && more {
		err = s.View(context.Background(), func(v kv.Snapshot) error {
			value, err := v.Get([]byte("counter"))
			_, _ = fmt.Sscan(string(value), &counter)
			page, e := v.Scan(kv.Range{Start: from, End: []byte("l")}, 1000)
			if keys += len(page); len(page) > 0 {
				from = append(page[len(page)-1].Key, 0)
			}
			records, e2 := v.Journal([]byte("p"), after, 1000)
			if entries += len(records); len(records) > 0 {
				after = records[len(records)-1].Position
			}
			more = len(page)+len(records) > 0
			return errors.Join(err, e, e2)
		})
	}
	if err != nil || counter != want || keys != want || entries != want {
		t.Errorf("%d were heard to commit; the counter is %d, there are %d keys and %d entries, %v", want, counter, keys, entries, err)
	}
}

// A connection that passes nothing any more, without a word, is given up in time, and the answer is the truth.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	for ioTime := 300 * time.Millisecond; ; ioTime *= 2 { // a busy machine may need more where nothing is wrong
		if err := halfOpen(t, ioTime); err == nil {
			return
		} else if ioTime > 10*time.Second {
			t.Fatal(err)
		}
	}
}

func halfOpen(t *testing.T, ioTime time.Duration) error {
	proxy, url := throughProxy(t, testenv.MySQL(t, testenv.MariaDB10))
	s, err := Open(context.Background(), Options{URL: url, Now: time.Now, ioTime: ioTime})
	if err != nil {
		return err
	}
	defer s.Close()
	want := 0
	for round := range 3 {
		if round == 1 {
			proxy.Stick()
		}
		if round == 2 {
			proxy.Decide(onCommit(testenv.Swallow))
			time.AfterFunc(ioTime+ioTime/3, func() { proxy.Decide(nil) })
		}
		outcome := addOnce(t, s, fmt.Sprint(round))
		if outcome == kv.OutcomeCommitted {
			want++
		}
		if outcome == kv.OutcomeUnknown || outcome == kv.OutcomeNotCommitted && round != 1 {
			return fmt.Errorf("round %d: the outcome is %v", round, outcome)
		}
	}
	wantCounted(t, s, want)
	return nil
}

// A store whose server is away says so, answers with an error, and goes on by itself when the server is back.
func TestServerAway(t *testing.T) {
	t.Parallel()
	proxy, url := throughProxy(t, testenv.MySQL(t, testenv.MariaDB10))
	s := openStore(t, Options{URL: url, Now: time.Now})
	defer s.Close()
	if err := s.Writable(); err != nil {
		t.Errorf("a new store is not writable: %v", err)
	}
	proxy.Refuse(true)
	proxy.Cut()
	// Nobody asks it for anything meanwhile.
	if err := testenv.Eventually(time.Minute, func() error {
		if s.Writable() == nil {
			return errors.New("the store calls itself writable without a server")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if o := addOnce(t, s, "away"); o != kv.OutcomeNotCommitted {
		t.Errorf("without a server the outcome is %v", o)
	}
	if err := s.View(context.Background(), func(kv.Snapshot) error { return nil }); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("a view without a server: %v", err)
	}
	proxy.Refuse(false)
	if err := testenv.Eventually(time.Minute, s.Writable); err != nil {
		t.Error(err)
	}
	if o := addOnce(t, s, "back"); o != kv.OutcomeCommitted {
		t.Errorf("with the server back the outcome is %v", o)
	}
	wantCounted(t, s, 1)
}

// A failover that leads to a database without the store, with another one, or without the last commits is refused, and
// a way back is taken.
func TestFailover(t *testing.T) {
	t.Parallel()
	server := testenv.KeptMySQL(t, testenv.MariaDB10)
	database := func(url string) string { return url[len("mysql://root@"+server.Address+"/"):] }
	ours, other, empty := server.Database(t), server.Database(t), server.Database(t)
	stranger := openStore(t, Options{URL: other})
	if err := stranger.Close(); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Options{URL: ours, Now: time.Now})
	defer s.Close()
	if o := addOnce(t, s, "first"); o != kv.OutcomeCommitted {
		t.Fatal(o)
	}
	refused := func(name string) {
		t.Helper()
		_, err := s.Update(context.Background(), kv.Hints{}, counting(name))
		if !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("%s: a transaction: %v", name, err)
		}
		if err := s.View(context.Background(), func(kv.Snapshot) error { return nil }); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("%s: a view: %v", name, err)
		}
	}
	exec := func(statements ...string) {
		t.Helper()
		if err := server.Exec(statements...); err != nil {
			t.Fatal(err)
		}
	}
	row := func(db, key string) string { return fmt.Sprintf("(SELECT v FROM %s.%s WHERE k=%s)", db, table, key) }
	counter, format := fmt.Sprintf("x'%x'", counterKey), fmt.Sprintf("x'%x'", formatKey)
	a, b, c := database(ours), database(other), database(empty)
	exec("CREATE TABLE "+c+".kept AS SELECT k,v FROM "+a+"."+table,
		"UPDATE "+a+"."+table+" SET v=x'0000000000000000' WHERE k="+counter)
	refused("lost commits")
	exec("UPDATE " + a + "." + table + " SET v=(SELECT v FROM " + c + ".kept WHERE k=" + counter + ") WHERE k=" + counter)
	back := func() {
		t.Helper()
		if err := testenv.Eventually(time.Minute, func() error {
			_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte("a"), nil) })
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	back()
	exec("UPDATE " + a + "." + table + " SET v=" + row(b, format) + " WHERE k=" + format)
	if _, err := s.Update(context.Background(), kv.Hints{}, counting("another store")); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("another store: %v", err)
	}
	exec("RENAME TABLE "+a+"."+table+" TO "+a+".away",
		"CREATE TABLE "+a+"."+table+" LIKE "+a+".away")
	refused("no store")
	exec("DROP TABLE "+a+"."+table, "RENAME TABLE "+a+".away TO "+a+"."+table)
	f := s.engine.format
	f.version, f.minReader = formatVersion+1, formatVersion+1
	newer := fmt.Sprintf("x'%x'", f.encode())
	exec("UPDATE " + a + "." + table + " SET v=" + newer + " WHERE k=" + format)
	if err := testenv.Eventually(time.Minute, func() error {
		_, err := s.Update(context.Background(), kv.Hints{}, counting("a newer format"))
		if !errors.Is(err, kv.ErrUnavailable) || !errors.Is(err, ErrFormat) {
			return fmt.Errorf("a newer format: %w", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	exec("UPDATE " + a + "." + table + " SET v=(SELECT v FROM " + c + ".kept WHERE k=" + format + ") WHERE k=" + format)
	back()
	wantCounted(t, s, 1)
}

// A server of ours that vanishes without a word while it holds the writers' lock holds up the others for idleSeconds at most.
func TestVanishedWriter(t *testing.T) {
	if os.Getenv("ABIDE_LONG") != "1" {
		t.Skip("it waits until the database gives a session up; ABIDE_LONG=1 runs it")
	}
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := testenv.MySQL(t, kind)
			s, gone := openStore(t, Options{URL: url, Now: time.Now}), openStore(t, Options{URL: url, Now: time.Now})
			defer s.Close()
			defer gone.Close()
			if _, err := gone.engine.Begin(&batch.Fetch{}); err != nil {
				t.Fatal(err)
			}
			defer gone.engine.Rollback()
			ctx, cancel := context.WithTimeout(context.Background(), (idleSeconds+2*lockWaitSeconds)*time.Second)
			defer cancel()
			if _, err := kv.Run(ctx, s, kv.Hints{}, counting("a")); err != nil {
				t.Error(err)
			}
			if stats := s.Stats(); stats.Failures[fmt.Sprint(errLockTimeout)] == 0 {
				t.Errorf("nobody waited for the lock: %v", stats.Failures)
			}
		})
	}
}

// An import changes the incarnation; a lost answer to that commit is found out like any other.
func TestImportWithLostAnswers(t *testing.T) {
	t.Parallel()
	proxy, url := throughProxy(t, testenv.MySQL(t, testenv.MariaDB10))
	s := openStore(t, Options{URL: url, Now: time.Now})
	defer s.Close()
	proxy.Decide(onCommit(testenv.CutAnswer))
	first := kv.Import{Rows: []kv.Entry{{Key: []byte("a"), Value: []byte("1")}}, State: []byte("begun"), Incarnation: 7}
	if err := s.Import(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	if err := s.Import(context.Background(), kv.Import{After: []byte("begun"), Incarnation: 7, Sequence: 40}); err != nil {
		t.Fatal(err)
	}
	proxy.Decide(nil)
	again := openStore(t, Options{URL: url, Now: time.Now})
	defer again.Close()
	if at, err := again.Update(context.Background(), kv.Hints{}, counting("b")); err != nil || at.Incarnation() != 7 || at.Sequence() <= 40 {
		t.Errorf("%v, %v", at, err)
	}
}
