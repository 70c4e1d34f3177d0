// Package kvfault wraps any store and makes it fail as the contract allows: conflicts, refusals, commits whose
// outcome is unknown and that did or did not happen, delays, hints that are lost, a store that is closed.
// Whatever stands on the contract must live with all of it.
//
// The faults are drawn from a seed: what befalls a call is a pure function of the seed and the call's number
// (Options.Decide), so a run with one caller at a time repeats exactly. Time is the caller's: delays go through
// an injected sleeper.
//
// It is for tests and simulators; nothing that is shipped imports it.
package kvfault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"abide/kv"
)

// storeName is the name of this store in errors.
const storeName = "kvfault"

// tokenPrefix begins the tokens of the outcomes that this package made unknown.
const tokenPrefix = "kvfault-"

// maxRemembered bounds the unknown outcomes that Resolve can still tell, the latest.
const maxRemembered = 4096

// Options say what goes wrong.
type Options struct {
	// Seed determines everything, together with Plan.
	Seed uint64
	// Plan is how often each fault comes.
	Plan Plan
	// Sleep waits out a delay, or returns early when ctx ends. Nil means that delays take no time.
	Sleep func(ctx context.Context, d time.Duration)
}

// Counts are the faults that have been injected so far.
type Counts struct {
	Calls, Conflicts, Overloaded, Unavailable, UnknownCommitted, UnknownNotCommitted, Delays, DroppedSignals uint64
}

// Store is a store that fails; it implements kv.Store. It owns the store inside and closes it.
type Store struct {
	inner   kv.Store
	opt     Options
	calls   atomic.Uint64
	signals atomic.Uint64

	mu       sync.Mutex
	counts   Counts
	outcomes map[kv.Token]outcome
	order    []kv.Token // of outcomes, the oldest first
}

// outcome is what became of a commit that was made unknown.
type outcome struct {
	result kv.Outcome // kv.OutcomeUnknown if Resolve is not to tell
	at     kv.Position
}

var _ kv.Store = (*Store)(nil)

// Wrap makes a store that passes every call on to s, but for the faults of opt.
func Wrap(s kv.Store, opt Options) *Store {
	return &Store{inner: s, opt: opt, outcomes: map[kv.Token]outcome{}}
}

// Counts returns what has been injected so far.
func (f *Store) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counts
	c.Calls = f.calls.Load()
	return c
}

func (f *Store) count(counter func(*Counts) *uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*counter(&f.counts)++
}

// begin numbers a call and waits out the delay before it.
func (f *Store) begin(ctx context.Context, op string) (Decision, error) {
	n := f.calls.Add(1)
	if after := f.opt.Plan.CloseAfter; after > 0 && n > after {
		return Decision{}, f.fail(kv.ErrClosed, op)
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	d := f.opt.Decide(n)
	f.sleep(ctx, d.DelayBefore)
	return d, nil
}

func (f *Store) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	f.count(func(c *Counts) *uint64 { return &c.Delays })
	if f.opt.Sleep != nil {
		f.opt.Sleep(ctx, d)
	}
}

func (f *Store) fail(is error, op string) *kv.Error {
	return &kv.Error{Is: is, Store: storeName, Op: op, Detail: "injected"}
}

// errTakenBack makes the inner store take back what a closure did.
var errTakenBack = errors.New("kvfault: the closure is taken back")

// Update implements kv.Store.
func (f *Store) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	d, err := f.begin(ctx, "update")
	if err != nil {
		return kv.Position{}, err
	}
	defer f.sleep(ctx, d.DelayAfter)
	switch d.Fault {
	case Overloaded:
		f.count(func(c *Counts) *uint64 { return &c.Overloaded })
		return kv.Position{}, f.fail(kv.ErrOverloaded, "update")
	case Unavailable:
		f.count(func(c *Counts) *uint64 { return &c.Unavailable })
		return kv.Position{}, f.fail(kv.ErrUnavailable, "update")
	case Conflict, UnknownNotCommitted:
		return kv.Position{}, f.takeBack(ctx, h, fn, d)
	}
	at, err := f.inner.Update(ctx, h, fn)
	if err != nil || at.IsZero() || d.Fault != UnknownCommitted {
		return at, err
	}
	f.count(func(c *Counts) *uint64 { return &c.UnknownCommitted })
	return kv.Position{}, f.unknown(d, outcome{kv.OutcomeCommitted, at})
}

// takeBack runs fn, so that it has been run, and commits nothing of it. What fn says of itself stands.
func (f *Store) takeBack(ctx context.Context, h kv.Hints, fn func(kv.Tx) error, d Decision) error {
	wrote := false
	_, err := f.inner.Update(ctx, h, func(tx kv.Tx) error {
		wrote = false
		if err := fn(&watchedTx{Tx: tx, wrote: &wrote}); err != nil {
			return err
		}
		return errTakenBack
	})
	if !errors.Is(err, errTakenBack) {
		return err
	}
	if d.Fault == Conflict {
		f.count(func(c *Counts) *uint64 { return &c.Conflicts })
		return f.fail(kv.ErrConflict, "commit")
	}
	if !wrote { // nothing of it can have been committed, and the contract says so
		f.count(func(c *Counts) *uint64 { return &c.Unavailable })
		return f.fail(kv.ErrUnavailable, "commit")
	}
	f.count(func(c *Counts) *uint64 { return &c.UnknownNotCommitted })
	return f.unknown(d, outcome{result: kv.OutcomeNotCommitted})
}

// watchedTx notes whether a closure writes.
type watchedTx struct {
	kv.Tx
	wrote *bool
}

func (t *watchedTx) Put(key, value []byte) error {
	*t.wrote = true
	return t.Tx.Put(key, value)
}

func (t *watchedTx) Delete(key []byte) error {
	*t.wrote = true
	return t.Tx.Delete(key)
}

func (t *watchedTx) Append(partition, record []byte) error {
	*t.wrote = true
	return t.Tx.Append(partition, record)
}

// unknown remembers an outcome and returns the error that hides it.
func (f *Store) unknown(d Decision, o outcome) error {
	if !d.Resolvable {
		o = outcome{}
	}
	err := f.fail(kv.ErrCommitUnknown, "commit")
	err.Token = kv.Token(fmt.Sprint(tokenPrefix, d.Call))
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.order) == maxRemembered {
		delete(f.outcomes, f.order[0])
		f.order = f.order[1:]
	}
	f.outcomes[err.Token] = o
	f.order = append(f.order, err.Token)
	return err
}

// View implements kv.Store.
func (f *Store) View(ctx context.Context, fn func(kv.Snapshot) error) error {
	d, err := f.begin(ctx, "view")
	if err != nil {
		return err
	}
	defer f.sleep(ctx, d.DelayAfter)
	if d.Fault == Unavailable {
		f.count(func(c *Counts) *uint64 { return &c.Unavailable })
		return f.fail(kv.ErrUnavailable, "view")
	}
	return f.inner.View(ctx, fn)
}

// Resolve implements kv.Store: it tells the outcomes that this store hid, unless it was decided that they stay
// unknown, and asks the inner store about all others.
func (f *Store) Resolve(ctx context.Context, t kv.Token) (kv.Outcome, kv.Position, error) {
	d, err := f.begin(ctx, "resolve")
	if err != nil {
		return kv.OutcomeUnknown, kv.Position{}, err
	}
	if d.Fault == Unavailable {
		f.count(func(c *Counts) *uint64 { return &c.Unavailable })
		return kv.OutcomeUnknown, kv.Position{}, f.fail(kv.ErrUnavailable, "resolve")
	}
	if !strings.HasPrefix(string(t), tokenPrefix) {
		return f.inner.Resolve(ctx, t)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.outcomes[t]
	return o.result, o.at, nil
}

// Signals implements kv.Store. Every delivery of the inner store has a number, and is dropped or not.
func (f *Store) Signals(fn func([]kv.Signal)) (stop func()) {
	return f.inner.Signals(func(signals []kv.Signal) {
		if f.opt.DropsSignals(f.signals.Add(1)) {
			f.count(func(c *Counts) *uint64 { return &c.DroppedSignals })
			return
		}
		fn(signals)
	})
}

// Close closes the store inside.
func (f *Store) Close() error { return f.inner.Close() }
