package engine

import (
	"fmt"
	"slices"
	"testing"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/internal/push"
	"abide/kv/memkv"
	"abide/protocol"
)

// walk lists the queues of a kind, and how many calls that took.
func walk(t *testing.T, a Addresses, kind push.Kind) (queues []push.Queue, calls int) {
	t.Helper()
	for after := ""; ; {
		page, next, err := a.Queues(t.Context(), kind, after)
		if err != nil || len(page) > push.MaxQueues || calls > 1000 {
			t.Fatalf("%d queues, %v", len(page), err)
		}
		queues, calls = append(queues, page...), calls+1
		if after = next; next == "" {
			return queues, calls
		}
	}
}

// The queues by address are listed, read, checked and emptied.
func TestAddresses(t *testing.T) {
	f := newFixture(t)
	a := f.Addresses()
	var want []push.Queue
	for i := range 5 {
		address := fmt.Sprintf("http://h/%d", i)
		want = append(want, push.Queue{Workspace: "default", Address: address})
		for j := range 3 {
			id := fmt.Sprintf("t%d.%d", i, j)
			f.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: tags(protocol.TagTarget, address)})
			f.do(200, &protocol.PromiseCreate{ID: "p" + id, TimeoutAt: far})
			f.do(200, &protocol.PromiseRegisterListener{Awaited: "p" + id, Address: address})
			f.do(200, &protocol.PromiseSettle{ID: "p" + id, State: protocol.Resolved})
		}
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprint("polled", i), TimeoutAt: far, Tags: tags(protocol.TagTarget, fmt.Sprintf("poll://any@g%d", i))})
	}
	f.fireDue()
	for kind := range push.KindUnblock + 1 {
		if queues, _ := walk(t, a, kind); !slices.Equal(queues, want) {
			t.Errorf("%s: %v", kind, queues)
		}
	}
	asks := []push.Ask{{Queue: want[1], Limit: 2}, {Queue: want[4], Limit: 100}, {Queue: push.Queue{Workspace: "other", Address: "http://h/1"}, Limit: 9}}
	executes, err := a.Executes(t.Context(), asks)
	if err != nil || len(executes) != 3 || len(executes[0].Executes) != 2 || executes[0].Next == "" || len(executes[1].Executes) != 3 || executes[1].Next != "" || len(executes[2].Executes) != 0 {
		t.Fatalf("%+v %v", executes, err)
	}
	asks[0].After = executes[0].Next
	rest, err := a.Executes(t.Context(), asks[:1])
	if err != nil || len(rest[0].Executes) != 1 || rest[0].Executes[0].ID != "t1.2" || rest[0].Executes[0].Address != "http://h/1" {
		t.Fatalf("%+v %v", rest, err)
	}
	unblocks, err := a.Unblocks(t.Context(), asks[1:])
	if err != nil || len(unblocks) != 2 || len(unblocks[0].Unblocks) != 3 || unblocks[0].Unblocks[0] != (deliver.UnblockRef{ID: "pt4.0", Address: "http://h/4"}) {
		t.Fatalf("%+v %v", unblocks, err)
	}
	if err := a.ExecutesDelivered(t.Context(), "default", executes[1].Executes); err != nil {
		t.Fatal(err)
	}
	if err := a.UnblocksDelivered(t.Context(), "default", unblocks[0].Unblocks); err != nil {
		t.Fatal(err)
	}
	for kind := range push.KindUnblock + 1 {
		if queues, _ := walk(t, a, kind); !slices.Equal(queues, want[:4]) {
			t.Errorf("%s: %v", kind, queues)
		}
	}
	if self, live := a.Servers(); self != "" || live != nil {
		t.Errorf("%q %q", self, live)
	}
	// A workspace that is paused has no queues.
	f.do(200, &protocol.DebugStart{})
	for kind := range push.KindUnblock + 1 {
		if queues, _ := walk(t, a, kind); len(queues) != 0 {
			t.Errorf("%s: %v", kind, queues)
		}
	}
	f.do(200, &protocol.DebugStop{})
}

// Many queues, and deep ones among them, cost few round trips.
func TestAWalkOverManyQueues(t *testing.T) {
	s := memkv.Open(memkv.Options{Remote: true, Keys: keyspace.Register()})
	t.Cleanup(func() { s.Close() })
	f := fixtureOver(t, s, newManual())
	const queues, deep = 300, 200
	for i := range queues {
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprintf("t%03d", i), TimeoutAt: far, Tags: tags(protocol.TagTarget, fmt.Sprintf("http://h/%03d", i))})
	}
	for i := range deep {
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprintf("u%03d", i), TimeoutAt: far, Tags: tags(protocol.TagTarget, "http://h/100")})
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprintf("v%03d", i), TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")})
	}
	before := s.Stats().ViewTrips
	found, calls := walk(t, f.Addresses(), push.KindExecute)
	if trips := s.Stats().ViewTrips - before; len(found) != queues || calls != 2 || trips > 12 {
		t.Errorf("%d queues in %d calls and %d round trips", len(found), calls, trips)
	}
}
