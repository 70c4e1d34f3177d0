package kv

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Timing is told where the time of somebody's calls to a store goes: a store and Run fill in one that they find in the
// context of a call. Each call adds to it, so those of calls that run at the same time overlap. Safe for concurrent use.
// Make one for each piece of work, and set Now before it is used.
type Timing struct {
	// Now is the clock that it is filled in by: time.Now.
	Now func() time.Time

	queued, committed, read      atomic.Int64 // nanoseconds
	transactions, conflicts, out atomic.Int64
}

// Spent is what a Timing has been told so far.
type Spent struct {
	// Queued is how long transactions waited for the writer, or for a place in a batch.
	Queued time.Duration
	// Committed is from there to their outcome: their batch with all its closures, and the commit.
	Committed time.Duration
	// Read is how long snapshots were used.
	Read time.Duration
	// Transactions counts the attempts, of which Conflicts were in vain; Overloaded those that a full queue turned away.
	Transactions, Conflicts, Overloaded int64
}

type timingKey struct{}

// WithTiming is ctx with t, for the calls that are made with it.
func WithTiming(ctx context.Context, t *Timing) context.Context {
	return context.WithValue(ctx, timingKey{}, t)
}

// TimingOf is the Timing in ctx; nil if there is none.
func TimingOf(ctx context.Context) *Timing {
	t, _ := ctx.Value(timingKey{}).(*Timing)
	return t
}

// Attempted notes the outcome of an attempt at a transaction. A nil t is told nothing; the same for the other methods.
func (t *Timing) Attempted(err error) {
	if t == nil {
		return
	}
	t.transactions.Add(1)
	switch {
	case err == nil:
	case errors.Is(err, ErrConflict):
		t.conflicts.Add(1)
	case errors.Is(err, ErrOverloaded):
		t.out.Add(1)
	}
}

// Answered notes how long a transaction has waited, and how long its batch then took.
func (t *Timing) Answered(queued, committed time.Duration) {
	if t != nil {
		t.queued.Add(int64(queued))
		t.committed.Add(int64(committed))
	}
}

// ReadSince notes that a snapshot was used since an instant of Now.
func (t *Timing) ReadSince(began time.Time) {
	if t != nil {
		t.read.Add(int64(t.Now().Sub(began)))
	}
}

// Spent returns what t has been told so far.
func (t *Timing) Spent() Spent {
	if t == nil {
		return Spent{}
	}
	return Spent{
		Queued: time.Duration(t.queued.Load()), Committed: time.Duration(t.committed.Load()), Read: time.Duration(t.read.Load()),
		Transactions: t.transactions.Load(), Conflicts: t.conflicts.Load(), Overloaded: t.out.Load(),
	}
}
