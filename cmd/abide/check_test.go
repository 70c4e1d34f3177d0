package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

// usedFile is the file of a server that has done some of everything and has stopped.
func usedFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.db")
	server := start(t, serveArgs(file)...)
	c, ctx := server.client(t), t.Context()
	target := protocol.Tags{}.With(protocol.TagTarget, "poll://any@g").With("k", "v")
	for i := range 100 {
		id := fmt.Sprintf("p%d", i)
		if _, err := c.PromiseCreate(ctx, protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Tags: target, Param: protocol.MakeValue(nil, strings.Repeat("x", i*40))}); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if _, err := c.PromiseSettle(ctx, protocol.PromiseSettle{ID: id, State: protocol.Resolved}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code := server.stop(t); code != exitOK {
		t.Fatalf("exit %d: %s", code, server.stderr.String())
	}
	return file
}

// rewrite changes the store behind the server's back.
func rewrite(t *testing.T, file string, fn func(tx kv.Tx) error) {
	t.Helper()
	s, err := sqlitekv.Open(sqlitekv.Options{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(context.Background(), kv.Hints{}, fn); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkJSON runs abide check --json and returns its report.
func checkJSON(t *testing.T, want int, file string, more ...string) checkReport {
	t.Helper()
	r := runWith(nil, append([]string{"check", file, "--json"}, more...)...)
	var report checkReport
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("%v in %q, stderr %q", err, r.stdout, r.stderr)
	}
	if r.code != want || (r.code == exitOK) != report.OK || (report.Error != "") != strings.Contains(r.stderr, "Fatal: ") {
		t.Errorf("check %v: exit %d, want %d: %s%s", more, r.code, want, r.stdout, r.stderr)
	}
	return report
}

var abideKeys = keyspace.For("default", keyspace.Layout{Shards: 1})

func TestCheckOfAGoodFile(t *testing.T) {
	file := usedFile(t)
	report := checkJSON(t, exitOK, file, "--replay")
	if report.Rows["object"] != 100 || report.Rows[kv.KindEntry] != 134 || report.Replayed == nil || *report.Replayed != 134 || report.File != file {
		t.Errorf("%+v", report)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if report := checkJSON(t, exitOK, file, "--repair"); report.Repaired == nil || len(report.Repaired.Added)+len(report.Repaired.Removed)+len(report.Repaired.PutBack) != 0 {
		t.Errorf("%+v", report.Repaired)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a check has changed the file: %v", err)
	}
	r := runWith(nil, "check", file)
	if r.code != exitOK || r.stderr != "" || !strings.Contains(r.stdout, "nothing is wrong with "+file) || !strings.Contains(r.stdout, "100 object") {
		t.Errorf("exit %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	// A copy is as good as the file, and the server starts on either.
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, before, 0o600); err != nil {
		t.Fatal(err)
	}
	checkJSON(t, exitOK, copied, "--replay")
	server := start(t, serveArgs(copied)...)
	r = runWith(nil, "check", copied)
	if r.code != exitFailure || !strings.Contains(r.stderr, fmt.Sprintf("process %d ", os.Getpid())) || !strings.Contains(r.stderr, "in use") {
		t.Errorf("a store in use: exit %d, %q", r.code, r.stderr)
	}
	if report := checkJSON(t, exitFailure, copied); !strings.Contains(report.Error, "in use") {
		t.Errorf("a store in use: %+v", report)
	}
	// Its file can be copied while it runs; what stands in its log comes along.
	busy := filepath.Join(t.TempDir(), "busy.db")
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(copied + suffix)
		if err == nil {
			err = os.WriteFile(busy+suffix, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	checkJSON(t, exitOK, busy, "--replay")
	if code := server.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// Whatever is wrong with the indexes is found and repaired; a server then goes on with the file.
func TestCheckRepairsIndexes(t *testing.T) {
	file := usedFile(t)
	rewrite(t, file, func(tx kv.Tx) error {
		o, err := tx.Get(abideKeys.Object("p1"))
		if err != nil {
			return err
		}
		decoded, err := keyspace.Object("p1", o)
		if err != nil {
			return err
		}
		entries := abideKeys.Derive(nil, decoded)
		aside := entries[1]
		stale := abideKeys.DeriveSchedule(nil, &machine.Schedule{ID: "nobody", NextRunAt: 5})[0]
		for _, err := range []error{
			tx.Delete(entries[0].Key),
			tx.Put(stale.Key, stale.Value),
			tx.Delete(aside.Key),
			tx.Put(keyspace.Quarantined(aside.Key), keyspace.AppendQuarantined(nil, keyspace.QuarantinedRow{Value: aside.Value, Reason: "test"})),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	report := checkJSON(t, exitFailure, file)
	if report.ProblemCount != 2 || len(report.Problems) != 2 || report.Quarantined != 1 || report.Repaired != nil {
		t.Errorf("%+v", report)
	}
	for _, p := range report.Problems {
		if p.Kind == "" || p.Workspace != "default" || p.ID == "" || p.Detail == "" {
			t.Errorf("%+v", p)
		}
	}
	r := runWith(nil, "check", file)
	if r.code != exitFailure || r.stderr != "" || !strings.Contains(r.stdout, `object of "p1" in workspace "default"`) || !strings.HasSuffix(r.stdout, "2 problems\n") ||
		!strings.Contains(r.stdout, "set aside") {
		t.Errorf("exit %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	r = runWith(nil, "check", file, "--repair", "--replay")
	if r.code != exitOK || !strings.Contains(r.stdout, "repaired: index entries added: 1 ") || !strings.Contains(r.stdout, "removed: 1 timer; rows put back: 1 ") ||
		!strings.Contains(r.stdout, "nothing is wrong") {
		t.Errorf("exit %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	if report := checkJSON(t, exitOK, file); report.Quarantined != 0 {
		t.Errorf("%+v", report)
	}
}

// Damage to a record is found and never repaired; damage to the file as well, and nothing is written to it.
func TestCheckOfDamage(t *testing.T) {
	file := usedFile(t)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	restore := func() {
		t.Helper()
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var record []byte
	rewrite(t, file, func(tx kv.Tx) (err error) { record, err = tx.Get(abideKeys.Object("p2")); return err })
	if !bytes.Contains(good, record) {
		t.Fatal("the record is not in the file")
	}
	for _, n := range []int{0, 5, len(record) - 1} { // in the middle of the file, below SQLite's checks
		flipped := bytes.Clone(record)
		flipped[n] ^= 1
		// Everywhere: pages that were split keep old copies in their unused space.
		if err := os.WriteFile(file, bytes.ReplaceAll(good, record, flipped), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, repair := range [][]string{nil, {"--repair"}} {
			report := checkJSON(t, exitFailure, file, repair...)
			if report.ProblemCount != 1 || report.Problems[0].Kind != "object" || report.Problems[0].ID != "p2" || len(report.SQLite) != 0 {
				t.Errorf("byte %d: %+v", n, report)
			}
		}
	}
	restore()
	// Whole pages: SQLite's own check, or what it answers to a read.
	for page := 2; page < len(good)/4096; page += 3 {
		damaged := bytes.Clone(good)
		for i := range 64 {
			damaged[page*4096+i] ^= 0x5A
		}
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		report := checkJSON(t, exitFailure, file, "--repair")
		if len(report.SQLite) == 0 && report.Error == "" {
			t.Errorf("page %d: %+v", page+1, report)
		}
		if report.Repaired != nil {
			t.Errorf("page %d: repaired: %+v", page+1, report.Repaired)
		}
	}
	for name, content := range map[string][]byte{"cut short": good[:len(good)/2], "no database": []byte(strings.Repeat("text ", 2000))} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r := runWith(nil, "check", file)
		if r.code != exitFailure || (!strings.Contains(r.stderr, "Fatal: ") && !strings.Contains(r.stdout, "problems")) {
			t.Errorf("%s: exit %d, %q, %q", name, r.code, r.stdout, r.stderr)
		}
	}
}

// The replay finds what the other checks cannot.
func TestCheckReplays(t *testing.T) {
	file := usedFile(t)
	rewrite(t, file, func(tx kv.Tx) error {
		b, err := tx.Get(abideKeys.Object("p2"))
		if err != nil {
			return err
		}
		o, err := keyspace.Object("p2", b)
		if err != nil {
			return err
		}
		o.Task.Version++
		return tx.Put(abideKeys.Object("p2"), keyspace.AppendObject(nil, o))
	})
	checkJSON(t, exitOK, file)
	report := checkJSON(t, exitFailure, file, "--replay")
	if report.ProblemCount != 1 || !strings.Contains(report.Problems[0].Detail, "its last journal entry says") {
		t.Errorf("%+v", report)
	}
}

// More problems than are worth printing are counted.
func TestCheckCountsWhatItDoesNotPrint(t *testing.T) {
	file := usedFile(t)
	rewrite(t, file, func(tx kv.Tx) error {
		for i := range maxReported + 500 {
			stale := abideKeys.DeriveSchedule(nil, &machine.Schedule{ID: fmt.Sprint(i), NextRunAt: 5})[0]
			if err := tx.Put(stale.Key, stale.Value); err != nil {
				return err
			}
		}
		return nil
	})
	if report := checkJSON(t, exitFailure, file); report.ProblemCount != maxReported+500 || len(report.Problems) != maxReported {
		t.Errorf("%d counted, %d listed", report.ProblemCount, len(report.Problems))
	}
	if r := runWith(nil, "check", file); !strings.Contains(r.stdout, "... and 500 more\n") {
		t.Errorf("%.300q", r.stdout)
	}
	checkJSON(t, exitOK, file, "--repair")
}

func TestCheckThatCannotBeMade(t *testing.T) {
	folder := t.TempDir()
	empty, foreign := filepath.Join(folder, "empty.db"), filepath.Join(folder, "foreign.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := sqlitekv.Open(sqlitekv.Options{Path: foreign})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	missing := filepath.Join(folder, "missing.db")
	for file, says := range map[string]string{missing: "there is no file", empty: "is empty", folder: "a folder", foreign: "no format record"} {
		if report := checkJSON(t, exitFailure, file); !strings.Contains(report.Error, says) {
			t.Errorf("%s: %+v", file, report)
		}
	}
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("a check makes a file: %v", err)
	}
	rewrite(t, foreign, func(tx kv.Tx) error {
		return tx.Put(keyspace.Format(), keyspace.AppendFormat(nil, keyspace.StoreFormat{Derivation: keyspace.DerivationVersion + 1, Shards: 1}))
	})
	if report := checkJSON(t, exitFailure, foreign); !strings.Contains(report.Error, "use the release that wrote it") {
		t.Errorf("%+v", report)
	}
}

// A server that is told to keep little of the journal does.
func TestServerKeepsItsJournalSmall(t *testing.T) {
	file := usedFile(t)
	for range 20 { // the loop looks at once, but a stop may come first
		server := start(t, serveArgs(file, "--journal-retention-entries", "10")...)
		if _, err := server.client(t).PromiseCreate(t.Context(), protocol.PromiseCreate{ID: "last", TimeoutAt: 1 << 50}); err != nil {
			t.Fatal(err)
		}
		if code := server.stop(t); code != exitOK {
			t.Fatalf("exit %d", code)
		}
		report := checkJSON(t, exitOK, file, "--replay")
		if report.Rows[kv.KindFloor] == 1 && report.Rows[kv.KindEntry] <= 11 {
			return
		}
	}
	t.Error("the journal is as long as ever")
}
