package kvtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"abide/kv"
)

var journalTests = []test{
	{name: "entries come in commit order and, within a commit, in append order", run: testJournalOrder},
	{name: "a reader that stops inside a commit goes on inside it", run: testJournalResumes},
	{name: "no partition is the beginning of another", run: testJournalPartitions},
	{name: "the cursor of a snapshot has seen exactly what the snapshot has", run: testJournalCursor},
	{name: "the journal is no part of the keys", run: testJournalIsNotKeys},
	{name: "concurrent appends", run: testJournalConcurrent},
}

func appendAll(tx kv.Tx, partition string, records ...string) error {
	for _, r := range records {
		if err := tx.Append([]byte(partition), []byte(r)); err != nil {
			return err
		}
	}
	return nil
}

// journal reads a whole partition in pages of limit.
func (f *fixture) journal(partition string, after kv.EntryPosition, limit int) []kv.JournalEntry {
	f.Helper()
	var all []kv.JournalEntry
	f.view(func(s kv.Snapshot) error {
		all = nil
		for {
			page, err := s.Journal([]byte(partition), after, limit)
			if err != nil {
				return err
			}
			if len(page) > limit {
				f.Fatalf("a page of %d entries, limit %d", len(page), limit)
			}
			all = append(all, page...)
			if len(page) < limit {
				return nil
			}
			after = page[len(page)-1].Position
		}
	})
	return all
}

func testJournalOrder(f *fixture) {
	first := f.update(func(tx kv.Tx) error { return appendAll(tx, "p", "1", "2", "3") })
	f.put("k", "v")
	second := f.update(func(tx kv.Tx) error {
		return errors.Join(appendAll(tx, "p", "4"), appendAll(tx, "q", "x"), appendAll(tx, "p", ""))
	})
	entries := f.journal("p", kv.EntryPosition{}, 100)
	wantStrings(f, "the records", showJournal(entries), []string{"1", "2", "3", "4", ""})
	for i, e := range entries {
		commit := first
		if i >= 3 {
			commit = second
		}
		if e.Position.Commit != commit {
			f.Errorf("entry %d is of commit %v, want %v", i, e.Position.Commit, commit)
		}
		if i > 0 && entries[i-1].Position.Compare(e.Position) >= 0 {
			f.Errorf("entry %d at %v follows %v", i, e.Position, entries[i-1].Position)
		}
		if e.Record == nil {
			f.Errorf("the record of entry %d is nil", i)
		}
	}
	if entries[0].Position.Index != 0 || entries[2].Position.Index != 2 {
		f.Errorf("the first commit's indexes are %d and %d", entries[0].Position.Index, entries[2].Position.Index)
	}
}

func testJournalResumes(f *fixture) {
	var want []string
	for c := range 5 {
		f.update(func(tx kv.Tx) error {
			for i := range 4 {
				if err := appendAll(tx, "p", fmt.Sprintf("%d.%d", c, i)); err != nil {
					return err
				}
			}
			return nil
		})
		for i := range 4 {
			want = append(want, fmt.Sprintf("%d.%d", c, i))
		}
	}
	for _, limit := range []int{1, 2, 3, 7, 20, 100} {
		got := showJournal(f.journal("p", kv.EntryPosition{}, limit))
		wantStrings(f, fmt.Sprintf("the records in pages of %d", limit), got, want)
	}
	all := f.journal("p", kv.EntryPosition{}, 100)
	for i, e := range all {
		rest := f.journal("p", e.Position, 100)
		wantStrings(f, fmt.Sprintf("the records after entry %d", i), showJournal(rest), want[i+1:])
		rest = f.journal("p", kv.EntryPosition{Commit: e.Position.Commit, Index: kv.AfterCommit}, 100)
		wantStrings(f, fmt.Sprintf("the records after the commit of entry %d", i), showJournal(rest), want[i/4*4+4:])
	}
}

func testJournalPartitions(f *fixture) {
	names := []string{"", "a", "a\x00", "a\x00\x00", "aa", "ab", "\x00", "\xff", "\xff\xff", "a\xff"}
	f.update(func(tx kv.Tx) error {
		for _, name := range names {
			if err := appendAll(tx, name, "of <"+name+">"); err != nil {
				return err
			}
		}
		return nil
	})
	for _, name := range names {
		got := showJournal(f.journal(name, kv.EntryPosition{}, 100))
		wantStrings(f, fmt.Sprintf("the records of %q", name), got, []string{"of <" + name + ">"})
	}
	wantStrings(f, "the records of a partition that has none", showJournal(f.journal("b", kv.EntryPosition{}, 10)), nil)
}

func testJournalCursor(f *fixture) {
	empty := kv.EntryPosition{Commit: f.bound(), Index: kv.AfterCommit}
	defer func() {
		wantStrings(f, "the records after the cursor of the empty store", showJournal(f.journal("p", empty, 10)), []string{"1", "2", "3"})
	}()
	f.update(func(tx kv.Tx) error { return appendAll(tx, "p", "1", "2") })
	var cursor kv.EntryPosition
	f.view(func(s kv.Snapshot) error {
		cursor = kv.EntryPosition{Commit: s.Bound(), Index: kv.AfterCommit}
		return nil
	})
	wantStrings(f, "the records after the cursor", showJournal(f.journal("p", cursor, 10)), nil)
	f.put("k", "v")
	f.update(func(tx kv.Tx) error { return appendAll(tx, "p", "3") })
	wantStrings(f, "the records after the cursor", showJournal(f.journal("p", cursor, 10)), []string{"3"})
}

func testJournalIsNotKeys(f *fixture) {
	f.update(func(tx kv.Tx) error { return errors.Join(appendAll(tx, "p", "1"), tx.Put([]byte("k"), []byte("v"))) })
	f.wantContent("k=v")
	f.update(func(tx kv.Tx) error {
		entries, err := tx.Scan(everything, 10)
		if len(entries) != 1 {
			f.Errorf("a scan in a transaction sees %d entries", len(entries))
		}
		return err
	})
}

func testJournalConcurrent(f *fixture) {
	const workers, each = 6, 20
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				_, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
					if i%5 == 4 { // these take their writes back, and leave no gap behind that shows
						return errors.Join(appendAll(tx, "p", "never"), errOwn)
					}
					return appendAll(tx, "p", fmt.Sprintf("%d/%d", w, i), fmt.Sprintf("%d/%d again", w, i))
				})
				if (err != nil) != (i%5 == 4) {
					f.Error(err)
				}
			}
		})
	}
	wg.Wait()
	entries := f.journal("p", kv.EntryPosition{}, 7)
	if want := workers * each / 5 * 4 * 2; len(entries) != want {
		f.Fatalf("%d entries, want %d", len(entries), want)
	}
	last := make(map[int]int)
	for i := 0; i < len(entries); i += 2 {
		var w, n int
		if _, err := fmt.Sscanf(string(entries[i].Record), "%d/%d", &w, &n); err != nil {
			f.Fatalf("record %q", entries[i].Record)
		}
		if want := fmt.Sprintf("%d/%d again", w, n); string(entries[i+1].Record) != want {
			f.Errorf("%q follows %q", entries[i+1].Record, entries[i].Record)
		}
		if previous, ok := last[w]; ok && n <= previous {
			f.Errorf("worker %d: %d after %d", w, n, previous)
		}
		last[w] = n
	}
}
