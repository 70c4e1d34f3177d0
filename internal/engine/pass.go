package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"abide/internal/keyspace"
	"abide/kv"
)

// timers is one pass of the timer loop: fire what is due, then sleep until the earliest entry, at most the
// poll interval. A timer armed meanwhile wakes it.
func (e *Engine) timers(ctx context.Context) (time.Duration, error) {
	e.loops.begin()
	now := e.clock.now()
	if e.duties.quiet { // one look tells whether there is anything; on a database several are several round trips
		sleep, due, err := e.untilDue(ctx, now, func(keyspace.Timer) bool { return false })
		if err != nil || !due {
			return sleep, err
		}
	}
	var steps []Step
	var more bool
	err := e.called(ctx, func(ctx context.Context) (err error) {
		steps, more, err = e.Tick(ctx, now)
		return err
	})
	if err != nil {
		return 0, err
	}
	e.duties.quiet = e.shared && len(steps) == 0
	steps = e.mine(steps, now)
	spent, failed, err := e.fireAll(ctx, steps)
	if err != nil {
		return 0, err
	}
	if more && failed < len(steps) {
		return 0, nil
	}
	sleep, _, err := e.untilDue(ctx, now, func(t keyspace.Timer) bool {
		return spent[string(t.Key)] || e.duties.others(string(t.Key), e.mono())
	})
	return sleep, err
}

// untilDue is how long the loop may sleep until the earliest entry, but for those that skip names, and whether that was
// due at an instant. An earlier one that is armed meanwhile wakes it.
func (e *Engine) untilDue(ctx context.Context, now int64, skip func(keyspace.Timer) bool) (sleep time.Duration, due bool, err error) {
	var dueAt int64
	var armed bool
	err = e.called(ctx, func(ctx context.Context) (err error) {
		dueAt, armed, err = e.nextDue(ctx, skip)
		return err
	})
	if err != nil {
		return 0, false, err
	}
	at := e.clock.now()
	until := at + e.opt.PollIntervalMs
	if armed {
		until = min(until, dueAt)
	}
	// In milliseconds until it is short: an instant may be further away than a time.Duration reaches.
	waitMs := min(max(e.loops.end(until)-at, 0), e.opt.PollIntervalMs)
	return time.Duration(waitMs) * time.Millisecond, armed && dueAt <= now, nil
}

// fireAll fires the steps of a pass, up to inParallel at a time. A step that fails by itself is counted and left to
// the next pass, so that it holds up no other; only what keeps every step from being done ends the pass. spent are
// the entries that are done with for this pass, whether they are gone or not: the loop must not wait for them.
func (e *Engine) fireAll(ctx context.Context, steps []Step) (spent map[string]bool, failed int, err error) {
	spent = make(map[string]bool, len(steps))
	var rest []string
	var mu sync.Mutex
	err = e.concurrently(len(steps), func(i int) error {
		var more bool
		err := guard(func() error {
			return e.called(ctx, func(ctx context.Context) (err error) {
				more, err = e.fire(ctx, steps[i], instant{engine: e, workspace: steps[i].Workspace})
				return err
			})
		})
		if ofEveryStep(err) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed++
			e.counts.failures.Add(1)
			e.log.Error("internal step failed; the next pass tries it again", "timer", steps[i].Kind, "workspace", steps[i].Workspace, "error", err)
		}
		if err != nil || !more {
			spent[string(steps[i].Key)] = true
		} else if e.shared {
			rest = append(rest, string(steps[i].Key))
		}
		return nil
	})
	for _, key := range rest {
		e.duties.goOn(key, e.mono())
	}
	return spent, failed, err
}

// ofEveryStep reports whether an error says that no step can be done now.
func ofEveryStep(err error) bool {
	for _, is := range []error{kv.ErrUnavailable, kv.ErrOverloaded, kv.ErrClosed, kv.ErrConflict, kv.ErrCommitUnknown,
		context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}
