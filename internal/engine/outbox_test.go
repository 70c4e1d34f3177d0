package engine

import (
	"context"
	"fmt"
	"testing"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/kv/memkv"
	"abide/protocol"
)

// executesFor is one page of a queue.
func executesFor(t *testing.T, o Outbox, d deliver.Destination, after string, limit int) deliver.ExecutePage {
	t.Helper()
	pages, err := o.Executes(context.Background(), []deliver.Ask{{Destination: d, After: after, Limit: limit}})
	if err != nil || len(pages) != 1 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	return pages[0]
}

// unblocksFor is the first page of a queue.
func unblocksFor(t *testing.T, o Outbox, d deliver.Destination) deliver.UnblockPage {
	t.Helper()
	pages, err := o.Unblocks(context.Background(), []deliver.Ask{{Destination: d, Limit: 10}})
	if err != nil || len(pages) != 1 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	return pages[0]
}

// askEach asks for a page of each queue, goes on as the pages say, and returns what came of each and how many calls
// it took.
func askEach(t *testing.T, asks []deliver.Ask, call func([]deliver.Ask) (found []int, next []string)) (total []int, calls int) {
	t.Helper()
	total = make([]int, len(asks))
	index := make([]int, len(asks))
	for i := range index {
		index[i] = i
	}
	for ; len(asks) > 0; calls++ {
		found, next := call(asks)
		if calls > 100 || len(found) == 0 {
			t.Fatalf("%d calls, and the last one answers %d asks", calls+1, len(found))
		}
		var again []deliver.Ask
		var at []int
		for i, a := range asks {
			if i < len(found) {
				total[index[i]] += found[i]
				if a.After = next[i]; a.After == "" {
					continue
				}
			}
			again, at = append(again, a), append(at, index[i])
		}
		asks, index = again, at
	}
	return total, calls
}

// Many queues are read in one call, which costs one round trip for all of them, and one more for what they hold.
func TestQueuesAreReadTogether(t *testing.T) {
	s := memkv.Open(memkv.Options{Remote: true, Keys: keyspace.Register()})
	t.Cleanup(func() { s.Close() })
	f := fixtureOver(t, s, newManual())
	out, ctx := f.Outbox(), context.Background()
	var asks []deliver.Ask
	for i := range 20 {
		group := fmt.Sprintf("g%02d", i)
		asks = append(asks, deliver.Ask{Destination: deliver.Destination{Workspace: "default", Group: group}, Limit: 100})
		for j := range i % 3 * 15 {
			id := fmt.Sprintf("%s.%02d", group, j)
			f.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@"+group)})
			if j == 0 {
				f.do(200, &protocol.PromiseRegisterListener{Awaited: id, Address: "poll://any@" + group})
				f.do(200, &protocol.PromiseSettle{ID: id, State: protocol.Resolved})
			}
		}
	}
	before := s.Stats().ViewTrips
	total, calls := askEach(t, asks, func(asks []deliver.Ask) (found []int, next []string) {
		pages, err := out.Executes(ctx, asks)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range pages {
			for _, x := range p.Executes {
				if x.Address != "poll://any@"+asks[i].Group {
					t.Fatalf("%+v in the queue of %+v", x, asks[i])
				}
			}
			found, next = append(found, len(p.Executes)), append(next, p.Next)
		}
		return found, next
	})
	for i, n := range total {
		if want := max(0, i%3*15-1); n != want {
			t.Errorf("queue %d: %d executes, want %d", i, n, want)
		}
	}
	if trips := s.Stats().ViewTrips - before; calls != 2 || trips > uint64(2*calls) {
		t.Errorf("%d calls with %d round trips for 20 queues that hold 266 messages", calls, trips)
	}
	before = s.Stats().ViewTrips
	total, calls = askEach(t, asks, func(asks []deliver.Ask) (found []int, next []string) {
		pages, err := out.Unblocks(ctx, asks)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range pages {
			for _, u := range p.Unblocks {
				if u.Address != "poll://any@"+asks[i].Group || u.Promise.State != protocol.Resolved {
					t.Fatalf("%+v in the queue of %+v", u, asks[i])
				}
			}
			found, next = append(found, len(p.Unblocks)), append(next, p.Next)
		}
		return found, next
	})
	for i, n := range total {
		if want := min(1, i%3); n != want {
			t.Errorf("queue %d: %d unblocks, want %d", i, n, want)
		}
	}
	if trips := s.Stats().ViewTrips - before; calls != 1 || trips > 2 {
		t.Errorf("%d calls with %d round trips for 20 queues that hold 13 messages", calls, trips)
	}
	f.paused.set("default", true)
	if pages, err := out.Executes(ctx, asks); err != nil || len(pages) != len(asks) || len(pages[1].Executes) != 0 {
		t.Errorf("paused: %d pages, %v", len(pages), err)
	}
}
