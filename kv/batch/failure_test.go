package batch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// outcomes runs three closures in one batch, of which one writes, one only reads what that wrote, and one
// fails because of it, and returns what each heard.
func outcomes(t *testing.T, d *fake) map[string]error {
	t.Helper()
	g := newGated(t, d, batch.Options{Name: "fake", Incarnation: 1})
	var mu sync.Mutex
	errs := map[string]error{}
	add := func(name string, fn func(kv.Tx) error) {
		g.enqueue(context.Background(), kv.Hints{}, name, fn, func(at kv.Position, err error) {
			mu.Lock()
			defer mu.Unlock()
			if !at.IsZero() {
				t.Errorf("%s has the position %v", name, at)
			}
			errs[name] = err
		})
	}
	add("writing", func(tx kv.Tx) error {
		tx.Signal(kv.Signal{Topic: "t"})
		return tx.Put([]byte("a"), []byte("1"))
	})
	add("reading", func(tx kv.Tx) error { _, err := tx.Get([]byte("a")); return err })
	add("failing", func(tx kv.Tx) error { return errOwn })
	stop := g.Signals(func(s []kv.Signal) { t.Errorf("signals %v of a commit that failed", s) })
	defer stop()
	g.order()
	return errs
}

func engineFailure(is error, token kv.Token) error {
	return &kv.Error{Is: is, Store: "fake", Op: "commit", Token: token, Err: errors.New("the disk is on fire")}
}

// What a closure decided may rest on a neighbour's write, so nobody's own result stands if that is lost.
func TestEveryClosureSharesTheOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		call string
		is   error
	}{
		"apply fails":       {"apply", kv.ErrUnavailable},
		"commit conflicts":  {"commit", kv.ErrConflict},
		"commit is refused": {"commit", kv.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake()
			d.failOn(tc.call, engineFailure(tc.is, ""))
			for who, err := range outcomes(t, d) {
				if !errors.Is(err, tc.is) {
					t.Errorf("%s hears %v, want %v", who, err, tc.is)
				}
			}
		})
	}
	t.Run("an error without identity", func(t *testing.T) {
		d := newFake()
		d.failOn("commit", errors.New("what is this"))
		for who, err := range outcomes(t, d) {
			if !errors.Is(err, kv.ErrUnavailable) {
				t.Errorf("%s hears %v", who, err)
			}
		}
	})
}

func TestUnknownCommit(t *testing.T) {
	d := newFake()
	d.failOn("commit", engineFailure(kv.ErrCommitUnknown, "token"))
	errs := outcomes(t, d)
	for _, who := range []string{"reading", "failing"} {
		if err := errs[who]; !errors.Is(err, kv.ErrUnavailable) || errors.Is(err, errOwn) || errors.Is(err, kv.ErrCommitUnknown) {
			t.Errorf("%s, which wrote nothing, hears %v", who, err)
		}
	}
	var known *kv.Error
	if err := errs["writing"]; !errors.As(err, &known) || !errors.Is(err, kv.ErrCommitUnknown) {
		t.Fatalf("the writer hears %v", err)
	}
	if known.Token != "token/1" {
		t.Errorf("the token is %q", known.Token)
	}
}

func TestResolve(t *testing.T) {
	d := newFake()
	s := open(d, batch.Options{Name: "fake", Incarnation: 7})
	defer s.Close()
	for outcome, want := range map[kv.Outcome]kv.Position{
		kv.OutcomeCommitted:    kv.NewPosition(7, 42),
		kv.OutcomeNotCommitted: {},
		kv.OutcomeUnknown:      {},
	} {
		d.resolve = outcome
		got, at, err := s.Resolve(context.Background(), "of/the driver/42")
		if got != outcome || at != want || err != nil {
			t.Errorf("outcome %v: %v, %v, %v", outcome, got, at, err)
		}
	}
	if calls := d.take(); len(calls) != 3 || calls[0] != "resolve of/the driver" {
		t.Errorf("the driver was asked %q", calls)
	}
}

func TestAReadErrorFailsItsClosureOnly(t *testing.T) {
	d := newFake()
	g := newGated(t, d, batch.Options{Name: "fake", Keys: kv.KeyRegister{Kind: func([]byte) string { return "object" }}})
	d.failOn("get", &kv.Error{Is: kv.ErrCorrupt, Store: "fake", Op: "get"})
	var reading, writing error
	g.enqueue(context.Background(), kv.Hints{}, "reading", func(tx kv.Tx) error {
		_ = tx.Put([]byte("a"), nil)
		_, _ = tx.Get([]byte("b")) // overlooked, and final all the same
		return nil
	}, func(_ kv.Position, err error) { reading = err })
	g.enqueue(context.Background(), kv.Hints{}, "writing", putting("c", "3"), func(_ kv.Position, err error) { writing = err })
	g.order()
	if !errors.Is(reading, kv.ErrCorrupt) || !strings.Contains(reading.Error(), "get of object") || writing != nil {
		t.Errorf("reading: %v, writing: %v", reading, writing)
	}
	wantCalls(t, d.take(), "begin", "get b", "apply c=3", "commit 1")
}

func TestBeginFails(t *testing.T) {
	d := newFake()
	s := open(d, batch.Options{Name: "fake"})
	defer s.Close()
	d.failOn("begin", engineFailure(kv.ErrUnavailable, ""))
	ran := false
	_, err := s.Update(context.Background(), kv.Hints{}, func(kv.Tx) error { ran = true; return nil })
	if !errors.Is(err, kv.ErrUnavailable) || ran {
		t.Errorf("error %v, the closure ran: %v", err, ran)
	}
	d.failOn("begin", nil)
	if _, err := s.Update(context.Background(), kv.Hints{}, putting("a", "1")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestAFullQueueRefuses(t *testing.T) {
	g := newGated(t, newFake(), batch.Options{Name: "fake", QueueLimit: 3})
	ctx, cancel := context.WithCancel(context.Background())
	cancelled := make(chan error, 1)
	g.enqueue(ctx, kv.Hints{}, "cancelled", putting("a", "1"), func(_ kv.Position, err error) { cancelled <- err })
	g.enqueue(context.Background(), kv.Hints{Background: true}, "b", putting("b", "1"), discard)
	g.enqueue(context.Background(), kv.Hints{}, "c", putting("c", "1"), discard)
	_, err := g.Update(context.Background(), kv.Hints{}, putting("d", "1"))
	if !errors.Is(err, kv.ErrOverloaded) || g.Stats().Refused != 1 {
		t.Errorf("a fourth closure: %v, %d refused", err, g.Stats().Refused)
	}
	cancel() // takes its closure out, and makes room
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled closure: %v", err)
	}
	g.enqueue(context.Background(), kv.Hints{}, "d", putting("d", "1"), discard)
	if got := g.order(); got != "b c d" {
		t.Errorf("ran %q", got)
	}
}

func TestCloseAnswersTheQueue(t *testing.T) {
	d := newFake()
	g := newGated(t, d, batch.Options{Name: "fake"})
	errs := make(chan error, 2)
	g.enqueue(context.Background(), kv.Hints{}, "a", putting("a", "1"), func(_ kv.Position, err error) { errs <- err })
	closed := make(chan error, 1)
	go func() { closed <- g.Close() }()
	for !errors.Is(g.View(context.Background(), func(kv.Snapshot) error { return nil }), kv.ErrClosed) {
		time.Sleep(time.Millisecond)
	}
	g.open()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	g.wg.Wait()
	// The closure was in the batch that was under way, or it was answered: never lost, never hanging.
	if err := <-errs; err != nil && !errors.Is(err, kv.ErrClosed) {
		t.Errorf("the queued closure: %v", err)
	}
	if d.closed != 1 {
		t.Errorf("the driver was closed %d times", d.closed)
	}
}

// A closure that stays too long ends, whatever it does with the error.
func TestFiveSeconds(t *testing.T) {
	now := time.Unix(0, 0)
	d := newFake()
	s := open(d, batch.Options{Name: "fake", Synchronous: true, Now: func() time.Time { return now }})
	defer s.Close()
	_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		err := tx.Put([]byte("a"), nil)
		now = now.Add(kv.MaxTxSeconds*time.Second + 1)
		_ = tx.Put([]byte("b"), nil)
		return err
	})
	if !errors.Is(err, kv.ErrTooLarge) {
		t.Errorf("a transaction: %v", err)
	}
	err = s.View(context.Background(), func(snap kv.Snapshot) error {
		now = now.Add(kv.MaxTxSeconds*time.Second + 1)
		_, err := snap.Get([]byte("a"))
		return err
	})
	if !errors.Is(err, kv.ErrTooLarge) {
		t.Errorf("a snapshot: %v", err)
	}
}

func TestViewReleasesItsSnapshot(t *testing.T) {
	d := newFake()
	s := open(d, batch.Options{Name: "fake"})
	defer s.Close()
	func() {
		defer func() { _ = recover() }()
		_ = s.View(context.Background(), func(kv.Snapshot) error { panic("p") })
	}()
	ctx, cancel := context.WithCancel(context.Background())
	err := s.View(ctx, func(snap kv.Snapshot) error {
		cancel()
		_, err := snap.Get([]byte("a"))
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a view whose caller went away: %v", err)
	}
	wantCalls(t, d.take(), "snapshot", "release", "snapshot", "release")
}

func TestRunTwiceTakesTheFirstRunBack(t *testing.T) {
	d := newFake()
	s := open(d, batch.Options{Name: "fake", RunTwice: true})
	defer s.Close()
	runs := 0
	_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		runs++
		if v, err := tx.Get([]byte("a")); v != nil || err != nil {
			return fmt.Errorf("run %d reads %q, %v", runs, v, err)
		}
		return errors.Join(tx.Put([]byte("a"), []byte("1")), tx.Append([]byte("p"), nil))
	})
	if err != nil || runs != 2 {
		t.Errorf("%d runs, %v", runs, err)
	}
	wantCalls(t, d.take(), "begin", "get a", "apply a=1 journal", "commit 1")
}

// Synchronous means that everything has happened, on this goroutine, when Update returns.
func TestSynchronous(t *testing.T) {
	d := newFake()
	s := open(d, batch.Options{Name: "fake", Synchronous: true})
	var seen []string
	s.Signals(func(signals []kv.Signal) { seen = append(seen, fmt.Sprint(signals, d.sequence)) })
	_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		tx.Signal(kv.Signal{Topic: "t"})
		return tx.Put([]byte("a"), nil)
	})
	if err != nil || len(seen) != 1 || seen[0] != "[{t  false}] 1" {
		t.Errorf("%v, signals %q", err, seen)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Update(context.Background(), kv.Hints{}, putting("a", "")); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
