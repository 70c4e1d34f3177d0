package push_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"abide/internal/engine"
	"abide/internal/keyspace"
	"abide/internal/push"
	"abide/kv/memkv"
	"abide/protocol"
)

// receiver counts what it is sent, by message. Its lanes are the hosts.
type receiver struct {
	mu  sync.Mutex
	got map[string]int
}

func (r *receiver) Lane(_ protocol.Address, text string) (string, error) {
	return text[:len("http://h00")], nil
}
func (r *receiver) Concurrency(string) int      { return 8 }
func (r *receiver) Close(context.Context) error { return nil }

func (r *receiver) Send(_ context.Context, m push.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Promise != nil {
		r.got["unblock "+m.Promise.ID]++
	} else {
		r.got["execute "+m.Task.ID]++
	}
	return nil
}

func (r *receiver) count() (messages, repeats int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.got {
		messages, repeats = messages+1, repeats+n-1
	}
	return messages, repeats
}

// node is a server: an engine and its pusher.
type node struct {
	engine *engine.Engine
	pusher *push.Pusher
	to     *receiver
}

func join(t *testing.T, disk *memkv.Store, id string) *node {
	t.Helper()
	n := &node{to: &receiver{got: map[string]int{}}}
	var err error
	if n.engine, err = engine.Open(t.Context(), disk.Handle(), engine.Options{ServerID: id, Shared: true}); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	n.pusher = push.New(push.Options{
		Outbox: n.engine.Addresses(), Transports: []push.Served{{Name: "http", Schemes: []string{"http"}, Transport: n.to}},
		ServerURL: func(string) string { return "http://" + id }, NowMs: func() int64 { return time.Since(started).Milliseconds() },
	})
	n.engine.Start(n.pusher)
	return n
}

func (n *node) stop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.pusher.Stop(ctx, ctx); err != nil {
		t.Error(err)
	}
	if err := n.engine.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// Two servers on one store share the hosts; whichever takes a request, each message is sent, and as good as none twice. When
// one leaves the other sends what was its own.
func TestTwoServers(t *testing.T) {
	var shares string
	for range 8 { // a server that a busy machine holds up for a while may do as if it were alone
		var fair bool
		if fair, shares = twoServers(t); fair {
			return
		}
	}
	t.Errorf("every time: %s", shares)
}

func twoServers(t *testing.T) (fair bool, shares string) {
	t.Helper()
	disk := memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register(), Now: time.Now})
	defer disk.Close()
	a, b := join(t, disk, "a"), join(t, disk, "b")
	for _, n := range []*node{a, b} { // until they know of each other, both serve all
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if _, live := n.engine.Addresses().Servers(); len(live) == 2 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("they do not see each other")
			}
		}
	}
	time.Sleep(300 * time.Millisecond) // a poll interval, in which push has heard of it
	made := 0
	create := func(n *node, many int) {
		for range many {
			made++
			address := fmt.Sprintf("http://h%02d/%d", made%12, made%3)
			id := fmt.Sprint("t", made)
			for _, r := range []protocol.Request{
				&protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, address)},
				&protocol.PromiseCreate{ID: "p" + id, TimeoutAt: 1 << 50}, &protocol.PromiseRegisterListener{Awaited: "p" + id, Address: address},
				&protocol.PromiseSettle{ID: "p" + id, State: protocol.Resolved},
			} {
				if reply := n.engine.Do(t.Context(), "default", r, nil); reply.Status != 200 {
					t.Fatalf("%s: %d %s", r.Kind(), reply.Status, reply.Message)
				}
			}
		}
	}
	await := func(nodes ...*node) (repeats int) {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			seen := map[string]bool{}
			repeats = 0
			for _, n := range nodes {
				n.to.mu.Lock()
				for what, times := range n.to.got {
					if repeats += times - 1; seen[what] {
						repeats++
					}
					seen[what] = true
				}
				n.to.mu.Unlock()
			}
			if len(seen) == 2*made {
				return repeats
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d messages", len(seen), 2*made)
			}
		}
	}
	create(a, 60)
	create(b, 60)
	repeats := await(a, b)
	byA, _ := a.to.count()
	byB, _ := b.to.count()
	fair = byA >= made/4 && byB >= made/4 && repeats <= made/10
	shares = fmt.Sprintf("%d by one, %d by the other, %d repeated", byA, byB, repeats)
	b.stop(t)
	create(a, 30)
	await(a, b)
	a.stop(t)
	return fair, shares
}
