package batch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// ticking is a clock that moves by a second whenever somebody looks at it.
func ticking() func() time.Time {
	var looks atomic.Int64
	return func() time.Time { return time.Unix(looks.Add(1), 0) }
}

func TestTimingSaysWhereATransactionWas(t *testing.T) {
	s := batch.New(newFake(), batch.Options{})
	defer s.Close()
	timing := &kv.Timing{Now: ticking()}
	ctx := kv.WithTiming(context.Background(), timing)
	put := func(tx kv.Tx) error { return tx.Put([]byte("a"), []byte("1")) }
	if _, err := kv.Run(ctx, s, kv.Hints{}, put); err != nil {
		t.Fatal(err)
	}
	got := timing.Spent()
	if want := (kv.Spent{Queued: time.Second, Committed: time.Second, Transactions: 1}); got != want {
		t.Errorf("a transaction: %+v, want %+v", got, want)
	}
	if err := s.View(ctx, func(kv.Snapshot) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got = timing.Spent(); got.Read != time.Second || got.Committed != time.Second {
		t.Errorf("a snapshot: %+v", got)
	}
	// Others' work is not timed with it.
	if _, err := kv.Run(context.Background(), s, kv.Hints{}, put); err != nil {
		t.Fatal(err)
	}
	if again := timing.Spent(); again != got {
		t.Errorf("somebody else's transaction: %+v", again)
	}
}

// A transaction that its caller gives up has only waited.
func TestTimingOfATransactionThatNeverRan(t *testing.T) {
	s := batch.New(newFake(), batch.Options{})
	defer s.Close()
	running, proceed := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := s.Update(context.Background(), kv.Hints{}, func(kv.Tx) error {
			close(running)
			<-proceed
			return nil
		})
		first <- err
	}()
	<-running
	timing := &kv.Timing{Now: ticking()}
	ctx, cancel := context.WithCancel(kv.WithTiming(context.Background(), timing))
	go func() {
		for s.Stats().Queued == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := kv.Run(ctx, s, kv.Hints{}, func(kv.Tx) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := timing.Spent(); got.Queued == 0 || got.Committed != 0 {
		t.Errorf("%+v", got)
	}
	close(proceed)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}
