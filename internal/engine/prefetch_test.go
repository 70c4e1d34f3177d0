package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"abide/internal/cluster"
	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/kv/memkv"
	"abide/protocol"
)

// What an operation reads is fetched with the begin of its transaction: the round trips before the commit are one,
// and one more for each read that nothing in the request tells of.
func TestReadsAreForeseen(t *testing.T) {
	s := memkv.Open(memkv.Options{Remote: true, Keys: keyspace.Register()})
	t.Cleanup(func() { s.Close() })
	f := fixtureOver(t, s, newManual())
	f.do(200, &protocol.PromiseCreate{ID: "warm", TimeoutAt: far}) // makes the workspace and a ceiling
	call := func(branch string) protocol.Tags {
		return tags(protocol.TagTarget, "poll://any@g", protocol.TagBranch, branch)
	}
	settle := func(id string) protocol.PromiseSettle {
		return protocol.PromiseSettle{ID: id, State: protocol.Resolved}
	}
	whole, settleWhole := settle("whole"), settle("whole.1")
	settleWhole.Value = protocol.Value(`{"data":"` + strings.Repeat("x", 5000) + `"}`)
	for _, step := range []struct {
		req   protocol.Request
		trips uint64
	}{
		{&protocol.PromiseCreate{ID: "whole", TimeoutAt: far, Tags: call("whole")}, 1},
		{&protocol.PromiseCreate{ID: "whole", TimeoutAt: far, Tags: call("whole")}, 1},
		{&protocol.TaskAcquire{ID: "whole", PID: "w", TTL: 60_000}, 1},
		{&protocol.TaskFence{ID: "whole", Version: 1, Create: &protocol.PromiseCreate{ID: "whole.1", TimeoutAt: far, Tags: call("whole.1")}}, 1},
		{&protocol.TaskFence{ID: "whole", Version: 1, Create: &protocol.PromiseCreate{ID: "whole.2", TimeoutAt: far, Tags: tags(protocol.TagBranch, "whole")}}, 1},
		{&protocol.TaskSuspend{ID: "whole", Version: 1, Awaited: []string{"whole.1", "whole.2"}}, 1},
		{&protocol.PromiseRegisterListener{Awaited: "whole.1", Address: "poll://any@h"}, 1},
		{&settleWhole, 1}, // wakes its caller, whose id it lies under
		// The branch's index names objects that only it tells of.
		{&protocol.TaskAcquire{ID: "whole", Version: 1, PID: "w", TTL: 60_000}, 2},
		{&protocol.TaskFence{ID: "whole", Version: 2, Settle: &protocol.PromiseSettle{ID: "whole.2", State: protocol.Rejected}}, 1},
		{&protocol.PromiseCreate{ID: "other", TimeoutAt: far, Tags: call("other")}, 1},
		{&protocol.PromiseRegisterCallback{Awaited: "whole", Awaiter: "other"}, 1},
		{&protocol.TaskFulfill{ID: "whole", Version: 2, Action: whole}, 2}, // wakes somebody else
		{&protocol.TaskCreate{PID: "w", TTL: 60_000, Action: protocol.PromiseCreate{ID: "made", TimeoutAt: far, Tags: call("made")}}, 1},
		{&protocol.TaskRelease{ID: "made", Version: 1}, 1},
		{&protocol.TaskHalt{ID: "made"}, 1},
		{&protocol.TaskContinue{ID: "made"}, 1},
		{&protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "p", PromiseTimeout: 1000}, 1},
		{&protocol.ScheduleDelete{ID: "s"}, 1},
	} {
		before := s.Stats()
		f.do(200, step.req)
		if n := s.Stats().Trips - before.Trips; n != step.trips {
			t.Errorf("%s of %+v: %d round trips before the commit, want %d", step.req.Kind(), step.req, n, step.trips)
		}
	}
	f.do(200, &protocol.PromiseCreate{ID: "late", TimeoutAt: f.Now() + 1000, Tags: tags(protocol.TagTimer, "true")})
	f.do(200, &protocol.PromiseRegisterListener{Awaited: "late", Address: "poll://any@h"})
	f.clock.advance(2 * time.Second)
	before := s.Stats()
	f.fireDue()
	// One raises the clock's ceiling.
	if after := s.Stats(); after.Trips-before.Trips > after.Closures-before.Closures+1 {
		t.Errorf("timers: %d round trips for %d transactions", after.Trips-before.Trips, after.Closures-before.Closures)
	}
}

// What loops look at again and again is one round trip.
func TestLooksAreOneRoundTrip(t *testing.T) {
	s := memkv.Open(memkv.Options{Remote: true, Keys: keyspace.Register()})
	t.Cleanup(func() { s.Close() })
	f := fixtureOver(t, s, newManual())
	f.members.observer = cluster.NewObserver(f.opt.ServerID)
	ctx := context.Background()
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: tags(protocol.TagTimer, "true")})
	seats := []deliver.Seat{{Workspace: "default", Group: "g", PID: "a"}, {Workspace: "default", Group: "g", PID: "b"}, {Workspace: "w", Group: "g", PID: "c"}}
	for _, look := range []struct {
		name          string
		reads, writes uint64
		run           func() error
	}{
		{"the next timer", 1, 0, func() error {
			_, ok, err := f.NextDue(ctx)
			if !ok {
				t.Error("no timer")
			}
			return err
		}},
		{"the other servers", 1, 0, func() error { return f.lookAround(ctx) }},
		{"new connections", 0, 1, func() error { _, err := Roster{f.Engine}.Record(ctx, seats, nil, nil); return err }},
		{"ended connections", 0, 1, func() error { _, err := Roster{f.Engine}.Record(ctx, nil, nil, seats); return err }},
	} {
		before := s.Stats()
		if err := look.run(); err != nil {
			t.Fatal(look.name, err)
		}
		after := s.Stats()
		if r, w := after.ViewTrips-before.ViewTrips, after.Trips-before.Trips; r != look.reads || w != look.writes {
			t.Errorf("%s: %d round trips of snapshots and %d of transactions, want %d and %d", look.name, r, w, look.reads, look.writes)
		}
	}
}
