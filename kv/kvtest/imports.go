package kvtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"abide/kv"
)

var importTests = []test{
	{name: "a store filled in steps is like the one that it was filled from", run: testImport, needs: needsImports},
	{name: "an import goes on after a restart", run: testImportRestart, needs: needsImports | needsReopen},
	{name: "a store that is in use is not imported into", run: testImportRefused, needs: needsImports},
	{name: "no step is made twice and no two importers go on", run: testImportOrder, needs: needsImports},
	{name: "an import out of bounds changes nothing", run: testImportLimits, needs: needsImports},
	{name: "an import that cannot commit changes nothing", run: testImportFails, needs: needsImports | needsFailures},
}

// importIncarnation is that of the store after an import, whatever it was opened with.
const importIncarnation = 77

// importSequence is the last commit of the store that the rows of an import come from.
const importSequence = 500

func (f *fixture) importer() kv.Importer {
	f.Helper()
	i, ok := f.Store.(kv.Importer)
	if !ok {
		f.Fatal("the harness says that the store can be imported into; it is no kv.Importer")
	}
	return i
}

// importStep makes a step that must succeed, from one state to another; "" stands for none.
func (f *fixture) importStep(after, state string, rows ...kv.Entry) {
	f.Helper()
	step := kv.Import{Rows: rows, Incarnation: importIncarnation, Sequence: importSequence, After: importState(after), State: importState(state)}
	err := f.importer().Import(context.Background(), step)
	for tries := 0; errors.Is(err, kv.ErrUnavailable) && tries < 6000; tries++ {
		time.Sleep(10 * time.Millisecond) // the engine has failed, and comes back by itself
		err = f.importer().Import(context.Background(), step)
	}
	if err != nil {
		f.Fatalf("a step of an import: %v", err)
	}
	f.wantImportState(state)
}

func importState(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

func (f *fixture) wantImportState(want string) {
	f.Helper()
	state, err := f.importer().ImportState(context.Background())
	if err != nil || (state == nil) != (want == "") || string(state) != want {
		f.Errorf("the state of the import is %q (%v), want %q", state, err, want)
	}
}

func importedEntry(partition string, commit uint64, index uint32) kv.Entry {
	at := kv.EntryPosition{Commit: kv.NewPosition(importIncarnation, commit), Index: index}
	return kv.Entry{Key: kv.JournalKey([]byte(partition), at), Value: fmt.Appendf(nil, "%s%d/%d", partition, commit, index)}
}

func importedFloor(partition string, commit uint64) kv.Entry {
	at := kv.EntryPosition{Commit: kv.NewPosition(importIncarnation, commit), Index: kv.AfterCommit}
	return kv.Entry{Key: kv.FloorKey([]byte(partition)), Value: kv.AppendFloor(nil, at)}
}

func testImport(f *fixture) {
	f.wantImportState("")
	f.importStep("", "begun")
	f.importStep("begun", "keys", kv.Entry{Key: []byte("b"), Value: []byte("2")}, kv.Entry{Key: []byte("a"), Value: []byte{}})
	f.importStep("keys", "more keys", kv.Entry{Key: []byte("b"), Value: []byte("3")})
	f.importStep("more keys", "journal", importedFloor("p", 20), importedEntry("p", 30, 0), importedEntry("p", 30, 1), importedEntry("q", 10, 0))
	f.importStep("journal", "")
	if f.harness.Reopen != nil {
		f.reopen()
	} else if f.harness.Second != nil {
		defer f.Store.Close()
		f.Store = f.harness.Second(f.T, f.config)
	}
	f.wantImportState("")
	f.wantContent("a=", "b=3")
	bound := f.bound()
	if bound.Incarnation() != importIncarnation || bound.Sequence() <= importSequence {
		f.Errorf("the store's last commit is %v, want one of incarnation %d after %d", bound, importIncarnation, importSequence)
	}
	f.view(func(s kv.Snapshot) error {
		floor, err := kv.Floor(s, []byte("p"))
		if err != nil || floor.Commit != kv.NewPosition(importIncarnation, 20) {
			f.Errorf("the floor is %v (%v)", floor, err)
		}
		entries, err := s.Journal([]byte("p"), floor, 10)
		wantStrings(f, "the entries of p", showJournal(entries), []string{"p30/0", "p30/1"})
		return err
	})
	if at := f.update(func(tx kv.Tx) error { return tx.Append([]byte("q"), []byte("new")) }); at.Compare(bound) <= 0 {
		f.Errorf("a commit after the import is at %v, the import ended at %v", at, bound)
	}
	f.view(func(s kv.Snapshot) error {
		entries, err := s.Journal([]byte("q"), kv.EntryPosition{}, 10)
		wantStrings(f, "the entries of q", showJournal(entries), []string{"q10/0", "new"})
		return err
	})
}

func testImportRestart(f *fixture) {
	f.importStep("", "first", kv.Entry{Key: []byte("a"), Value: []byte("1")})
	f.reopen()
	f.wantImportState("first")
	f.importStep("first", "second", kv.Entry{Key: []byte("b"), Value: []byte("2")})
	f.importStep("second", "")
	f.reopen()
	f.wantContent("a=1", "b=2")
	if bound := f.bound(); bound.Incarnation() != importIncarnation {
		f.Errorf("the store's last commit is %v, want incarnation %d", bound, importIncarnation)
	}
}

// refuses makes a step that must fail with ErrLimit.
func (f *fixture) refuses(what string, step kv.Import) {
	f.Helper()
	if err := f.importer().Import(context.Background(), step); !errors.Is(err, kv.ErrLimit) {
		f.Errorf("%s: %v, want %v", what, err, kv.ErrLimit)
	}
}

func testImportRefused(f *fixture) {
	f.refuses("an import that ends before it begins", kv.Import{Incarnation: importIncarnation})
	f.put("a", "1")
	before := f.bound()
	f.refuses("an import into a store in use", kv.Import{State: []byte("x"), Incarnation: importIncarnation})
	f.wantImportState("")
	f.wantContent("a=1")
	if f.bound() != before {
		f.Errorf("the last commit was %v and is %v", before, f.bound())
	}
}

func testImportOrder(f *fixture) {
	step := func(after, state, value string) kv.Import {
		return kv.Import{Rows: []kv.Entry{{Key: []byte("a"), Value: []byte(value)}}, After: importState(after), State: importState(state), Incarnation: 5}
	}
	conflicts := func(what string, s kv.Import) {
		f.Helper()
		if err := f.importer().Import(context.Background(), s); !errors.Is(err, kv.ErrConflict) {
			f.Errorf("%s: %v, want %v", what, err, kv.ErrConflict)
		}
	}
	conflicts("a step that continues nothing", step("x", "y", "0"))
	f.importStep("", "first")
	if err := f.importer().Import(context.Background(), step("first", "second", "2")); err != nil {
		f.Fatal(err)
	}
	conflicts("a step made again", step("first", "second", "3"))
	conflicts("another import", step("", "first", "4"))
	conflicts("an end of another import", step("first", "", "5"))
	f.wantImportState("second")
	f.wantContent("a=2")
	if err := f.importer().Import(context.Background(), step("second", "", "6")); err != nil {
		f.Fatal(err)
	}
	conflicts("a step after the end", step("second", "third", "7"))
	f.refuses("an import into the store that was filled", step("", "first", "8"))
	f.wantContent("a=6")
}

func testImportLimits(f *fixture) {
	state := []byte("x")
	large := make([]byte, kv.MaxValueBytes)
	var tooMuch []kv.Entry
	for i := range kv.MaxTxBytes/kv.MaxValueBytes + 1 {
		tooMuch = append(tooMuch, kv.Entry{Key: fmt.Appendf(nil, "%03d", i), Value: large})
	}
	if err := f.importer().Import(context.Background(), kv.Import{Rows: tooMuch, State: state, Incarnation: 5}); !errors.Is(err, kv.ErrTooLarge) {
		f.Errorf("too many bytes: %v", err)
	}
	for what, row := range map[string]kv.Entry{
		"a key of no bytes":               {},
		"a long key":                      {Key: bytes.Repeat([]byte{1}, kv.MaxKeyBytes+1)},
		"a reserved key of another sort":  {Key: []byte("\xFFz")},
		"the key of the import itself":    {Key: []byte("\xFF~import")},
		"a value that is longer than max": {Key: []byte("k"), Value: append(large, 0)},
	} {
		f.refuses(what, kv.Import{Rows: []kv.Entry{row}, State: state, Incarnation: 5})
	}
	f.refuses("an empty state", kv.Import{State: []byte{}, Incarnation: 5})
	f.refuses("a long state", kv.Import{State: append(large, 0), Incarnation: 5})
	f.refuses("no incarnation", kv.Import{State: state})
	f.refuses("an incarnation too large", kv.Import{State: state, Incarnation: kv.MaxIncarnation + 1})
	f.wantImportState("")
	f.wantContent()
	if !f.bound().IsZero() {
		f.Errorf("something was committed: %v", f.bound())
	}
}

func testImportFails(f *fixture) {
	f.importStep("", "first", kv.Entry{Key: []byte("a"), Value: []byte("1")})
	f.harness.FailCommits(true)
	err := f.importer().Import(context.Background(), kv.Import{
		Rows: []kv.Entry{{Key: []byte("b"), Value: []byte("2")}}, After: []byte("first"), State: []byte("second"), Incarnation: importIncarnation})
	f.harness.FailCommits(false)
	if err == nil {
		f.Fatal("a step whose commit failed says nothing")
	}
	f.wantImportState("first")
	f.wantContent("a=1")
	f.importStep("first", "second", kv.Entry{Key: []byte("b"), Value: []byte("2")})
	f.importStep("second", "")
	f.wantContent("a=1", "b=2")
}
