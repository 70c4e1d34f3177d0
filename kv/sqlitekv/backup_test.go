package sqlitekv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"abide/kv"
)

// TestBackupUnderLoad makes backups while somebody writes: each holds all that was acknowledged before it began, and of
// what came meanwhile a beginning without gaps. Neither the writer nor the file hears of it.
func TestBackupUnderLoad(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "x.db")
	s := openFilled(t, path)
	var acknowledged atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	wrote := make(chan error, 1)
	go func() {
		for n := int64(1); ctx.Err() == nil; n++ {
			_, err := s.Update(t.Context(), kv.Hints{}, func(tx kv.Tx) error {
				return errors.Join(tx.Put(fmt.Appendf(nil, "w%09d", n), make([]byte, 2000)), tx.Append([]byte("p"), []byte("entry")))
			})
			if err != nil {
				wrote <- err
				return
			}
			acknowledged.Store(n)
		}
		wrote <- nil
	}()
	for i := range 5 {
		before := acknowledged.Load()
		to := filepath.Join(folder, fmt.Sprintf("backup %d's.db", i))
		if err := Backup(t.Context(), path, to); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(to); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		copied := openAt(t, Options{Path: to})
		if found, err := findings(copied); err != nil || len(found) != 0 {
			t.Errorf("the backup: %q, %v", found, err)
		}
		var has int64
		err := copied.View(t.Context(), func(snap kv.Snapshot) error {
			for has = 0; ; has++ {
				if v, err := snap.Get(fmt.Appendf(nil, "w%09d", has+1)); err != nil || v == nil {
					return err
				}
			}
		})
		if err != nil || has < before || has > acknowledged.Load()+1 {
			t.Errorf("the backup has %d of the writes, when it began %d were acknowledged: %v", has, before, err)
		}
		if err := copied.View(t.Context(), func(snap kv.Snapshot) error {
			v, err := snap.Get(fmt.Appendf(nil, "w%09d", has+2))
			if v != nil {
				err = errors.New("there is a gap")
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := <-wrote; err != nil {
		t.Errorf("the writer: %v", err)
	}
	if found, err := findings(s); err != nil || len(found) != 0 {
		t.Errorf("the store: %q, %v", found, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestBackupOfAFileAtRest reads what stands in the log, also where no server runs, and leaves everything as it is.
func TestBackupOfAFileAtRest(t *testing.T) {
	folder := t.TempDir()
	path, crashed := filepath.Join(folder, "x.db"), filepath.Join(folder, "crashed.db")
	s := openFilled(t, path)
	for _, suffix := range []string{"", "-wal"} { // what a killed server leaves behind
		text, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(crashed+suffix, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{path, crashed} {
		before, _ := os.ReadFile(from)
		log, _ := os.ReadFile(from + "-wal")
		to := from + ".backup"
		if err := Backup(t.Context(), from, to); err != nil {
			t.Fatal(err)
		}
		after, _ := os.ReadFile(from)
		logAfter, _ := os.ReadFile(from + "-wal")
		if string(before) != string(after) || string(log) != string(logAfter) {
			t.Errorf("%s was changed", from)
		}
		copied := openAt(t, Options{Path: to})
		err := copied.View(t.Context(), func(snap kv.Snapshot) error {
			v, err := snap.Get([]byte("key 001999"))
			if len(v) != 200 {
				err = errors.Join(err, fmt.Errorf("the value has %d bytes", len(v)))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestBackupRefusals(t *testing.T) {
	folder := t.TempDir()
	path, there := filepath.Join(folder, "x.db"), filepath.Join(folder, "there.db")
	if err := openFilled(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	to := filepath.Join(folder, "to.db")
	for _, c := range []struct {
		name     string
		ctx      context.Context
		from, to string
		is       error
	}{
		{"the target is there", t.Context(), path, there, fs.ErrExist},
		{"onto itself", t.Context(), path, path, fs.ErrExist},
		{"no source", t.Context(), path + ".gone", to, fs.ErrNotExist},
		{"no store", t.Context(), there, to, ErrFormat},
		{"no folder", t.Context(), path, filepath.Join(folder, "gone", "x.db"), fs.ErrNotExist},
		{"in vain", ended, path, to, context.Canceled},
	} {
		if err := Backup(c.ctx, c.from, c.to); !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.name, err, c.is)
		}
	}
	if text, err := os.ReadFile(there); err != nil || string(text) != "mine" {
		t.Errorf("what was there is %q, %v", text, err)
	}
	files, err := os.ReadDir(folder)
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "x.db") && f.Name() != "there.db" {
			t.Errorf("%s is left, %v", f.Name(), err)
		}
	}
}
