package kvfault_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/kvfault"
	"abide/kv/kvtest"
	"abide/kv/memkv"
)

func open(t *testing.T, opt kvfault.Options) *kvfault.Store {
	t.Helper()
	s := kvfault.Wrap(memkv.Open(memkv.Options{}), opt)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(s kv.Store, key string) (kv.Position, error) {
	return s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte(key), nil) })
}

func present(t *testing.T, s kv.Store, key string) (there bool) {
	t.Helper()
	err := s.View(context.Background(), func(v kv.Snapshot) error {
		value, err := v.Get([]byte(key))
		there = value != nil
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}

func always(change func(*kvfault.Plan)) kvfault.Options {
	var plan kvfault.Plan
	change(&plan)
	return kvfault.Options{Plan: plan}
}

func TestWithoutAPlanNothingFails(t *testing.T) {
	s := open(t, kvfault.Options{Seed: 1})
	for i := range 50 {
		if at, err := put(s, fmt.Sprint(i)); err != nil || at.IsZero() {
			t.Fatal(at, err)
		}
	}
	if c := s.Counts(); c != (kvfault.Counts{Calls: 50}) {
		t.Errorf("counts %+v", c)
	}
}

func TestEveryFaultOfUpdate(t *testing.T) {
	for name, tc := range map[string]struct {
		opt       kvfault.Options
		want      error
		runs      int
		committed bool
		outcome   kv.Outcome
	}{
		"conflict":     {opt: always(func(p *kvfault.Plan) { p.Conflict = 1000 }), want: kv.ErrConflict, runs: 1},
		"overloaded":   {opt: always(func(p *kvfault.Plan) { p.Overloaded = 1000 }), want: kv.ErrOverloaded},
		"unavailable":  {opt: always(func(p *kvfault.Plan) { p.Unavailable = 1000 }), want: kv.ErrUnavailable},
		"unknown, did": {opt: always(func(p *kvfault.Plan) { p.UnknownCommitted = 1000 }), want: kv.ErrCommitUnknown, runs: 1, committed: true, outcome: kv.OutcomeCommitted},
		"unknown, not": {opt: always(func(p *kvfault.Plan) { p.UnknownNotCommitted = 1000 }), want: kv.ErrCommitUnknown, runs: 1, outcome: kv.OutcomeNotCommitted},
		"unknown, did, for ever": {
			opt:  always(func(p *kvfault.Plan) { p.UnknownCommitted, p.Unresolvable = 1000, 1000 }),
			want: kv.ErrCommitUnknown, runs: 1, committed: true},
		"unknown, not, for ever": {
			opt:  always(func(p *kvfault.Plan) { p.UnknownNotCommitted, p.Unresolvable = 1000, 1000 }),
			want: kv.ErrCommitUnknown, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inner := memkv.Open(memkv.Options{})
			defer inner.Close()
			s := kvfault.Wrap(inner, tc.opt)
			runs := 0
			at, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { runs++; return tx.Put([]byte("k"), nil) })
			if !errors.Is(err, tc.want) || !at.IsZero() || runs != tc.runs || present(t, inner, "k") != tc.committed {
				t.Fatalf("%v, %v after %d runs, committed: %v", at, err, runs, present(t, inner, "k"))
			}
			var known *kv.Error
			if !errors.As(err, &known) || known.Store == "" || known.Op == "" {
				t.Fatalf("the error is %v", err)
			}
			if !errors.Is(tc.want, kv.ErrCommitUnknown) {
				return
			}
			for range 2 {
				outcome, at, err := s.Resolve(context.Background(), known.Token)
				if outcome != tc.outcome || at.IsZero() == (outcome == kv.OutcomeCommitted) || err != nil {
					t.Errorf("resolved to %v, %v, %v", outcome, at, err)
				}
			}
		})
	}
}

// What a closure says of itself, and that it wrote nothing, no fault may hide.
func TestFaultsKeepToTheContract(t *testing.T) {
	own := errors.New("own")
	for name, opt := range map[string]kvfault.Options{
		"conflict":     always(func(p *kvfault.Plan) { p.Conflict = 1000 }),
		"unknown, did": always(func(p *kvfault.Plan) { p.UnknownCommitted = 1000 }),
		"unknown, not": always(func(p *kvfault.Plan) { p.UnknownNotCommitted = 1000 }),
	} {
		s := open(t, opt)
		_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return errors.Join(tx.Put([]byte("k"), nil), own) })
		if !errors.Is(err, own) {
			t.Errorf("%s: a closure that fails hears %v", name, err)
		}
		_, err = s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { _, err := tx.Get([]byte("k")); return err })
		if errors.Is(err, kv.ErrCommitUnknown) {
			t.Errorf("%s: a closure that wrote nothing hears %v", name, err)
		}
	}
}

func TestRunPassesConflicts(t *testing.T) {
	s := open(t, kvfault.Options{Seed: 3, Plan: kvfault.Plan{Conflict: 700}})
	for i := range 20 {
		if _, err := kv.Run(context.Background(), s, kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte{byte(i)}, nil) }); err != nil {
			t.Fatal(err)
		}
	}
	if c := s.Counts(); c.Conflicts < 10 || c.Calls != c.Conflicts+20 {
		t.Errorf("counts %+v", c)
	}
}

func TestRunNeverRepeatsAnUnknownCommit(t *testing.T) {
	for _, opt := range []kvfault.Options{
		always(func(p *kvfault.Plan) { p.UnknownCommitted = 1000 }),
		always(func(p *kvfault.Plan) { p.UnknownNotCommitted = 1000 }),
	} {
		s := open(t, opt)
		runs := 0
		_, err := kv.Run(context.Background(), s, kv.Hints{}, func(tx kv.Tx) error { runs++; return tx.Append([]byte("p"), nil) })
		if !errors.Is(err, kv.ErrCommitUnknown) || runs != 1 {
			t.Errorf("%v after %d runs", err, runs)
		}
	}
}

func TestDecisionsDependOnSeedAndNumberAlone(t *testing.T) {
	plan := kvfault.Plan{Conflict: 100, Overloaded: 100, Unavailable: 100, UnknownCommitted: 100, UnknownNotCommitted: 100,
		Unresolvable: 300, Delay: 200, MaxDelay: time.Second, DropSignals: 500}
	a, b, other := kvfault.Options{Seed: 7, Plan: plan}, kvfault.Options{Seed: 7, Plan: plan}, kvfault.Options{Seed: 8, Plan: plan}
	faults := map[kvfault.Fault]int{}
	same, unresolvable, delays, drops := 0, 0, 0, 0
	const calls = 5000
	for n := uint64(calls); n > 0; n-- { // in any order
		d := a.Decide(n)
		if d != b.Decide(n) || a.DropsSignals(n) != b.DropsSignals(n) || d.Call != n {
			t.Fatalf("call %d: %+v and %+v", n, d, b.Decide(n))
		}
		if d == other.Decide(n) {
			same++
		}
		faults[d.Fault]++
		if !d.Resolvable {
			unresolvable++
		}
		if d.DelayBefore > 0 {
			delays++
		}
		if d.DelayBefore > time.Second || d.DelayAfter > time.Second {
			t.Errorf("call %d is delayed by %v and %v", n, d.DelayBefore, d.DelayAfter)
		}
		if a.DropsSignals(n) {
			drops++
		}
	}
	within := func(what string, got, perMille int) {
		if want := calls * perMille / 1000; got < want*4/5 || got > want*6/5 {
			t.Errorf("%s: %d of %d, want about %d", what, got, calls, want)
		}
	}
	for f := kvfault.Conflict; f <= kvfault.UnknownNotCommitted; f++ {
		within(fmt.Sprint("fault ", f), faults[f], 100)
	}
	within("no fault", faults[kvfault.None], 500)
	within("unresolvable", unresolvable, 300)
	within("delayed", delays, 200)
	within("dropped", drops, 500)
	if same == calls {
		t.Error("another seed decides the same")
	}
}

func TestDelaysGoThroughTheSleeper(t *testing.T) {
	var slept []time.Duration
	opt := kvfault.Options{Seed: 5, Plan: kvfault.Plan{Delay: 1000, MaxDelay: time.Hour},
		Sleep: func(_ context.Context, d time.Duration) { slept = append(slept, d) }}
	s := open(t, opt)
	if _, err := put(s, "a"); err != nil {
		t.Fatal(err)
	}
	if !present(t, s, "a") {
		t.Error("nothing was committed")
	}
	one, two := opt.Decide(1), opt.Decide(2)
	want := []time.Duration{one.DelayBefore, one.DelayAfter, two.DelayBefore, two.DelayAfter}
	if fmt.Sprint(slept) != fmt.Sprint(want) || s.Counts().Delays != 4 {
		t.Errorf("slept %v, want %v", slept, want)
	}
}

func TestDroppedHints(t *testing.T) {
	opt := kvfault.Options{Seed: 5, Plan: kvfault.Plan{DropSignals: 400}}
	s := open(t, opt)
	var got []string
	defer s.Signals(func(signals []kv.Signal) { got = append(got, signals[0].Body) })()
	var want []string
	for i := range 40 {
		if _, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
			tx.Signal(kv.Signal{Body: fmt.Sprint(i)})
			return tx.Put([]byte("k"), nil)
		}); err != nil {
			t.Fatal(err)
		}
		if !opt.DropsSignals(uint64(i + 1)) {
			want = append(want, fmt.Sprint(i))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || s.Counts().DroppedSignals != uint64(40-len(want)) || len(want) == 40 {
		t.Errorf("the hints that came are %v, want %v", got, want)
	}
}

func TestAClosedStore(t *testing.T) {
	s := open(t, kvfault.Options{Plan: kvfault.Plan{CloseAfter: 2}})
	for range 2 {
		if _, err := put(s, "a"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := put(s, "a")
	_, _, resolveErr := s.Resolve(context.Background(), "x")
	for _, err := range []error{err, resolveErr, s.View(context.Background(), func(kv.Snapshot) error { return nil })} {
		if !errors.Is(err, kv.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	}
}

func TestConcurrentCallers(t *testing.T) {
	s := open(t, kvfault.Options{Seed: 1, Plan: kvfault.Plan{Conflict: 200, Unavailable: 100, UnknownCommitted: 100, UnknownNotCommitted: 100}})
	var wg sync.WaitGroup
	var mu sync.Mutex
	committed := map[string]bool{}
	for w := range 6 {
		wg.Go(func() {
			for i := range 40 {
				key := fmt.Sprint(w, "/", i)
				_, err := put(s, key)
				var known *kv.Error
				did := err == nil
				if errors.As(err, &known) && known.Token != "" {
					outcome := kv.OutcomeUnknown
					for errors.Is(err, kv.ErrUnavailable) || outcome == kv.OutcomeUnknown {
						outcome, _, err = s.Resolve(context.Background(), known.Token)
					}
					did = outcome == kv.OutcomeCommitted
				}
				mu.Lock()
				committed[key] = did
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	inner := s.Counts()
	if inner.UnknownCommitted == 0 || inner.UnknownNotCommitted == 0 {
		t.Errorf("counts %+v", inner)
	}
	for key, did := range committed {
		for {
			var there bool
			err := s.View(context.Background(), func(v kv.Snapshot) error {
				value, err := v.Get([]byte(key))
				there = value != nil
				return err
			})
			if errors.Is(err, kv.ErrUnavailable) {
				continue
			}
			if err != nil || there != did {
				t.Errorf("%s is there: %v, its caller knows: %v, %v", key, there, did, err)
			}
			break
		}
	}
}

// harness is that of stores in memory with faults; every opening has other ones.
func harness(opt kvfault.Options) kvtest.Harness {
	var last *memkv.Store
	wrap := func() kv.Store {
		opt.Seed++
		return kvfault.Wrap(last, opt)
	}
	return kvtest.Harness{
		Open: func(_ testing.TB, c kvtest.Config) kv.Store {
			last = memkv.Open(memkv.Options{Queued: true, Keys: c.Keys, Now: c.Now})
			return wrap()
		},
		Reopen:    func(testing.TB, kvtest.Config) kv.Store { last = last.Handle(); return wrap() },
		NoSignals: opt.Plan.DropSignals >= 1000,
	}
}

// With every hint dropped and every call delayed, all that the contract promises still holds.
func TestConformanceWithoutHints(t *testing.T) {
	kvtest.Run(t, harness(kvfault.Options{
		Plan: kvfault.Plan{DropSignals: 1000, Delay: 300, MaxDelay: 200 * time.Microsecond},
		Sleep: func(ctx context.Context, d time.Duration) {
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
		},
	}))
}

// A caller who retries conflicts and refusals and resolves unknown outcomes ends up with the model's content.
func TestHistoriesWithEveryFault(t *testing.T) {
	h := harness(kvfault.Options{Seed: 1000, Plan: kvfault.Plan{
		Conflict: 80, Overloaded: 40, Unavailable: 60, UnknownCommitted: 60, UnknownNotCommitted: 60, Unresolvable: 400,
	}})
	if h.Operations = 5000; os.Getenv("ABIDE_LONG") == "1" {
		h.Operations = 200_000
	}
	kvtest.RunHistories(t, h)
}
