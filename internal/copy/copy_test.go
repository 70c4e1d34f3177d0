package copy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"abide/internal/copy"
	"abide/kv"
	"abide/kv/memkv"
	"abide/kv/sqlitekv"
)

// kind names the kind of a key of these tests by its first byte.
func kind(key []byte) string { return "kind " + string(key[:1]) }

func survey(t testing.TB, s kv.Store) copy.Content {
	t.Helper()
	c, err := copy.Survey(t.Context(), s, kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// filled is a store with rows of two kinds, large values, two journals, one of which was compacted.
func filled(t testing.TB, rows int) *memkv.Store {
	t.Helper()
	s := memkv.Open(memkv.Options{Incarnation: 4})
	t.Cleanup(func() { _ = s.Close() })
	for i := range rows {
		update(t, s, func(tx kv.Tx) error {
			for _, prefix := range []string{"a", "b"} {
				if err := tx.Put(fmt.Appendf(nil, "%s%06d", prefix, i), fmt.Append(nil, i)); err != nil {
					return err
				}
			}
			return errors.Join(tx.Append([]byte("p"), fmt.Append(nil, "first ", i)), tx.Append([]byte("p"), fmt.Append(nil, "second ", i)),
				tx.Append([]byte("q"), fmt.Append(nil, i)))
		})
	}
	large := make([]byte, kv.MaxValueBytes)
	for i := range 40 {
		update(t, s, func(tx kv.Tx) error { return tx.Put(fmt.Appendf(nil, "large%d", i), large) })
	}
	_, _, err := kv.Compact(t.Context(), s, []byte("q"), kv.EntryPosition{Commit: kv.NewPosition(4, 3), Index: kv.AfterCommit})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func update(t testing.TB, s kv.Store, fn func(kv.Tx) error) {
	t.Helper()
	if _, err := kv.Run(t.Context(), s, kv.Hints{}, fn); err != nil {
		t.Fatal(err)
	}
}

func noRise(uint32) uint32 { return 0 }

// journal reads a whole journal page by page, as a follower does.
func journal(t testing.TB, s kv.Store, partition string, after kv.EntryPosition) (records []string) {
	t.Helper()
	for {
		var page []kv.JournalEntry
		err := s.View(t.Context(), func(v kv.Snapshot) (err error) {
			page, err = v.Journal([]byte(partition), after, 3)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return records
		}
		for _, e := range page {
			records = append(records, string(e.Record))
			after = e.Position
		}
	}
}

// TestCopy copies between engines and back, and reads the copy as anybody would.
func TestCopy(t *testing.T) {
	from := filled(t, 3000)
	content := survey(t, from)
	path := filepath.Join(t.TempDir(), "x.db")
	open := func() *sqlitekv.Store {
		s, err := sqlitekv.Open(sqlitekv.Options{Path: path, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	to := open()
	var last int64
	resumed, err := copy.Fill(t.Context(), from, to, content, noRise, func(rows int64) {
		if rows < last {
			t.Errorf("after %d rows there are %d", last, rows)
		}
		last = rows
	})
	if err != nil || resumed || last != content.Rows() {
		t.Fatalf("resumed %v, %d of %d rows, %v", resumed, last, content.Rows(), err)
	}
	if pending, err := copy.Pending(t.Context(), to); err != nil || !strings.Contains(pending, "not checked") {
		t.Errorf("before its end the copy is %q, %v", pending, err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	to = open()
	defer func() { _ = to.Close() }()
	if found := content.Differences(survey(t, to)); found != nil {
		t.Errorf("differences: %q", found)
	}
	if err := copy.End(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if pending, err := copy.Pending(t.Context(), to); err != nil || pending != "" {
		t.Errorf("after its end the copy is %q, %v", pending, err)
	}
	checkJournals(t, from, to)
}

// checkJournals reads the journals of a copy of filled.
func checkJournals(t *testing.T, from, to kv.Store) {
	for _, partition := range []string{"p", "q"} {
		floor := func(s kv.Store) (at kv.EntryPosition) {
			err := s.View(t.Context(), func(v kv.Snapshot) (err error) { at, err = kv.Floor(v, []byte(partition)); return err })
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		a, b := journal(t, from, partition, floor(from)), journal(t, to, partition, floor(to))
		if len(a) == 0 || strings.Join(a, "\n") != strings.Join(b, "\n") {
			t.Errorf("journal %s: %d entries in the source, %d in the copy, or others", partition, len(a), len(b))
		}
	}
	err := to.View(t.Context(), func(v kv.Snapshot) error {
		if b := v.Bound(); b.Incarnation() != 5 || b.Sequence() <= 3040 {
			t.Errorf("the copy's last commit is %v", b)
		}
		old := kv.EntryPosition{Commit: kv.NewPosition(4, 2000)}
		if _, err := v.Journal([]byte("p"), old, 1); !errors.Is(err, kv.ErrExpired) {
			t.Errorf("a cursor of the source in the copy: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// breaking is a store whose imports break off: the context ends before the n-th step, or its outcome is unknown.
type breaking struct {
	*memkv.Store
	n    int
	fail func(step kv.Import) error
}

func (b *breaking) Import(ctx context.Context, step kv.Import) error {
	if b.n--; b.n == 0 {
		return b.fail(step)
	}
	return b.Store.Import(ctx, step)
}

// TestCopyGoesOn breaks a copy off at every step and goes on.
func TestCopyGoesOn(t *testing.T) {
	from := filled(t, 500)
	content := survey(t, from)
	broken := errors.New("broken off")
	for n := 1; ; n++ {
		memory := memkv.Open(memkv.Options{})
		to := &breaking{memory, n, func(kv.Import) error { return broken }}
		resumed, err := copy.Fill(t.Context(), from, to, content, noRise, nil)
		if err == nil {
			if n < 6 {
				t.Errorf("only %d steps: the test shows little", n)
			}
			return
		}
		if !errors.Is(err, broken) || resumed {
			t.Fatalf("step %d: resumed %v, %v", n, resumed, err)
		}
		pending, err := copy.Pending(t.Context(), memory)
		if err != nil || (n > 1) != strings.Contains(pending, "broke off") {
			t.Errorf("broken off at step %d the target is %q, %v", n, pending, err)
		}
		if copy.End(t.Context(), memory) == nil {
			t.Errorf("a copy that broke off at step %d can be ended", n)
		}
		resumed, err = copy.Fill(t.Context(), from, memory, content, noRise, nil)
		if err != nil || resumed != (n > 1) {
			t.Fatalf("step %d: going on: resumed %v, %v", n, resumed, err)
		}
		if found := content.Differences(survey(t, memory.Handle())); found != nil {
			t.Errorf("broken off at step %d: differences: %q", n, found)
		}
	}
}

// TestUnknownOutcomes makes a step's outcome unknown, once with it done and once without.
func TestUnknownOutcomes(t *testing.T) {
	from := filled(t, 100)
	content := survey(t, from)
	for _, done := range []bool{false, true} {
		memory := memkv.Open(memkv.Options{})
		to := &breaking{memory, 3, func(step kv.Import) error {
			if done {
				if err := memory.Import(t.Context(), step); err != nil {
					t.Fatal(err)
				}
			}
			return kv.ErrCommitUnknown
		}}
		if _, err := copy.Fill(t.Context(), from, to, content, noRise, nil); err != nil {
			t.Errorf("done %v: %v", done, err)
		}
		if found := content.Differences(survey(t, memory)); found != nil {
			t.Errorf("done %v: differences: %q", done, found)
		}
	}
}

func TestRefusals(t *testing.T) {
	from := filled(t, 10)
	content := survey(t, from)
	used := memkv.Open(memkv.Options{})
	update(t, used, func(tx kv.Tx) error { return tx.Put([]byte("a"), nil) })
	if _, err := copy.Fill(t.Context(), from, used, content, noRise, nil); !errors.Is(err, copy.ErrNotEmpty) {
		t.Errorf("into a store in use: %v", err)
	}

	changing := memkv.Open(memkv.Options{})
	update(t, from, func(tx kv.Tx) error { return tx.Put([]byte("a"), nil) })
	if _, err := copy.Fill(t.Context(), from, changing, content, noRise, nil); !errors.Is(err, copy.ErrChanged) {
		t.Errorf("from a store that has changed: %v", err)
	}
	if _, err := copy.Fill(t.Context(), from, changing, survey(t, from), noRise, nil); !errors.Is(err, copy.ErrOther) {
		t.Errorf("into the beginning of a copy of something else: %v", err)
	}

	last := memkv.Open(memkv.Options{Incarnation: kv.MaxIncarnation})
	update(t, last, func(tx kv.Tx) error { return tx.Put([]byte("a"), nil) })
	if _, err := copy.Fill(t.Context(), last, memkv.Open(memkv.Options{}), survey(t, last), noRise, nil); err == nil {
		t.Error("the largest incarnation was raised")
	}
}

// TestSourceMustNotChange writes to the source between two pages.
func TestSourceMustNotChange(t *testing.T) {
	from := filled(t, 3000)
	written := false
	_, err := copy.Survey(t.Context(), from, kind, func(int64) {
		if !written {
			written = true
			update(t, from, func(tx kv.Tx) error { return tx.Put([]byte("zz"), nil) })
		}
	})
	if !errors.Is(err, copy.ErrChanged) {
		t.Errorf("%v", err)
	}
}

// TestDifferences changes a store in one place and demands that the survey shows it, and nothing else.
func TestDifferences(t *testing.T) {
	store := func(rows map[string]string) kv.Store {
		s := memkv.Open(memkv.Options{})
		update(t, s, func(tx kv.Tx) (err error) {
			for key, value := range rows {
				err = errors.Join(err, tx.Put([]byte(key), []byte(value)))
			}
			return err
		})
		return s
	}
	rapid.Check(t, func(t2 *rapid.T) {
		rows := rapid.MapOfN(rapid.StringMatching(`[a-c][0-9]{1,3}`), rapid.StringN(0, 3, -1), 1, 30).Draw(t2, "rows")
		key := rapid.SampledFrom(slices.Sorted(maps.Keys(rows))).Draw(t2, "key")
		before := survey(t, store(rows))
		if found := before.Differences(survey(t, store(rows))); found != nil {
			t2.Fatalf("the same rows differ: %q", found)
		}
		changed := maps.Clone(rows)
		switch rapid.IntRange(0, 2).Draw(t2, "change") {
		case 0:
			delete(changed, key)
		case 1:
			changed[key] += "x"
		case 2: // the border between key and value moves
			delete(changed, key)
			changed[key+rows[key]+"x"] = ""
		}
		found := before.Differences(survey(t, store(changed)))
		if len(found) != 1 || !strings.HasPrefix(found[0], kind([]byte(key))+":") {
			t2.Fatalf("a change at %q shows as %q", key, found)
		}
	})
}
