package kvtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"abide/kv"
)

var modelTests = []test{
	{"random transactions agree with a sorted map", testModel},
}

// model is the contract as simply as it can be said, for the keys that begin with prefix.
type model struct {
	prefix  string
	entries map[string]string
	journal []string
}

func (m *model) clone() *model {
	return &model{prefix: m.prefix, entries: maps.Clone(m.entries), journal: slices.Clone(m.journal)}
}

// scan is what a scan from start to end must give.
func (m *model) scan(start, end string, limit int) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m.entries)) {
		if key >= start && key < end && len(out) < limit {
			out = append(out, key+"="+m.entries[key])
		}
	}
	return out
}

// step is one operation of a random transaction.
type step struct {
	op         int
	key, other string
	value      string
	limit      int
}

const (
	stepGet = iota
	stepPut
	stepDelete
	stepScan
	stepAppend
	steps
)

func drawSteps(t *rapid.T, prefix string) []step {
	key := rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune{'a', 'b', 0}), 0, 3, -1), func(s string) string { return prefix + s })
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			op:    rapid.IntRange(0, steps-1).Draw(t, "op"),
			key:   key.Draw(t, "key"),
			other: key.Draw(t, "other"),
			value: rapid.StringN(0, 4, -1).Draw(t, "value"),
			limit: rapid.IntRange(1, 5).Draw(t, "limit"),
		}
	}), 1, 12).Draw(t, "steps")
}

// apply runs a step against both and compares what they say.
func (s step) apply(tx kv.Tx, m *model) error {
	switch s.op {
	case stepGet:
		value, err := tx.Get([]byte(s.key))
		want, ok := m.entries[s.key]
		if err == nil && ((value != nil) != ok || string(value) != want) {
			err = fmt.Errorf("%q is %q, want %q (present: %v)", s.key, show(value), want, ok)
		}
		return err
	case stepPut:
		m.entries[s.key] = s.value
		return tx.Put([]byte(s.key), []byte(s.value))
	case stepDelete:
		delete(m.entries, s.key)
		return tx.Delete([]byte(s.key))
	case stepAppend:
		m.journal = append(m.journal, s.value)
		return tx.Append([]byte(m.prefix), []byte(s.value))
	}
	entries, err := tx.Scan(span(s.key, s.other), s.limit)
	got, want := showEntries(entries), m.scan(s.key, s.other, s.limit)
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("the scan from %q to %q, limit %d, gives %q, want %q", s.key, s.other, s.limit, got, want)
	}
	return err
}

func testModel(f *fixture) {
	round := 0
	rapid.Check(f.T, func(t *rapid.T) {
		round++
		m := &model{prefix: fmt.Sprintf("%04d/", round), entries: map[string]string{}}
		for range rapid.IntRange(1, 6).Draw(t, "transactions") {
			todo := drawSteps(t, m.prefix)
			fail := rapid.IntRange(0, 3).Draw(t, "fate") == 0
			var next *model
			_, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
				next = m.clone() // the closure may run again
				for _, s := range todo {
					if err := s.apply(tx, next); err != nil {
						return err
					}
				}
				if fail {
					return errOwn
				}
				return nil
			})
			switch {
			case fail && errors.Is(err, errOwn):
			case !fail && err == nil:
				m = next
			default:
				t.Fatalf("update: %v", err)
			}
		}
		compareWithModel(t, f.Store, m)
	})
}

func compareWithModel(t *rapid.T, store kv.Store, m *model) {
	err := store.View(context.Background(), func(s kv.Snapshot) error {
		r := span(m.prefix, m.prefix[:len(m.prefix)-1]+"0") // '0' follows '/'
		entries, err := s.Scan(r, kv.MaxScanRows)
		wantStrings(t, "the entries", showEntries(entries), m.scan(string(r.Start), string(r.End), kv.MaxScanRows))
		journal, journalErr := s.Journal([]byte(m.prefix), kv.EntryPosition{}, kv.MaxScanRows)
		if !slices.Equal(showJournal(journal), m.journal) {
			t.Fatalf("the journal is %q, want %q", showJournal(journal), m.journal)
		}
		return errors.Join(err, journalErr)
	})
	if err != nil {
		t.Fatalf("view: %v", err)
	}
}
