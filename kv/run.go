package kv

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// First and largest pause between two attempts of Run.
const (
	firstBackoff = 1 * time.Millisecond
	maxBackoff   = 100 * time.Millisecond
)

// Pacer is what a Store may also be if its time is not the machine's, as in a simulation.
type Pacer interface {
	// Pause waits between two attempts of Run, for at most longest. An error ends Run with the last conflict, as
	// an ended ctx does.
	Pause(ctx context.Context, longest time.Duration) error
}

// Run is the only retry loop over transactions in the tree: it repeats an Update that met ErrConflict,
// with growing pauses and full jitter, until it succeeds, fails otherwise, or ctx ends (then the last
// conflict is returned, so that the caller knows that nothing was committed). It never repeats an unknown
// commit. fn is called as by Store.Update.
func Run(ctx context.Context, s Store, h Hints, fn func(Tx) error) (Position, error) {
	backoff := firstBackoff
	for {
		pos, err := s.Update(ctx, h, fn)
		TimingOf(ctx).Attempted(err)
		if !errors.Is(err, ErrConflict) {
			return pos, err
		}
		if pause(ctx, s, backoff) != nil {
			return Position{}, err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// pause waits for at most longest, on the store's time if it is a Pacer.
func pause(ctx context.Context, s Store, longest time.Duration) error {
	if p, ok := s.(Pacer); ok {
		return p.Pause(ctx, longest)
	}
	t := time.NewTimer(rand.N(longest) + 1)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
