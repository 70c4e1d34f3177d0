package sqlitekv_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/sqlitekv"
)

// childPath in the environment makes the test binary a process that holds a store and writes to it.
const childPath = "ABIDE_TEST_CHILD_PATH"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		if err := child(path); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// programs is how many goroutines of the child write at once, so that they share commits.
const programs = 8

// child runs the programs. It prints "program number" for every commit that is acknowledged, and never ends by
// itself.
func child(path string) error {
	s, err := sqlitekv.Open(sqlitekv.Options{Path: path, Now: time.Now})
	if err != nil {
		return err
	}
	failure := make(chan error)
	for p := range programs {
		go func() {
			r := rand.New(rand.NewPCG(rand.Uint64(), uint64(p)))
			for {
				n, err := step(s, r, p)
				if err != nil {
					failure <- err
					return
				}
				fmt.Println(p, n) // one write each, so lines never mix
			}
		}()
	}
	return <-failure
}

// step is one transaction of a program: it counts one up, moves something between two accounts, writes or
// deletes rows of all sizes, and appends to the journal.
func step(s *sqlitekv.Store, r *rand.Rand, program int) (n int64, err error) {
	from, to, rows, size := r.IntN(accounts), r.IntN(accounts), r.IntN(5), 1<<r.IntN(16)
	if r.IntN(50) == 0 {
		rows = 60 // more than the writer's cache takes at once
	}
	first := r.IntN(1000)
	_, err = s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		var balance int64
		if n, err = number(tx, "n", program); err != nil {
			return err
		}
		n++
		for account, amount := range map[int]int64{from: -n, to: n} {
			if from == to {
				break
			}
			if balance, err = number(tx, "account", account); err != nil {
				return err
			}
			if err := tx.Put(fmt.Appendf(nil, "account %d", account), fmt.Append(nil, balance+amount)); err != nil {
				return err
			}
		}
		for i := range rows {
			key := fmt.Appendf(nil, "row %d", first+i)
			if i%4 == 3 {
				err = tx.Delete(key)
			} else {
				err = tx.Put(key, make([]byte, size))
			}
			if err != nil {
				return err
			}
		}
		record := fmt.Append(nil, n)
		return errors.Join(tx.Put(fmt.Appendf(nil, "n %d", program), record), tx.Append(fmt.Appendf(nil, "p%d", program), record))
	})
	return n, err
}

const accounts = 20

// number reads a number that a program has written; 0 if there is none.
func number(r kv.Reader, what string, i int) (n int64, err error) {
	value, err := r.Get(fmt.Appendf(nil, "%s %d", what, i))
	_, _ = fmt.Sscan(string(value), &n)
	return n, err
}

// history is what the killed processes of one file have left so far.
type history struct {
	acknowledged [programs]int64
	seen         [programs]kv.EntryPosition // the last entry of each program's journal
	counted      [programs]int64            // its number
	last         kv.Position
}

// look opens the file and compares it with what was acknowledged.
func (h *history) look(t *testing.T, path string) {
	t.Helper()
	s := open(t, path)
	var sum int64
	err := s.View(context.Background(), func(snap kv.Snapshot) error {
		for account := range accounts {
			balance, err := number(snap, "account", account)
			if err != nil {
				return err
			}
			sum += balance
		}
		for p := range programs {
			stored, err := number(snap, "n", p)
			if err != nil {
				return err
			}
			if err := h.follow(snap, p); err != nil {
				return err
			}
			if stored < h.acknowledged[p] || stored > h.acknowledged[p]+1 || stored != h.counted[p] {
				return fmt.Errorf("program %d: %d acknowledged, %d stored, %d in the journal", p, h.acknowledged[p], stored, h.counted[p])
			}
			h.acknowledged[p] = stored
		}
		if snap.Bound().Compare(h.last) < 0 {
			return fmt.Errorf("the bound %v is before a commit of an earlier process, %v", snap.Bound(), h.last)
		}
		return nil
	})
	if err != nil || sum != 0 {
		t.Fatalf("the sum is %d; %v", sum, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// follow reads what has come to a program's journal: it must count on without a gap, behind everything before.
func (h *history) follow(snap kv.Snapshot, p int) error {
	for {
		page, err := snap.Journal(fmt.Appendf(nil, "p%d", p), h.seen[p], 500)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, e := range page {
			var n int64
			if _, _ = fmt.Sscan(string(e.Record), &n); n != h.counted[p]+1 {
				return fmt.Errorf("program %d: the journal has %d after %d", p, n, h.counted[p])
			}
			h.counted[p], h.seen[p] = n, e.Position
			if e.Position.Commit.Compare(h.last) > 0 {
				h.last = e.Position.Commit
			}
		}
	}
}

// Every acknowledged commit of a killed process is there, none is there by half, and positions go on rising.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	var h history
	grown := 0
	longest := 80 * time.Millisecond // until a process is killed; more where a process takes longer to begin
	for round := range sqlitekv.Times(30, 1000) {
		before := h.acknowledged
		cmd, lines := spawn(t, path)
		var reading sync.WaitGroup
		reading.Go(func() {
			for lines.Scan() {
				var p int
				var n int64
				if _, err := fmt.Sscan(lines.Text(), &p, &n); err != nil {
					t.Errorf("round %d: the process said %q", round, lines.Text())
					return
				}
				h.acknowledged[p] = n
			}
		})
		time.Sleep(rand.N(longest)) // it may be opening the store, or long at work
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		reading.Wait()
		_ = cmd.Wait()
		h.look(t, path)
		if h.acknowledged != before {
			grown++
			longest = max(longest/2, 80*time.Millisecond)
		} else {
			longest = min(longest*2, 10*time.Second)
		}
	}
	if grown < 5 {
		t.Errorf("only %d processes have written anything", grown)
	}
}
