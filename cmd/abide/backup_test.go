package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"abide/protocol"
)

// TestBackupAndRestore backs a running server up, goes on, and restores in the two ways of docs/operations.md.
func TestBackupAndRestore(t *testing.T) {
	folder := t.TempDir()
	file, backup := filepath.Join(folder, "x.db"), filepath.Join(folder, "backup.db")
	r := start(t, serveArgs(file)...)
	for i := range 20 {
		if _, err := r.client(t).PromiseCreate(t.Context(), protocol.PromiseCreate{ID: fmt.Sprint("p", i), TimeoutAt: 1 << 50}); err != nil {
			t.Fatal(err)
		}
	}
	if got := runWith(nil, "backup", file, backup); got.code != exitOK || !strings.Contains(got.stdout, "abide check --replay "+backup) {
		t.Fatalf("%+v", got)
	}
	if _, err := r.client(t).PromiseCreate(t.Context(), protocol.PromiseCreate{ID: "later", TimeoutAt: 1 << 50}); err != nil {
		t.Errorf("after the backup: %v", err)
	}
	if got := runWith(nil, "backup", file, backup); got.code != exitFailure || !strings.Contains(got.stderr, backup) || !strings.Contains(got.stderr, "choose another name") {
		t.Errorf("onto a file that is there: %+v", got)
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	for _, c := range []struct {
		name, from, promise string
	}{{"the backup itself", backup, "p19"}, {"a copy of it", filepath.Join(folder, "restored.db"), "p19"}} {
		if c.from != backup {
			if got := runWith(nil, "copy", backup, c.from); got.code != exitOK {
				t.Fatalf("%+v", got)
			}
		}
		if got := runWith(nil, "check", "--replay", c.from); got.code != exitOK {
			t.Errorf("%s: %+v", c.name, got)
		}
		s := start(t, serveArgs(c.from)...)
		if _, err := s.client(t).PromiseGet(t.Context(), c.promise); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := s.client(t).PromiseGet(t.Context(), "later"); err == nil {
			t.Errorf("%s has what came later", c.name)
		}
		if code := s.stop(t); code != exitOK {
			t.Errorf("%s: exit %d", c.name, code)
		}
	}
}

func TestBackupOfADatabaseIsRefused(t *testing.T) {
	for _, args := range [][]string{{"postgres://h/d", "x.db"}, {"x.db", "mysql://u:secret@h/d"}, {"x.db"}, {"redis://h", "x"}} {
		got := runWith(nil, append([]string{"backup"}, args...)...)
		if got.code != exitUsage || strings.Contains(got.stderr, "secret") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
