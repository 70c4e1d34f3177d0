package machine_test

import (
	"errors"
	"fmt"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

// CheckObject knows every property that one object has by itself.
func TestCheckObject(t *testing.T) {
	good := map[string]machine.Object{
		"pending":   {State: protocol.Pending, TimeoutAt: 9},
		"settled":   {State: protocol.Resolved, TimeoutAt: 9, SettledAt: 9},
		"queued":    {State: protocol.Pending, Tags: target, Task: &machine.Task{State: protocol.TaskPending, RetryAt: 5, Queued: true}},
		"waiting":   {State: protocol.Pending, Tags: target, Task: &machine.Task{State: protocol.TaskPending, RetryAt: 5}},
		"acquired":  {State: protocol.Pending, Tags: target, Task: &machine.Task{State: protocol.TaskAcquired, Version: 1, PID: "w", TTL: 1, LeaseAt: 7, ArmedAt: 7}},
		"suspended": {State: protocol.Pending, Tags: target, Task: &machine.Task{State: protocol.TaskSuspended, Version: 1}},
		"halted":    {State: protocol.Pending, Tags: target, Task: &machine.Task{State: protocol.TaskHalted}},
		"fulfilled": {State: protocol.Rejected, TimeoutAt: 9, Tags: target, Task: &machine.Task{State: protocol.TaskFulfilled}},
		"timer":     {State: protocol.Pending, Tags: target.With(protocol.TagTimer, "true")},
	}
	for name, o := range good {
		if err := machine.CheckObject(&o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		from   string
		change func(o *machine.Object)
	}{
		"no state of a promise":      {"pending", func(o *machine.Object) { o.State = "x" }},
		"settled after its deadline": {"settled", func(o *machine.Object) { o.SettledAt = 10 }},
		"a task without a target":    {"pending", func(o *machine.Object) { o.Task = &machine.Task{State: protocol.TaskHalted} }},
		"a target without a task":    {"halted", func(o *machine.Object) { o.Task = nil }},
		"a task of a timer":          {"timer", func(o *machine.Object) { o.Task = &machine.Task{State: protocol.TaskHalted} }},
		"fulfilled, promise pending": {"fulfilled", func(o *machine.Object) { o.State = protocol.Pending }},
		"settled, task not":          {"halted", func(o *machine.Object) { o.State = protocol.Resolved }},
		"no state of a task":         {"halted", func(o *machine.Object) { o.Task.State = "x" }},
		"version below 0":            {"halted", func(o *machine.Object) { o.Task.Version = -1 }},
		"acquired at version 0":      {"acquired", func(o *machine.Object) { o.Task.Version = 0 }},
		"acquired without pid":       {"acquired", func(o *machine.Object) { o.Task.PID = "" }},
		"acquired without ttl":       {"acquired", func(o *machine.Object) { o.Task.TTL = 0 }},
		"acquired without lease":     {"acquired", func(o *machine.Object) { o.Task.LeaseAt = 0 }},
		"acquired without timer":     {"acquired", func(o *machine.Object) { o.Task.ArmedAt = 0 }},
		"armed after its lease":      {"acquired", func(o *machine.Object) { o.Task.ArmedAt = 8 }},
		"acquired with a retry":      {"acquired", func(o *machine.Object) { o.Task.RetryAt = 8 }},
		"acquired and queued":        {"acquired", func(o *machine.Object) { o.Task.Queued = true }},
		"suspended with a pid":       {"suspended", func(o *machine.Object) { o.Task.PID = "w" }},
		"suspended with a retry":     {"suspended", func(o *machine.Object) { o.Task.RetryAt = 1 }},
		"pending without a retry":    {"queued", func(o *machine.Object) { o.Task.RetryAt = 0 }},
		"pending with a lease":       {"queued", func(o *machine.Object) { o.Task.LeaseAt = 1 }},
		"halted and queued":          {"halted", func(o *machine.Object) { o.Task.Queued = true }},
		"fulfilled with a ttl":       {"fulfilled", func(o *machine.Object) { o.Task.TTL = 1 }},
	} {
		o := good[c.from]
		if o.Task != nil {
			task := *o.Task
			o.Task = &task
		}
		c.change(&o)
		if err := machine.CheckObject(&o); !errors.Is(err, machine.ErrInvariant) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What waits must be able to wake, and what sleeps must be able to be woken.
func TestCheckWaiterAndSuspended(t *testing.T) {
	w := machine.Waiter{Awaited: "p", Kind: machine.WaiterCallback, To: "t"}
	pending := &machine.Object{ID: "p", State: protocol.Pending, TimeoutAt: 9, Waited: true}
	unmarked := &machine.Object{ID: "p", State: protocol.Pending, TimeoutAt: 9}
	settled := &machine.Object{ID: "p", State: protocol.Resolved, TimeoutAt: 9, Waited: true}
	for name, c := range map[string]struct {
		awaited  *machine.Object
		draining bool
		ok       bool
	}{
		"pending": {pending, false, true}, "draining": {settled, true, true}, "nobody": {nil, false, false},
		"unmarked": {unmarked, false, false}, "settled": {settled, false, false},
	} {
		if err := machine.CheckWaiter(w, c.awaited, c.draining); (err == nil) != c.ok {
			t.Errorf("a waiter on %s: %v", name, err)
		}
	}
	sleeper := &machine.Object{ID: "t", State: protocol.Pending, TimeoutAt: 9, Tags: target, Task: &machine.Task{State: protocol.TaskSuspended, Version: 1}}
	awake := &machine.Object{ID: "t", State: protocol.Pending, TimeoutAt: 9, Tags: target, Task: &machine.Task{State: protocol.TaskHalted}}
	none := func(string) bool { return false }
	for name, c := range map[string]struct {
		o        *machine.Object
		now      int64
		awaited  []*machine.Object
		draining func(string) bool
		ok       bool
	}{
		"on a pending one":      {sleeper, 1, []*machine.Object{settled, pending}, none, true},
		"on nothing":            {sleeper, 1, nil, none, false},
		"on a settled one":      {sleeper, 1, []*machine.Object{settled}, none, false},
		"on one that drains":    {sleeper, 1, []*machine.Object{settled}, func(id string) bool { return id == "p" }, true},
		"on one that is no one": {sleeper, 1, []*machine.Object{unmarked}, none, false},
		"past its deadline":     {sleeper, 9, nil, none, true},
		"not asleep":            {awake, 1, nil, none, true},
	} {
		if err := machine.CheckSuspended(c.o, c.now, c.awaited, c.draining); (err == nil) != c.ok {
			t.Errorf("suspended %s: %v", name, err)
		}
	}
}

// faulty is a State whose calls fail from a certain one on.
type faulty struct {
	machine.State
	calls, failFrom int
}

var errFaulty = errors.New("the store has failed")

func (f *faulty) fail() error {
	if f.calls++; f.calls >= f.failFrom {
		return errFaulty
	}
	return nil
}

func (f *faulty) Object(id string) (*machine.Object, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.State.Object(id)
}
func (f *faulty) Load(ids []string) error     { return errors.Join(f.fail(), f.State.Load(ids)) }
func (f *faulty) Put(o *machine.Object) error { return errors.Join(f.fail(), f.State.Put(o)) }
func (f *faulty) PutWaiter(w machine.Waiter) error {
	return errors.Join(f.fail(), f.State.PutWaiter(w))
}
func (f *faulty) PutUnblock(u machine.Unblock) error {
	return errors.Join(f.fail(), f.State.PutUnblock(u))
}
func (f *faulty) DeleteWaiter(w machine.Waiter) error {
	return errors.Join(f.fail(), f.State.DeleteWaiter(w))
}
func (f *faulty) SetDraining(id string, d bool) error {
	return errors.Join(f.fail(), f.State.SetDraining(id, d))
}
func (f *faulty) PutSchedule(s *machine.Schedule) error {
	return errors.Join(f.fail(), f.State.PutSchedule(s))
}
func (f *faulty) DeleteSchedule(id string) error {
	return errors.Join(f.fail(), f.State.DeleteSchedule(id))
}
func (f *faulty) Payload(o *machine.Object, p *machine.Payload) (protocol.Value, error) {
	v, err := f.State.Payload(o, p)
	return v, errors.Join(f.fail(), err)
}
func (f *faulty) Waiters(id string, limit int) ([]machine.Waiter, error) {
	v, err := f.State.Waiters(id, limit)
	return v, errors.Join(f.fail(), err)
}
func (f *faulty) Draining(id string) (bool, error) {
	v, err := f.State.Draining(id)
	return v, errors.Join(f.fail(), err)
}
func (f *faulty) Enumerate(p machine.Path, after string, limit int) (machine.Page, error) {
	v, err := f.State.Enumerate(p, after, limit)
	return v, errors.Join(f.fail(), err)
}
func (f *faulty) Schedule(id string) (*machine.Schedule, error) {
	v, err := f.State.Schedule(id)
	return v, errors.Join(f.fail(), err)
}
func (f *faulty) Schedules(after string, limit int) ([]*machine.Schedule, error) {
	v, err := f.State.Schedules(after, limit)
	return v, errors.Join(f.fail(), err)
}
func (f *faulty) SchedulePayload(s *machine.Schedule) (protocol.Value, error) {
	v, err := f.State.SchedulePayload(s)
	return v, errors.Join(f.fail(), err)
}

// errAbort ends a transaction that a test does not want to keep.
var errAbort = errors.New("not to be kept")

// Whichever call of the State fails, the operation fails with that error and answers nothing: an error of the store
// never passes for an answer.
func TestEveryErrorOfTheStateIsPassedOn(t *testing.T) {
	w := newQuickWorld(t)
	big := payload(5000)
	branch := target.With(protocol.TagBranch, "r")
	for _, r := range []protocol.Request{
		&protocol.PromiseCreate{ID: "a", TimeoutAt: far, Param: big, Tags: tags(protocol.TagBranch, "r")},
		&protocol.PromiseCreate{ID: "pending", TimeoutAt: far, Param: big, Tags: branch},
		&protocol.TaskCreate{PID: "w", TTL: 500, Action: protocol.PromiseCreate{ID: "held", TimeoutAt: far, Param: big, Tags: branch}},
		&protocol.TaskCreate{PID: "w", TTL: 500, Action: protocol.PromiseCreate{ID: "asleep", TimeoutAt: far, Tags: branch}},
		&protocol.TaskSuspend{ID: "asleep", Version: 1, Awaited: []string{"a"}},
		&protocol.PromiseRegisterListener{Awaited: "a", Address: "poll://uni@g/w"},
		&protocol.PromiseCreate{ID: "halted", TimeoutAt: far, Tags: branch},
		&protocol.TaskHalt{ID: "halted"},
		&protocol.PromiseCreate{ID: "done", TimeoutAt: 0, Param: big},
		&protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "{{.timestamp}}", PromiseParam: big, PromiseTimeout: 1e9},
	} {
		w.do(200, r)
	}
	settle := protocol.PromiseSettle{ID: "a", State: protocol.Resolved, Value: big}
	requests := []protocol.Request{
		&protocol.PromiseGet{ID: "a"}, &protocol.PromiseCreate{ID: "new", TimeoutAt: far}, &protocol.PromiseCreate{ID: "a", TimeoutAt: far}, &settle,
		&protocol.PromiseRegisterCallback{Awaited: "a", Awaiter: "held"}, &protocol.PromiseRegisterListener{Awaited: "pending", Address: "poll://uni@g/w"},
		&protocol.PromiseSearch{}, &protocol.PromiseSearch{Tags: tags(protocol.TagBranch, "r")}, &protocol.TaskGet{ID: "held"},
		&protocol.TaskCreate{PID: "w", TTL: 1, Action: protocol.PromiseCreate{ID: "newtask", TimeoutAt: far, Tags: branch}},
		&protocol.TaskCreate{PID: "w", TTL: 1, Action: protocol.PromiseCreate{ID: "pending", TimeoutAt: far, Tags: branch}},
		&protocol.TaskAcquire{ID: "pending", Version: 0, PID: "w", TTL: 1}, &protocol.TaskFence{ID: "held", Version: 1, Settle: &settle},
		&protocol.TaskFence{ID: "held", Version: 1, Create: &protocol.PromiseCreate{ID: "new", TimeoutAt: far}},
		&protocol.TaskSuspend{ID: "held", Version: 1, Awaited: []string{"a", "pending"}}, &protocol.TaskSuspend{ID: "held", Version: 1, Awaited: []string{"done"}},
		&protocol.TaskFulfill{ID: "held", Version: 1, Action: protocol.PromiseSettle{ID: "held", State: protocol.Resolved}},
		&protocol.TaskRelease{ID: "held", Version: 1}, &protocol.TaskHalt{ID: "held"}, &protocol.TaskContinue{ID: "halted"}, &protocol.TaskSearch{},
		&protocol.ScheduleGet{ID: "s"}, &protocol.ScheduleCreate{ID: "s2", Cron: "* * * * *", PromiseID: "x"}, &protocol.ScheduleDelete{ID: "s"}, &protocol.ScheduleSearch{},
	}
	try := func(name string, now int64, do func(op *machine.Op) (answered bool, err error)) {
		for n := 1; ; n++ {
			state := &faulty{failFrom: n}
			var answered bool
			var err error
			_, _ = w.store.Update(t.Context(), kv.Hints{}, func(tx kv.Tx) error {
				*state = faulty{State: store.Write(tx, workspace, layout), failFrom: n}
				answered, err = do(&machine.Op{State: state, Now: now, Config: machine.Config{RetryTimeoutMs: 1}})
				return errAbort
			})
			if state.calls < n {
				if err != nil || !answered {
					t.Errorf("%s without any fault: %v", name, err)
				}
				return
			}
			if !errors.Is(err, errFaulty) {
				t.Fatalf("%s: call %d of the state failed, and the operation gave %v", name, n, err)
			}
		}
	}
	for _, r := range requests {
		try(fmt.Sprintf("%s %+v", r.Kind(), r), w.now, func(op *machine.Op) (bool, error) {
			reply, err := op.Apply(r)
			return reply.Status == 200 || reply.Status == 300, err
		})
	}
	const later = int64(1) << 51
	for name, step := range map[string]func(op *machine.Op) error{
		"timeout":   func(op *machine.Op) error { _, err := op.PromiseTimeout("a"); return err },
		"dispatch":  func(op *machine.Op) error { op.Now = 40_000; _, err := op.Dispatch("pending", true); return err },
		"lease":     func(op *machine.Op) error { op.Now = 40_000; _, err := op.LeaseExpiry("held"); return err },
		"delivered": func(op *machine.Op) error { op.Now = 2000; _, err := op.Delivered("pending", 0); return err },
		"schedule":  func(op *machine.Op) error { op.Now = 60_000; _, err := op.RunSchedule("s"); return err },
		"drain":     func(op *machine.Op) error { _, err := op.Drain("a"); return err },
		"renew":     func(op *machine.Op) error { op.Now = 1100; _, err := op.Renew("held", "w", 1); return err },
	} {
		try(name, later, func(op *machine.Op) (bool, error) { return true, step(op) })
	}
	if n := len(w.scan(everything)); n == 0 || w.promise("a").State != protocol.Pending {
		t.Error("something of it was kept")
	}
}

// What is not one operation is not answered as one; and which requests write.
func TestKindsThatAreNotTheMachines(t *testing.T) {
	w := newQuickWorld(t)
	for _, r := range []protocol.Request{&protocol.TaskHeartbeat{PID: "w"}, &protocol.DebugStart{}, &protocol.DebugTick{}} {
		w.update(func(op *machine.Op) error {
			if reply, err := op.Apply(r); err != nil || reply.Status != protocol.StatusUnsupported {
				t.Errorf("%s: %+v, %v", r.Kind(), reply, err)
			}
			return nil
		})
	}
	for kind, writes := range map[protocol.Kind]bool{
		protocol.KindPromiseGet: false, protocol.KindPromiseSearch: false, protocol.KindTaskGet: false, protocol.KindTaskSearch: false,
		protocol.KindScheduleGet: false, protocol.KindScheduleSearch: false, protocol.KindDebugSnap: false,
		protocol.KindPromiseCreate: true, protocol.KindPromiseSettle: true, protocol.KindPromiseRegisterCallback: true,
		protocol.KindPromiseRegisterListener: true, protocol.KindTaskCreate: true, protocol.KindTaskAcquire: true, protocol.KindTaskFence: true,
		protocol.KindTaskSuspend: true, protocol.KindTaskFulfill: true, protocol.KindTaskRelease: true, protocol.KindTaskHalt: true,
		protocol.KindTaskContinue: true, protocol.KindScheduleCreate: true, protocol.KindScheduleDelete: true,
	} {
		if machine.Writes(kind) != writes {
			t.Errorf("%s writes: %t", kind, machine.Writes(kind))
		}
	}
}

// A drain obligation on a promise that is not settled is damage, and is reported as such.
func TestDrainOfAPendingPromise(t *testing.T) {
	w := newQuickWorld(t)
	w.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far})
	for _, id := range []string{"p", "nobody"} {
		_, err := w.store.Update(t.Context(), kv.Hints{}, func(tx kv.Tx) error {
			txn := store.Write(tx, workspace, layout)
			if err := txn.SetDraining(id, true); err != nil {
				return err
			}
			_, err := w.op(txn).Drain(id)
			return err
		})
		if !errors.Is(err, machine.ErrInvariant) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if n := len(w.scan(keyspace.Timers(keyspace.TimerDrain, 0, far))); n != 0 {
		t.Errorf("%d obligations were kept", n)
	}
}
