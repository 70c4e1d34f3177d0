package sqlitekv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"

	"abide/kv"
)

// SQLite syncs the database file only when all of the log has been moved. If that sync fails, what was moved before
// may be lost too, although SQLite counts it as moved and never moves it again: the log must not start over before
// all of it has been moved anew.
func TestASyncOfTheFileThatFailsLosesNothingMovedBefore(t *testing.T) {
	for seed := range uint64(Times(5, 50)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := &disk{rand: rand.New(rand.NewPCG(seed, 5)), files: map[string]*diskContent{}, moment: func() {}}
			name := d.register(true)
			defer vfs.Unregister(name)
			path := filepath.Join(t.TempDir(), "a.db")
			s, err := Open(Options{Path: path, vfs: name, walPages: 40})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 30 {
				if _, err := set(s, fmt.Sprint("before ", i), strings.Repeat("x", 500)); err != nil {
					t.Fatal(err)
				}
			}
			// A snapshot keeps a checkpoint from moving what is newer.
			err = s.View(context.Background(), func(kv.Snapshot) error {
				if _, err := set(s, "newer", "1"); err != nil {
					return err
				}
				s.writer.checkpointer.checkpoint()
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			d.mu.Lock()
			d.failSync = func(path string) bool { return strings.HasSuffix(path, "a.db") }
			d.mu.Unlock()
			s.writer.checkpointer.checkpoint()
			d.mu.Lock()
			failed := d.failedSyncs
			d.failSync = nil
			d.mu.Unlock()
			if failed != 1 {
				t.Fatalf("%d syncs failed, want one", failed)
			}
			s.writer.checkpointer.checkpoint()
			for i := range 30 { // the log starts over
				if _, err := set(s, fmt.Sprint("after ", i), strings.Repeat("y", 500)); err != nil {
					t.Fatal(err)
				}
			}
			d.mu.Lock()
			c := crash{files: d.image()}
			d.mu.Unlock()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := c.checkKeys(t.TempDir(), 61); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkKeys demands that the files are whole and hold so many keys.
func (c crash) checkKeys(folder string, want int) error {
	if err := c.write(folder); err != nil {
		return err
	}
	path := filepath.Join(folder, "a.db")
	s, err := Open(Options{Path: path, vfs: registerLazy()})
	if err != nil {
		return err
	}
	var found int
	err = s.View(context.Background(), func(snap kv.Snapshot) error {
		entries, err := snap.Scan(kv.Range{End: []byte{kv.ReservedPrefix}}, want+1)
		found = len(entries)
		return err
	})
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err == nil && found != want {
		err = fmt.Errorf("%d keys, want %d", found, want)
	}
	if err == nil {
		err = integrity(path)
	}
	return err
}
