package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"abide/protocol"
)

// limited is an engine over f's store that allows so many workspaces.
func (f *fixture) limited(o Options) *Engine {
	f.t.Helper()
	o.Source, o.Log = f.clock, slog.New(slog.DiscardHandler)
	e, err := Open(context.Background(), f.store, o)
	if err != nil {
		f.t.Fatal(err)
	}
	return e
}

func createIn(e *Engine, workspace string) protocol.Reply {
	return e.Do(context.Background(), workspace, &protocol.PromiseCreate{ID: "p", TimeoutAt: 1 << 50}, nil)
}

func TestWorkspacesAreBounded(t *testing.T) {
	f := newFixture(t)
	e := f.limited(Options{MaxWorkspaces: 3})
	for i := range 3 {
		if r := createIn(e, fmt.Sprint("w", i)); r.Status != protocol.StatusOK {
			t.Fatalf("workspace %d of 3: %d %s", i+1, r.Status, r.Message)
		}
		if r := e.Do(context.Background(), "only-read", &protocol.PromiseGet{ID: "p"}, nil); r.Status != protocol.StatusNotFound {
			t.Errorf("a read in a workspace that does not exist: %d", r.Status)
		}
	}
	refused := func(e *Engine, who string) {
		t.Helper()
		if r := createIn(e, "w3"); r.Status != protocol.StatusForbidden || !strings.Contains(r.Message, "3 (limits.workspaces)") {
			t.Errorf("%s, one more: %d %s", who, r.Status, r.Message)
		}
		for i := range 3 {
			if r := createIn(e, fmt.Sprint("w", i)); r.Status != protocol.StatusOK {
				t.Errorf("%s, workspace %d of 3, which exists: %d %s", who, i+1, r.Status, r.Message)
			}
		}
		if r := e.Do(context.Background(), "w3", &protocol.PromiseGet{ID: "p"}, nil); r.Status != protocol.StatusNotFound {
			t.Errorf("%s, a read in the refused one: %d %s", who, r.Status, r.Message)
		}
	}
	refused(e, "the server that made them")
	refused(f.limited(Options{MaxWorkspaces: 3}), "one that found them")
	if r := createIn(f.limited(Options{MaxWorkspaces: 4}), "w3"); r.Status != protocol.StatusOK {
		t.Errorf("with a limit of 4: %d %s", r.Status, r.Message)
	}
	if r := createIn(f.limited(Options{MaxWorkspaces: 3}), protocol.DefaultWorkspace); r.Status != protocol.StatusOK {
		t.Errorf("the default workspace, which nobody may keep out: %d %s", r.Status, r.Message)
	}
}

func TestWorkspacesMadeAtOnceAreBounded(t *testing.T) {
	f := newFixture(t)
	e := f.limited(Options{MaxWorkspaces: 5})
	var made atomic.Int64
	var running sync.WaitGroup
	for i := range 40 {
		running.Go(func() {
			if createIn(e, fmt.Sprint("w", i%20)).Status == protocol.StatusOK {
				made.Add(1)
			}
		})
	}
	running.Wait()
	if made.Load() != 10 { // two requests in each
		t.Errorf("%d requests were served, want those of 5 workspaces", made.Load())
	}
}

// TestCountsOfWorkspacesAge: what other servers make is counted some time later, and room that was made is found.
func TestCountsOfWorkspacesAge(t *testing.T) {
	f := newFixture(t)
	a, b := f.limited(Options{MaxWorkspaces: 3, Shared: true, ServerID: "a"}), f.limited(Options{MaxWorkspaces: 3, Shared: true, ServerID: "b"})
	for e, workspace := range map[*Engine]string{a: "w0", b: "w1"} {
		if r := createIn(e, workspace); r.Status != protocol.StatusOK {
			t.Fatalf("%d %s", r.Status, r.Message)
		}
	}
	if r := createIn(a, "w2"); r.Status != protocol.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Message)
	}
	f.clock.advance(recountInterval)
	for _, e := range []*Engine{a, b} {
		if r := createIn(e, "w3"); r.Status != protocol.StatusForbidden {
			t.Errorf("after the count has aged: %d %s", r.Status, r.Message)
		}
	}
}

// TestWorkspacesAreToldOf: how many there are is known to the server that makes them, and found again by another, later.
func TestWorkspacesAreToldOf(t *testing.T) {
	f := newFixture(t)
	want := func(e *Engine, n int) {
		t.Helper()
		if got, limit, err := e.Workspaces(t.Context()); got != n || limit != 3 || err != nil {
			t.Errorf("%d workspaces of %d, %v; want %d of 3", got, limit, err, n)
		}
	}
	alone := f.limited(Options{MaxWorkspaces: 3})
	want(alone, 0)
	createIn(alone, "w0")
	want(alone, 1)
	a, b := f.limited(Options{MaxWorkspaces: 3, Shared: true, ServerID: "a"}), f.limited(Options{MaxWorkspaces: 3, Shared: true, ServerID: "b"})
	want(a, 1)
	for _, workspace := range []string{"w1", "w2", "w3", protocol.DefaultWorkspace} {
		createIn(b, workspace)
	}
	want(b, 3) // the default one is beyond the limit
	want(a, 1)
	f.clock.advance(watchInterval)
	want(a, 3)
}
