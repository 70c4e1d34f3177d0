// Package kvtest is the conformance suite of the storage contract: whatever implements kv.Store passes it. A
// backend's own test opens stores and calls Run; see kv/memkv for one of a few lines.
//
// The suite is split by concern, one file each. Every subtest gets a fresh store. What a backend can do is
// said by its Harness and never guessed; a check that needs more is skipped and says what it needs.
//
// Beside the checks there is a runner of random histories, which compares a store with a sorted map, cuts a
// history that fails down to its shortest form, and prints it as a Go program: see history.go.
package kvtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"abide/kv"
)

// Config is how the suite wants a store to be opened.
type Config struct {
	// Keys names the kinds of the suite's keys in errors.
	Keys kv.KeyRegister
	// Now is the clock by which closures and snapshots end. Nil leaves it to the harness.
	Now func() time.Time
	// Failing says that Harness.FailCommits or UnknownCommits will be called for this store.
	Failing bool
}

// Harness is how the suite gets at a backend.
type Harness struct {
	// Open makes an empty store. The suite closes it.
	Open func(t testing.TB, c Config) kv.Store
	// Reopen opens again what the store opened last, which the suite has closed, left behind. Nil if nothing
	// survives.
	Reopen func(t testing.TB, c Config) kv.Store
	// Second opens another handle, as another process would have it, on the store opened last, which stays
	// open. The suite closes it. Nil if the engine has one handle at a time.
	Second func(t testing.TB, c Config) kv.Store
	// FailCommits makes the commits of the store opened last fail for a reason of the engine's, with nothing
	// committed, until it is called with false. Nil if that cannot be made to happen.
	FailCommits func(fail bool)
	// UnknownCommits makes the commits of the store opened last end with an unknown outcome, until it is called
	// with on false. What was under way is then lost, or it is durable all the same, where the engine lets the
	// harness choose. Nil if that cannot be made to happen.
	UnknownCommits func(on, lost bool)
	// OwnClock says that the engine ends closures and snapshots by a clock of its own, not by Config.Now.
	OwnClock bool
	// Imports says that the store is a kv.Importer.
	Imports bool
	// NoSignals says that no hint ever arrives. The checks that wait for hints are left out; all others must
	// pass.
	NoSignals bool
	// Operations is how many operations the random histories have together; 0 means DefaultOperations.
	Operations int
	// Seed is that of the first random history; each further one has the next.
	Seed uint64
}

// DefaultOperations is what a quick run of the random histories has. A long run has at least 100,000.
const DefaultOperations = 4000

// need is something that not every harness has.
type need int

const (
	needsClock need = 1 << iota
	needsReopen
	needsSecond
	needsFailures
	needsUnknown
	needsSignals
	needsImports
)

// lacks says what of needs h does not have; "" if nothing.
func (h *Harness) lacks(needs need) string {
	switch {
	case needs&needsClock != 0 && h.OwnClock:
		return "the engine has a clock of its own"
	case needs&needsReopen != 0 && h.Reopen == nil:
		return "nothing of this store survives its closing"
	case needs&needsSecond != 0 && h.Second == nil:
		return "the engine has one handle on a store at a time"
	case needs&needsFailures != 0 && h.FailCommits == nil:
		return "commits of this engine cannot be made to fail"
	case needs&needsUnknown != 0 && h.UnknownCommits == nil:
		return "outcomes of this engine cannot be made unknown"
	case needs&needsSignals != 0 && h.NoSignals:
		return "no hint of this store arrives"
	case needs&needsImports != 0 && !h.Imports:
		return "the store cannot be filled from another one"
	}
	return ""
}

// test is one subtest.
type test struct {
	name  string
	run   func(*fixture)
	needs need
}

// concern is the subtests of one subject.
type concern struct {
	name  string
	tests []test
}

var concerns = []concern{
	{"reads", readTests},
	{"writes", writeTests},
	{"scans", scanTests},
	{"keys", keyTests},
	{"limits", limitTests},
	{"errors", errorTests},
	{"positions", positionTests},
	{"journal", journalTests},
	{"compaction", compactionTests},
	{"signals", signalTests},
	{"isolation", isolationTests},
	{"batches", batchTests},
	{"contexts", contextTests},
	{"handles", handleTests},
	{"lifetime", lifetimeTests},
	{"imports", importTests},
	{"histories", historyTests},
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	for _, c := range concerns {
		t.Run(c.name, func(t *testing.T) {
			for _, test := range c.tests {
				t.Run(test.name, func(t *testing.T) { runTest(t, h, test) })
			}
		})
	}
}

func runTest(t *testing.T, h Harness, test test) {
	if reason := h.lacks(test.needs); reason != "" {
		t.Skip(reason)
	}
	f := &fixture{T: t, harness: h, config: Config{Keys: register, Failing: test.needs&(needsFailures|needsUnknown) != 0}}
	if test.needs&needsClock != 0 {
		f.config.Now = f.clock.now
	}
	f.Store = h.Open(t, f.config)
	t.Cleanup(func() {
		if err := f.Store.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	test.run(f)
}

// register is that of every store of the suite.
var register = kv.KeyRegister{Kind: func(key []byte) string {
	if len(key) > 0 && key[0] == 'k' {
		return "kind k"
	}
	return "other kind"
}}

// clock is the time of a store that takes it from the suite.
type clock struct {
	mu      sync.Mutex
	elapsed time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Unix(1_000_000, 0).Add(c.elapsed)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elapsed += d
}

// fixture is what a subtest works with: its store, and calls that fail the test.
type fixture struct {
	*testing.T
	Store   kv.Store
	harness Harness
	config  Config
	clock   clock
}

// reopen closes the store and opens what it left behind.
func (f *fixture) reopen() {
	f.Helper()
	if err := f.Store.Close(); err != nil {
		f.Fatalf("closing the store: %v", err)
	}
	f.Store = f.harness.Reopen(f.T, f.config)
}

// update runs fn and demands that it commits.
func (f *fixture) update(fn func(kv.Tx) error) kv.Position {
	f.Helper()
	at, err := kv.Run(context.Background(), f.Store, kv.Hints{}, fn)
	if err != nil {
		f.Fatalf("update: %v", err)
	}
	return at
}

// fails runs fn and demands that it fails with an error of this identity, without a position.
func (f *fixture) fails(want error, fn func(kv.Tx) error) error {
	f.Helper()
	at, err := kv.Run(context.Background(), f.Store, kv.Hints{}, fn)
	if !errors.Is(err, want) {
		f.Fatalf("update failed with %v, want %v", err, want)
	}
	if !at.IsZero() {
		f.Errorf("a failed update has the position %v", at)
	}
	return err
}

// view runs fn on a snapshot and demands that it succeeds.
func (f *fixture) view(fn func(kv.Snapshot) error) {
	f.Helper()
	if err := f.Store.View(context.Background(), fn); err != nil {
		f.Fatalf("view: %v", err)
	}
}

// put commits some entries, given as key and value in turn.
func (f *fixture) put(keysAndValues ...string) kv.Position {
	f.Helper()
	return f.update(func(tx kv.Tx) error {
		for i := 0; i < len(keysAndValues); i += 2 {
			if err := tx.Put([]byte(keysAndValues[i]), []byte(keysAndValues[i+1])); err != nil {
				return err
			}
		}
		return nil
	})
}

// get reads one key; "<none>" if it is absent.
func (f *fixture) get(key string) string {
	f.Helper()
	var value []byte
	f.view(func(s kv.Snapshot) (err error) {
		value, err = s.Get([]byte(key))
		return err
	})
	return show(value)
}

// bound is that of a snapshot taken now.
func (f *fixture) bound() (at kv.Position) {
	f.Helper()
	f.view(func(s kv.Snapshot) error { at = s.Bound(); return nil })
	return at
}

// wantContent demands that the store holds exactly these entries, in order, as "key=value".
func (f *fixture) wantContent(want ...string) {
	f.Helper()
	f.view(func(s kv.Snapshot) error {
		entries, err := s.Scan(everything, kv.MaxScanRows)
		wantStrings(f, "the store's entries", showEntries(entries), want)
		return err
	})
}

// everything is the range of all keys.
var everything = kv.Range{End: []byte{kv.ReservedPrefix}}

func span(start, end string) kv.Range {
	return kv.Range{Start: []byte(start), End: []byte(end)}
}

func show(value []byte) string {
	if value == nil {
		return "<none>"
	}
	return string(value)
}

func showEntries(entries []kv.Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, string(e.Key)+"="+show(e.Value))
	}
	return out
}

func showJournal(entries []kv.JournalEntry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, string(e.Record))
	}
	return out
}

func wantStrings(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s are %q, want %q", what, got, want)
	}
}

// bothKinds are the two kinds of transaction that a check of a Reader runs in.
var bothKinds = []string{"in a snapshot", "in a transaction"}

// read runs fn in both kinds of transaction, each as a subtest.
func (f *fixture) read(fn func(t *testing.T, r kv.Reader)) {
	f.Helper()
	for _, kind := range bothKinds {
		f.Run(kind, func(t *testing.T) {
			var err error
			if kind == bothKinds[0] {
				err = f.Store.View(context.Background(), func(s kv.Snapshot) error { fn(t, s); return nil })
			} else {
				_, err = kv.Run(context.Background(), f.Store, kv.Hints{}, func(tx kv.Tx) error { fn(t, tx); return nil })
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
