package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"

	"abide/kv"
)

var signalTests = []test{
	{name: "signals come with the commit, coalesced", run: testSignals, needs: needsSignals},
	{name: "nothing that did not commit signals", run: testNoSignals},
	{name: "closures that commit together signal each for itself", run: testSignalsTogether, needs: needsSignals},
	{name: "a commit that fails signals nothing", run: testSignalsOfFailedCommit, needs: needsFailures},
	{name: "a reader that is told nothing misses nothing", run: testReaderWithoutHints},
	{name: "signals at their limit", run: testLongSignals, needs: needsSignals},
	{name: "a subscription ends", run: testSignalsStop, needs: needsSignals},
}

// recorder keeps the signals that it gets.
type recorder struct {
	mu  sync.Mutex
	got []kv.Signal
}

func (r *recorder) record(signals []kv.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, signals...)
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, s := range r.got {
		out = append(out, s.Topic+":"+s.Body)
	}
	r.got = nil
	return out
}

// An engine whose signals travel may deliver them after Update has returned. The engines of this suite are
// their own only senders, so they come before.
func testSignals(f *fixture) {
	var r recorder
	defer f.Store.Signals(r.record)()
	f.update(func(tx kv.Tx) error {
		for _, s := range []kv.Signal{{Topic: "timer", Body: "1"}, {Topic: "outbox", Body: "g"}, {Topic: "timer", Body: "1"}, {Topic: "timer", Body: "2"}} {
			tx.Signal(s)
		}
		return tx.Put([]byte("k"), nil)
	})
	wantStrings(f, "the signals", r.take(), []string{"timer:1", "outbox:g", "timer:2"})
	f.update(func(tx kv.Tx) error { tx.Signal(kv.Signal{Topic: "timer", Body: "1"}); return tx.Append(nil, nil) })
	wantStrings(f, "the signals of the next commit", r.take(), []string{"timer:1"})
	f.update(func(tx kv.Tx) error {
		for i := range 40 {
			tx.Signal(kv.Signal{Topic: string(rune('a' + i%20))})
		}
		return tx.Put([]byte("k"), nil)
	})
	if n := len(r.take()); n != 20 {
		f.Errorf("%d signals, want 20 different ones", n)
	}
}

func testNoSignals(f *fixture) {
	var r recorder
	defer f.Store.Signals(r.record)()
	signal := kv.Signal{Topic: "t"}
	f.update(func(tx kv.Tx) error { tx.Signal(signal); return nil })
	f.fails(errOwn, func(tx kv.Tx) error {
		tx.Signal(signal)
		return errors.Join(tx.Put([]byte("k"), nil), errOwn)
	})
	f.fails(kv.ErrLimit, func(tx kv.Tx) error { tx.Signal(signal); return tx.Put(nil, nil) })
	wantStrings(f, "the signals", r.take(), nil)
}

func testSignalsStop(f *fixture) {
	var one, two recorder
	stop := f.Store.Signals(one.record)
	defer f.Store.Signals(two.record)()
	send := func() {
		f.update(func(tx kv.Tx) error { tx.Signal(kv.Signal{Topic: "t"}); return tx.Put([]byte("k"), nil) })
	}
	send()
	stop()
	stop()
	send()
	wantStrings(f, "the signals of the one that stopped", one.take(), []string{"t:"})
	wantStrings(f, "the signals of the one that did not", two.take(), []string{"t:", "t:"})
}

// testReaderWithoutHints follows the journal by looking, while others write: hints are only hints.
func testReaderWithoutHints(f *fixture) {
	const writers, each = 4, 20
	concurrently(f.T, writers+1, func(worker int, _ *rand.Rand) error {
		if worker < writers {
			for i := range each {
				_, err := kv.Run(context.Background(), f.Store, kv.Hints{}, func(tx kv.Tx) error {
					tx.Signal(kv.Signal{Topic: "t"})
					return appendAll(tx, "p", fmt.Sprint(worker, "/", i))
				})
				if err != nil {
					return err
				}
			}
			return nil
		}
		seen := map[string]bool{}
		for after := (kv.EntryPosition{}); len(seen) < writers*each; {
			for _, e := range f.journal("p", after, 10) {
				if after = e.Position; seen[string(e.Record)] {
					return fmt.Errorf("%s came twice", e.Record)
				}
				seen[string(e.Record)] = true
			}
			runtime.Gosched()
		}
		return nil
	})
}

func testLongSignals(f *fixture) {
	var r recorder
	defer f.Store.Signals(r.record)()
	body := strings.Repeat("b", kv.MaxSignalBytes-1)
	f.update(func(tx kv.Tx) error {
		tx.Signal(kv.Signal{Topic: "t", Body: body})
		return tx.Put([]byte("k"), nil)
	})
	wantStrings(f, "the signals", r.take(), []string{"t:" + body})
}

// testSignalsTogether has some of the closures of a batch write and others not.
func testSignalsTogether(f *fixture) {
	var r recorder
	defer f.Store.Signals(r.record)()
	signal := func(body string) kv.Signal { return kv.Signal{Topic: "t", Body: body} }
	f.together(nothing,
		func(tx kv.Tx) error { tx.Signal(signal("reads")); _, err := tx.Get([]byte("k")); return err },
		func(tx kv.Tx) error { tx.Signal(signal("writes")); return tx.Put([]byte("k1"), nil) },
		func(tx kv.Tx) error {
			tx.Signal(signal("fails"))
			return errors.Join(tx.Put([]byte("k2"), nil), errOwn)
		},
		func(tx kv.Tx) error { tx.Signal(signal("appends")); return tx.Append([]byte("p"), nil) },
		func(tx kv.Tx) error { tx.Signal(signal("nothing else")); return nil },
	)
	got := r.take()
	slices.Sort(got)
	wantStrings(f, "the signals", got, []string{"t:appends", "t:writes"})
}

func testSignalsOfFailedCommit(f *fixture) {
	var r recorder
	defer f.Store.Signals(r.record)()
	f.harness.FailCommits(true)
	_, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		tx.Signal(kv.Signal{Topic: "t"})
		return tx.Put([]byte("k"), nil)
	})
	f.harness.FailCommits(false)
	if err == nil {
		f.Error("the commit did not fail")
	}
	wantStrings(f, "the signals", r.take(), nil)
}
