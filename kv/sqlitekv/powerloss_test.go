package sqlitekv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"

	"abide/kv"
)

// Times is how often to do something: quick in the usual run, often in the long one (make long).
func Times(quick, often int) int {
	if os.Getenv("ABIDE_LONG") != "" {
		return often
	}
	return quick
}

// ledger is what a program was told about its transfers.
type ledger struct {
	mu           sync.Mutex
	acknowledged int64          // the number of the last transfer that is done
	attempt      int64          // tries so far; each writes its own number
	denied       map[int64]bool // tries of which the store has said that they are not committed
}

// crash is a possible state of the files, with what had been told until then.
type crash struct {
	files        map[string][]byte
	acknowledged int64
	denied       map[int64]bool
}

// hazard is what a run has to live with.
type hazard struct {
	weaker  synchronous // below FULL
	failing int         // see disk
}

// crashes runs a store with a short log, so that it is moved and started over all the time, and returns
// states in which a loss of power might have left it.
func crashes(t *testing.T, seed uint64, path string, h hazard, most int) ([]crash, *disk) {
	t.Helper()
	told := &ledger{denied: map[int64]bool{}}
	var found []crash
	d := &disk{rand: rand.New(rand.NewPCG(seed, 3)), files: map[string]*diskContent{}, moment: func() {}}
	name := d.register(h.weaker == 0) // gathering the log is right under FULL only
	defer vfs.Unregister(name)
	s, err := Open(Options{Path: path, vfs: name, walPages: 40, CacheBytes: 400 << 10, weaker: h.weaker})
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.failing = h.failing
	d.moment = func() {
		rarity := 12
		if d.trouble > 0 {
			d.trouble--
			rarity = 3
		}
		if len(found) < most && d.rand.IntN(rarity) == 0 {
			told.mu.Lock()
			found = append(found, crash{d.image(), told.acknowledged, maps.Clone(told.denied)})
			told.mu.Unlock()
		}
	}
	d.mu.Unlock()
	r := rand.New(rand.NewPCG(seed, 4))
	for n := range int64(200) {
		for !told.transfer(t, s, r, n+1) {
		}
		if n%7 == 0 {
			s.writer.checkpointer.hurry()
		}
	}
	d.mu.Lock()
	d.moment, d.failing = func() {}, 0
	d.mu.Unlock()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return found, d
}

// transfer tries transfer n and reports whether it is done. It finds out what became of an unknown commit.
func (l *ledger) transfer(t *testing.T, s *Store, r *rand.Rand, n int64) bool {
	t.Helper()
	l.mu.Lock()
	l.attempt++
	attempt := l.attempt
	l.mu.Unlock()
	err := transfer(s, r, n, attempt)
	var unknown *kv.Error
	outcome := kv.OutcomeCommitted
	switch {
	case errors.Is(err, kv.ErrCommitUnknown) && errors.As(err, &unknown):
		outcome = kv.OutcomeUnknown
		for tries := 0; outcome == kv.OutcomeUnknown; tries++ {
			if outcome, _, err = s.Resolve(context.Background(), unknown.Token); tries == 1000 {
				t.Fatalf("an unknown commit stays unknown: %v", err)
			}
		}
	case errors.Is(err, kv.ErrUnavailable):
		outcome = kv.OutcomeNotCommitted
	case err != nil:
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if outcome == kv.OutcomeNotCommitted {
		l.denied[attempt] = true
		return false
	}
	l.acknowledged = n
	return true
}

const accounts = 50

// transfer moves something between two accounts, whose sum stays zero, and leaves n as the number of the
// last transfer. Some write more than the writer's cache holds, so that pages reach the log before the commit.
func transfer(s *Store, r *rand.Rand, n, attempt int64) error {
	from, to, padding := r.IntN(accounts), r.IntN(accounts), r.IntN(3000)
	large := r.IntN(20) == 0
	_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		move := func(account int, amount int64) error {
			key := fmt.Appendf(nil, "account %d", account)
			value, err := tx.Get(key)
			if err != nil {
				return err
			}
			var balance int64
			_, _ = fmt.Sscan(string(value), &balance)
			return tx.Put(key, fmt.Appendf(nil, "%d %0*d", balance+amount, padding, 0))
		}
		if large {
			for i := range 20 {
				if err := tx.Put(fmt.Appendf(nil, "large %d", i), make([]byte, 20_000)); err != nil {
					return err
				}
			}
		}
		return errors.Join(move(from, -n), move(to, n), tx.Put([]byte("last"), fmt.Appendf(nil, "%d %d", n, attempt)),
			tx.Append([]byte("p"), fmt.Appendf(nil, "%d", n)))
	})
	return err
}

// check demands every acknowledged transfer, at most one more, each of them whole, none that the store had
// denied, and positions that go on rising.
func (c crash) check(folder string) error {
	if err := c.write(folder); err != nil {
		return err
	}
	s, err := Open(Options{Path: filepath.Join(folder, "a.db"), vfs: registerLazy()})
	if err != nil {
		return err
	}
	var sum, last, attempt, journal int64
	var end kv.EntryPosition
	err = s.View(context.Background(), func(snap kv.Snapshot) error {
		value, err := snap.Get([]byte("last"))
		if err != nil {
			return err
		}
		_, _ = fmt.Sscan(string(value), &last, &attempt)
		entries, err := snap.Scan(kv.Range{Start: []byte("account "), End: []byte("account!")}, accounts+1)
		for _, e := range entries {
			var balance int64
			_, _ = fmt.Sscan(string(e.Value), &balance)
			sum += balance
		}
		records, journalErr := snap.Journal([]byte("p"), kv.EntryPosition{}, kv.MaxScanRows)
		if journal = int64(len(records)); journal > 0 {
			end = records[journal-1].Position
		}
		return errors.Join(err, journalErr)
	})
	if err == nil && (sum != 0 || journal != last || last < c.acknowledged || last > c.acknowledged+1 || c.denied[attempt]) {
		err = fmt.Errorf("%d acknowledged, %d stored by try %d (denied: %v), %d in the journal, the sum is %d",
			c.acknowledged, last, attempt, c.denied[attempt], journal, sum)
	}
	if at, e := set(s, "after", "x"); e != nil || at.Compare(end.Commit) <= 0 {
		err = errors.Join(err, fmt.Errorf("the next commit is at %v after %v: %w", at, end.Commit, e))
	}
	return errors.Join(err, s.Close(), integrity(filepath.Join(folder, "a.db")))
}

// write puts the files into a folder.
func (c crash) write(folder string) error {
	for from, content := range c.files {
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(from)), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// findLosses runs seeds and returns what is wrong with the states that losses of power leave.
func findLosses(t *testing.T, seeds int, h hazard) (checked int, losses []error, d *disk) {
	t.Helper()
	most := Times(40, 20) // each check opens a store: the long run looks at more seeds instead
	for seed := range uint64(seeds) {
		var found []crash
		found, d = crashes(t, seed, filepath.Join(t.TempDir(), "a.db"), h, most)
		folder := t.TempDir()
		for i, c := range found {
			one := filepath.Join(folder, fmt.Sprint(i))
			if err := os.Mkdir(one, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := c.check(one); err != nil {
				losses = append(losses, fmt.Errorf("seed %d, crash %d: %w", seed, i, err))
			}
			if err := os.RemoveAll(one); err != nil {
				t.Fatal(err)
			}
		}
		checked += len(found)
	}
	return checked, losses, d
}

func TestLossOfPower(t *testing.T) {
	for name, h := range map[string]hazard{"on a good disk": {}, "on a failing disk": {failing: 15}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seeds := Times(3, 1000)
			checked, losses, d := findLosses(t, seeds, h)
			if checked < 15*seeds {
				t.Errorf("only %d crashes", checked)
			}
			if h.failing > 0 && (d.failedSyncs == 0 || d.failedWrites == 0) {
				t.Errorf("%d syncs and %d writes failed in the last run", d.failedSyncs, d.failedWrites)
			}
			for _, err := range losses[:min(len(losses), 10)] {
				t.Error(err)
			}
		})
	}
}

// The proof that TestLossOfPower can fail: without a sync for every commit it does.
func TestLossOfPowerShowsWithoutSyncs(t *testing.T) {
	for name, h := range map[string]hazard{"NORMAL": {weaker: 1}, "OFF": {weaker: 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checked, losses, _ := findLosses(t, 1, h)
			if len(losses) == 0 {
				t.Errorf("%d crashes and no loss", checked)
			}
		})
	}
}
