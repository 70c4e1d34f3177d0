// Package loops is what the real-time shells of step cores share: a goroutine for each sort of work, which sleeps until there is
// some, is woken when there may be earlier some, and shows that it lives.
package loops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"time"
)

// Loop is the goroutine of one sort of work. But for Run, its methods are called under the lock of the core that it works
// for; make it with New.
type Loop struct {
	name string
	log  *slog.Logger
	wake chan struct{}

	idle       bool
	wakeAtMs   int64 // while idle
	progressMs int64 // last time that it came round
	calls      uint64
	failing    bool
	lastError  string
}

// New returns a loop that is not idle yet. What it does is called name; log hears when it begins to fail, and when no longer.
// nowMs is any clock in milliseconds that does not jump, here as in all methods.
func New(name string, log *slog.Logger, nowMs int64) Loop {
	return Loop{name: name, log: log, wake: make(chan struct{}, 1), progressMs: nowMs}
}

// Run does what take returns until ctx ends, or sleeps for as long as take says if that is nil. It takes no lock.
func (l *Loop) Run(ctx context.Context, take func() (work func(), waitMs int64)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		work, waitMs := take()
		if work != nil {
			work()
			continue
		}
		timer.Reset(time.Duration(max(waitMs, 1)) * time.Millisecond)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// Round says that the loop has come round and is looking for work.
func (l *Loop) Round(nowMs int64) { l.progressMs, l.idle = nowMs, false }

// Sleep says that there is no work before nextMs, and returns for how long to sleep: pollMs at most, so that the loop comes
// round that often and shows that it lives.
func (l *Loop) Sleep(nowMs, nextMs, pollMs int64) (waitMs int64) {
	l.idle = true
	l.wakeAtMs = min(max(nextMs, nowMs+1), nowMs+pollMs)
	return l.wakeAtMs - nowMs
}

// Wake ends the sleep of a loop that would sleep beyond nextMs.
func (l *Loop) Wake(nextMs int64) {
	if l.idle && nextMs < l.wakeAtMs {
		l.idle = false
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Called takes in how a call of the loop has ended, in a workspace or, if that is empty, in none. The log gets one line when
// the calls begin to fail and one when they work again, not one per call. A call that a stop ended has not failed.
func (l *Loop) Called(nowMs int64, workspace string, err error) {
	l.progressMs = nowMs
	l.calls++
	failed := err != nil && !errors.Is(err, context.Canceled)
	switch {
	case failed:
		if l.lastError = err.Error(); !l.failing {
			l.log.Warn(l.name+" failed; retrying", "workspace", workspace, "error", l.lastError)
		}
	case l.failing:
		l.log.Info(l.name + " works again")
	}
	l.failing = failed
}

// Health is how a loop is doing.
type Health struct {
	Name string
	// IdleMs is how long ago it last came round: at most about a poll interval, plus the time of a call. More than that
	// and a call hangs.
	IdleMs  int64
	Calls   uint64
	Failing bool   // the last call failed
	Error   string // of the last failed call; empty if none ever failed
}

// Health returns the present state.
func (l *Loop) Health(nowMs int64) Health {
	return Health{l.name, nowMs - l.progressMs, l.calls, l.failing, l.lastError}
}

// ShellHealth is how the shell of a step core is doing.
type ShellHealth struct {
	Loops []Health
	// Panics counts internal errors after which the core began anew; Panic is the last one.
	Panics uint64
	Panic  string
}

// HealthOf returns the present state of a shell's loops and what is given of its panics. Call it under the core's lock.
func HealthOf(of []Loop, nowMs int64, panics uint64, last string) ShellHealth {
	h := ShellHealth{Panics: panics, Panic: last}
	for i := range of {
		h.Loops = append(h.Loops, of[i].Health(nowMs))
	}
	return h
}

// StuckMs is the longest IdleMs of all loops: what a readiness check compares with its limit.
func (h ShellHealth) StuckMs() int64 {
	longest := int64(math.MinInt64)
	for _, l := range h.Loops {
		longest = max(longest, l.IdleMs)
	}
	return longest
}

// Doubled is the pause after so many failures in a row, from 1: firstMs, doubled with each further one, at most mostMs.
func Doubled(failures int, firstMs, mostMs int64) int64 {
	ms := firstMs
	for i := 1; i < failures && ms < mostMs; i++ {
		ms *= 2
	}
	return min(ms, mostMs)
}

// MaxCallPauseMs is the longest CallPauseMs.
const MaxCallPauseMs = 5000

// CallPauseMs is the pause after so many failed calls to a store in a row.
func CallPauseMs(failures int) int64 { return Doubled(failures, 50, MaxCallPauseMs) }

// Call runs a call to a store with a deadline; a panic in it is an error like others.
func Call(ctx context.Context, timeoutMs int64, call func(ctx context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(timeoutMs)*time.Millisecond)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return call(ctx)
}

// WaitFor waits for wg, or until ctx ends; the error then begins with late.
func WaitFor(ctx context.Context, wg *sync.WaitGroup, late string) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", late, ctx.Err())
	}
}
