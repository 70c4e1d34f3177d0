package kvfault

import (
	"math/rand/v2"
	"time"
)

// Plan is how often each fault comes, in thousandths of the calls that it can befall; 1,000 and more is always.
// The faults of Update exclude each other, in the order of their fields. The zero Plan has no faults.
type Plan struct {
	// Conflict: Update runs the closure, takes it back and answers ErrConflict.
	Conflict int
	// Overloaded: Update answers ErrOverloaded without running the closure.
	Overloaded int
	// Unavailable: Update, View or Resolve answers ErrUnavailable and does nothing.
	Unavailable int
	// UnknownCommitted: Update commits and answers ErrCommitUnknown.
	UnknownCommitted int
	// UnknownNotCommitted: Update runs the closure, takes it back and answers ErrCommitUnknown.
	UnknownNotCommitted int
	// Unresolvable is the part of the unknown outcomes, in thousandths, about which Resolve answers
	// OutcomeUnknown for ever.
	Unresolvable int
	// Delay: a call waits before it begins, and another draw before it returns, up to MaxDelay each.
	Delay    int
	MaxDelay time.Duration
	// DropSignals: a delivery of hints is lost.
	DropSignals int
	// CloseAfter is the number of calls after which every call answers ErrClosed; 0 for never. The store inside
	// stays open until Close.
	CloseAfter uint64
}

// Fault is what befalls a call.
type Fault int

// The faults of a call; see Plan. View and Resolve know Unavailable only.
const (
	None Fault = iota
	Conflict
	Overloaded
	Unavailable
	UnknownCommitted
	UnknownNotCommitted
)

// Decision is everything that was drawn for one call.
type Decision struct {
	Call                    uint64 // its number, from 1
	Fault                   Fault
	Resolvable              bool // an unknown outcome can be resolved
	DelayBefore, DelayAfter time.Duration
}

// The two streams of random numbers of a seed.
const (
	callStream   = 1 << 63
	signalStream = 1 << 62
)

// Decide is what befalls the call with this number, from 1. It depends on the options and the number alone.
func (o Options) Decide(call uint64) Decision {
	// Everything is drawn, whether it is used or not, so that a change of one odds leaves the others alone.
	r := rand.New(rand.NewPCG(o.Seed, call^callStream))
	fault, resolvable := r.IntN(1000), r.IntN(1000)
	before, after := r.IntN(1000), r.IntN(1000)
	lengths := [2]float64{r.Float64(), r.Float64()}

	d := Decision{Call: call, Resolvable: resolvable >= o.Plan.Unresolvable}
	for _, f := range []struct {
		fault Fault
		odds  int
	}{
		{Conflict, o.Plan.Conflict},
		{Overloaded, o.Plan.Overloaded},
		{Unavailable, o.Plan.Unavailable},
		{UnknownCommitted, o.Plan.UnknownCommitted},
		{UnknownNotCommitted, o.Plan.UnknownNotCommitted},
	} {
		if fault -= f.odds; fault < 0 {
			d.Fault = f.fault
			break
		}
	}
	if before < o.Plan.Delay {
		d.DelayBefore = time.Duration(lengths[0] * float64(o.Plan.MaxDelay))
	}
	if after < o.Plan.Delay {
		d.DelayAfter = time.Duration(lengths[1] * float64(o.Plan.MaxDelay))
	}
	return d
}

// DropsSignals tells whether the delivery of hints with this number, from 1, is lost. It depends on the options
// and the number alone.
func (o Options) DropsSignals(delivery uint64) bool {
	return rand.New(rand.NewPCG(o.Seed, delivery^signalStream)).IntN(1000) < o.Plan.DropSignals
}
