package loops_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"abide/internal/loops"
)

// A loop does all the work that there is, sleeps, and is woken by what is due before it would wake by itself, not by what is
// due later.
func TestWoken(t *testing.T) {
	var mu sync.Mutex
	const farMs = 1 << 40
	l := loops.New("work", slog.New(slog.DiscardHandler), 0)
	due, done := 3, 0
	asleep, worked := make(chan struct{}, 10), make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		l.Run(ctx, func() (func(), int64) {
			mu.Lock()
			defer mu.Unlock()
			l.Round(10)
			if due > 0 {
				due--
				return func() { mu.Lock(); done++; mu.Unlock(); worked <- struct{}{} }, 0
			}
			asleep <- struct{}{}
			return nil, l.Sleep(10, farMs, farMs)
		})
	})
	for range 3 {
		<-worked
	}
	<-asleep
	mu.Lock()
	due = 1
	l.Wake(2 * farMs) // later than it wakes by itself: nothing
	l.Wake(20)
	l.Wake(15) // it is awake already
	mu.Unlock()
	<-worked
	<-asleep
	if mu.Lock(); done != 4 || len(asleep) != 0 {
		t.Errorf("done %d times, and it slept %d times more", done, len(asleep))
	}
	mu.Unlock()
	cancel()
	if err := loops.WaitFor(context.Background(), &running, "late"); err != nil {
		t.Error(err)
	}
}

// It sleeps a poll interval at most, and a millisecond at least.
func TestSleep(t *testing.T) {
	l := loops.New("work", slog.New(slog.DiscardHandler), 0)
	for _, c := range []struct{ nextMs, want int64 }{{500, 400}, {50, 1}, {100, 1}, {1 << 60, 1000}} {
		if got := l.Sleep(100, c.nextMs, 1000); got != c.want {
			t.Errorf("at 100 until %d: %d ms, want %d", c.nextMs, got, c.want)
		}
	}
}

// The log hears of the first failure and of the first success after it. A call that a stop has ended is neither.
func TestCalled(t *testing.T) {
	var log bytes.Buffer
	l := loops.New("push: report", slog.New(slog.NewTextHandler(&log, nil)), 0)
	broken := errors.New("no store")
	for i, err := range []error{nil, broken, broken, nil, nil, context.Canceled} {
		l.Called(int64(i), "w", err)
	}
	if n := strings.Count(log.String(), "push: report failed; retrying"); n != 1 {
		t.Errorf("%d lines tell of failures:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "push: report works again"); n != 1 {
		t.Errorf("%d lines tell that it works:\n%s", n, log.String())
	}
	if h := l.Health(9); h.Failing || h.Calls != 6 || h.IdleMs != 4 || h.Error != "no store" || h.Name != "push: report" {
		t.Errorf("%+v", h)
	}
	l.Called(7, "w", broken)
	other := loops.New("other", slog.New(slog.DiscardHandler), 0)
	if h := loops.HealthOf([]loops.Loop{l, other}, 9, 3, "oops"); len(h.Loops) != 2 || !h.Loops[0].Failing || h.StuckMs() != 9 || h.Panics != 3 || h.Panic != "oops" {
		t.Errorf("%+v", h)
	}
}

// A call has a deadline, and a panic in it is its error.
func TestCall(t *testing.T) {
	err := loops.Call(t.Context(), 1, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err = loops.Call(t.Context(), 1000, func(context.Context) error { panic("oops") }); err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("got %v", err)
	}
}

// A pause doubles up to its bound, however many failures there were.
func TestDoubled(t *testing.T) {
	for failures, want := range map[int]int64{1: 100, 2: 200, 4: 800, 5: 1000, 1 << 30: 1000} {
		if got := loops.Doubled(failures, 100, 1000); got != want {
			t.Errorf("after %d failures %d ms, want %d", failures, got, want)
		}
	}
	if first, last := loops.CallPauseMs(1), loops.CallPauseMs(1000); first != 50 || last != loops.MaxCallPauseMs {
		t.Errorf("calls: %d to %d ms", first, last)
	}
}

func TestWaitForGivesUp(t *testing.T) {
	var wg sync.WaitGroup
	wg.Add(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := loops.WaitFor(ctx, &wg, "the loops did not end"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the loops did not end") {
		t.Errorf("got %v", err)
	}
	wg.Done()
}
