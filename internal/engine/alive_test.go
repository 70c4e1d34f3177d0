package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// lateSource is a real source whose steady clock can be put forward.
type lateSource struct {
	Source
	ahead atomic.Int64
}

func (s *lateSource) Mono() time.Duration { return s.Source.Mono() + time.Duration(s.ahead.Load()) }

// TestAlive tells a loop that fails from one that hangs: only the latter wants a new process.
func TestAlive(t *testing.T) {
	source := &lateSource{Source: newRealTime()}
	e := &Engine{opt: Options{Source: source}, log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hang, hangs := make(chan struct{}), make(chan struct{})
	passes := make(chan struct{}, 1)
	e.loops.run(ctx, e, "failing", func(context.Context) (time.Duration, error) {
		select {
		case passes <- struct{}{}:
		default:
		}
		return 0, errors.New("the store is away")
	})
	<-passes
	source.ahead.Add(int64(LoopHung + time.Minute))
	<-passes // one has ended since, or is about to
	for deadline := time.Now().Add(patience); e.Alive() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a loop that fails counts as hanging: %v", e.Alive())
		}
	}
	if err := e.loops.health(source.Mono()); err == nil {
		t.Error("a loop that only fails counts as well")
	}
	e.loops.run(ctx, e, "hanging", func(context.Context) (time.Duration, error) {
		close(hangs)
		<-hang
		return time.Hour, nil
	})
	<-hangs
	if err := e.Alive(); err != nil {
		t.Errorf("a pass that has just begun: %v", err)
	}
	source.ahead.Add(int64(LoopHung + time.Minute))
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err := e.Alive(); err != nil && strings.Contains(err.Error(), "the hanging loop has ended no pass") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a loop that hangs counts as alive: %v", e.Alive())
		}
	}
	close(hang)
	cancel()
	e.loops.done.Wait()
}
