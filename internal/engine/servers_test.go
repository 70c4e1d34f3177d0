package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
	"abide/kv/memkv"
	"abide/protocol"
)

// node is one of several servers on a store in memory, each with a handle and a clock of its own.
type node struct {
	*Engine
	clock  *manual
	handle *hooked
}

// fleet is servers on one store. Their loops are passes that the test runs.
type fleet struct {
	t     *testing.T
	disk  *memkv.Store
	nodes []*node
}

func newFleet(t *testing.T, servers int) *fleet {
	t.Helper()
	f := &fleet{t: t, disk: memkv.Open(memkv.Options{Keys: keyspace.Register()})}
	for i := range servers {
		f.join(fmt.Sprint("server", i))
	}
	f.passAll()
	t.Cleanup(f.check)
	return f
}

// join starts a server, whose clock shows what the first one's does.
func (f *fleet) join(id string) *node {
	f.t.Helper()
	clock := newManual()
	if len(f.nodes) > 0 {
		clock.wall = f.nodes[0].clock.Wall()
	}
	n, err := f.tryJoin(id, clock)
	if err != nil {
		f.t.Fatal(err)
	}
	f.nodes = append(f.nodes, n)
	return n
}

func (f *fleet) tryJoin(id string, clock *manual) (*node, error) {
	handle := &hooked{Store: f.disk.Handle()}
	e, err := Open(context.Background(), handle, Options{
		Source: clock, Log: slog.New(slog.DiscardHandler), ServerID: id, Shared: true, Sequential: true,
		Identity: Identity{Host: "host of " + id, ProcessID: 7, URL: "http://" + id, Version: "1.2.3"},
	})
	if err != nil {
		return nil, err
	}
	e.Attach(nil)
	return &node{e, clock, handle}, nil
}

// passAll lets every server look around.
func (f *fleet) passAll() {
	f.t.Helper()
	for range 2 {
		for _, n := range f.nodes {
			n.look(f.t)
		}
	}
}

func (n *node) look(t *testing.T) {
	t.Helper()
	if _, err := n.MemberPass(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// advance lets time pass for all, looking around four times a second; those in asleep do nothing meanwhile.
func (f *fleet) advance(d time.Duration, asleep ...*node) {
	f.t.Helper()
	for ; d > 0; d -= 250 * time.Millisecond {
		for _, n := range f.nodes {
			n.clock.advance(250 * time.Millisecond)
		}
		for _, n := range f.nodes {
			if !slices.Contains(asleep, n) {
				n.look(f.t)
			}
		}
	}
}

func (f *fleet) check() {
	if f.t.Failed() {
		return
	}
	_, err := store.Check(context.Background(), f.disk, keyspace.Layout{Shards: 1}, f.nodes[0].Now(), func(p store.Problem) {
		f.t.Errorf("the store breaks an invariant: %s", p)
	})
	if err != nil {
		f.t.Error(err)
	}
}

func (f *fleet) get(key []byte) (value []byte) {
	f.t.Helper()
	err := f.disk.View(context.Background(), func(s kv.Snapshot) (err error) {
		value, err = s.Get(key)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return value
}

func (n *node) live() []string {
	if s := n.holding(); s != nil {
		return s.live
	}
	return nil
}

func (f *fleet) do(n *node, req protocol.Request) protocol.Reply {
	f.t.Helper()
	reply := n.Do(context.Background(), "default", req, nil)
	if reply.Status != 200 {
		f.t.Fatalf("%s: %d %s", req.Kind(), reply.Status, reply.Message)
	}
	return reply
}

// A server that dies is taken for dead after its lease; its rows go, and its ceiling is kept for those that start.
func TestDeadServerIsSwept(t *testing.T) {
	f := newFleet(t, 3)
	a, b, c := f.nodes[0], f.nodes[1], f.nodes[2]
	if got := a.live(); !slices.Equal(got, []string{"server0", "server1", "server2"}) {
		t.Fatalf("live: %v", got)
	}
	c.clock.step(90 * time.Second) // the ceiling of a clock that was ahead
	f.do(c, &protocol.PromiseCreate{ID: "p", TimeoutAt: 1 << 50, Tags: protocol.Tags{}})
	f.advance(9*time.Second, c)
	if got := b.live(); len(got) != 3 {
		t.Errorf("live before the lease has ended: %v", got)
	}
	f.advance(5*time.Second, c)
	for _, n := range []*node{a, b} {
		if got := n.live(); !slices.Equal(got, []string{"server0", "server1"}) {
			t.Errorf("live after the lease has ended: %v", got)
		}
	}
	f.advance(5*time.Second, c)
	if f.get(keyspace.MemberKey("server2")) != nil || f.get(keyspace.Server("server2")) != nil {
		t.Error("rows of the dead server are left")
	}
	ceiling, err := keyspace.Instant("server", f.get(keyspace.Server("")))
	if err != nil || ceiling < c.Now()-20_000 {
		t.Errorf("the ceiling of the dead server is kept as %d, %v; its clock showed %d", ceiling, err, c.Now())
	}
	if d := f.join("server3"); d.Now() < ceiling {
		t.Errorf("a new server begins at %d, below %d, which was served", d.Now(), ceiling)
	}
}

// A server that wakes up after it was taken for dead owns nothing until it has registered again.
func TestZombie(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	f.advance(20*time.Second, b)
	if f.get(keyspace.MemberKey("server1")) != nil {
		t.Fatal("the row of a server that sleeps is left")
	}
	for i := range 100 {
		if b.owns(fmt.Sprint(i)) {
			t.Fatalf("a zombie owns %d", i)
		}
	}
	if err := b.Ready(context.Background()); err == nil || !strings.Contains(err.Error(), "lease") {
		t.Errorf("a zombie is ready: %v", err)
	}
	if !a.owns("anything") {
		t.Error("the only live server does not own everything")
	}
	f.passAll()
	if err := b.Ready(context.Background()); err != nil {
		t.Errorf("after it has registered again: %v", err)
	}
	if got := a.live(); len(got) != 2 {
		t.Errorf("live: %v", got)
	}
	roster, _ := keyspace.ParseRoster(f.get(keyspace.RosterKey()))
	if roster.LostMs == 0 {
		t.Error("nothing says that a server was lost")
	}
}

// Leases are renewed in time, and hold, while every call of the store takes 40 % of one. (D24)
func TestSlowStoreCostsNoLease(t *testing.T) {
	f := newFleet(t, 2)
	slow := func(n *node) func(kv.Hints) error {
		return func(kv.Hints) error {
			n.clock.advance(4 * time.Second)
			return nil
		}
	}
	for _, n := range f.nodes {
		n.handle.before = slow(n)
	}
	for round := range 150 {
		for i, n := range f.nodes {
			n.look(t)
			other := f.nodes[1-i]
			if behind := n.clock.Mono() - other.clock.Mono(); behind > 0 {
				other.clock.advance(behind)
			}
		}
		for _, n := range f.nodes {
			n.clock.advance(250 * time.Millisecond)
			if got := n.live(); len(got) != 2 {
				t.Fatalf("round %d: %s sees %v live", round, n.opt.ServerID, got)
			}
			if err := n.Ready(context.Background()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
	}
}

// A server that cannot renew its lease gives up before others take over, is not ready meanwhile, and comes back by
// itself. (D20, D24)
func TestStoreLostAndFound(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	down := errors.New("cut off")
	a.handle.before = func(kv.Hints) error { return &kv.Error{Is: kv.ErrUnavailable, Err: down} }
	gaveUp := time.Duration(0)
	for range 80 {
		for _, n := range f.nodes {
			n.clock.advance(250 * time.Millisecond)
		}
		_, _ = a.MemberPass(context.Background())
		b.look(t)
		alone := len(b.live()) == 1
		if a.holding() == nil && gaveUp == 0 {
			gaveUp = a.clock.Mono()
		}
		if alone && gaveUp == 0 {
			t.Fatal("it was taken for dead before it had given up")
		}
	}
	if gaveUp == 0 || len(b.live()) != 1 {
		t.Fatalf("gave up at %s; %v live", gaveUp, b.live())
	}
	if err := a.Ready(context.Background()); err == nil {
		t.Error("it is ready without a lease")
	}
	a.handle.before = nil
	f.advance(time.Second)
	if err := a.Ready(context.Background()); err != nil || len(b.live()) != 2 {
		t.Errorf("after the store is back: %v, %v live", err, b.live())
	}
}

// A clock that is more than two seconds off the median makes its server not ready, and no other. (docs/machine.md, Time)
func TestClockOffTheMedian(t *testing.T) {
	for _, step := range []time.Duration{3 * time.Second, time.Hour, 1500 * time.Millisecond} {
		f := newFleet(t, 3)
		f.advance(5 * time.Second)
		f.nodes[2].clock.step(step)
		f.advance(10 * time.Second)
		for i, n := range f.nodes {
			err := n.Ready(context.Background())
			if off := i == 2 && step > 2*time.Second; off != (err != nil) || (off && !strings.Contains(err.Error(), "clock")) {
				t.Errorf("a clock %s ahead: server %d: %v", step, i, err)
			}
		}
	}
}

// Two processes under one name: the newer has it, the older says so and owns nothing, until the newer is gone.
func TestNameTaken(t *testing.T) {
	f := newFleet(t, 1)
	older := f.nodes[0]
	newer := f.join("server0")
	f.advance(6 * time.Second)
	if err := older.Ready(context.Background()); !errors.Is(err, errNameTaken) || older.owns("x") {
		t.Errorf("the older process: %v", err)
	}
	if err := newer.Ready(context.Background()); err != nil || !newer.owns("x") {
		t.Errorf("the newer process: %v", err)
	}
	f.advance(20*time.Second, newer)
	if err := older.Ready(context.Background()); err != nil {
		t.Errorf("the older process after the newer has died: %v", err)
	}
}

// A server that stops takes its leave at once.
func TestLeave(t *testing.T) {
	f := newFleet(t, 2)
	f.nodes[1].Start(nil)
	if err := f.nodes[1].Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.nodes[0].clock.advance(250 * time.Millisecond)
	f.nodes[0].look(t)
	if got := f.nodes[0].live(); !slices.Equal(got, []string{"server0"}) {
		t.Errorf("live: %v", got)
	}
	if roster, _ := keyspace.ParseRoster(f.get(keyspace.RosterKey())); roster.LostMs != 0 {
		t.Error("a server that took its leave counts as lost")
	}
}

// A store of one server has none of this: no row, no transaction, nothing while it idles.
func TestOneServerPaysNothing(t *testing.T) {
	f, s := newHooked(t)
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: 1 << 50, Tags: protocol.Tags{}})
	before := s.puts.Load()
	f.clock.advance(time.Hour)
	for range 10 {
		if _, err := f.TimerPass(context.Background()); err != nil {
			t.Fatal(err)
		}
		f.clock.advance(time.Second)
	}
	if n := s.puts.Load() - before; n != 0 {
		t.Errorf("an idle server has written %d rows", n)
	}
	if f.Roster() != nil || f.opt.PollIntervalMs != 1000 {
		t.Errorf("a roster on a store of one server, or a poll interval of %d ms", f.opt.PollIntervalMs)
	}
	for _, key := range [][]byte{keyspace.RosterKey(), keyspace.MemberKey("server")} {
		if b := f.raw(key); b != nil {
			t.Errorf("a row of kind %s", keyspace.Kind(key))
		}
	}
}

// Stores say by themselves whether they are shared.
type sharedStore struct{ kv.Store }

func (sharedStore) Shared() bool { return true }

func TestStoreSaysThatItIsShared(t *testing.T) {
	s := memkv.Open(memkv.Options{Keys: keyspace.Register()})
	e, err := Open(context.Background(), sharedStore{s}, Options{Source: newManual()})
	if err != nil {
		t.Fatal(err)
	}
	if e.Roster() == nil || e.opt.PollIntervalMs != sharedPollMs {
		t.Error("the engine does not know that its store is shared")
	}
}

// A server refuses a store whose entries it does not write, and says which version it is. (K17, K11)
func TestOtherFormatIsRefused(t *testing.T) {
	f := newFleet(t, 1)
	_, err := f.disk.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		return tx.Put(keyspace.Format(), keyspace.AppendFormat(nil, keyspace.StoreFormat{Derivation: keyspace.DerivationVersion + 1, Shards: 1}))
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.tryJoin("old", newManual())
	if err == nil || !strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), "host of server0") {
		t.Errorf("it was opened, or the refusal does not name what is there: %v", err)
	}
	_, err = f.disk.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		return tx.Put(keyspace.Format(), keyspace.AppendFormat(nil, keyspace.StoreFormat{Derivation: keyspace.DerivationVersion, Shards: 1}))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An empty heartbeat vouches for claims that any server has answered, but for none from before a server was lost.
// (docs/decisions/0010, 0040)
func TestEmptyHeartbeatAcrossServers(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	claim := func(n *node, id string) {
		f.do(n, &protocol.TaskCreate{PID: "w", TTL: 10_000, Action: protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, "poll://any@g")}})
	}
	lease := func(id string) int64 {
		b := f.get(keyspace.For("default", a.layout).Object(id))
		o, err := keyspace.Object(id, b)
		if err != nil {
			t.Fatal(err)
		}
		return o.Task.LeaseAt
	}
	claim(a, "early")
	late := f.join("late") // its life begins after the claim
	f.passAll()
	f.advance(2 * time.Second)
	before := lease("early")
	f.do(late, &protocol.TaskHeartbeat{PID: "w"})
	if lease("early") <= before {
		t.Error("a server that came later does not vouch for a claim")
	}
	f.advance(20*time.Second, b) // b is lost, and with it perhaps what the worker knew
	claim(a, "after")
	f.advance(2*time.Second, b)
	early, after := lease("early"), lease("after")
	f.do(late, &protocol.TaskHeartbeat{PID: "w"})
	if lease("early") != early {
		t.Error("an empty heartbeat vouches for a claim from before a server was lost")
	}
	if lease("after") <= after {
		t.Error("an empty heartbeat does not vouch for a claim from after that")
	}
}

// A server that renews its lease at the last moment, after another has found it dead and before that has removed its
// row, keeps it.
func TestLateRenewalIsNotBuried(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	for range 44 { // just past its lease
		for _, n := range f.nodes {
			n.clock.advance(250 * time.Millisecond)
		}
		if err := a.lookAround(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	dead := a.members.observer.Dead(a.mono())
	if len(dead) != 1 || dead[0].ID != "server1" {
		t.Fatalf("dead: %+v", dead)
	}
	b.look(t)
	if err := a.bury(context.Background(), dead[0]); err != nil {
		t.Fatal(err)
	}
	if f.get(keyspace.MemberKey("server1")) == nil {
		t.Error("the row of a server that has renewed its lease is gone")
	}
	f.passAll()
}
