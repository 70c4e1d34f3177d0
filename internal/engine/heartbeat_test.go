package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

// holds makes tasks that a worker holds.
func (f *fixture) holds(pid string, ttl int64, ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		f.do(200, &protocol.TaskCreate{PID: pid, TTL: ttl, Action: protocol.PromiseCreate{ID: id, TimeoutAt: f.Now() + 100_000, Tags: target}})
	}
}

func (f *fixture) lease(id string) int64 {
	f.t.Helper()
	o, err := keyspace.Object(id, f.raw(f.keysOf().Object(id)))
	if err != nil || o.Task == nil {
		f.t.Fatal(id, err)
	}
	return o.Task.LeaseAt
}

func (f *fixture) beat(pid string, refs ...protocol.TaskRef) []string {
	f.t.Helper()
	return f.do(200, &protocol.TaskHeartbeat{PID: pid, Tasks: refs}).Body.(protocol.HeartbeatBody).Lost
}

func names(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%04d", prefix, i))
	}
	return ids
}

// Leases are renewed in transactions of at most 100 tasks, one call tree each, and nothing is written for those that
// need not move.
func TestHeartbeatTransactions(t *testing.T) {
	f, s := newHooked(t)
	many := names("tree.", 250)
	single := names("s", 30)
	f.holds("w", 1000, many...)
	f.holds("w", 1000, single...)
	f.holds("v", 1000, "foreign")
	f.clock.advance(500 * time.Millisecond)
	f.do(200, &protocol.PromiseCreate{ID: "raises the ceiling", TimeoutAt: far})
	before := s.updates.Load()
	var refs []protocol.TaskRef
	for _, id := range append(slices.Clone(many), single...) {
		refs = append(refs, protocol.TaskRef{ID: id, Version: 1})
	}
	if lost := f.beat("w", refs...); len(lost) != 0 {
		t.Errorf("lost: %q", lost)
	}
	if n := s.updates.Load() - before; n != 3+30 {
		t.Errorf("250 tasks of one tree and 30 of their own took %d transactions", n)
	}
	for _, ref := range refs {
		if f.lease(ref.ID) != f.Now()+1000 {
			t.Fatalf("%s: lease ends at %d", ref.ID, f.lease(ref.ID))
		}
	}
	before = s.updates.Load()
	f.beat("w", refs...)
	f.beat("w")
	if n := s.updates.Load() - before; n != 0 {
		t.Errorf("a heartbeat at the same instant wrote %d times", n)
	}
	f.clock.advance(100 * time.Millisecond)
	if lost := f.beat("w"); lost != nil || f.lease(many[0]) != f.Now()+1000 || f.lease("foreign") == f.Now()+1000 {
		t.Errorf("an empty list: lost %q; own lease %d, another's %d, now %d", lost, f.lease(many[0]), f.lease("foreign"), f.Now())
	}
}

// A pid may hold more tasks than one page.
func TestEmptyHeartbeatOfManyTasks(t *testing.T) {
	f, _ := newHooked(t)
	ids := names("t.", heartbeatPage+200)
	f.holds("w", 1000, ids...)
	f.clock.advance(100 * time.Millisecond)
	f.beat("w")
	for _, id := range ids {
		if f.lease(id) != f.Now()+1000 {
			t.Fatalf("%s: lease ends at %d", id, f.lease(id))
		}
	}
}

// A released SDK sends a heartbeat once a millisecond for leases that end after their promise: nothing is written.
func TestHeartbeatsThatChangeNothingWriteNothing(t *testing.T) {
	f, s := newHooked(t)
	f.do(200, &protocol.TaskCreate{PID: "w", TTL: 1<<53 - 1, Action: protocol.PromiseCreate{ID: "p", TimeoutAt: f.Now() + 60_000, Tags: target}})
	puts := s.puts.Load()
	for range 200 {
		f.clock.advance(time.Millisecond)
		f.beat("w")
		f.beat("w", protocol.TaskRef{ID: "p", Version: 1})
	}
	if n := s.puts.Load() - puts; n > 1 { // the ceiling
		t.Errorf("400 heartbeats wrote %d rows", n)
	}
}

// What was not renewed is named, each id once, in the order of the request: also what is lost between the reading
// and the writing. (D15, E2, E10)
func TestHeartbeatNamesWhatIsLost(t *testing.T) {
	f, s := newHooked(t)
	f.holds("w", 1000, "kept", "lapsed", "cancelled", "released", "stolen")
	f.holds("v", 1000, "foreign")
	f.do(200, &protocol.TaskCreate{PID: "w", TTL: 60_000, Action: protocol.PromiseCreate{ID: "timedout", TimeoutAt: f.Now() + 300, Tags: target}})
	f.do(200, &protocol.PromiseSettle{ID: "cancelled", State: protocol.RejectedCanceled})
	f.do(200, &protocol.TaskRelease{ID: "released", Version: 1})
	f.clock.advance(500 * time.Millisecond)
	f.beat("w", protocol.TaskRef{ID: "kept", Version: 1}, protocol.TaskRef{ID: "stolen", Version: 1})
	f.clock.advance(600 * time.Millisecond)
	f.fireDue()
	var once sync.Once
	s.set(func(s *hooked) {
		s.before = func(h kv.Hints) error {
			if h.Lane == "default" { // a renewal: the reading is over
				once.Do(func() {
					s.set(func(s *hooked) { s.before = nil })
					f.do(200, &protocol.TaskRelease{ID: "stolen", Version: 1})
				})
			}
			return nil
		}
	})
	refs := []protocol.TaskRef{{ID: "unknown", Version: 1}, {ID: "timedout", Version: 1}, {ID: "stolen", Version: 1}, {ID: "kept", Version: 1}, {ID: "released", Version: 1},
		{ID: "foreign", Version: 1}, {ID: "lapsed", Version: 1}, {ID: "cancelled", Version: 1}, {ID: "unknown", Version: 1}, {ID: "kept", Version: 7}}
	lost := f.beat("w", refs...)
	if want := []string{"unknown", "timedout", "stolen", "released", "foreign", "lapsed", "cancelled", "kept"}; !slices.Equal(lost, want) {
		t.Errorf("lost %q, want %q", lost, want)
	}
	if f.lease("kept") != f.Now()+1000 {
		t.Error("the task that is held was not renewed")
	}
}

// State outlives the process: halted stays halted, and whatever is due fires. (E3)
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "abide.db")
	clock := newManual()
	open := func() (*fixture, *sqlitekv.Store) {
		s, err := sqlitekv.Open(sqlitekv.Options{Path: path, Keys: keyspace.Register()})
		if err != nil {
			t.Fatal(err)
		}
		return fixtureOver(t, s, clock), s
	}
	f, s := open()
	f.holds("w", 1000, "acquired", "halted", "suspended")
	f.do(200, &protocol.PromiseCreate{ID: "queued", TimeoutAt: far, Tags: target})
	f.do(200, &protocol.PromiseCreate{ID: "haltedpending", TimeoutAt: far, Tags: target})
	f.do(200, &protocol.PromiseCreate{ID: "sleep", TimeoutAt: f.Now() + 500, Tags: tags(protocol.TagTimer, "true")})
	f.do(200, &protocol.TaskSuspend{ID: "suspended", Version: 1, Awaited: []string{"sleep"}})
	f.do(200, &protocol.TaskHalt{ID: "halted"})
	f.do(200, &protocol.TaskHalt{ID: "haltedpending"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	clock.advance(time.Hour / 2)
	f, s = open()
	defer s.Close()
	f.fireDue()
	for id, want := range map[string]protocol.TaskState{"acquired": protocol.TaskFulfilled, "halted": protocol.TaskFulfilled, "haltedpending": protocol.TaskHalted,
		"suspended": protocol.TaskFulfilled, "queued": protocol.TaskPending, "sleep": ""} {
		if want == "" {
			if got := f.stored(id); got != protocol.Resolved {
				t.Errorf("%s is %s", id, got)
			}
			continue
		}
		if got := f.do(200, &protocol.TaskGet{ID: id}).Body.(protocol.TaskBody).Task.State; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	f.do(409, &protocol.TaskAcquire{ID: "haltedpending", Version: 0, PID: "w", TTL: 1})
	f.do(200, &protocol.TaskAcquire{ID: "queued", Version: 0, PID: "w", TTL: 1})
	f.do(404, &protocol.TaskContinue{ID: "unknown"}) // E7
}

// The outbox by destination: only what can be sent now, in pages, until it is delivered.
func TestOutbox(t *testing.T) {
	f := newFixture(t)
	out, ctx := f.Outbox(), context.Background()
	group := deliver.Destination{Workspace: "default", Group: "g"}
	ids := names("t", 25)
	for _, id := range ids {
		f.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: f.Now() + 60_000, Tags: target})
	}
	f.do(200, &protocol.PromiseCreate{ID: "expired", TimeoutAt: f.Now() + 10, Tags: target})
	f.do(200, &protocol.PromiseCreate{ID: "unicast", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://uni@g/w")})
	f.do(200, &protocol.PromiseCreate{ID: "elsewhere", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@h")})
	f.do(200, &protocol.PromiseCreate{ID: "pushed", TimeoutAt: far, Tags: tags(protocol.TagTarget, "http://example.com/")})
	f.do(200, &protocol.TaskAcquire{ID: ids[3], Version: 0, PID: "w", TTL: 10_000})
	f.clock.advance(100 * time.Millisecond)
	list := func(d deliver.Destination, limit int) (found []deliver.Execute) {
		t.Helper()
		for after, pages := "", 0; ; pages++ {
			page := executesFor(t, out, d, after, limit)
			if pages > 100 {
				t.Fatal(pages)
			}
			found = append(found, page.Executes...)
			if after = page.Next; after == "" {
				return found
			}
		}
	}
	for _, limit := range []int{1, 7, 100} {
		if got := list(group, limit); len(got) != 24 || got[0] != (deliver.Execute{Workspace: "default", ID: ids[0], Address: "poll://any@g"}) {
			t.Fatalf("pages of %d: %d executes", limit, len(got))
		}
	}
	if got := list(deliver.Destination{Workspace: "default", Group: "g", PID: "w"}, 10); len(got) != 1 || got[0].ID != "unicast" {
		t.Errorf("unicast: %+v", got)
	}
	hinted := []deliver.Execute{{Workspace: "default", ID: ids[0]}, {Workspace: "default", ID: ids[3]}, {Workspace: "default", ID: ids[1], Version: 5},
		{Workspace: "default", ID: "nix"}, {Workspace: "default", ID: "expired"}}
	if valid, err := out.CheckExecutes(ctx, "default", hinted); err != nil || len(valid) != 1 || valid[0].ID != ids[0] {
		t.Errorf("of the hinted, %+v are to be sent, %v", valid, err)
	}
	if err := out.ExecutesDelivered(ctx, "default", []deliver.Execute{{ID: ids[0]}, {ID: ids[1], Version: 5}, {ID: ids[2]}}); err != nil {
		t.Fatal(err)
	}
	if got := list(group, 100); len(got) != 22 || got[0].ID != ids[1] {
		t.Errorf("after two were delivered %d are left", len(got))
	}
	f.clock.advance(30 * time.Second)
	f.fireDue()
	if got := list(group, 100); len(got) != 25 { // and the one whose lease has lapsed
		t.Errorf("after the retry %d are queued", len(got))
	}
	f.do(200, &protocol.DebugStart{})
	if got := list(group, 100); len(got) != 0 {
		t.Errorf("a paused workspace shows %d", len(got))
	}
}

// An empty heartbeat of a token that may touch some ids only leaves the others' leases alone.
func TestEmptyHeartbeatWithinAPrefix(t *testing.T) {
	f, _ := newHooked(t)
	f.holds("w", 1000, "a1", "a2", "b1")
	f.clock.advance(500 * time.Millisecond)
	before := f.lease("b1")
	f.do(200, &protocol.TaskHeartbeat{PID: "w", Within: "a"})
	if f.lease("a1") != f.Now()+1000 || f.lease("a2") != f.Now()+1000 {
		t.Error("the bearer's own tasks were not renewed")
	}
	if f.lease("b1") != before {
		t.Error("a task outside the prefix was renewed")
	}
}
