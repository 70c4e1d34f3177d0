package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
	"abide/kv/memkv"
	"abide/protocol"
)

func seat(pid string, number int64) deliver.Seat {
	return deliver.Seat{Workspace: "default", Group: "g", PID: pid, Number: number}
}

// What is recorded of connections: the newest is the worker's, one whose row was lost comes back unless there is a newer
// one, and an end removes its own row and no other's.
func TestRecord(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.nodes[0].Roster(), f.nodes[1].Roster()
	record := func(r deliver.Roster, made, again, ended []deliver.Seat) []int64 {
		t.Helper()
		numbers, err := r.Record(context.Background(), made, again, ended)
		if err != nil {
			t.Fatal(err)
		}
		return numbers
	}
	at := func(pid string) (c keyspace.Connection) {
		if row := f.get(keyspace.For("default", keyspace.Layout{Shards: 1}).Connection("g", pid)); row != nil {
			var err error
			if c, err = keyspace.ParseConnection(row); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	first := record(a, []deliver.Seat{seat("w", 0), seat("v", 0)}, nil, nil)
	if len(first) != 2 || first[0] <= 0 || first[1] <= first[0] {
		t.Fatalf("numbers %v", first)
	}
	second := record(b, []deliver.Seat{seat("w", 0)}, nil, nil)
	if c := at("w"); second[0] <= first[1] || c != (keyspace.Connection{Server: "server1", Number: second[0]}) {
		t.Errorf("%+v after number %v", c, second)
	}
	if n := record(a, nil, []deliver.Seat{seat("w", first[0]), seat("v", first[1])}, nil); !slices.Equal(n, []int64{0, first[1]}) {
		t.Errorf("recorded again as %v", n)
	}
	record(a, nil, nil, []deliver.Seat{seat("w", first[0])})
	if at("w").Server != "server1" {
		t.Error("the end of an older connection has removed the newer one's row")
	}
	record(a, nil, nil, []deliver.Seat{seat("v", first[1])})
	if at("v").Server != "" {
		t.Error("the end of a connection has left its row")
	}
	if n := record(a, nil, []deliver.Seat{seat("v", first[1])}, nil); n[0] <= second[0] || at("v").Number != n[0] {
		t.Errorf("a lost row comes back as %v", n)
	}
	before := f.get(keyspace.RosterKey())
	if n := record(a, []deliver.Seat{{Workspace: "default", Group: "g", PID: string(make([]byte, protocol.MaxAddressBytes))}}, nil, nil); n[0] != -1 {
		t.Errorf("a worker that nobody can name has number %v", n)
	}
	if string(before) != string(f.get(keyspace.RosterKey())) {
		t.Error("the roster changes with nothing")
	}
}

// A look shows everybody's connections, in pages, and nothing if nothing has changed.
func TestLook(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.nodes[0].Roster(), f.nodes[1].Roster()
	const workers = rosterPage + 200
	for i := 0; i < workers; i += deliver.MaxSeats {
		var made []deliver.Seat
		for j := i; j < min(i+deliver.MaxSeats, workers); j++ {
			made = append(made, seat(fmt.Sprint("w", j), 0))
		}
		if _, err := b.Record(context.Background(), made, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	s, err := a.Look(context.Background(), 0)
	if err != nil || !s.Changed || len(s.Seats) != workers || s.Server != "server0" || len(s.Live) != 2 || s.Seats[0].Server != "server1" {
		t.Fatalf("%d seats, %+v, %v", len(s.Seats), s.Live, err)
	}
	again, err := a.Look(context.Background(), s.Number)
	if err != nil || again.Changed || again.Seats != nil || again.Number != s.Number {
		t.Errorf("%+v, %v", again, err)
	}
}

// The connections of a dead server go in transactions of bounded size, however many they are, and those of the living
// stay. (G18)
func TestSweepOfManyConnections(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	const workers = 3*memberPage + 50
	for i := range workers {
		for n, node := range f.nodes {
			if _, err := node.Roster().Record(context.Background(), []deliver.Seat{seat(fmt.Sprintf("%d-%d", n, i), 0)}, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	most := int64(0)
	count := func() (own, others int) {
		s, err := a.Roster().Look(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, seat := range s.Seats {
			if seat.Server == "server0" {
				own++
			} else {
				others++
			}
		}
		return own, others
	}
	for range 200 {
		_, before := count()
		f.advance(sharedPollMs*1e6, b)
		own, others := count()
		if own != workers {
			t.Fatalf("%d of %d connections of a live server are left", own, workers)
		}
		most = max(most, int64(before-others))
		if others == 0 {
			break
		}
	}
	if _, others := count(); others != 0 || most > memberPage {
		t.Errorf("%d connections of a dead server are left; at most %d went at once", others, most)
	}
}

// Rows of servers that do not decode are set aside, or written anew, and stop nobody.
func TestDamagedServerRows(t *testing.T) {
	f := newFleet(t, 2)
	a := f.nodes[0]
	put := func(key []byte) {
		t.Helper()
		if _, err := f.disk.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put(key, []byte("damaged")) }); err != nil {
			t.Fatal(err)
		}
	}
	connection := keyspace.For("default", keyspace.Layout{Shards: 1}).Connection("g", "w")
	put(keyspace.MemberKey("server1"))
	put(keyspace.MemberKey("ghost"))
	put(connection)
	f.advance(5e9)
	if got := a.live(); !slices.Equal(got, []string{"server0", "server1"}) {
		t.Errorf("live: %v", got)
	}
	if _, err := a.Roster().Look(context.Background(), 0); err != nil {
		t.Error(err)
	}
	if n, err := a.Roster().Record(context.Background(), []deliver.Seat{seat("w", 0)}, nil, nil); err != nil || n[0] <= 0 {
		t.Errorf("%v, %v", n, err)
	}
}

// Requests at three servers that cross each other on the same few promises: each is answered, none with a 5xx. (G1, G3,
// G6, K17)
func TestCrossingRequests(t *testing.T) {
	disk := memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register()})
	defer disk.Close()
	var engines []*Engine
	for i := range 3 {
		e, err := Open(context.Background(), disk.Handle(), Options{ServerID: fmt.Sprint("s", i), Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	target := protocol.Tags{}.With(protocol.TagTarget, "poll://any@g")
	var running sync.WaitGroup
	for worker := range 24 {
		running.Go(func() {
			pid := fmt.Sprint("w", worker)
			for round := range 40 {
				e := engines[(worker+round)%3]
				id, other := fmt.Sprint("p", round%5), fmt.Sprint("p", (round+worker)%5)
				for _, req := range []protocol.Request{
					&protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Tags: target},
					&protocol.PromiseRegisterCallback{Awaited: id, Awaiter: other},
					&protocol.TaskAcquire{ID: id, Version: int64(round / 5), PID: pid, TTL: 1000},
					&protocol.TaskHeartbeat{PID: pid},
					&protocol.TaskSuspend{ID: id, Version: int64(round/5 + 1), Awaited: []string{other + "x"}},
					&protocol.TaskRelease{ID: id, Version: int64(round/5 + 1)},
					&protocol.PromiseSettle{ID: fmt.Sprint("p", round%5, ".", worker%3), State: protocol.Resolved},
				} {
					if r := e.Do(context.Background(), "default", req, nil); r.Status >= 500 {
						t.Errorf("%s: %d %s", req.Kind(), r.Status, r.Message)
					}
				}
			}
		})
	}
	running.Wait()
}

// The signals of a commit say whose it is, and so a server knows whether those of others reach it.
func TestSignalsSayWhoseTheyAre(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	var own []kv.Signal
	stop := a.handle.Signals(func(signals []kv.Signal) { own = append(own, signals...) })
	defer stop()
	f.do(a, &protocol.PromiseCreate{ID: "p", TimeoutAt: a.Now() + 50_000, Tags: protocol.Tags{}.With(protocol.TagTarget, "poll://any@g")})
	if !a.ownSignals(own) || b.ownSignals(own) || b.ownSignals(own[len(own)-1:]) && len(own) > 1 {
		t.Errorf("signals %+v", own)
	}
	if a.travels() || !b.travels() {
		t.Errorf("signals travel to the first: %t, to the second: %t", a.travels(), b.travels())
	}
	b.clock.advance(travelsFor + time.Second)
	if b.travels() {
		t.Error("signals travel, though none has come for a minute")
	}
	own = nil
	if err := a.renewLease(context.Background()); err != nil {
		t.Fatal(err)
	}
	if b.ownSignals(own); len(own) != 1 || own[0].Local || !b.travels() {
		t.Errorf("a renewal gives the signals %+v; that signals travel is known: %t", own, b.travels())
	}
	single, s := newHooked(t)
	var plain []kv.Signal
	defer s.Signals(func(signals []kv.Signal) { plain = append(plain, signals...) })()
	single.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, "poll://any@g")})
	for _, signal := range plain {
		if signal.Topic == store.TopicServer {
			t.Error("the only server of a store signs its signals")
		}
	}
}
