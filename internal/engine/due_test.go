package engine

import (
	"context"
	"testing"

	"abide/protocol"
)

// The loop sleeps until the earliest timer, whichever kind it is of.
func TestNextDueIsTheEarliestOfAllKinds(t *testing.T) {
	f := newFixture(t)
	expect := func(what string, want int64) {
		t.Helper()
		if at, ok, err := f.NextDue(context.Background()); err != nil || !ok || at != want {
			t.Errorf("%s: %d, armed %t, %v; want %d", what, at, ok, err, want)
		}
	}
	if at, ok, err := f.NextDue(context.Background()); err != nil || ok {
		t.Errorf("nothing is armed: %d, %v", at, err)
	}
	now := f.Now()
	f.do(200, &protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 1})
	minute := (now/60_000 + 1) * 60_000
	expect("a schedule alone", minute)
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: tags(protocol.TagTimer, "true")})
	expect("a deadline later than the schedule", minute)
	f.do(200, &protocol.TaskCreate{PID: "w", TTL: 100, Action: protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: target}})
	expect("a lease before both", now+100)
	f.do(200, &protocol.PromiseCreate{ID: "q", TimeoutAt: now + 50, Tags: tags(protocol.TagTimer, "true")})
	expect("a deadline before the lease", now+50)
	f.do(200, &protocol.PromiseCreate{ID: "d", TimeoutAt: far, Tags: target.With(protocol.TagDelay, "1000020")})
	expect("a delayed task before all", 1_000_020)
}
