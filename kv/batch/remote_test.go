package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// throughRounds makes open put a remote engine between the fake driver and the batcher.
var throughRounds bool

func open(d batch.Driver, opt batch.Options) *batch.Store {
	if throughRounds {
		return batch.NewRemote(batch.AsRemote(d), opt)
	}
	return batch.New(d, opt)
}

// What holds for a driver holds for an engine with round trips.
func TestThroughRounds(t *testing.T) {
	throughRounds = true
	defer func() { throughRounds = false }()
	for name, test := range map[string]func(*testing.T){
		"every closure shares the outcome":     TestEveryClosureSharesTheOutcome,
		"an unknown commit":                    TestUnknownCommit,
		"resolve":                              TestResolve,
		"begin fails":                          TestBeginFails,
		"a full queue refuses":                 TestAFullQueueRefuses,
		"close answers the queue":              TestCloseAnswersTheQueue,
		"five seconds":                         TestFiveSeconds,
		"closures that run twice":              TestRunTwiceTakesTheFirstRunBack,
		"synchronous":                          TestSynchronous,
		"one commit for many":                  TestOneCommitForMany,
		"a batch without writes never commits": TestABatchWithoutWritesNeverCommits,
		"closures of a batch share reads":      TestClosuresOfABatchShareReads,
		"a put and a deletion cancel":          TestPutAndDeleteCancel,
		"a batch ends":                         TestABatchEnds,
		"the queue is fair":                    TestTheQueueIsFair,
		"signals of a batch":                   TestSignalsOfABatch,
		"compaction among appends":             TestCompactionAmongAppends,
	} {
		t.Run(name, test)
	}
}

// trips records the round trips of a remote engine, each as what was asked in it.
type trips struct {
	batch.Remote
	record *fake
}

func newTrips(d *fake) *trips { return &trips{batch.AsRemote(d), newFake()} }

func asked(name string, f *batch.Fetch) string {
	for _, key := range f.Gets {
		name += " " + string(key)
	}
	for _, s := range f.Scans {
		name += fmt.Sprintf(" %s-%s/%d", s.Start, s.End, s.Limit)
	}
	return name
}

func (r *trips) Begin(f *batch.Fetch) (uint64, error) {
	_ = r.record.record("%s", asked("begin", f))
	return r.Remote.Begin(f)
}

func (r *trips) Fetch(f *batch.Fetch) error {
	if err := r.record.record("%s", asked("fetch", f)); err != nil {
		return err
	}
	return r.Remote.Fetch(f)
}

func (r *trips) Commit(c batch.Commit) error {
	_ = r.record.record("commit %d", c.Sequence)
	return r.Remote.Commit(c)
}

func (r *trips) Snapshot(ctx context.Context) (batch.RemoteSnapshot, error) {
	s, err := r.Remote.Snapshot(ctx)
	return tripsSnapshot{s, r.record}, err
}

type tripsSnapshot struct {
	batch.RemoteSnapshot
	record *fake
}

func (s tripsSnapshot) Fetch(f *batch.Fetch) (uint64, error) {
	ends := ""
	if f.Last {
		ends = " and ends"
	}
	_ = s.record.record("%s%s", asked("snapshot", f), ends)
	return s.RemoteSnapshot.Fetch(f)
}

// gatedTrips is a gated store on a remote engine, whose gate closure has been let into a batch of its own.
func gatedTrips(t *testing.T, d *fake) (*gated, *trips) {
	t.Helper()
	r := newTrips(d)
	g := gate(t, batch.NewRemote(r, batch.Options{Name: "fake", Incarnation: 1}))
	r.record.take()
	return g, r
}

func single(keys ...string) (hints []kv.Range) {
	for _, key := range keys {
		hints = append(hints, kv.Range{Start: []byte(key), End: []byte(key + "\x00")})
	}
	return hints
}

// follow reads a key, then the key that it names, and so on for n steps, and puts the last into a key of its own.
func follow(from string, n int, into string) func(kv.Tx) error {
	return func(tx kv.Tx) error {
		key := from
		for range n {
			value, err := tx.Get([]byte(key))
			if err != nil {
				return err
			}
			key = string(value)
		}
		return tx.Put([]byte(into), []byte(key))
	}
}

func TestMissesOfABatchAreFetchedTogether(t *testing.T) {
	d := newFake()
	for i := range 3 {
		d.content[fmt.Sprintf("a%d", i)], d.content[fmt.Sprintf("b%d", i)] = fmt.Sprintf("b%d", i), "end"
	}
	g, r := gatedTrips(t, d)
	for i := range 3 {
		g.enqueue(context.Background(), kv.Hints{}, "", follow(fmt.Sprintf("a%d", i), 2, fmt.Sprintf("z%d", i)), func(_ kv.Position, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	g.order()
	wantCalls(t, r.record.take(), "fetch a0 a1 a2", "fetch b0 b1 b2", "commit 3")
	if d.content["z2"] != "end" || g.Stats().Reruns != 6 || g.Stats().Trips != 3 {
		t.Errorf("z2 is %q after %+v", d.content["z2"], g.Stats())
	}
}

func TestHintsAreFetchedFirst(t *testing.T) {
	d := newFake()
	d.content["a"], d.content["b"], d.content["c1"], d.content["c2"] = "b", "end", "1", "2"
	g, r := gatedTrips(t, d)
	hints := append(single("a", "b", "b"), kv.Range{Start: []byte("c"), End: []byte("d")})
	g.enqueue(context.Background(), kv.Hints{Prefetch: hints}, "", follow("a", 2, "z"), discard)
	g.enqueue(context.Background(), kv.Hints{Prefetch: hints}, "", func(tx kv.Tx) error {
		entries, err := tx.Scan(kv.Range{Start: []byte("c"), End: []byte("d")}, 10)
		if len(entries) != 2 {
			t.Errorf("scanned %v", entries)
		}
		value, absent := tx.Get([]byte("c3"))
		if value != nil {
			t.Errorf("c3 is %q", value)
		}
		return errors.Join(err, absent)
	}, discard)
	g.order()
	wantCalls(t, r.record.take(), "fetch a b c-d/128", "commit 1")
	if n := g.Stats().Reruns; n != 0 {
		t.Errorf("%d closures ran again", n)
	}
}

// A closure alone fetches as it reads: running again would be for nothing. So does one that has run often.
func TestAClosureThatReadsOnAndOn(t *testing.T) {
	const steps = 20
	d := newFake()
	for i := range steps {
		d.content[fmt.Sprintf("k%02d", i)] = fmt.Sprintf("k%02d", i+1)
	}
	s := batch.NewRemote(newTrips(d), batch.Options{Name: "fake"})
	if _, err := s.Update(context.Background(), kv.Hints{}, follow("k00", steps, "alone")); err != nil {
		t.Error(err)
	}
	if stats := s.Stats(); stats.Reruns != 0 || stats.Trips != steps+1 {
		t.Errorf("alone: %+v", stats)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	g, _ := gatedTrips(t, d)
	var at [2]kv.Position
	for i := range at {
		g.enqueue(context.Background(), kv.Hints{}, "", follow("k00", steps, fmt.Sprint("of two ", i)), func(p kv.Position, err error) {
			if at[i] = p; err != nil {
				t.Error(err)
			}
		})
	}
	g.order()
	if stats := g.Stats(); stats.Reruns != 12 || stats.Trips != steps+1 {
		t.Errorf("two: %+v", stats)
	}
	if d.content["of two 1"] != "k20" || at[0] == at[1] || at[0].IsZero() || at[1].IsZero() {
		t.Errorf("two: %v, at %v", d.content, at)
	}
}

// A read that overtakes: the closure that runs again sees what its neighbour has written meanwhile.
func TestSuccessIsTheOrder(t *testing.T) {
	d := newFake()
	d.content["slow"] = "counter"
	g, _ := gatedTrips(t, d)
	var at [2]kv.Position
	read := ""
	g.enqueue(context.Background(), kv.Hints{}, "slow", func(tx kv.Tx) error {
		name, err := tx.Get([]byte("slow"))
		if err != nil {
			return err
		}
		value, err := tx.Get(name)
		read = string(value)
		return errors.Join(err, tx.Put([]byte("x"), nil))
	}, func(p kv.Position, err error) { at[0] = p })
	g.enqueue(context.Background(), kv.Hints{}, "quick", putting("counter", "new"), func(p kv.Position, err error) { at[1] = p })
	g.order()
	if read != "new" || at[0].Compare(at[1]) <= 0 {
		t.Errorf("the slow closure reads %q at %v, the quick one wrote at %v", read, at[0], at[1])
	}
}

// After a fetch that failed nothing of the batch can commit, and everybody hears why.
func TestAFetchFails(t *testing.T) {
	d := newFake()
	g, r := gatedTrips(t, d)
	r.record.failOn("fetch", engineFailure(kv.ErrConflict, ""))
	var errs [4]error
	for i, fn := range []func(kv.Tx) error{
		putting("a", "1"),
		follow("b", 1, "c"),
		func(tx kv.Tx) error { return errOwn },
		func(tx kv.Tx) error { _, _ = tx.Get([]byte("d")); return nil },
	} {
		g.enqueue(context.Background(), kv.Hints{}, "", fn, func(_ kv.Position, err error) { errs[i] = err })
	}
	g.order()
	for i, err := range errs {
		if !errors.Is(err, kv.ErrConflict) {
			t.Errorf("closure %d hears %v", i, err)
		}
	}
	if calls := d.take(); calls[len(calls)-1] != "rollback" || len(d.content) != 0 {
		t.Errorf("the engine was asked %q and holds %v", calls, d.content)
	}
	r.record.failOn("fetch", nil)
	if _, err := g.Update(context.Background(), kv.Hints{}, follow("b", 1, "c")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// What a panic after a missed read says counts for nothing.
func TestAPanicAfterAMiss(t *testing.T) {
	d := newFake()
	d.content["a"] = "1"
	g, _ := gatedTrips(t, d)
	runs := 0
	g.enqueue(context.Background(), kv.Hints{}, "", func(tx kv.Tx) error {
		runs++
		value, _ := tx.Get([]byte("a"))
		return tx.Put(value[:1], nil) // panics when there is no value
	}, func(_ kv.Position, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	g.enqueue(context.Background(), kv.Hints{}, "", follow("b", 1, "c"), discard)
	g.order()
	if _, ok := d.content["1"]; !ok || runs != 2 {
		t.Errorf("%d runs left %v", runs, d.content)
	}
}

// A full batch leaves closures over for the next one.
func TestClosuresAreLeftOver(t *testing.T) {
	d := newFake()
	big := strings.Repeat("x", kv.MaxValueBytes)
	for i := range 3 {
		for j := range 40 {
			d.content[fmt.Sprintf("%d/%02d", i, j)] = big
		}
	}
	g, r := gatedTrips(t, d)
	for i := range 3 {
		g.enqueue(context.Background(), kv.Hints{}, "", func(tx kv.Tx) error {
			entries, err := tx.Scan(kv.Range{Start: fmt.Appendf(nil, "%d/", i), End: fmt.Appendf(nil, "%d0", i)}, 50)
			if err == nil && len(entries) != 40 {
				t.Errorf("%d entries", len(entries))
			}
			return errors.Join(err, tx.Put(fmt.Appendf(nil, "done%d", i), nil))
		}, func(_ kv.Position, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	g.order()
	if calls := r.record.take(); calls[len(calls)-1] != "commit 3" || countCalls(calls, "commit 1") != 1 {
		t.Errorf("trips %q", calls)
	}
}

func TestASnapshotFetchesTogether(t *testing.T) {
	d := newFake()
	d.content["a"], d.content["b1"], d.content["b2"], d.sequence = "1", "2", "3", 7
	r := newTrips(d)
	s := batch.NewRemote(r, batch.Options{Name: "fake", Incarnation: 1})
	defer s.Close()
	r.record.take()
	err := s.View(context.Background(), func(snap kv.Snapshot) error {
		values, err := snap.GetMany([][]byte{[]byte("c"), []byte("a"), []byte("c")})
		if err != nil || values[0] != nil || string(values[1]) != "1" {
			t.Errorf("values %q, %v", values, err)
		}
		entries, err := snap.Scan(kv.Range{Start: []byte("b"), End: []byte("c")}, 2)
		if err != nil || len(entries) != 2 {
			t.Errorf("entries %v, %v", entries, err)
		}
		_, err = snap.Get([]byte("b2")) // known by now
		if snap.Bound() != kv.NewPosition(1, 7) {
			t.Errorf("the bound is %v", snap.Bound())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	err = s.View(context.Background(), func(snap kv.Snapshot) error {
		_, err := snap.Journal([]byte("p"), kv.EntryPosition{}, 5)
		return err
	})
	calls := r.record.take()
	if err != nil || len(calls) != 5 || calls[0] != "snapshot" || calls[1] != "snapshot a c" || calls[2] != "snapshot b-c/2" {
		t.Errorf("trips %q, %v", calls, err)
	}
}

// A view that says that it reads what is hinted and nothing else lets the engine end its snapshot at once. One that reads
// more after all sees everything on another snapshot.
func TestViewsOfOneTrip(t *testing.T) {
	d := newFake()
	r := newTrips(d)
	s := batch.NewRemote(r, batch.Options{Name: "fake", Incarnation: 1})
	defer s.Close()
	put := func(key, value string) {
		t.Helper()
		if _, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte(key), []byte(value)) }); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "1")
	put("b", "1")
	hints := []kv.Range{{Start: []byte("a"), End: []byte("a\x00")}, {Start: []byte("m"), End: []byte("n")}}
	view := func(keys ...string) (values []string, runs int) {
		t.Helper()
		r.record.take()
		err := s.ViewOnce(context.Background(), hints, 0, func(snap kv.Snapshot) error {
			runs++
			values = values[:0]
			if runs == 1 {
				put("b", "2") // what a second run sees is newer than the snapshot of the first
			}
			for _, key := range keys {
				value, err := snap.Get([]byte(key))
				if err != nil {
					return err
				}
				values = append(values, string(value))
			}
			_, err := snap.Scan(kv.Range{Start: []byte("m"), End: []byte("n")}, 5)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return values, runs
	}
	if values, runs := view("a"); runs != 1 || !slices.Equal(values, []string{"1"}) {
		t.Errorf("%d runs, values %q", runs, values)
	}
	if calls := slices.DeleteFunc(r.record.take(), isWrite); !slices.Equal(calls, []string{"snapshot a m-n/128 and ends"}) {
		t.Errorf("trips %q", calls)
	}
	put("b", "1")
	// The first run misses b; the second fetches c when it comes to it.
	if values, runs := view("a", "b", "c"); runs != 2 || !slices.Equal(values, []string{"1", "2", ""}) {
		t.Errorf("%d runs, values %q", runs, values)
	}
	if calls := slices.DeleteFunc(r.record.take(), isWrite); !slices.Equal(calls, []string{"snapshot a m-n/128 and ends", "snapshot a b m-n/128", "snapshot c"}) {
		t.Errorf("trips %q", calls)
	}
}

// isWrite is a round trip of the writer's.
func isWrite(call string) bool { return !strings.HasPrefix(call, "snapshot") }

// settler is a remote engine whose reads may not last.
type settler struct {
	*trips
	err error
}

func (s *settler) Settle() error {
	_ = s.record.record("settle")
	s.Rollback()
	return s.err
}

// Nobody is told what was decided on reads that may not last.
func TestSettle(t *testing.T) {
	r := &settler{trips: newTrips(newFake())}
	s := batch.NewRemote(r, batch.Options{Name: "fake", Synchronous: true})
	read := func(tx kv.Tx) error { _, err := tx.Get([]byte("a")); return err }
	if _, err := s.Update(context.Background(), kv.Hints{}, read); err != nil {
		t.Error(err)
	}
	if _, err := s.Update(context.Background(), kv.Hints{}, putting("b", "1")); err != nil {
		t.Error(err)
	}
	r.err = &kv.Error{Is: kv.ErrUnavailable, Store: "fake", Op: "commit"}
	own := errors.New("what the closure decided")
	_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return errors.Join(read(tx), own) })
	if !errors.Is(err, kv.ErrUnavailable) || errors.Is(err, own) {
		t.Errorf("the answer is %v", err)
	}
	calls := strings.Join(r.record.take(), ", ")
	if got := strings.Count(calls, "settle"); got != 2 {
		t.Errorf("of two batches that read and one that wrote, %d were settled: %s", got, calls)
	}
}

// An engine is not given what is for this server's subscribers alone.
func TestLocalSignals(t *testing.T) {
	carried := &carrier{Remote: batch.AsRemote(newFake())}
	s := batch.NewRemote(carried, batch.Options{Name: "fake", Incarnation: 1})
	defer s.Close()
	var heard []kv.Signal
	defer s.Signals(func(signals []kv.Signal) { heard = append(heard, signals...) })()
	for _, test := range []struct{ give, carried []kv.Signal }{
		{[]kv.Signal{{Topic: "t", Local: true}}, nil},
		{[]kv.Signal{{Topic: "t", Local: true}, {Topic: "t"}, {Topic: "u"}}, []kv.Signal{{Topic: "t"}, {Topic: "u"}}},
		{[]kv.Signal{{Topic: "t"}}, []kv.Signal{{Topic: "t"}}},
	} {
		heard, carried.signals = nil, nil
		_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
			for _, signal := range test.give {
				tx.Signal(signal)
			}
			return tx.Put([]byte("k"), nil)
		})
		if err != nil || !slices.Equal(heard, test.give) || !slices.Equal(carried.signals, test.carried) {
			t.Errorf("%v: of %+v this server heard %+v, the engine was given %+v", err, test.give, heard, carried.signals)
		}
	}
}

// carrier keeps the signals that it is given.
type carrier struct {
	batch.Remote
	signals []kv.Signal
}

func (c *carrier) Commit(commit batch.Commit) error {
	c.signals = append(c.signals, commit.Signals...)
	return c.Remote.Commit(commit)
}

// slowLock is an engine whose writers' lock others have for most of the time.
type slowLock struct{ *trips }

func (s slowLock) Begin(f *batch.Fetch) (uint64, error) {
	time.Sleep(16 * time.Millisecond)
	return s.trips.Begin(f)
}

func (s slowLock) Fetch(f *batch.Fetch) error {
	time.Sleep(100 * time.Microsecond)
	return s.trips.Fetch(f)
}

// While others have the lock a batch fills before it begins, so that nobody waits under the lock for those who came late.
func TestGathersWhileOthersHaveTheLock(t *testing.T) {
	var said string
	for range 10 { // a machine that stands still misleads whoever learns from how long things take
		if said = gather(t); said == "" {
			return
		}
	}
	t.Error(said)
}

func gather(t *testing.T) (fault string) {
	const clients, each, learning = 16, 12, 6
	engine := slowLock{newTrips(newFake())}
	s := batch.NewRemote(engine, batch.Options{Name: "fake", Incarnation: 1, Now: time.Now})
	defer s.Close()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				time.Sleep(time.Duration(c) * 200 * time.Microsecond) // they come one by one
				key := fmt.Appendf(nil, "k%02d-%d", c, i)
				_, err := s.Update(context.Background(), kv.Hints{Prefetch: []kv.Range{kv.Only(key)}}, func(tx kv.Tx) error {
					if _, err := tx.Get(key); err != nil {
						return err
					}
					return tx.Put(key, nil)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stats := s.Stats()
	if fetches := stats.Trips - stats.Commits; fetches > learning+stats.Commits/2 {
		return fmt.Sprintf("%d round trips before %d commits: closures that come late make the lock wait for them", stats.Trips, stats.Commits)
	}
	return ""
}
