package kvtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/memkv"
)

// wrong is a store that is broken in one way: each field, if given, stands for the call of its name.
type wrong struct {
	kv.Store
	tx     func(kv.Tx) kv.Tx
	view   func(kv.Snapshot) kv.Snapshot
	update func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error)
}

func (w *wrong) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	inner := fn
	if w.tx != nil {
		inner = func(tx kv.Tx) error {
			t := w.tx(tx)
			err := fn(t)
			if end, ok := t.(interface{ end() error }); ok && err == nil {
				err = end.end()
			}
			return err
		}
	}
	if w.update != nil {
		return w.update(ctx, w.Store, inner)
	}
	return w.Store.Update(ctx, h, inner)
}

func (w *wrong) View(ctx context.Context, fn func(kv.Snapshot) error) error {
	if w.view == nil {
		return w.Store.View(ctx, fn)
	}
	return w.Store.View(ctx, func(s kv.Snapshot) error { return fn(w.view(s)) })
}

// wrongTx and wrongView replace single calls of a transaction and of a snapshot.
type wrongTx struct {
	kv.Tx
	get    func(key []byte) ([]byte, error)
	many   func(keys [][]byte) ([][]byte, error)
	scan   func(r kv.Range, limit int) ([]kv.Entry, error)
	put    func(key, value []byte) error
	remove func(key []byte) error
	append func(partition, record []byte) error
	signal func(kv.Signal)
	atEnd  func() error
}

func (t *wrongTx) Get(key []byte) ([]byte, error) {
	if t.get != nil {
		return t.get(key)
	}
	return t.Tx.Get(key)
}

func (t *wrongTx) Scan(r kv.Range, limit int) ([]kv.Entry, error) {
	if t.scan != nil {
		return t.scan(r, limit)
	}
	return t.Tx.Scan(r, limit)
}

func (t *wrongTx) Put(key, value []byte) error {
	if t.put != nil {
		return t.put(key, value)
	}
	return t.Tx.Put(key, value)
}

func (t *wrongTx) Delete(key []byte) error {
	if t.remove != nil {
		return t.remove(key)
	}
	return t.Tx.Delete(key)
}

func (t *wrongTx) Append(partition, record []byte) error {
	if t.append != nil {
		return t.append(partition, record)
	}
	return t.Tx.Append(partition, record)
}

func (t *wrongTx) Signal(s kv.Signal) {
	if t.signal != nil {
		t.signal(s)
		return
	}
	t.Tx.Signal(s)
}

func (t *wrongTx) end() error {
	if t.atEnd != nil {
		return t.atEnd()
	}
	return nil
}

type wrongView struct {
	kv.Snapshot
	get     func(key []byte) ([]byte, error)
	many    func(keys [][]byte) ([][]byte, error)
	scan    func(r kv.Range, limit int) ([]kv.Entry, error)
	journal func(partition []byte, after kv.EntryPosition, limit int) ([]kv.JournalEntry, error)
	bound   func() kv.Position
}

func (v *wrongView) Get(key []byte) ([]byte, error) {
	if v.get != nil {
		return v.get(key)
	}
	return v.Snapshot.Get(key)
}

func (v *wrongView) GetMany(keys [][]byte) ([][]byte, error) {
	if v.many != nil {
		return v.many(keys)
	}
	return v.Snapshot.GetMany(keys)
}

func (v *wrongView) Scan(r kv.Range, limit int) ([]kv.Entry, error) {
	if v.scan != nil {
		return v.scan(r, limit)
	}
	return v.Snapshot.Scan(r, limit)
}

func (v *wrongView) Journal(partition []byte, after kv.EntryPosition, limit int) ([]kv.JournalEntry, error) {
	if v.journal != nil {
		return v.journal(partition, after, limit)
	}
	return v.Snapshot.Journal(partition, after, limit)
}

func (v *wrongView) Bound() kv.Position {
	if v.bound != nil {
		return v.bound()
	}
	return v.Snapshot.Bound()
}

// harnessOf makes a harness of stores in memory, each broken by breakIt.
func harnessOf(breakIt func(*memkv.Store) kv.Store) Harness {
	var last *memkv.Store
	failing, unknown := false, false
	var mu sync.Mutex
	return Harness{
		Open: func(_ testing.TB, c Config) kv.Store {
			opt := memkv.Options{Queued: true, Keys: c.Keys, Now: c.Now, BeforeCommit: func() error {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case failing:
					return &kv.Error{Is: kv.ErrUnavailable, Store: "memory", Op: "commit"}
				case unknown:
					return &kv.Error{Is: kv.ErrCommitUnknown, Store: "memory", Op: "commit", Token: "token"}
				}
				return nil
			}}
			last = memkv.Open(opt)
			return breakIt(last)
		},
		Reopen: func(testing.TB, Config) kv.Store { last = last.Handle(); return breakIt(last) },
		Second: func(testing.TB, Config) kv.Store { return breakIt(last.Handle()) },
		FailCommits: func(fail bool) {
			mu.Lock()
			defer mu.Unlock()
			failing = fail
		},
		UnknownCommits: func(on, _ bool) {
			mu.Lock()
			defer mu.Unlock()
			unknown = on
		},
		Operations: 2000,
	}
}

// runChild is the environment variable that makes TestBrokenStores run: its failures are wanted.
const runChild = "ABIDE_KVTEST_BROKEN"

// TestBrokenStores runs, for every broken store, the one check that must find it out. All of it fails.
func TestBrokenStores(t *testing.T) {
	if os.Getenv(runChild) == "" {
		t.Skip("run by TestTheSuiteCanFail")
	}
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) { runTest(t, b.harness, findTest(t, b.check)) })
	}
}

func findTest(t *testing.T, check string) test {
	concernName, name, _ := strings.Cut(check, "/")
	for _, c := range concerns {
		for _, test := range c.tests {
			if c.name == concernName && test.name == name {
				return test
			}
		}
	}
	t.Fatalf("there is no check %q", check)
	return test{}
}

// TestTheSuiteCanFail demands that every broken store is caught by the check that is named for it, and that a
// store which is right passes the same checks.
func TestTheSuiteCanFail(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBrokenStores$", "-test.v", "-test.timeout=4m")
	cmd.Env = append(os.Environ(), runChild+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("the child ended with %v:\n%s", err, out)
	}
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) {
			name := strings.ReplaceAll(b.name, " ", "_")
			failed := regexp.MustCompile(`(?m)^ +--- FAIL: TestBrokenStores/` + regexp.QuoteMeta(name) + ` `)
			if !failed.Match(out) {
				t.Errorf("%q does not find it out", b.check)
			}
			runTest(t, harnessOf(func(s *memkv.Store) kv.Store { return s }), findTest(t, b.check))
		})
	}
	if bytes.Contains(out, []byte("panic: ")) && !bytes.Contains(out, []byte("for the test")) || bytes.Contains(out, []byte("there is no check")) {
		t.Errorf("the child came to grief:\n%s", out)
	}
}

// snapshotIsolation runs closures on a snapshot and applies their writes later. With checkWrites it refuses if
// somebody else has changed what it writes, which is snapshot isolation: no update is lost, and write skew and
// phantoms happen.
func snapshotIsolation(checkWrites bool) func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
	return func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		type write struct{ key, value, before []byte }
		var writes []write
		err := s.View(ctx, func(snap kv.Snapshot) error {
			change := func(key, value []byte) error {
				before, err := snap.Get(key)
				writes = append(writes, write{bytes.Clone(key), value, before})
				return err
			}
			return fn(&wrongTx{
				get: snap.Get, scan: snap.Scan, many: snap.GetMany,
				put: func(key, value []byte) error {
					return change(key, append([]byte{}, value...))
				},
				remove: func(key []byte) error { return change(key, nil) },
			})
		})
		time.Sleep(time.Millisecond) // so that others come between
		if err != nil {
			return kv.Position{}, err
		}
		return s.Update(ctx, kv.Hints{}, func(tx kv.Tx) error {
			for _, w := range writes {
				now, err := tx.Get(w.key)
				if err != nil {
					return err
				}
				if checkWrites && !bytes.Equal(now, w.before) {
					return kv.ErrConflict
				}
				if w.value == nil {
					err = tx.Delete(w.key)
				} else {
					err = tx.Put(w.key, w.value)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func (t *wrongTx) GetMany(keys [][]byte) ([][]byte, error) {
	if t.many != nil {
		return t.many(keys)
	}
	return t.Tx.GetMany(keys)
}

// cutAtNUL is a key as an engine of C strings would see it.
func cutAtNUL(key []byte) []byte {
	if i := slices.Index(key, 0); i > 0 {
		return key[:i]
	}
	return key
}
