package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
	"abide/kv/memkv"
	"abide/protocol"
)

// randomRequest is some request on few ids; most of them find something to do.
func randomRequest(f *fixture, workspace string, r *rand.Rand) protocol.Request {
	now := f.Now()
	young := now / 8000 // ids that come and go, or in the end everything would be settled
	id := fmt.Sprintf("p%d", 4*young+r.Int64N(12))
	version := r.Int64N(3)
	if b, ok := f.Do(context.Background(), workspace, &protocol.TaskGet{ID: id}, nil).Body.(protocol.TaskBody); ok && r.IntN(9) > 0 {
		version = b.Task.Version
	}
	create := protocol.PromiseCreate{ID: id, TimeoutAt: now + r.Int64N(20_000) - 500}
	if r.IntN(3) > 0 {
		create.Tags = target
	}
	settle := protocol.PromiseSettle{ID: id, State: protocol.Resolved}
	switch r.IntN(22) {
	case 0, 1, 2:
		return &create
	case 3:
		return &settle
	case 4:
		create.Tags = target
		return &protocol.TaskCreate{PID: "w", TTL: 1 + r.Int64N(3000), Action: create}
	case 5, 6:
		return &protocol.TaskAcquire{ID: id, Version: version, PID: "w", TTL: 1 + r.Int64N(3000)}
	case 7, 16, 17:
		return &protocol.TaskSuspend{ID: id, Version: version, Awaited: []string{fmt.Sprintf("a%d", young+r.Int64N(3))}}
	case 8:
		return &protocol.TaskFulfill{ID: id, Version: version, Action: settle}
	case 9:
		return &protocol.TaskRelease{ID: id, Version: version}
	case 10:
		return &protocol.TaskHalt{ID: id}
	case 11:
		return &protocol.TaskContinue{ID: id}
	case 12:
		return &protocol.TaskHeartbeat{PID: "w"}
	case 13, 18, 19:
		return &protocol.PromiseCreate{ID: fmt.Sprintf("a%d", young+r.Int64N(3)), TimeoutAt: now + r.Int64N(5000)}
	case 20:
		return &protocol.TaskFence{ID: id, Version: version, Create: &protocol.PromiseCreate{ID: fmt.Sprint(id, ".", now), TimeoutAt: now + r.Int64N(5000)}}
	case 14:
		return &protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 1000}
	}
	if r.IntN(10) == 0 {
		return &protocol.DebugReset{}
	}
	return &protocol.ScheduleDelete{ID: "s"}
}

// After any history, in any workspace, with steps, sweeps and compaction in between, the journal leads to the records;
// never does a floor go back.
func TestJournalLeadsToTheRecords(t *testing.T) {
	causes := map[journal.Cause]bool{}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		inner := memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register(), RunTwice: true})
		defer inner.Close()
		clock := newManual()
		e, err := Open(context.Background(), inner, Options{Source: clock, Log: slog.New(slog.DiscardHandler), RetryTimeoutMs: 2000})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{Engine: e, t: t, clock: clock, store: inner}
		if seed%2 == 1 { // the others keep everything
			f.keeping(60_000, 60)
		}
		floors := map[string]kv.EntryPosition{}
		for step := range 2500 {
			workspace := []string{"default", "w"}[r.IntN(2)]
			f.Do(context.Background(), workspace, randomRequest(f, workspace, r), nil)
			clock.advance(time.Duration(r.IntN(60)) * time.Millisecond)
			if step%200 == 0 {
				clock.advance(30 * time.Second)
			}
			if step%5 == 0 {
				f.fireDue()
			}
			if step%11 == 0 {
				if err := f.Sweep(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if step%50 != 0 {
				continue
			}
			f.retainAll()
			for _, w := range []string{"default", "w"} {
				entries, floor := f.retained(w)
				if floor.Compare(floors[w]) < 0 {
					t.Fatalf("seed %d: the floor of %s went from %v to %v", seed, w, floors[w], floor)
				}
				floors[w] = floor
				for _, j := range entries {
					entry, err := keyspace.Entry(j.Record)
					if err != nil || entry.Cause == "" || entry.At == 0 {
						t.Fatalf("seed %d: %+v, %v", seed, entry, err)
					}
					causes[entry.Cause] = true
				}
			}
			checker := store.Checker{Store: inner, Layout: f.layout, NowMs: f.Now(), Report: func(p store.Problem) { t.Errorf("seed %d, step %d: %s", seed, step, p) }}
			if _, err := checker.Replay(context.Background()); err != nil {
				t.Fatal(err)
			}
			if t.Failed() {
				return
			}
		}
		f.check()
		if _, floor := f.retained("default"); (floor != kv.EntryPosition{}) != (seed%2 == 1) {
			t.Errorf("seed %d: the floor is at %v", seed, floor)
		}
	}
	for _, c := range journal.Causes {
		if !causes[c] && c != "" && c != journal.CauseDrain { // only more waiters than one transaction wakes leave any to it
			t.Errorf("nothing was caused by %s", c)
		}
	}
}
