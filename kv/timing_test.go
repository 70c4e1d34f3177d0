package kv

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// What is nil is told nothing, and every outcome is counted as what it was.
func TestTimingCountsAttempts(t *testing.T) {
	var nobody *Timing
	nobody.Attempted(ErrConflict)
	nobody.Answered(1, 1)
	if nobody.Spent() != (Spent{}) || TimingOf(context.Background()) != nil {
		t.Error("nobody asked")
	}
	timing := &Timing{}
	if TimingOf(WithTiming(context.Background(), timing)) != timing {
		t.Error("the context has another")
	}
	for _, err := range []error{nil, ErrConflict, fmt.Errorf("it was: %w", ErrConflict), ErrOverloaded, errors.New("other")} {
		timing.Attempted(err)
	}
	if got, want := timing.Spent(), (Spent{Transactions: 5, Conflicts: 2, Overloaded: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
