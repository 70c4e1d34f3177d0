package sqlitekv

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"abide/kv"
)

func openAt(t *testing.T, opt Options) *Store {
	t.Helper()
	s, err := Open(opt)
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

// exec changes the file of a closed store behind its back.
func exec(t *testing.T, path, sql string) {
	t.Helper()
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec(sql); err != nil {
		t.Fatal(err)
	}
}

func TestFormat(t *testing.T) {
	for name, tc := range map[string]struct {
		sql string // run on the file of a closed store
		is  error  // nil: it opens
	}{
		"as it is":                       {"SELECT 1", nil},
		"newer, and still readable":      {"UPDATE format SET version = 99", nil},
		"newer":                          {"UPDATE format SET version = 99, min_reader = 99", ErrFormat},
		"of another program":             {"PRAGMA application_id = 1", ErrFormat},
		"in another journal mode":        {"PRAGMA journal_mode = DELETE", nil},
		"with a counter of no number":    {"UPDATE journal SET v = x'0102' WHERE k = x'FF7A'", kv.ErrCorrupt},
		"with a journal ahead of itself": {"UPDATE journal SET v = x'0000000000000001' WHERE k = x'FF7A'", kv.ErrCorrupt},
		"with a strange journal":         {"INSERT INTO journal VALUES (x'FF6AFF', x'')", kv.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.db")
			s := openAt(t, Options{Path: path})
			for range 2 {
				if _, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Append(nil, nil) }); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			exec(t, path, tc.sql)
			s, err := Open(Options{Path: path})
			if !errors.Is(err, tc.is) {
				t.Errorf("error %v, want %v", err, tc.is)
			}
			if err != nil {
				return
			}
			if _, err := set(s, "k", "v"); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Durability does not rest on the driver's defaults: every connection is asked.
func TestEveryConnectionSyncsFully(t *testing.T) {
	s := openAt(t, Options{Path: filepath.Join(t.TempDir(), "a.db")})
	reader, err := s.readers.take(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer s.readers.give(reader, false)
	for name, c := range map[string]*conn{"writer": s.writer.conn, "checkpointer": s.writer.checkpointer.conn, "reader": reader} {
		for pragma, want := range map[string]int64{
			"PRAGMA synchronous": 2, "PRAGMA fullfsync": 1, "PRAGMA checkpoint_fullfsync": 1,
			"PRAGMA wal_autocheckpoint": 0, "PRAGMA page_size": pageBytes,
		} {
			if got, err := c.int(pragma); err != nil || got != want {
				t.Errorf("%s: %s is %d, %v, want %d", name, pragma, got, err, want)
			}
		}
		mode, _, err := c.db.Prepare("PRAGMA journal_mode")
		if err != nil {
			t.Fatal(err)
		}
		if mode.Step(); mode.ColumnText(0) != "wal" {
			t.Errorf("%s: journal_mode is %s", name, mode.ColumnText(0))
		}
		_ = mode.Close()
	}
}

func TestMoreSnapshotsThanConnections(t *testing.T) {
	s := openAt(t, Options{Path: filepath.Join(t.TempDir(), "a.db"), Readers: 2})
	if _, err := set(s, "k", "v"); err != nil {
		t.Fatal(err)
	}
	var inside, wg sync.WaitGroup
	inside.Add(2)
	release := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			err := s.View(context.Background(), func(snap kv.Snapshot) error {
				inside.Done()
				<-release
				_, err := snap.Get([]byte("k"))
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	inside.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := s.View(ctx, func(kv.Snapshot) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a third snapshot while both connections are in use: %v", err)
	}
	if _, err := set(s, "k", "w"); err != nil { // the writer does not wait for them
		t.Error(err)
	}
	for range 10 {
		wg.Go(func() {
			if err := s.View(context.Background(), func(kv.Snapshot) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	wg.Wait()
}

func TestTheLargestCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	if _, err := Open(Options{Path: path, CacheBytes: MaxCacheBytes + 1}); err == nil {
		t.Error("a larger cache is accepted")
	}
	s := openAt(t, Options{Path: path, CacheBytes: MaxCacheBytes})
	if _, err := set(s, "k", "v"); err != nil {
		t.Error(err)
	}
}
