package batch_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// fake is a driver that records what is asked of it and fails on demand. Everything but the record is used
// by the writer alone.
type fake struct {
	mu       sync.Mutex
	calls    []string // "begin", "apply a=1 -b", "commit 3", "rollback", ...
	content  map[string]string
	sequence uint64

	pending []batch.Write
	fail    map[string]error // by call: "begin", "get", "apply", "commit"
	resolve kv.Outcome
	closed  int
}

func newFake() *fake { return &fake{content: map[string]string{}, fail: map[string]error{}} }

func (f *fake) record(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := fmt.Sprintf(format, args...)
	f.calls = append(f.calls, call)
	name, _, _ := strings.Cut(call, " ")
	return f.fail[name]
}

// take returns the calls so far and forgets them.
func (f *fake) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// failOn makes a call fail from now on; nil makes it work again.
func (f *fake) failOn(call string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[call] = err
}

func (f *fake) Begin() (uint64, error) { return f.sequence, f.record("begin") }

func (f *fake) Get(key []byte) ([]byte, error) {
	if err := f.record("get %s", key); err != nil {
		return nil, err
	}
	value, ok := f.content[string(key)]
	if !ok {
		return nil, nil
	}
	return []byte(value), nil
}

func (f *fake) Scan(r kv.Range, visit func(key, value []byte) bool) error {
	if err := f.record("scan"); err != nil {
		return err
	}
	var keys []string
	for key := range f.content {
		if key >= string(r.Start) && key < string(r.End) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if !visit([]byte(key), []byte(f.content[key])) {
			break
		}
	}
	return nil
}

func (f *fake) Apply(writes []batch.Write) error {
	var list []string
	for i, w := range writes {
		if i > 0 && bytes.Compare(writes[i-1].Key, w.Key) >= 0 {
			panic("writes are not in order")
		}
		if w.Key[0] == kv.ReservedPrefix {
			list = append(list, "journal")
		} else if w.Delete {
			list = append(list, "-"+string(w.Key))
		} else {
			list = append(list, string(w.Key)+"="+string(w.Value))
		}
	}
	f.pending = slices.Clone(writes)
	return f.record("apply %s", strings.Join(list, " "))
}

func (f *fake) Commit(sequence uint64) error {
	if err := f.record("commit %d", sequence); err != nil {
		return err
	}
	for _, w := range f.pending {
		if w.Delete {
			delete(f.content, string(w.Key))
		} else {
			f.content[string(w.Key)] = string(w.Value)
		}
	}
	f.sequence = sequence
	return nil
}

func (f *fake) Rollback() { _ = f.record("rollback") }

func (f *fake) Resolve(_ context.Context, token kv.Token) (kv.Outcome, error) {
	return f.resolve, f.record("resolve %s", token)
}

func (f *fake) Snapshot(context.Context) (batch.DriverSnapshot, error) {
	return fakeSnapshot{f}, f.record("snapshot")
}

func (f *fake) Close() error { f.closed++; return nil }

type fakeSnapshot struct{ *fake }

func (s fakeSnapshot) Sequence() (uint64, error) { return s.sequence, nil }
func (s fakeSnapshot) Release()                  { _ = s.record("release") }

// gated is a store whose writer stands still inside a closure until open is called, so that a test can fill
// the queue behind it.
type gated struct {
	*batch.Store
	t    *testing.T
	wg   sync.WaitGroup
	open func()

	mu  sync.Mutex
	ran []string
}

func newGated(t *testing.T, d batch.Driver, opt batch.Options) *gated {
	t.Helper()
	return gate(t, open(d, opt))
}

// gate closes the gate of a store. The closure inside is the first of its batch.
func gate(t *testing.T, s *batch.Store) *gated {
	t.Helper()
	g := &gated{Store: s, t: t}
	inside, gate := make(chan struct{}), make(chan struct{})
	g.open = sync.OnceFunc(func() { close(gate) })
	g.wg.Go(func() {
		// Its outcome is that of its batch, which some tests make fail.
		_, _ = g.Update(context.Background(), kv.Hints{Lane: "gate"}, func(kv.Tx) error {
			close(inside)
			<-gate
			return nil
		})
	})
	<-inside
	t.Cleanup(func() {
		g.open()
		g.wg.Wait()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// enqueue queues a closure and waits until it stands in the queue. done gets its outcome.
func (g *gated) enqueue(ctx context.Context, h kv.Hints, name string, fn func(kv.Tx) error, done func(kv.Position, error)) {
	g.t.Helper()
	before := g.Stats().Queued
	g.wg.Go(func() {
		at, err := g.Update(ctx, h, func(tx kv.Tx) error {
			g.mu.Lock()
			g.ran = append(g.ran, name)
			g.mu.Unlock()
			return fn(tx)
		})
		done(at, err)
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if g.Stats().Queued > before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	g.t.Fatalf("%s never reached the queue", name)
}

// order is the closures in the order in which they ran.
func (g *gated) order() string {
	g.open()
	g.wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.ran, " ")
}

func putting(key, value string) func(kv.Tx) error {
	return func(tx kv.Tx) error { return tx.Put([]byte(key), []byte(value)) }
}

func wantCalls(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the driver was asked\n%q, want\n%q", got, want)
	}
}
