package engine

import (
	"context"
	"testing"
	"time"

	"abide/protocol"
)

// A settlement is one transaction with everything that follows from it: the awaiter that it wakes, that one's execute,
// and the messages to listeners. Between two, a crash would lose what the second one was for.
func TestSettlementIsOneTransaction(t *testing.T) {
	for name, settle := range map[string]func(f *fixture){
		"by request": func(f *fixture) { f.do(200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved}) },
		"by its deadline": func(f *fixture) {
			f.clock.advance(time.Minute)
			steps, _, err := f.Tick(context.Background(), f.Engine.Now())
			if err != nil || len(steps) != 1 {
				f.t.Fatalf("%d steps are due, want the deadline alone; %v", len(steps), err)
			}
			if err := f.Fire(context.Background(), steps[0]); err != nil {
				f.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := newHooked(t)
			f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: f.Now() + 60_000})
			f.do(200, &protocol.PromiseRegisterListener{Awaited: "p", Address: "poll://uni@g/w"})
			f.do(200, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: target}})
			f.do(200, &protocol.TaskSuspend{ID: "t", Version: 1, Awaited: []string{"p"}})
			before := s.updates.Load()
			settle(f)
			if n := s.updates.Load() - before; n != 1 {
				t.Errorf("%d transactions, want one", n)
			}
			if got := f.do(200, &protocol.TaskGet{ID: "t"}).Body.(protocol.TaskBody).Task.State; got != protocol.TaskPending {
				t.Errorf("the awaiter is %s", got)
			}
		})
	}
}
