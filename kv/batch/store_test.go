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

var errOwn = errors.New("the closure's own error")

func discard(kv.Position, error) {}

func TestOneCommitForMany(t *testing.T) {
	d := newFake()
	g := newGated(t, d, batch.Options{Name: "fake", Incarnation: 1})
	var mu sync.Mutex
	at := map[string]kv.Position{}
	errs := map[string]error{}
	add := func(name string, fn func(kv.Tx) error) {
		g.enqueue(context.Background(), kv.Hints{}, name, fn, func(p kv.Position, err error) {
			mu.Lock()
			defer mu.Unlock()
			at[name], errs[name] = p, err
		})
	}
	add("one", putting("a", "1"))
	add("failing", func(tx kv.Tx) error { return errors.Join(tx.Put([]byte("a"), []byte("x")), errOwn) })
	add("panicking", func(tx kv.Tx) error { _ = tx.Put([]byte("a"), []byte("y")); panic("p") })
	add("reading", func(tx kv.Tx) error {
		v, err := tx.Get([]byte("a"))
		if string(v) != "1" {
			t.Errorf("a neighbour reads %q", v)
		}
		return err
	})
	add("two", putting("b", "2"))
	add("deleting", func(tx kv.Tx) error { return tx.Delete([]byte("c")) })
	g.order()
	wantCalls(t, d.take(), "begin", "apply a=1 b=2 -c", "commit 3")
	for name, want := range map[string]uint64{"one": 1, "two": 2, "deleting": 3, "failing": 0, "panicking": 0, "reading": 0} {
		if got := at[name].Sequence(); got != want {
			t.Errorf("%s has the sequence %d, want %d", name, got, want)
		}
		if failed := errs[name] != nil; failed != (name == "failing" || name == "panicking") {
			t.Errorf("%s: error %v", name, errs[name])
		}
	}
	if !errors.Is(errs["failing"], errOwn) || !strings.Contains(fmt.Sprint(errs["panicking"]), "panic") {
		t.Errorf("errors %v", errs)
	}
}

func TestABatchWithoutWritesNeverCommits(t *testing.T) {
	d := newFake()
	s := open(d, batch.Options{Name: "fake"})
	defer s.Close()
	for _, fn := range []func(kv.Tx) error{
		func(kv.Tx) error { return nil },
		func(tx kv.Tx) error { _, err := tx.Get([]byte("a")); return err },
		func(tx kv.Tx) error { return errors.Join(tx.Put([]byte("a"), nil), errOwn) },
	} {
		_, _ = s.Update(context.Background(), kv.Hints{}, fn)
	}
	wantCalls(t, d.take(), "begin", "rollback", "begin", "get a", "rollback", "begin", "rollback")
}

// A put and a deletion of one key leave a deletion, and nothing only where the key is known to be absent.
func TestPutAndDeleteCancel(t *testing.T) {
	for name, tc := range map[string]struct {
		stored string
		fn     func(kv.Tx) error
		apply  string
	}{
		"put, delete, key unknown": {"", func(tx kv.Tx) error {
			return errors.Join(tx.Put([]byte("a"), []byte("1")), tx.Delete([]byte("a")))
		}, "apply -a"},
		"put, delete, key read as absent": {"", func(tx kv.Tx) error {
			_, err := tx.Get([]byte("a"))
			return errors.Join(err, tx.Put([]byte("a"), []byte("1")), tx.Delete([]byte("a")))
		}, "apply "},
		"put, delete, key read as present": {"0", func(tx kv.Tx) error {
			_, err := tx.Get([]byte("a"))
			return errors.Join(err, tx.Put([]byte("a"), []byte("1")), tx.Delete([]byte("a")))
		}, "apply -a"},
		"delete, put": {"0", func(tx kv.Tx) error {
			return errors.Join(tx.Delete([]byte("a")), tx.Put([]byte("a"), []byte("1")))
		}, "apply a=1"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake()
			if tc.stored != "" {
				d.content["a"] = tc.stored
			}
			s := open(d, batch.Options{Name: "fake"})
			defer s.Close()
			if at, err := s.Update(context.Background(), kv.Hints{}, tc.fn); err != nil || at.Sequence() != 1 {
				t.Fatal(at, err)
			}
			found := false
			for _, call := range d.take() {
				found = found || call == tc.apply
			}
			if !found {
				t.Errorf("the driver was not asked to %q", tc.apply)
			}
		})
	}
}

func TestClosuresOfABatchShareReads(t *testing.T) {
	d := newFake()
	d.content["hot"] = "v"
	g := newGated(t, d, batch.Options{Name: "fake"})
	for i := range 5 {
		g.enqueue(context.Background(), kv.Hints{}, fmt.Sprint(i), func(tx kv.Tx) error {
			v, err := tx.Get([]byte("hot"))
			if err == nil && string(v) != "v" {
				t.Errorf("read %q", v)
			}
			return err
		}, discard)
	}
	g.order()
	wantCalls(t, d.take(), "begin", "get hot", "rollback")
}

func TestABatchEnds(t *testing.T) {
	t.Run("at 256 closures", func(t *testing.T) {
		d := newFake()
		g := newGated(t, d, batch.Options{Name: "fake"})
		for i := range 300 {
			g.enqueue(context.Background(), kv.Hints{}, "", putting(fmt.Sprintf("%03d", i), ""), discard)
		}
		g.order()
		if n := countCalls(d.take(), "commit 255", "commit 300"); n != 2 { // the gate is one of the first
			t.Error("the batches are of another size")
		}
	})
	t.Run("at 4 MiB", func(t *testing.T) {
		d := newFake()
		g := newGated(t, d, batch.Options{Name: "fake"})
		big := strings.Repeat("x", kv.MaxValueBytes-8)
		for i := range 3 {
			g.enqueue(context.Background(), kv.Hints{}, "", func(tx kv.Tx) error {
				for j := range 40 { // 2.5 MiB
					if err := tx.Put(fmt.Appendf(nil, "%d/%d", i, j), []byte(big)); err != nil {
						return err
					}
				}
				return nil
			}, discard)
		}
		g.order()
		if n := countCalls(d.take(), "commit 2", "commit 3"); n != 2 {
			t.Error("the batches are of another size")
		}
	})
	t.Run("at 20 ms", func(t *testing.T) {
		d := newFake()
		var mu sync.Mutex
		now := time.Unix(0, 0)
		clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		g := newGated(t, d, batch.Options{Name: "fake", Now: clock})
		for i := range 4 {
			g.enqueue(context.Background(), kv.Hints{}, "", func(tx kv.Tx) error {
				mu.Lock()
				now = now.Add(10 * time.Millisecond)
				mu.Unlock()
				return tx.Put([]byte{byte('a' + i)}, nil)
			}, discard)
		}
		g.order()
		if n := countCalls(d.take(), "commit 2", "commit 4"); n != 2 {
			t.Error("the batches are of another size")
		}
	})
}

func countCalls(calls []string, want ...string) int {
	n := 0
	for _, call := range calls {
		for _, w := range want {
			if call == w {
				n++
			}
		}
	}
	return n
}

func TestTheQueueIsFair(t *testing.T) {
	for name, tc := range map[string]struct {
		queue string // lane and number; a leading ~ is background. The gate is the batch's first request.
		want  string
	}{
		"lanes take turns":                       {"a1 a2 a3 b1 c1 c2", "a1 b1 c1 a2 c2 a3"},
		"one lane is a queue":                    {"a1 a2 a3", "a1 a2 a3"},
		"background gets every other place":      {"~x1 ~x2 ~x3 a1 a2", "~x1 a1 ~x2 a2 ~x3"},
		"background lanes take turns as well":    {"~x1 ~x2 ~y1 a1 a2 a3", "~x1 a1 ~y1 a2 ~x2 a3"},
		"background alone has the whole batch":   {"~x1 ~x2 ~y1", "~x1 ~y1 ~x2"},
		"a lane that comes back goes to the end": {"a1 b1 a2 b2 c1", "a1 b1 c1 a2 b2"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGated(t, newFake(), batch.Options{Name: "fake"})
			for _, name := range strings.Fields(tc.queue) {
				lane, background := strings.CutPrefix(name, "~")
				g.enqueue(context.Background(), kv.Hints{Lane: lane[:1], Background: background}, name,
					func(kv.Tx) error { return nil }, discard)
			}
			got := g.order()
			if got != tc.want {
				t.Errorf("ran %q, want %q", got, tc.want)
			}
		})
	}
}

// TestWhoHasSentLittleWaitsForLittle: while several workspaces wait, a batch takes from each as many as from the one that has
// the fewest.
func TestWhoHasSentLittleWaitsForLittle(t *testing.T) {
	for name, tc := range map[string]struct {
		queue string   // as in TestTheQueueIsFair
		want  []string // commits, by the number of closures up to each
	}{
		"one lane is one batch":                      {"a1 a2 a3", []string{"commit 3"}},
		"one among many goes with one of them":       {"a1 a2 a3 a4 b1", []string{"commit 2", "commit 5"}},
		"those that send alike share a batch":        {"a1 a2 a3 b1 b2 b3", []string{"commit 6"}},
		"the next batch goes by who is left":         {"a1 a2 a3 b1 c1 c2", []string{"commit 3", "commit 5", "commit 6"}},
		"background work takes nobody's place":       {"a1 a2 a3 b1 ~x1", []string{"commit 3", "commit 5"}},
		"background lanes do not make a batch short": {"a1 a2 a3 ~x1", []string{"commit 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake()
			g := newGated(t, d, batch.Options{Name: "fake"})
			for _, name := range strings.Fields(tc.queue) {
				lane, background := strings.CutPrefix(name, "~")
				g.enqueue(context.Background(), kv.Hints{Lane: lane[:1], Background: background}, name, putting(name, ""), discard)
			}
			g.order()
			commits := slices.DeleteFunc(d.take(), func(call string) bool { return !strings.HasPrefix(call, "commit") })
			if !slices.Equal(commits, tc.want) {
				t.Errorf("%q, want %q", commits, tc.want)
			}
		})
	}
}

// Signals are coalesced over the closures of a physical commit, and are out before anybody is answered.
func TestSignalsOfABatch(t *testing.T) {
	g := newGated(t, newFake(), batch.Options{Name: "fake"})
	var mu sync.Mutex
	var calls [][]kv.Signal
	defer g.Signals(func(s []kv.Signal) { mu.Lock(); calls = append(calls, s); mu.Unlock() })()
	for i := range 12 {
		g.enqueue(context.Background(), kv.Hints{}, "", func(tx kv.Tx) error {
			tx.Signal(kv.Signal{Topic: "timer"})
			tx.Signal(kv.Signal{Topic: "outbox", Body: fmt.Sprint(i % 10)})
			if i == 11 {
				tx.Signal(kv.Signal{Topic: "never"})
				return errOwn
			}
			return tx.Put([]byte("k"), nil)
		}, func(kv.Position, error) {
			mu.Lock()
			defer mu.Unlock()
			if len(calls) != 1 {
				t.Errorf("answered after %d calls with signals", len(calls))
			}
		})
	}
	g.order()
	if len(calls) != 1 || len(calls[0]) != 11 {
		t.Errorf("signals %v", calls)
	}
}

// What compaction changes lies among the entries that its neighbours append: all of it reaches the driver in the
// order of keys, which the fake driver demands.
func TestCompactionAmongAppends(t *testing.T) {
	d := newFake()
	g := newGated(t, d, batch.Options{Name: "fake", Incarnation: 1})
	old := kv.EntryPosition{Commit: kv.NewPosition(1, 1)}
	appending := func(partition string) func(kv.Tx) error {
		return func(tx kv.Tx) error { return tx.Append([]byte(partition), nil) }
	}
	g.enqueue(context.Background(), kv.Hints{}, "append z", appending("z"), discard)
	g.enqueue(context.Background(), kv.Hints{}, "compact m", func(tx kv.Tx) error {
		return errors.Join(tx.Delete(kv.JournalKey([]byte("m"), old)), tx.Delete(kv.JournalKey([]byte("zz"), old)),
			tx.Put(kv.FloorKey([]byte("m")), kv.AppendFloor(nil, old)), tx.Put([]byte("k"), nil))
	}, discard)
	g.enqueue(context.Background(), kv.Hints{}, "append a", appending("a"), discard)
	g.order()
	wantCalls(t, d.take(), "begin", "apply k= journal journal journal journal journal", "commit 3")
}
