package engine

import (
	"context"
	"math"
	"time"

	"abide/internal/deliver"
)

// Attach subscribes to the store's signals as Start does, and starts no loop: for whoever runs the passes by hand
// (TimerPass, Sweep). h takes what concerns delivery; nil for none. detach ends the subscription. Instead of Start.
func (e *Engine) Attach(h deliver.Hints) (detach func()) {
	e.loops.woken = make(chan struct{}, 1)
	e.loops.begin()
	e.loops.end(math.MaxInt64)
	if h != nil {
		e.hints.deliver.Store(&h)
	}
	return e.store.Signals(e.Signalled)
}

// TimerPass is one pass of the timer loop, run by hand: it fires what is due and returns how long the loop would
// sleep then unless Woken. After an error the loop would pause for a moment and come back. Not safe for concurrent use.
func (e *Engine) TimerPass(ctx context.Context) (sleep time.Duration, err error) {
	return e.timers(ctx)
}

// Woken reports whether a timer was armed that the last TimerPass has not counted on, since the last call.
func (e *Engine) Woken() bool {
	select {
	case <-e.loops.woken:
		return true
	default:
		return false
	}
}

// MemberPass is one pass of the loop that keeps this server's row among those that share the store, run by hand, and
// returns how long the loop would sleep then. Not safe for concurrent use.
func (e *Engine) MemberPass(ctx context.Context) (sleep time.Duration, err error) {
	return e.membership(ctx)
}
