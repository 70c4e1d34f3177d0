package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"abide/kv"
)

var batchTests = []test{
	{name: "one closure fails, its neighbours live", run: testNeighboursLive},
	{name: "a closure that panics takes nobody with it", run: testPanicAmongOthers},
	{name: "positions are unique and in order under 64 writers", run: testManyWriters},
	{name: "nothing is answered by a neighbour's write that was lost", run: testAnswerOnLostWrite, needs: needsFailures},
	{name: "a commit that fails leaves nothing behind and tells everybody", run: testCommitFails, needs: needsFailures},
	{name: "an unknown outcome comes with a token, and is resolved to what happened", run: testUnknownOutcome, needs: needsUnknown},
}

// together starts all closures while another one holds the writer up, so that a store which commits several
// closures at once does so with these. It returns what each came to, in their order.
func (f *fixture) together(before func(), fns ...func(kv.Tx) error) ([]kv.Position, []error) {
	return f.togetherHinted(kv.Hints{}, before, fns...)
}

// togetherHinted is together with hints for all.
func (f *fixture) togetherHinted(h kv.Hints, before func(), fns ...func(kv.Tx) error) ([]kv.Position, []error) {
	inside, gate := make(chan struct{}), make(chan struct{})
	var entered sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = f.Store.Update(context.Background(), kv.Hints{}, func(kv.Tx) error {
			entered.Do(func() { close(inside) })
			<-gate
			return nil
		})
	})
	<-inside
	positions, errs := make([]kv.Position, len(fns)), make([]error, len(fns))
	for i, fn := range fns {
		wg.Go(func() {
			positions[i], errs[i] = f.Store.Update(context.Background(), h, fn)
		})
	}
	time.Sleep(2 * time.Millisecond) // most are queued by now; the check holds whichever are
	before()
	close(gate)
	wg.Wait()
	return positions, errs
}

func nothing() {}

func testNeighboursLive(f *fixture) {
	const n = 30
	for round := range 5 {
		var fns []func(kv.Tx) error
		for i := range n {
			fns = append(fns, func(tx kv.Tx) error {
				err := errors.Join(tx.Put(fmt.Appendf(nil, "k%d/%02d", round, i), nil), appendAll(tx, "p", fmt.Sprintf("%d/%02d", round, i)))
				if i%3 == 1 {
					err = errors.Join(err, errOwn)
				}
				return err
			})
		}
		positions, errs := f.together(nothing, fns...)
		f.view(func(s kv.Snapshot) error {
			for i := range n {
				fails := i%3 == 1
				value, err := s.Get(fmt.Appendf(nil, "k%d/%02d", round, i))
				if err != nil {
					return err
				}
				if errors.Is(errs[i], errOwn) != fails || positions[i].IsZero() != fails || (value == nil) != fails {
					f.Errorf("round %d, closure %d: %v, %v, present: %v", round, i, positions[i], errs[i], value != nil)
				}
			}
			return nil
		})
	}
	if got, want := len(f.journal("p", kv.EntryPosition{}, 7)), 5*n*2/3; got != want {
		f.Errorf("%d journal entries, want %d", got, want)
	}
}

func testPanicAmongOthers(f *fixture) {
	var fns []func(kv.Tx) error
	for i := range 12 {
		fns = append(fns, func(tx kv.Tx) error {
			err := tx.Put(fmt.Appendf(nil, "k%02d", i), nil)
			if i%4 == 2 {
				panic("for the test")
			}
			return err
		})
	}
	_, errs := f.together(nothing, fns...)
	for i, err := range errs {
		if want := "<none>"; (i%4 == 2) != (f.get(fmt.Sprintf("k%02d", i)) == want) || (err != nil) != (i%4 == 2) {
			f.Errorf("closure %d: %v", i, err)
		}
	}
	f.put("after", "")
}

// testManyWriters demands that each position is given once, that each writer's positions rise, and that the
// journal, which is in the order of commits, has the order of what was read and written.
func testManyWriters(f *fixture) {
	const writers, each = 64, 8
	var mu sync.Mutex
	seen := map[kv.Position]uint64{}
	concurrently(f.T, writers, func(worker int, _ *rand.Rand) error {
		var last kv.Position
		for range each {
			var n uint64
			at, err := kv.Run(context.Background(), f.Store, kv.Hints{Lane: fmt.Sprint(worker % 5)}, func(tx kv.Tx) error {
				value, err := tx.Get([]byte("counter"))
				n = number(value)
				return errors.Join(err, tx.Put([]byte("counter"), numberBytes(n+1)), tx.Append([]byte("p"), numberBytes(n)))
			})
			if err != nil {
				return err
			}
			if at.Compare(last) <= 0 {
				return fmt.Errorf("the position %v after %v", at, last)
			}
			last = at
			mu.Lock()
			if _, twice := seen[at]; twice {
				err = fmt.Errorf("the position %v was given twice", at)
			}
			seen[at] = n
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
	entries := f.journal("p", kv.EntryPosition{}, 100)
	if len(entries) != writers*each || len(seen) != writers*each {
		f.Fatalf("%d entries and %d positions, want %d", len(entries), len(seen), writers*each)
	}
	for i, e := range entries {
		if n := number(e.Record); n != uint64(i) || seen[e.Position.Commit] != n {
			f.Errorf("entry %d has number %d, and its commit %v was acknowledged with %d", i, n, e.Position.Commit, seen[e.Position.Commit])
			return
		}
	}
}

var errConflicting = errors.New("409: it is there already")

// testAnswerOnLostWrite runs a closure that writes and one that refuses because of what is written, and lets
// their commit fail: the refusal must not be told, because it would be the only trace of a write that never was.
func testAnswerOnLostWrite(f *fixture) {
	create := func(tx kv.Tx) error {
		value, err := tx.Get([]byte("promise"))
		if err == nil && value != nil {
			return errConflicting
		}
		return errors.Join(err, tx.Put([]byte("promise"), nil))
	}
	for range 10 {
		fns := []func(kv.Tx) error{create, create, create}
		_, errs := f.together(func() { f.harness.FailCommits(true) }, fns...)
		f.harness.FailCommits(false)
		if got := f.get("promise"); got != "<none>" {
			f.Fatalf("a commit that failed left %q behind", got)
		}
		for _, err := range errs {
			if errors.Is(err, errConflicting) {
				f.Errorf("a closure was refused because of a write that never was: %v", err)
			}
		}
	}
	_, errs := f.together(nothing, create, create, create)
	refused := 0
	for _, err := range errs {
		if errors.Is(err, errConflicting) {
			refused++
		}
	}
	if refused != 2 {
		f.Errorf("%d of three were refused, want 2: %v", refused, errs)
	}
}

func testCommitFails(f *fixture) {
	f.put("a", "1")
	before := f.bound()
	f.harness.FailCommits(true)
	var fns []func(kv.Tx) error
	for i := range 8 {
		fns = append(fns, func(tx kv.Tx) error {
			return errors.Join(tx.Put([]byte("a"), []byte("2")), tx.Put(fmt.Appendf(nil, "k%d", i), nil), tx.Append([]byte("p"), nil))
		})
	}
	positions, errs := f.together(nothing, fns...)
	for i, err := range errs {
		if err == nil || errors.Is(err, kv.ErrCommitUnknown) || !positions[i].IsZero() {
			f.Errorf("closure %d: %v, %v; want an error that says that nothing was committed", i, positions[i], err)
		}
	}
	f.wantContent("a=1") // reading goes on
	if at := f.bound(); at != before {
		f.Errorf("the bound is %v, want %v", at, before)
	}
	f.harness.FailCommits(false)
	if at := f.put("b", "3"); at.Compare(before) <= 0 {
		f.Errorf("the position %v after %v", at, before)
	}
	f.wantContent("a=1", "b=3")
	wantStrings(f, "the records", showJournal(f.journal("p", kv.EntryPosition{}, 10)), nil)
}

// testUnknownOutcome lets commits end without an outcome. Whatever can be learned of each later, by its token, must
// be what the store holds: all of a closure or nothing, at the position that is named. With the commit in between, a
// batch of five ends with the number that a lost batch of six would have ended with, if numbers are given again.
func testUnknownOutcome(f *fixture) {
	for round := range 4 {
		lost := round%2 == 0
		n := 5
		if lost {
			n = 6
		}
		key := func(i int) string { return fmt.Sprintf("k%d/%d", round, i) }
		var fns []func(kv.Tx) error
		for i := range n {
			fns = append(fns, func(tx kv.Tx) error {
				return errors.Join(tx.Put([]byte(key(i)), nil), appendAll(tx, "p", key(i)))
			})
		}
		fns = append(fns, func(tx kv.Tx) error { _, err := tx.Get([]byte(key(0))); return err }) // writes nothing
		positions, errs := f.together(func() { f.harness.UnknownCommits(true, lost) }, fns...)
		f.harness.UnknownCommits(false, false)
		if errors.Is(errs[n], kv.ErrCommitUnknown) {
			f.Errorf("round %d: a closure that wrote nothing hears %v", round, errs[n])
		}
		after := f.put("after", "") // the store goes on
		for i := range n {
			outcome, at := f.outcome(positions[i], errs[i])
			if outcome == kv.OutcomeUnknown {
				continue // for good: it may be there or not
			}
			want := "<none>"
			if outcome == kv.OutcomeCommitted {
				if want = ""; at.Compare(after) >= 0 {
					f.Errorf("round %d: the position %v is not before a later commit at %v", round, at, after)
				}
			}
			if got := f.get(key(i)); got != want {
				f.Errorf("round %d, closure %d: it heard %v, the outcome is %v, and %s is %q", round, i, errs[i], outcome, key(i), got)
			}
			entries := 0
			for _, e := range f.journal("p", kv.EntryPosition{}, 100) {
				if string(e.Record) == key(i) && e.Position.Commit == at {
					entries++
				}
			}
			if (entries == 1) != (outcome == kv.OutcomeCommitted) {
				f.Errorf("round %d, closure %d: the outcome is %v at %v, and its entry is there %d times", round, i, outcome, at, entries)
			}
		}
	}
}

// outcome is what became of a closure, asked for twice where it was not said.
func (f *fixture) outcome(at kv.Position, err error) (kv.Outcome, kv.Position) {
	f.Helper()
	if err == nil {
		return kv.OutcomeCommitted, at
	}
	if !errors.Is(err, kv.ErrCommitUnknown) {
		return kv.OutcomeNotCommitted, at
	}
	var known *kv.Error
	if !errors.As(err, &known) || known.Token == "" || !at.IsZero() {
		f.Fatalf("an unknown outcome is told as %v, %v, without a token or with a position", at, err)
	}
	first, at, err := f.Store.Resolve(context.Background(), known.Token)
	if err != nil {
		f.Fatalf("resolve: %v", err)
	}
	second, again, err := f.Store.Resolve(context.Background(), known.Token)
	if err != nil || second != first || again != at || at.IsZero() == (first == kv.OutcomeCommitted) {
		f.Errorf("an outcome is %v at %v, and then %v at %v, %v", first, at, second, again, err)
	}
	return first, at
}
