package sqlitekv_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/sqlitekv"
)

func open(t *testing.T, path string) *sqlitekv.Store {
	t.Helper()
	s, err := sqlitekv.Open(sqlitekv.Options{Path: path, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(t *testing.T, s kv.Store, key, value string) kv.Position {
	t.Helper()
	at, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte(key), []byte(value)) })
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func get(t *testing.T, s kv.Store, key string) string {
	t.Helper()
	var value []byte
	if err := s.View(context.Background(), func(snap kv.Snapshot) (err error) {
		value, err = snap.Get([]byte(key))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return string(value)
}

func TestReopenKeepsDataAndPositions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s := open(t, path)
	first := put(t, s, "k", "v")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if v := get(t, s, "k"); v != "v" {
		t.Errorf("after reopening the value is %q", v)
	}
	if second := put(t, s, "k", "w"); second.Compare(first) <= 0 {
		t.Errorf("position %v after %v", second, first)
	}
}

func TestSecondOpenIsRefusedAndNamesTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	open(t, path)
	_, err := sqlitekv.Open(sqlitekv.Options{Path: path, Now: time.Now})
	if !errors.Is(err, sqlitekv.ErrInUse) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("error %v", err)
	}
}

// A follower of the journal that finds nothing new costs the looks themselves and nothing else: no transaction, no
// byte in the log, no position.
func TestAnIdleFollowerCostsOnlyItsLooks(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "a.db"))
	last, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Append([]byte("p"), []byte("1")) })
	if err != nil {
		t.Fatal(err)
	}
	before := s.Stats()
	after := kv.EntryPosition{Commit: last, Index: kv.AfterCommit}
	for range 200 {
		if err := s.View(context.Background(), func(snap kv.Snapshot) error {
			entries, err := snap.Journal([]byte("p"), after, 10)
			if len(entries) > 0 || snap.Bound() != last {
				t.Errorf("%d entries after the last one, the bound is %v", len(entries), snap.Bound())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if now := s.Stats(); now != before {
		t.Errorf("looking changed the store's counters from %+v to %+v", before, now)
	}
	if next := put(t, s, "k", "v"); next.Sequence() != last.Sequence()+1 {
		t.Errorf("the commit after %v is %v", last, next)
	}
}
