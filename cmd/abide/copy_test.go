package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"abide/internal/copy"
	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

// copyJSON runs abide copy --json and returns its report.
func copyJSON(t *testing.T, want int, from, to string) copyReport {
	t.Helper()
	r := runWith(nil, "copy", from, to, "--json")
	var report copyReport
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("%v in %q, stderr %q", err, r.stdout, r.stderr)
	}
	if r.code != want || (r.code == exitOK) != report.OK || (report.Error != "") != strings.Contains(r.stderr, "Fatal: ") {
		t.Errorf("copy: exit %d, want %d: %s%s", r.code, want, r.stdout, r.stderr)
	}
	return report
}

func TestCopy(t *testing.T) {
	t.Parallel()
	from, to := usedFile(t), filepath.Join(t.TempDir(), "copy.db")
	report := copyJSON(t, exitOK, from, to)
	if report.Kinds["object"].Rows != 100 || report.Kinds[kv.KindEntry].Rows != 134 || report.Resumed || report.Problems == nil || report.Rows < 500 {
		t.Errorf("%+v", report)
	}
	if again := copyJSON(t, exitFailure, from, to); !strings.Contains(again.Error, "not empty") || !strings.Contains(again.Error, to) {
		t.Errorf("into the copy: %s", again.Error)
	}
	if same := copyJSON(t, exitFailure, from, from); !strings.Contains(same.Error, "same file") {
		t.Errorf("onto itself: %s", same.Error)
	}
	if none := copyJSON(t, exitFailure, from+"none", to+"2"); !strings.Contains(none.Error, "there is no file") {
		t.Errorf("from nothing: %s", none.Error)
	}
	checkJSON(t, exitOK, to, "--replay")

	// The copy serves, and its own copy back is the same.
	server := start(t, serveArgs(to)...)
	c := server.client(t)
	if p, err := c.PromiseGet(t.Context(), "p3"); err != nil || p.State != protocol.Resolved {
		t.Errorf("%+v, %v", p, err)
	}
	if busy := copyJSON(t, exitFailure, to, to+"3"); !strings.Contains(busy.Error, "in use") || !strings.Contains(busy.Error, "process") {
		t.Errorf("while a server runs: %s", busy.Error)
	}
	if _, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: "new", TimeoutAt: 1 << 50}); err != nil {
		t.Error(err)
	}
	if code := server.stop(t); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	if r := runWith(nil, "copy", to, to+"4"); r.code != exitOK || !strings.Contains(r.stdout, "rows copied and checked") {
		t.Errorf("%+v", r)
	}
	if back := checkJSON(t, exitOK, to+"4", "--replay"); back.Rows["object"] != 101 {
		t.Errorf("%+v", back)
	}
}

// TestCopyThatBrokeOff leaves a target that nobody serves or checks, and that the next copy completes.
func TestCopyThatBrokeOff(t *testing.T) {
	t.Parallel()
	from, to := usedFile(t), filepath.Join(t.TempDir(), "copy.db")
	open := func(path string) *sqlitekv.Store {
		s, err := sqlitekv.Open(sqlitekv.Options{Path: path, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	source, target := open(from), open(to)
	content, err := copy.Survey(t.Context(), source, keyspace.Kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := &countdown{Context: t.Context(), left: 3}
	if _, err := copy.Fill(ctx, source, target, content, randomBelow, nil); err == nil {
		t.Fatal("the copy did not break off")
	}
	_, _ = source.Close(), target.Close()

	for _, args := range [][]string{serveArgs(to), {"check", to}, {"copy", to, to + "2"}} {
		if r := runWith(nil, args...); r.code != exitFailure || !strings.Contains(lastLine(r.stderr), "is not complete") || !strings.Contains(r.stderr, "abide copy") {
			t.Errorf("%s: exit %d, %s", args[0], r.code, r.stderr)
		}
	}
	if other := copyJSON(t, exitFailure, usedFile(t), to); !strings.Contains(other.Error, "another copy") {
		t.Errorf("a copy of another store: %s", other.Error)
	}
	if report := copyJSON(t, exitOK, from, to); !report.Resumed {
		t.Errorf("it began anew: %+v", report)
	}
	checkJSON(t, exitOK, to, "--replay")
}

// TestCopyOfADamagedStore finds the damage in the check of the copy, which stays incomplete.
func TestCopyOfADamagedStore(t *testing.T) {
	t.Parallel()
	from, to := usedFile(t), filepath.Join(t.TempDir(), "copy.db")
	rewrite(t, from, func(tx kv.Tx) error { return tx.Delete(abideKeys.Object("p1")) })
	report := copyJSON(t, exitFailure, from, to)
	if report.ProblemCount == 0 || len(report.Problems) == 0 || !strings.Contains(report.Error, "wrong with both") {
		t.Errorf("%+v", report)
	}
	if r := runWith(nil, serveArgs(to)...); r.code != exitFailure || !strings.Contains(r.stderr, "was not checked to its end") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.db")
	r := runWith(nil, "migrate", "--print", "--storage-sqlite-path", file)
	if _, err := os.Stat(file); r.code != exitOK || !strings.Contains(r.stdout, "CREATE TABLE kv") || err == nil {
		t.Errorf("%+v, and the file: %v", r, err)
	}
	printed := filepath.Join(t.TempDir(), "printed.db")
	change(t, printed, r.stdout)
	if r := runWith(nil, "migrate", "--storage-sqlite-path", file); r.code != exitOK || !strings.Contains(r.stdout, file) {
		t.Errorf("%+v", r)
	}
	for _, path := range []string{file, printed} {
		if code := start(t, serveArgs(path)...).stop(t); code != exitOK {
			t.Errorf("%s: exit %d", path, code)
		}
	}
}

func TestProgressText(t *testing.T) {
	for _, c := range []struct {
		rows, all, done int64
		took            time.Duration
		want            string
	}{
		{5, 0, 5, time.Millisecond, "copying: 5 rows"},
		{5, 0, 5, 2 * time.Second, "copying: 5 rows, 2 rows/s"},
		{50, 200, 0, time.Minute, "copying: 50 of 200 rows (25 %)"},
		{150, 200, 100, 2 * time.Second, "copying: 150 of 200 rows (75 %), 50 rows/s, 1s left"},
		{200, 200, 100, 2 * time.Second, "copying: 200 of 200 rows (100 %), 50 rows/s"},
	} {
		if got := progressText("copying", c.rows, c.all, c.done, c.took); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// countdown is a context that ends once it has been asked a number of times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}
