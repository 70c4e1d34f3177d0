package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"abide/kv"
)

var compactionTests = []test{
	{name: "a partition that was never compacted has the origin as its floor", run: testFloorOrigin},
	{name: "a step removes at most 127 entries and is resumed", run: testCompactionSteps},
	{name: "a reader below the floor is expired, one at it reads everything after it", run: testExpired},
	{name: "the floor never moves backwards", run: testFloorBackwards},
	{name: "a target ahead of the snapshot is refused", run: testTargetAhead},
	{name: "a target inside a commit cuts the commit there", run: testTargetInsideCommit},
	{name: "an empty range is as good as any", run: testEmptyRange},
	{name: "compaction of one partition leaves its neighbours alone", run: testCompactionNeighbours},
	{name: "a position of another history is expired", run: testOtherHistory},
	{name: "a step that fails changes nothing", run: testCompactionFails, needs: needsFailures},
	{name: "readers never meet a gap while others compact and append", run: testCompactionConcurrent},
	{name: "floors survive reopening", run: testFloorReopen, needs: needsReopen},
	{name: "entries and floors are at the keys that the contract names", run: testReservedLayout},
}

func (f *fixture) compact(partition string, target kv.EntryPosition) (floor kv.EntryPosition, more bool) {
	f.Helper()
	floor, more, err := kv.Compact(context.Background(), f.Store, []byte(partition), target)
	if err != nil {
		f.Fatalf("compact: %v", err)
	}
	return floor, more
}

// compactAll makes as many steps as it takes.
func (f *fixture) compactAll(partition string, target kv.EntryPosition) {
	f.Helper()
	for more := true; more; {
		_, more = f.compact(partition, target)
	}
}

func (f *fixture) floor(partition string) (floor kv.EntryPosition) {
	f.Helper()
	f.view(func(s kv.Snapshot) (err error) {
		floor, err = kv.Floor(s, []byte(partition))
		return err
	})
	return floor
}

// append commits entries, and returns their positions.
func (f *fixture) append(partition string, records ...string) []kv.EntryPosition {
	f.Helper()
	at := f.update(func(tx kv.Tx) error { return appendAll(tx, partition, records...) })
	var positions []kv.EntryPosition
	for i := range records {
		positions = append(positions, kv.EntryPosition{Commit: at, Index: uint32(i)})
	}
	return positions
}

// appendMany commits n entries, a few in each commit.
func (f *fixture) appendMany(partition string, n int) (positions []kv.EntryPosition) {
	f.Helper()
	for len(positions) < n {
		var records []string
		for i := len(positions); i < min(n, len(positions)+7); i++ {
			records = append(records, fmt.Sprint(i))
		}
		positions = append(positions, f.append(partition, records...)...)
	}
	return positions
}

// wantExpired reads a page after a position and demands that it is refused, with this floor in the error.
func (f *fixture) wantExpired(partition string, after, floor kv.EntryPosition) {
	f.Helper()
	err := f.Store.View(context.Background(), func(s kv.Snapshot) error {
		entries, err := s.Journal([]byte(partition), after, 10)
		if len(entries) != 0 {
			f.Errorf("a reader at %v got %d entries with the error %v", after, len(entries), err)
		}
		return err
	})
	var known *kv.Error
	if !errors.Is(err, kv.ErrExpired) || !errors.As(err, &known) {
		f.Errorf("a reader at %v below the floor %v: %v, want ErrExpired", after, floor, err)
	} else if known.Floor != floor || known.Store == "" || known.Op != "journal" {
		f.Errorf("the error names the floor %v, store %q, operation %q; want %v", known.Floor, known.Store, known.Op, floor)
	}
}

func testFloorOrigin(f *fixture) {
	if floor := f.floor("p"); floor != (kv.EntryPosition{}) {
		f.Errorf("the floor of a partition without entries is %v", floor)
	}
	f.append("p", "1")
	if floor := f.floor("p"); floor != (kv.EntryPosition{}) {
		f.Errorf("the floor of a partition that was never compacted is %v", floor)
	}
	if floor, more := f.compact("p", kv.EntryPosition{}); floor != (kv.EntryPosition{}) || more {
		f.Errorf("compaction through the origin: %v, more: %v", floor, more)
	}
	wantStrings(f, "the records from the origin", showJournal(f.journal("p", kv.EntryPosition{}, 10)), []string{"1"})
}

func testCompactionSteps(f *fixture) {
	const n = 3*kv.MaxCompactionEntries - 10
	at := f.appendMany("p", n)
	target := at[n-5]
	before := f.bound()
	steps := 0
	for more := true; more; steps++ {
		var floor kv.EntryPosition
		floor, more = f.compact("p", target)
		removed := min((steps+1)*kv.MaxCompactionEntries, n-4)
		if floor != at[removed-1] || more != (removed < n-4) {
			f.Fatalf("after step %d the floor is %v (more: %v), want %v", steps, floor, more, at[removed-1])
		}
		if stored := f.floor("p"); stored != floor {
			f.Errorf("the floor is %v, the step said %v", stored, floor)
		}
		if got := f.journal("p", floor, 50); len(got) != n-removed || got[0].Position != at[removed] {
			f.Fatalf("after step %d %d entries are left, want %d", steps, len(got), n-removed)
		}
	}
	if steps != 3 {
		f.Errorf("%d steps, want 3", steps)
	}
	if after := f.bound(); after.Compare(before) <= 0 {
		f.Errorf("the bound is %v after steps of compaction, %v before", after, before)
	}
	again := f.bound()
	if floor, more := f.compact("p", target); floor != target || more || f.bound() != again {
		f.Errorf("one more step: the floor is %v, more: %v; want %v and no commit", floor, more, target)
	}
}

func testExpired(f *fixture) {
	at := f.appendMany("p", 20)
	f.compactAll("p", at[9])
	for i, p := range at {
		if i < 9 {
			f.wantExpired("p", p, at[9])
			continue
		}
		if got := f.journal("p", p, 4); len(got) != 19-i {
			f.Errorf("a reader at entry %d gets %d entries, want %d", i, len(got), 19-i)
		}
	}
	f.wantExpired("p", kv.EntryPosition{}, at[9])
	f.view(func(s kv.Snapshot) error { // refused and scanned in one and the same snapshot
		f.compactAll("p", at[15])
		entries, err := s.Journal([]byte("p"), at[9], 100)
		if len(entries) != 10 {
			f.Errorf("a snapshot from before the compaction gives %d entries, want 10", len(entries))
		}
		return err
	})
	f.wantExpired("p", at[9], at[15])
}

func testFloorBackwards(f *fixture) {
	at := f.appendMany("p", 30)
	f.compactAll("p", at[20])
	for _, target := range []kv.EntryPosition{{}, at[0], at[19], at[20]} {
		before := f.bound()
		if floor, more := f.compact("p", target); floor != at[20] || more || f.bound() != before {
			f.Errorf("compaction through %v: the floor is %v, more: %v; want %v and no commit", target, floor, more, at[20])
		}
	}
	if got := f.journal("p", at[20], 100); len(got) != 9 {
		f.Errorf("%d entries are left, want 9", len(got))
	}
}

func testTargetAhead(f *fixture) {
	refused := func(target kv.EntryPosition) {
		f.Helper()
		floor, more, err := kv.Compact(context.Background(), f.Store, []byte("p"), target)
		if !errors.Is(err, kv.ErrLimit) || more || floor != (kv.EntryPosition{}) {
			f.Errorf("compaction through %v: %v, %v, %v", target, floor, more, err)
		}
	}
	next := func(at kv.Position) kv.Position { at[len(at)-1]++; return at }
	refused(kv.EntryPosition{Commit: kv.NewPosition(1, 1)})
	at := f.append("p", "1")
	refused(kv.EntryPosition{Commit: next(at[0].Commit)})
	refused(kv.EntryPosition{Commit: kv.NewPosition(at[0].Commit.Incarnation()+1, 1)})
	wantStrings(f, "the records", showJournal(f.journal("p", kv.EntryPosition{}, 10)), []string{"1"})
	f.compactAll("p", kv.EntryPosition{Commit: at[0].Commit, Index: kv.AfterCommit}) // all that there is
	f.wantExpired("p", kv.EntryPosition{}, kv.EntryPosition{Commit: at[0].Commit, Index: kv.AfterCommit})
}

func testTargetInsideCommit(f *fixture) {
	first := f.append("p", "1", "2", "3", "4")
	f.append("p", "5")
	f.compactAll("p", first[1])
	wantStrings(f, "the records", showJournal(f.journal("p", first[1], 10)), []string{"3", "4", "5"})
	f.wantExpired("p", first[0], first[1])
	f.compactAll("p", kv.EntryPosition{Commit: first[0].Commit, Index: kv.AfterCommit})
	wantStrings(f, "the records", showJournal(f.journal("p", f.floor("p"), 10)), []string{"5"})
}

func testEmptyRange(f *fixture) {
	at := f.put("k", "v") // a commit without an entry
	target := kv.EntryPosition{Commit: at, Index: 3}
	if floor, more := f.compact("p", target); floor != target || more {
		f.Errorf("the floor is %v, more: %v, want %v", floor, more, target)
	}
	f.wantExpired("p", kv.EntryPosition{}, target)
	f.append("p", "1")
	wantStrings(f, "the records", showJournal(f.journal("p", target, 10)), []string{"1"})
}

func testCompactionNeighbours(f *fixture) {
	names := []string{"", "p", "p\x00", "pp", "o", "q", "\xFF"}
	var cut kv.EntryPosition
	for range 2 {
		for _, name := range names {
			at := f.append(name, "1 of <"+name+">", "2 of <"+name+">")
			cut = at[1]
		}
	}
	f.compactAll("p", cut)
	for _, name := range names {
		want := 4
		if name == "p" {
			want = 0
		}
		if got := f.journal(name, f.floor(name), 3); len(got) != want {
			f.Errorf("%q has %d entries, want %d", name, len(got), want)
		}
	}
	f.wantContent()
}

// testOtherHistory asks with positions that this store never gave.
func testOtherHistory(f *fixture) {
	f.wantExpired("p", kv.EntryPosition{Commit: kv.NewPosition(1, 7)}, kv.EntryPosition{})
	at := f.append("p", "1")[0].Commit
	ahead := at
	ahead[len(ahead)-1]++
	f.wantExpired("p", kv.EntryPosition{Commit: ahead}, kv.EntryPosition{})
	f.wantExpired("p", kv.EntryPosition{Commit: kv.NewPosition(at.Incarnation()-1, 1)}, kv.EntryPosition{})
	f.wantExpired("p", kv.EntryPosition{Commit: kv.NewPosition(at.Incarnation()+1, 1)}, kv.EntryPosition{})
}

func testCompactionFails(f *fixture) {
	at := f.appendMany("p", 10)
	f.harness.FailCommits(true)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := kv.Compact(ctx, f.Store, []byte("p"), at[9]); !errors.Is(err, context.Canceled) {
		f.Errorf("compaction for a caller who has gone away: %v", err)
	}
	if floor, more, err := kv.Compact(context.Background(), f.Store, []byte("p"), at[9]); err == nil || more || floor != (kv.EntryPosition{}) {
		f.Errorf("compaction whose commit fails: %v, %v, %v", floor, more, err)
	}
	if floor := f.floor("p"); floor != (kv.EntryPosition{}) {
		f.Errorf("the floor is %v", floor)
	}
	f.harness.FailCommits(false)
	if got := f.journal("p", kv.EntryPosition{}, 100); len(got) != 10 {
		f.Errorf("%d entries are left, want 10", len(got))
	}
}

// testCompactionConcurrent appends numbers, compacts behind the readers and before them, and demands of every
// reader that the numbers it gets follow each other without a gap, or that it is told to start again.
func testCompactionConcurrent(f *fixture) {
	const writers, readers, commits = 3, 3, 40
	done := make(chan struct{})
	writing := make(chan struct{}, writers)
	next := func(tx kv.Tx) error {
		value, err := tx.Get([]byte("counter"))
		if err != nil {
			return err
		}
		n := number(value)
		for i := range uint64(3) {
			if err := tx.Append([]byte("p"), numberBytes(n+i)); err != nil {
				return err
			}
		}
		return tx.Put([]byte("counter"), numberBytes(n+3))
	}
	concurrently(f.T, writers+readers+1, func(worker int, r *rand.Rand) error {
		switch {
		case worker < writers:
			defer func() {
				if writing <- struct{}{}; len(writing) == writers {
					close(done)
				}
			}()
			for range commits {
				if _, err := kv.Run(context.Background(), f.Store, kv.Hints{}, next); err != nil {
					return err
				}
			}
			return nil
		case worker == writers:
			return f.compactUntil(done, r)
		}
		return f.followUntil(done, r)
	})
	if err := f.followUntil(done, rand.New(rand.NewPCG(1, 1))); err != nil { // one that begins below the floor
		f.Error(err)
	}
	f.view(func(s kv.Snapshot) error {
		floor, err := kv.Floor(s, []byte("p"))
		if err != nil {
			return err
		}
		entries, err := s.Journal([]byte("p"), floor, kv.MaxScanRows)
		for i, e := range entries {
			if want := uint64(writers*commits*3 - len(entries) + i); number(e.Record) != want {
				f.Errorf("entry %d is number %d, want %d", i, number(e.Record), want)
				break
			}
		}
		return err
	})
}

// compactUntil compacts through random entries until done is closed, and a few times at least.
func (f *fixture) compactUntil(done chan struct{}, r *rand.Rand) error {
	var last kv.EntryPosition
	for steps := 0; steps < 3 || !closed(done); {
		var page []kv.JournalEntry
		err := f.Store.View(context.Background(), func(s kv.Snapshot) (err error) {
			page, err = s.Journal([]byte("p"), last, 1+r.IntN(100))
			return err
		})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			if closed(done) {
				return nil
			}
			continue
		}
		floor, _, err := kv.Compact(context.Background(), f.Store, []byte("p"), page[len(page)-1].Position)
		if err != nil {
			return err
		}
		if floor.Compare(last) < 0 {
			return fmt.Errorf("the floor %v came after %v", floor, last)
		}
		last = floor
		steps++
	}
	return nil
}

// followUntil reads the journal page by page until done is closed and there is no more.
func (f *fixture) followUntil(done chan struct{}, r *rand.Rand) error {
	var after kv.EntryPosition
	want, known := uint64(0), true
	for {
		last := closed(done)
		var page []kv.JournalEntry
		err := f.Store.View(context.Background(), func(s kv.Snapshot) (err error) {
			page, err = s.Journal([]byte("p"), after, 1+r.IntN(10))
			return err
		})
		var expired *kv.Error
		if errors.As(err, &expired) && errors.Is(err, kv.ErrExpired) {
			after, known = expired.Floor, false
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range page {
			if n := number(e.Record); known && n != want {
				return fmt.Errorf("number %d follows %d", n, want-1)
			}
			want, known, after = number(e.Record)+1, true, e.Position
		}
		if last && len(page) == 0 {
			return nil
		}
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func testFloorReopen(f *fixture) {
	at := f.appendMany("p", kv.MaxCompactionEntries+10)
	floor, more := f.compact("p", at[len(at)-5])
	if floor != at[kv.MaxCompactionEntries-1] || !more {
		f.Fatalf("the floor is %v, more: %v", floor, more)
	}
	f.reopen()
	if got := f.floor("p"); got != floor {
		f.Errorf("the floor is %v, want %v", got, floor)
	}
	f.wantExpired("p", at[0], floor)
	last := at[len(at)-10]
	f.compactAll("p", last)
	f.reopen()
	if got := f.journal("p", last, 100); len(got) != 9 {
		f.Errorf("%d entries are left, want 9", len(got))
	}
}

// testReservedLayout reads the reserved keys as a checker does.
func testReservedLayout(f *fixture) {
	p, q := f.appendMany("p", 10), f.appendMany("q", 3)
	f.compactAll("p", p[4])
	var entries, floors []string
	f.view(func(s kv.Snapshot) error {
		rows, err := s.Scan(kv.AllEntries(), 100)
		for _, row := range rows {
			partition, at, parseErr := kv.ParseJournalKey(row.Key)
			err = errors.Join(err, parseErr)
			entries = append(entries, fmt.Sprintf("%s %v", partition, at))
		}
		rows, scanErr := s.Scan(kv.AllFloors(), 100)
		for _, row := range rows {
			partition, parseErr := kv.ParseFloorKey(row.Key)
			floor, valueErr := kv.ParseFloor(row.Value)
			err = errors.Join(err, parseErr, valueErr)
			floors = append(floors, fmt.Sprintf("%s %v", partition, floor))
		}
		one, oneErr := s.Scan(kv.JournalRange([]byte("p"), p[5], p[7]), 100)
		if len(one) != 2 {
			f.Errorf("a range of two entries holds %d", len(one))
		}
		return errors.Join(err, scanErr, oneErr)
	})
	var want []string
	for _, at := range p[5:] {
		want = append(want, fmt.Sprintf("p %v", at))
	}
	for _, at := range q {
		want = append(want, fmt.Sprintf("q %v", at))
	}
	wantStrings(f, "the entries", entries, want)
	wantStrings(f, "the floors", floors, []string{fmt.Sprintf("p %v", p[4])})
	if !slices.Equal(f.journalPositions("p", p[4]), p[5:]) {
		f.Error("the keys and the journal's pages differ")
	}
}

func (f *fixture) journalPositions(partition string, after kv.EntryPosition) (positions []kv.EntryPosition) {
	for _, e := range f.journal(partition, after, 3) {
		positions = append(positions, e.Position)
	}
	return positions
}
