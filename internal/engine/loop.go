package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"abide/internal/deliver"
	"abide/internal/store"
	"abide/kv"
)

const (
	// callTimeout is the deadline of one store call of a background loop.
	callTimeout = 5 * time.Second
	// loopBackoffFirst and loopBackoffMax are the pauses of a loop after failures.
	loopBackoffFirst = 50 * time.Millisecond
	loopBackoffMax   = 5 * time.Second
	// loopStale is how long a loop may go without a good pass before the server is not ready.
	loopStale = 30 * time.Second
	// LoopHung is how long a loop may be within one pass before it counts as hanging for good. A pass over much work on a
	// slow store takes some time, and what follows from hanging is the death of the process.
	LoopHung = 5 * time.Minute
)

// hints hands the signals of commits to whoever consumes them.
type hints struct {
	deliver atomic.Pointer[deliver.Hints]
}

// loops are the goroutines around the step functions: the timer loop, the sweep and the retention of the journal.
// Everything they do can be done by hand with Tick, Fire, Sweep and Retain.
type loops struct {
	wakeAt atomic.Int64  // a timer armed before this instant wakes the timer loop; math.MinInt64 while a pass is under way
	armed  atomic.Int64  // the earliest timer that was signalled since the pass began
	woken  chan struct{} // holds at most one wake-up
	stop   context.CancelFunc
	done   sync.WaitGroup
	unsub  func()

	mu    sync.Mutex
	alive []*heart
}

// heart is the health signal of one loop.
type heart struct {
	name     string
	lastGood time.Duration // on the source's monotonic clock, as is lastPass
	lastPass time.Duration // good or not
	lastErr  error
}

// Start subscribes to the store's signals and starts the loops. hints takes what concerns delivery; nil for
// none. Start once.
func (e *Engine) Start(h deliver.Hints) {
	ctx, cancel := context.WithCancel(context.Background())
	e.loops.stop = cancel
	e.loops.woken = make(chan struct{}, 1)
	e.loops.begin()
	e.loops.end(math.MaxInt64)
	if h != nil {
		e.hints.deliver.Store(&h)
	}
	e.loops.unsub = e.store.Signals(e.Signalled)
	e.loops.run(ctx, e, "timers", e.timers)
	e.loops.run(ctx, e, "sweep", e.sweeps)
	e.loops.run(ctx, e, "journal", e.retains)
	if e.shared {
		e.loops.run(ctx, e, "servers", e.membership)
	}
}

// Stop ends the loops and waits until they have, or ctx ends; of several servers on a store this one then takes its
// leave, so that the others take over at once. Requests are still answered. Stopping an engine that was not started is
// harmless.
func (e *Engine) Stop(ctx context.Context) error {
	if err := e.stopLoops(ctx); err != nil || !e.shared {
		return err
	}
	if err := e.leave(ctx); err != nil {
		return fmt.Errorf("this server's row stays in the store until its lease ends: %w", err)
	}
	return nil
}

func (e *Engine) stopLoops(ctx context.Context) error {
	if e.loops.stop == nil {
		return nil
	}
	e.loops.stop()
	e.loops.unsub()
	done := make(chan struct{})
	go func() { e.loops.done.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the engine's loops did not end: %w", ctx.Err())
	}
}

// Signalled hands on the signals of a commit: timers to the timer loop, messages to delivery. It never
// blocks. The store calls it; a simulator may call it, or drop the signals.
func (e *Engine) Signalled(signals []kv.Signal) {
	h := e.hints.deliver.Load()
	own := e.ownSignals(signals)
	for _, s := range signals {
		if s.Topic == store.TopicTimer {
			dueAt := store.ParseTimer(s.Body)
			if own && e.shared && dueAt <= e.clock.now()+e.opt.PollIntervalMs {
				e.duties.arm(dueAt)
			}
			e.loops.arm(dueAt)
			continue
		}
		m, ok := store.ParseMessage(s.Body)
		if !ok || h == nil {
			continue
		}
		if s.Topic == store.TopicClaimed { // frees memory, also while nothing is to be sent
			(*h).HintClaimed(m.Workspace, m.ID, m.Version)
			continue
		}
		if e.paused.has(m.Workspace) {
			continue
		}
		switch s.Topic {
		case store.TopicExecute:
			(*h).HintExecute(deliver.Execute{Workspace: m.Workspace, ID: m.ID, Version: m.Version, Address: m.Address})
		case store.TopicUnblock:
			(*h).HintUnblock(m.Workspace, deliver.UnblockRef{ID: m.ID, Address: m.Address})
		}
	}
}

// ownSignals reports whether the signals are of a commit of this server, and takes note of those that are another's.
func (e *Engine) ownSignals(signals []kv.Signal) bool {
	if !e.shared {
		return true
	}
	for _, s := range signals {
		if s.Topic == store.TopicServer {
			if s.Body == e.opt.ServerID {
				return true
			}
			e.members.heard.Store(int64(e.mono()) | 1) // never 0
			return false
		}
	}
	return false
}

// begin begins a pass of the timer loop. What is armed from here on is counted on when the pass ends: to be woken for it
// would be to look once more for each commit, however late its timers are due.
func (l *loops) begin() {
	l.armed.Store(math.MaxInt64)
	l.wakeAt.Store(math.MinInt64)
}

// end ends a pass after which the loop sleeps until an instant, or an earlier one that was armed meanwhile, which it
// returns. A timer that is armed after this and due before that wakes it.
func (l *loops) end(until int64) int64 {
	l.wakeAt.Store(until)
	return min(until, l.armed.Load())
}

// arm notes that a timer is armed. Any goroutine. (Noted first, then compared, as end does it the other way round: one of
// the two sees the other.)
func (l *loops) arm(dueAt int64) {
	for {
		earliest := l.armed.Load()
		if dueAt >= earliest || l.armed.CompareAndSwap(earliest, dueAt) {
			break
		}
	}
	if dueAt < l.wakeAt.Load() {
		l.wake()
	}
}

// wake makes the timer loop look again.
func (l *loops) wake() {
	select {
	case l.woken <- struct{}{}:
	default: // it is awake already, or was never started
	}
}

// run starts one loop: pass after pass, each telling how long to sleep. A pass that fails or panics is
// logged and counted, and the next one comes after a growing pause: a loop never ends by itself.
func (l *loops) run(ctx context.Context, e *Engine, name string, pass func(ctx context.Context) (time.Duration, error)) {
	begun := e.opt.Source.Mono()
	h := &heart{name: name, lastGood: begun, lastPass: begun}
	l.mu.Lock()
	l.alive = append(l.alive, h)
	l.mu.Unlock()
	l.done.Add(1)
	go func() {
		defer l.done.Done()
		backoff := loopBackoffFirst
		for ctx.Err() == nil {
			var sleep time.Duration
			err := guard(func() (err error) {
				sleep, err = pass(ctx)
				return err
			})
			if ctx.Err() != nil {
				return
			}
			l.beat(h, e, err)
			if err != nil {
				e.counts.failures.Add(1)
				e.log.Warn("background pass failed, trying again", "loop", name, "error", err)
				sleep = backoff
				backoff = min(2*backoff, loopBackoffMax)
			} else {
				backoff = loopBackoffFirst
			}
			l.sleep(ctx, sleep, err == nil && name == "timers")
		}
	}()
}

// guard runs fn and turns a panic into an error: a bug in one piece of work must not end the server.
func guard(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}

// sleep waits for a while, for the loop's end or, for a wakeable loop, until it is woken.
func (l *loops) sleep(ctx context.Context, d time.Duration, wakeable bool) {
	if d <= 0 {
		return
	}
	woken := l.woken
	if !wakeable {
		woken = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-woken:
	}
}

func (l *loops) beat(h *heart, e *Engine, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.lastErr, h.lastPass = err, e.opt.Source.Mono()
	if err == nil {
		h.lastGood = h.lastPass
	}
}

// health reports the first loop that has had no good pass for loopStale: it fails, or hangs.
func (l *loops) health(now time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.alive {
		if stale := now - h.lastGood; stale > loopStale {
			return fmt.Errorf("the %s loop has had no good pass for %s (last error: %w)", h.name, stale.Round(time.Second), h.lastErr)
		}
	}
	return nil
}

// Alive reports the first loop that hangs: that has ended no pass, good or not, for LoopHung. Unlike Ready it says nothing
// of a store that fails; only a new process would mend what it reports. Safe for concurrent use.
func (e *Engine) Alive() error {
	now := e.opt.Source.Mono()
	l := &e.loops
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.alive {
		if hung := now - h.lastPass; hung > LoopHung {
			return fmt.Errorf("the %s loop has ended no pass for %s", h.name, hung.Round(time.Second))
		}
	}
	return nil
}

// called gives one piece of background work the deadline of a store call.
func (e *Engine) called(ctx context.Context, fn func(ctx context.Context) error) error {
	if e.opt.Sequential {
		return fn(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := fn(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the store did not answer within %s: %w", callTimeout, err)
	}
	return err
}
