package kvtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"abide/kv"
	"abide/kv/memkv"
)

var opened *memkv.Store

func open(*testing.T) kv.Store {
	opened = memkv.Open(memkv.Options{})
	return opened
}

func reopen(*testing.T) kv.Store { return opened.Handle() }

// What follows is printed.
func TestHistory(t *testing.T) {
	s := open(t) // the store that failed, empty
	at, last := map[int]kv.Position{}, kv.Position{}
	same := func(what string, err error, want []string, got ...string) error {
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%s gives %q, want %q", what, got, want)
		}
		return err
	}
	text := func(value []byte) string {
		if value == nil {
			return "<none>"
		}
		return string(value)
	}
	get := func(r kv.Reader, key string, want ...string) error {
		value, err := r.Get([]byte(key))
		return same("get", err, want, text(value))
	}
	getMany := func(r kv.Reader, a, b string, want ...string) error {
		values, err := r.GetMany([][]byte{[]byte(a), []byte(b), []byte(a)})
		var got []string
		for _, v := range values {
			got = append(got, text(v))
		}
		return same("get many", err, want, got...)
	}
	scan := func(r kv.Reader, start, end string, limit int, want ...string) error {
		entries, err := r.Scan(kv.Range{Start: []byte(start), End: []byte(end)}, limit)
		var got []string
		for _, e := range entries {
			got = append(got, string(e.Key)+"="+text(e.Value))
		}
		return same("scan", err, want, got...)
	}
	journal := func(v kv.Snapshot, partition string, after kv.EntryPosition, limit int, want ...string) error {
		entries, err := v.Journal([]byte(partition), after, limit)
		if errors.Is(err, kv.ErrExpired) {
			return same("journal", nil, want, "expired")
		}
		var got []string
		for _, e := range entries {
			got = append(got, string(e.Record))
		}
		return same("journal", err, want, got...)
	}
	place := func(statement int, index uint32) kv.EntryPosition {
		if at[statement].IsZero() {
			return kv.EntryPosition{}
		}
		return kv.EntryPosition{Commit: at[statement], Index: index}
	}
	update := func(statement int, writes bool, fn func(kv.Tx) error) error {
		position, err := kv.Run(context.Background(), s, kv.Hints{}, fn)
		if err == nil && (writes && position.Compare(last) <= 0 || !writes && !position.IsZero()) {
			err = fmt.Errorf("update %d has the position %v after %v", statement, position, last)
		}
		if at[statement] = position; writes {
			last = position
		}
		return err
	}
	meant := errors.New("meant")
	fail := func(fn func(kv.Tx) error) error {
		_, err := kv.Run(context.Background(), s, kv.Hints{}, func(tx kv.Tx) error {
			if err := fn(tx); err != nil {
				return err
			}
			return meant
		})
		if err == meant {
			return nil
		}
		return fmt.Errorf("a closure that fails: %w", err)
	}
	view := func(fn func(kv.Snapshot) error) error { return s.View(context.Background(), fn) }
	compact := func(statement int, partition string, target, want kv.EntryPosition, wantMore bool) error {
		floor, more, err := kv.Compact(context.Background(), s, []byte(partition), target)
		if err == nil && (floor != want || more != wantMore) {
			err = fmt.Errorf("compaction gives %v, %v, want %v, %v", floor, more, want, wantMore)
		}
		return errors.Join(err, view(func(v kv.Snapshot) error {
			if v.Bound().Compare(last) > 0 {
				at[statement], last = v.Bound(), v.Bound()
			}
			return nil
		}))
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	_, _, _, _, _, _, _, _ = getMany, get, scan, journal, place, update, fail, compact

	check(update(1, true, func(tx kv.Tx) error {
		return errors.Join(
			tx.Put([]byte("a"), []byte("1")),
			tx.Put([]byte("b\x00"), []byte(strings.Repeat("v", 100))),
			get(tx, "a", "1"),
			getMany(tx, "a", "absent", "1", "<none>", "1"),
			tx.Append([]byte("p"), []byte("first")),
			tx.Append([]byte("p"), []byte("second")),
		)
	}))
	check(fail(func(tx kv.Tx) error {
		return errors.Join(
			tx.Delete([]byte("a")),
			scan(tx, "", "\xff", 5, "b\x00="+strings.Repeat("v", 100)),
		)
	}))
	check(view(func(v kv.Snapshot) error {
		if err := scan(v, "a", "b", 5, "a=1"); err != nil {
			return err
		}
		if err := update(4, true, func(tx kv.Tx) error {
			return errors.Join(
				tx.Delete([]byte("a")),
				tx.Append([]byte("p"), []byte("third")),
			)
		}); err != nil {
			return err
		}
		if err := get(v, "a", "1"); err != nil {
			return err
		}
		if err := compact(5, "p", place(1, 0), place(1, 0), false); err != nil {
			return err
		}
		if err := journal(v, "p", kv.EntryPosition{}, 10, "first", "second"); err != nil {
			return err
		}
		return nil
	}))
	check(s.Close())
	s = reopen(t)
	check(view(func(v kv.Snapshot) error {
		if err := journal(v, "p", place(1, 0), 10, "second", "third"); err != nil {
			return err
		}
		if err := journal(v, "p", kv.EntryPosition{}, 10, "expired"); err != nil {
			return err
		}
		if err := journal(v, "p", place(4, kv.AfterCommit), 10); err != nil {
			return err
		}
		return nil
	}))
	check(compact(8, "p", place(4, 0), place(4, 0), false))
	check(view(func(v kv.Snapshot) error {
		return scan(v, "", "\xff", 10000, "b\x00="+strings.Repeat("v", 100))
	}))
}
