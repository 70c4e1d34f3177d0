package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

func (f *fixture) keysOf() keyspace.Keys { return keyspace.For("default", f.layout) }

// armed makes timers that resolve after 100 ms.
func (f *fixture) armed(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		f.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: f.Now() + 100, Tags: tags(protocol.TagTimer, "true")})
	}
}

// stored is the state of a promise as its record has it, not projected.
func (f *fixture) stored(id string) protocol.PromiseState {
	f.t.Helper()
	o, err := keyspace.Object(id, f.raw(f.keysOf().Object(id)))
	if err != nil {
		f.t.Fatal(err)
	}
	return o.State
}

// A row that does not decode is set aside whole and counted; everything else goes on. (I10)
func TestDamagedRowsAreSetAside(t *testing.T) {
	for name, damage := range map[string]func(f *fixture){
		"an object": func(f *fixture) {
			key := f.keysOf().Object("b")
			f.put(key, flip(f.raw(key)))
		},
		"an object cut short": func(f *fixture) {
			key := f.keysOf().Object("b")
			value := f.raw(key)
			f.put(key, value[:len(value)-1])
		},
		"an object that breaks an invariant": func(f *fixture) {
			key := f.keysOf().Object("b")
			o, _ := keyspace.Object("b", f.raw(key))
			o.Task = &machine.Task{State: protocol.TaskHalted}
			f.put(key, keyspace.AppendObject(nil, o))
		},
		"a timer's key": func(f *fixture) {
			for _, row := range f.rows("timer") {
				if timer, _ := keyspace.ParseTimer(row.Key); timer.ID == "b" {
					f.put(row.Key, nil)
					f.put(append(row.Key[:len(row.Key)-1:len(row.Key)-1], 'x', 'y'), row.Value)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.damaged = true
			f.armed("a", "b", "c")
			damage(f)
			f.clock.advance(time.Second)
			f.fireDue()
			if f.stored("a") != protocol.Resolved || f.stored("c") != protocol.Resolved {
				t.Error("the others did not time out")
			}
			rows := f.rows("quarantine")
			if len(rows) != 1 || f.Counts().Quarantined != 1 {
				t.Fatalf("%d rows set aside, counted %d", len(rows), f.Counts().Quarantined)
			}
			row, err := keyspace.ParseQuarantined(rows[0].Value)
			if err != nil || row.Reason == "" || row.FirstSeen != f.Now() || len(row.Value) == 0 {
				t.Errorf("%+v, %v", row, err)
			}
		})
	}
}

// Firing a step again whose entry has been set aside sets nothing aside and counts nothing.
func TestRowsAreSetAsideOnce(t *testing.T) {
	f := newFixture(t)
	f.damaged = true
	f.armed("b")
	key := f.keysOf().Object("b")
	f.put(key, flip(f.raw(key)))
	f.clock.advance(time.Second)
	steps, _, err := f.Tick(context.Background(), f.Now())
	if err != nil || len(steps) != 1 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	for range 3 {
		if err := f.Fire(context.Background(), steps[0]); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.Counts().Quarantined; n != 1 {
		t.Errorf("one row was counted %d times", n)
	}
}

// One damaged waiter, or one waiter whose task is damaged, holds up none of the others, whoever settles.
func TestDamagedWaiterHoldsUpNobody(t *testing.T) {
	for _, settleBy := range []string{"request", "timeout"} {
		for name, damage := range map[string]func(f *fixture){
			"the task": func(f *fixture) {
				key := f.keysOf().Object("w5")
				f.put(key, flip(f.raw(key)))
			},
			"the waiter": func(f *fixture) {
				key := f.keysOf().Waiter(machine.Waiter{Awaited: "p", Kind: machine.WaiterCallback, To: "w5"})
				f.put(key, nil)
				f.put(append(key[:len(key)-1:len(key)-1], 'x', 'y'), keyspace.Marker())
			},
		} {
			t.Run(settleBy+"/"+name, func(t *testing.T) {
				f := newFixture(t)
				f.damaged = true
				f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: f.Now() + 100})
				for i := range 10 {
					id := fmt.Sprint("w", i)
					f.do(200, &protocol.TaskCreate{PID: "w", TTL: 10_000, Action: protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")}})
					f.do(200, &protocol.TaskSuspend{ID: id, Version: 1, Awaited: []string{"p"}})
				}
				damage(f)
				if settleBy == "request" {
					f.do(200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
				} else {
					f.clock.advance(time.Second)
				}
				f.fireDue()
				if f.stored("p") == protocol.Pending {
					t.Error("the promise is not settled")
				}
				for i := range 10 {
					if id := fmt.Sprint("w", i); i != 5 {
						if s := f.do(200, &protocol.TaskGet{ID: id}).Body.(protocol.TaskBody).Task.State; s != protocol.TaskPending {
							t.Errorf("%s is %s", id, s)
						}
					}
				}
				if len(f.rows("quarantine")) != 1 || f.Counts().Quarantined != 1 || len(f.rows("waiter")) != 0 || len(f.rows("drain")) != 0 {
					t.Errorf("set aside %d, counted %d; %d waiters and %d obligations are left", len(f.rows("quarantine")),
						f.Counts().Quarantined, len(f.rows("waiter")), len(f.rows("drain")))
				}
			})
		}
	}
}

// The sweep passes over a damaged record and goes on behind it.
func TestSweepPassesOverDamagedRecords(t *testing.T) {
	f := newFixture(t)
	f.damaged = true
	for i := range 9 {
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprint("p", i), TimeoutAt: f.Now() + 100})
	}
	for _, id := range []string{"p0", "p4", "p8"} {
		key := f.keysOf().Object(id)
		f.put(key, flip(f.raw(key)))
	}
	f.clock.advance(time.Second)
	f.sweepAll()
	for _, i := range []int{1, 2, 3, 5, 6, 7} {
		if s := f.stored(fmt.Sprint("p", i)); s != protocol.RejectedTimedout {
			t.Errorf("p%d is %s", i, s)
		}
	}
	if n := f.Counts().Swept; n != 6 {
		t.Errorf("6 promises were swept, counted %d", n)
	}
}

// A damaged unblock message, entry or record holds up neither the sweep nor the delivery of others.
func TestDamagedUnblocks(t *testing.T) {
	for name, damage := range map[string]func(f *fixture){
		"message": func(f *fixture) {
			key := f.keysOf().Unblock("b", "poll://uni@g/w")
			f.put(key, flip(f.raw(key)))
		},
		"entry": func(f *fixture) {
			for _, row := range f.rows("unblock entry") {
				if u, _ := keyspace.ParseUnblockEntry(row.Key, row.Value); u.ID == "b" {
					f.put(row.Key, flip(row.Value))
				}
			}
		},
		"promise": func(f *fixture) {
			key := f.keysOf().Object("b")
			f.put(key, flip(f.raw(key)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.damaged = true
			for _, id := range []string{"a", "b", "c"} {
				f.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: far})
				f.do(200, &protocol.PromiseRegisterListener{Awaited: id, Address: "poll://uni@g/w"})
				f.do(200, &protocol.PromiseSettle{ID: id, State: protocol.Resolved})
			}
			damage(f)
			refs := []deliver.UnblockRef{{ID: "a", Address: "poll://uni@g/w"}, {ID: "b", Address: "poll://uni@g/w"}, {ID: "c", Address: "poll://uni@g/w"}}
			page := unblocksFor(t, f.Outbox(), deliver.Destination{Workspace: "default", Group: "g", PID: "w"}).Unblocks
			if len(page) != 2 || page[0].ID != "a" || page[1].ID != "c" {
				t.Errorf("%d messages", len(page))
			}
			if hinted, err := f.Outbox().CheckUnblocks(context.Background(), "default", refs); err != nil || len(hinted) < 2 {
				t.Errorf("%d hinted messages, %v", len(hinted), err)
			}
			f.sweepAll()
			f.clock.advance(25 * time.Hour)
			f.sweepAll()
			if n := f.Counts().ExpiredUnblocks; n != 2 && n != 3 {
				t.Errorf("%d messages were given up", n)
			}
			f.sweepAll()
			if n := len(f.rows("unblock entry")); n != 0 {
				t.Errorf("%d entries are left", n)
			}
			if n := len(f.rows("quarantine")); (name == "promise") != (n == 0) || int64(n) != f.Counts().Quarantined {
				t.Errorf("%d rows set aside, counted %d", n, f.Counts().Quarantined)
			}
		})
	}
}

// A request that needs a damaged record says so and changes nothing; others are served.
func TestRequestsOnDamagedRecords(t *testing.T) {
	f := newFixture(t)
	f.damaged = true
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far})
	f.do(200, &protocol.PromiseCreate{ID: "q", TimeoutAt: far})
	key := f.keysOf().Object("p")
	damaged := flip(f.raw(key))
	f.put(key, damaged)
	for _, req := range []protocol.Request{&protocol.PromiseGet{ID: "p"}, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved},
		&protocol.PromiseCreate{ID: "p", TimeoutAt: far}, &protocol.TaskGet{ID: "p"}} {
		f.do(500, req)
	}
	if string(f.raw(key)) != string(damaged) {
		t.Error("the damaged record was changed")
	}
	f.do(200, &protocol.PromiseSettle{ID: "q", State: protocol.Resolved})
}

// An unblock that cannot be delivered expires after a day, and not a message that was queued since.
func TestUnblocksExpire(t *testing.T) {
	f, s := newHooked(t)
	queue := func(id string) {
		f.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: far})
		f.do(200, &protocol.PromiseRegisterListener{Awaited: id, Address: "http://example.com/hook"})
		f.do(200, &protocol.PromiseSettle{ID: id, State: protocol.Resolved})
	}
	queue("old")
	f.clock.advance(23 * time.Hour)
	queue("young")
	f.sweepAll()
	if len(f.rows("unblock")) != 2 {
		t.Fatal("a message was given up before its day was over")
	}
	f.clock.advance(time.Hour)
	f.sweepAll()
	if rows := f.rows("unblock"); len(rows) != 1 || f.Counts().ExpiredUnblocks != 1 || len(f.rows("unblock entry")) != 1 {
		t.Fatalf("%d messages are left, %d given up", len(rows), f.Counts().ExpiredUnblocks)
	}
	// Every background write is conditional on the state that it was decided on. (D6)
	f.clock.advance(24 * time.Hour)
	s.set(func(s *hooked) {
		s.before = func(h kv.Hints) error {
			if h.Background {
				s.set(func(s *hooked) { s.before = nil })
				f.put(f.keysOf().Unblock("young", "http://example.com/hook"), keyspace.AppendInstant(nil, f.Now()))
			}
			return nil
		}
	})
	f.sweepAll()
	if len(f.rows("unblock")) != 1 || f.Counts().ExpiredUnblocks != 1 {
		t.Error("a message was given up that had been queued anew")
	}
}

// The timeout loop acts on what it re-reads: a promise settled between the scan and the write stays as it is. (D1, D6)
func TestStepsActOnWhatTheyReRead(t *testing.T) {
	f := newFixture(t)
	f.armed("p")
	f.do(200, &protocol.TaskCreate{PID: "w", TTL: 50, Action: protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")}})
	steps, _, err := f.Tick(context.Background(), f.Now()+1000)
	if err != nil || len(steps) != 2 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	f.do(200, &protocol.PromiseSettle{ID: "p", State: protocol.Rejected})
	f.do(200, &protocol.TaskRelease{ID: "t", Version: 1})
	f.do(200, &protocol.TaskAcquire{ID: "t", Version: 1, PID: "v", TTL: 60_000})
	f.clock.advance(time.Second)
	for range 2 {
		for _, step := range steps {
			if err := f.Fire(context.Background(), step); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := f.stored("p"); s != protocol.Rejected {
		t.Errorf("p is %s", s)
	}
	if task := f.do(200, &protocol.TaskGet{ID: "t"}).Body.(protocol.TaskBody).Task; task.State != protocol.TaskAcquired || task.PID != "v" {
		t.Errorf("%+v", task)
	}
}
