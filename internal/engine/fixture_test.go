package engine

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

// manual is a clock that moves only when told.
type manual struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
}

func newManual() *manual { return &manual{wall: time.UnixMilli(1_000_000)} }

func (m *manual) Wall() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall
}

func (m *manual) Mono() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mono
}

func (m *manual) Sleep(_ context.Context, d time.Duration) error { m.advance(d); return nil }

// advance lets time pass; step moves the wall clock alone.
func (m *manual) advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = m.wall.Add(d)
	m.mono += d
}

func (m *manual) step(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = m.wall.Add(d)
}

// fixture is an engine over a fresh SQLite file, the code of production.
type fixture struct {
	*Engine
	t     *testing.T
	clock *manual
	store kv.Store
	// damaged says that the test has put something into the store that is no state of the machine.
	damaged bool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := sqlitekv.Open(sqlitekv.Options{Path: filepath.Join(t.TempDir(), "abide.db"), Keys: keyspace.Register()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return fixtureOver(t, s, newManual())
}

func fixtureOver(t *testing.T, s kv.Store, clock *manual) *fixture {
	t.Helper()
	e, err := Open(context.Background(), s, Options{Source: clock, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Engine: e, t: t, clock: clock, store: s}
	t.Cleanup(func() { f.check() })
	return f
}

// check fails the test if anything is wrong with the store, or its journal does not lead to it. damaged is set by a test that damages it itself.
func (f *fixture) check() {
	f.t.Helper()
	if f.damaged || f.t.Failed() {
		return
	}
	checker := store.Checker{Store: f.store, Layout: f.layout, NowMs: f.Now(), Report: func(p store.Problem) {
		f.t.Errorf("the store breaks an invariant: %s", p)
	}}
	_, err := checker.Check(context.Background())
	if err == nil {
		_, err = checker.Replay(context.Background())
	}
	if err != nil && !errors.Is(err, kv.ErrClosed) {
		f.t.Error(err)
	}
}

// do performs a request in the default workspace and checks its status.
func (f *fixture) do(want int, req protocol.Request) protocol.Reply {
	f.t.Helper()
	reply := f.Do(context.Background(), "default", req, nil)
	if reply.Status != want {
		f.t.Fatalf("%s: status %d (%s), want %d", req.Kind(), reply.Status, reply.Message, want)
	}
	return reply
}

// fireDue does the internal steps that are due, as the loop would, until none is.
func (f *fixture) fireDue() {
	f.t.Helper()
	for range 100 {
		steps, _, err := f.Tick(context.Background(), f.Engine.Now())
		if err != nil {
			f.t.Fatal(err)
		}
		if len(steps) == 0 {
			return
		}
		for _, s := range steps {
			if err := f.Fire(context.Background(), s); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	f.t.Fatal("steps stay due")
}

func tags(pairs ...string) protocol.Tags {
	var t protocol.Tags
	for i := 0; i < len(pairs); i += 2 {
		t = t.With(pairs[i], pairs[i+1])
	}
	return t
}
