// Package kvtest is the conformance suite of the storage contract: whatever implements kv.Store passes it. A
// backend's own test opens stores and calls Run; see kv/memkv for one of a few lines.
//
// The suite is split by concern, one file each. Every subtest gets a fresh store. What a backend can do is
// said by its Harness and never guessed.
package kvtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"abide/kv"
)

// Harness is how the suite gets at a backend.
type Harness struct {
	// Open makes an empty store. The suite closes it.
	Open func(t *testing.T) kv.Store
	// Reopen opens again what a store, which the suite has closed, left behind. Nil if nothing survives.
	Reopen func(t *testing.T) kv.Store
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	for _, concern := range []struct {
		name  string
		tests []test
	}{
		{"reads", readTests},
		{"writes", writeTests},
		{"limits", limitTests},
		{"positions", positionTests},
		{"journal", journalTests},
		{"signals", signalTests},
		{"isolation", isolationTests},
		{"lifetime", lifetimeTests},
		{"model", modelTests},
	} {
		t.Run(concern.name, func(t *testing.T) {
			for _, test := range concern.tests {
				t.Run(test.name, func(t *testing.T) {
					s := h.Open(t)
					f := &fixture{T: t, Store: s, harness: h}
					t.Cleanup(func() {
						if err := f.Store.Close(); err != nil {
							t.Errorf("closing the store: %v", err)
						}
					})
					test.run(f)
				})
			}
		})
	}
}

// test is one subtest.
type test struct {
	name string
	run  func(*fixture)
}

// fixture is what a subtest works with: its store, and calls that fail the test.
type fixture struct {
	*testing.T
	Store   kv.Store
	harness Harness
}

// update runs fn and demands that it commits.
func (f *fixture) update(fn func(kv.Tx) error) kv.Position {
	f.Helper()
	at, err := f.Store.Update(context.Background(), kv.Hints{}, fn)
	if err != nil {
		f.Fatalf("update: %v", err)
	}
	return at
}

// fails runs fn and demands that it fails with an error of this identity, without a position.
func (f *fixture) fails(want error, fn func(kv.Tx) error) error {
	f.Helper()
	at, err := f.Store.Update(context.Background(), kv.Hints{}, fn)
	if !errors.Is(err, want) {
		f.Fatalf("update failed with %v, want %v", err, want)
	}
	if !at.IsZero() {
		f.Errorf("a failed update has the position %v", at)
	}
	return err
}

// view runs fn on a snapshot and demands that it succeeds.
func (f *fixture) view(fn func(kv.Snapshot) error) {
	f.Helper()
	if err := f.Store.View(context.Background(), fn); err != nil {
		f.Fatalf("view: %v", err)
	}
}

// put commits some entries, given as key and value in turn.
func (f *fixture) put(keysAndValues ...string) kv.Position {
	f.Helper()
	return f.update(func(tx kv.Tx) error {
		for i := 0; i < len(keysAndValues); i += 2 {
			if err := tx.Put([]byte(keysAndValues[i]), []byte(keysAndValues[i+1])); err != nil {
				return err
			}
		}
		return nil
	})
}

// get reads one key; "<none>" if it is absent.
func (f *fixture) get(key string) string {
	f.Helper()
	var value []byte
	f.view(func(s kv.Snapshot) (err error) {
		value, err = s.Get([]byte(key))
		return err
	})
	return show(value)
}

// wantContent demands that the store holds exactly these entries, in order, as "key=value".
func (f *fixture) wantContent(want ...string) {
	f.Helper()
	f.view(func(s kv.Snapshot) error {
		entries, err := s.Scan(everything, kv.MaxScanRows)
		wantStrings(f, "the store's entries", showEntries(entries), want)
		return err
	})
}

// everything is the range of all keys.
var everything = kv.Range{End: []byte{kv.ReservedPrefix}}

func span(start, end string) kv.Range {
	return kv.Range{Start: []byte(start), End: []byte(end)}
}

func show(value []byte) string {
	if value == nil {
		return "<none>"
	}
	return string(value)
}

func showEntries(entries []kv.Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, string(e.Key)+"="+show(e.Value))
	}
	return out
}

func showJournal(entries []kv.JournalEntry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, string(e.Record))
	}
	return out
}

// failer is the part of testing.T that comparisons need; rapid's has it as well.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func wantStrings(t failer, what string, got, want []string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s are %q, want %q", what, got, want)
	}
}

// kind says which kind of transaction a check runs in.
var bothKinds = []string{"in a snapshot", "in a transaction"}

// read runs fn in the kind of transaction named, as a subtest.
func (f *fixture) read(fn func(t *testing.T, r kv.Reader)) {
	f.Helper()
	for _, kind := range bothKinds {
		f.Run(kind, func(t *testing.T) {
			var err error
			if kind == bothKinds[0] {
				err = f.Store.View(context.Background(), func(s kv.Snapshot) error { fn(t, s); return nil })
			} else {
				_, err = f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { fn(t, tx); return nil })
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
