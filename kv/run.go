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

// Run is the only retry loop over transactions in the tree: it repeats an Update that met ErrConflict,
// with growing pauses and full jitter, until it succeeds, fails otherwise, or ctx ends (then the last
// conflict is returned, so that the caller knows that nothing was committed). It never repeats an unknown
// commit. fn is called as by Store.Update.
func Run(ctx context.Context, s Store, h Hints, fn func(Tx) error) (Position, error) {
	backoff := firstBackoff
	for {
		pos, err := s.Update(ctx, h, fn)
		if !errors.Is(err, ErrConflict) {
			return pos, err
		}
		pause := time.NewTimer(rand.N(backoff) + 1)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return Position{}, err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}
