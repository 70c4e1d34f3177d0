package machine_test

import (
	"fmt"
	"strings"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/protocol"
)

// waiting makes a promise that n suspended tasks and n listeners wait on, each task with a tag of some bytes.
func (w *world) waiting(id string, n, tagBytes int) {
	w.t.Helper()
	w.create(protocol.PromiseCreate{ID: id, TimeoutAt: w.now + 5000})
	for i := range n {
		task := fmt.Sprintf("w%04d", i)
		w.update(func(op *machine.Op) error {
			for _, req := range []protocol.Request{
				&protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: task, TimeoutAt: far,
					Tags: target.With(protocol.TagScope, strings.Repeat("x", tagBytes))}},
				&protocol.TaskSuspend{ID: task, Version: 1, Awaited: []string{id}},
				&protocol.PromiseRegisterListener{Awaited: id, Address: fmt.Sprintf("poll://uni@g/%d", i)},
			} {
				reply, err := op.Apply(req)
				if err != nil {
					return err
				}
				if reply.Status != 200 {
					return fmt.Errorf("%s: %d %s", req.Kind(), reply.Status, reply.Message)
				}
			}
			return nil
		})
	}
	w.check()
}

// count is how many lines of the dump begin with a prefix.
func (w *world) count(prefix string) (n int) {
	w.t.Helper()
	for _, line := range w.dump() {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// A settlement with more waiters than one transaction may drain leaves a durable obligation, which bounded steps
// work off; every awaiter is resumed once and every listener told once.
func TestDrainInBoundedSteps(t *testing.T) {
	for _, byTimeout := range []bool{false, true} {
		w := newQuickWorld(t)
		w.waiting("p", 400, 1)
		if byTimeout {
			w.now += 5000
			if did, _ := w.fire(timer{kind: keyspace.TimerPromise, id: "p"}); !did {
				t.Fatal("the timeout did nothing")
			}
		} else {
			w.do(200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
		}
		if w.count("callback ")+w.count("listener ") != 800-256 || w.count("drain") != 1 || w.count("timer    drain p @0") != 1 {
			t.Fatalf("after the settlement: %d callbacks, %d listeners, %d obligations", w.count("callback "), w.count("listener "), w.count("drain"))
		}
		// What the drain has not reached yet can be touched meanwhile; one of them ends by itself.
		w.do(200, &protocol.TaskHalt{ID: "w0399"})
		w.do(200, &protocol.PromiseSettle{ID: "w0398", State: protocol.Rejected})
		steps := 1
		for {
			_, more := w.fire(timer{kind: keyspace.TimerDrain, id: "p"})
			steps++
			if !more {
				break
			}
		}
		if steps != 4 {
			t.Errorf("800 waiters took %d bounded steps", steps)
		}
		if w.count("callback ")+w.count("listener ")+w.count("drain")+w.count("timer    drain") != 0 {
			t.Error("something is left to drain")
		}
		if n := w.count("unblock "); n != 400 {
			t.Errorf("%d unblock messages for 400 listeners", n)
		}
		if n := w.count("execute "); n != 398 {
			t.Errorf("%d tasks dispatched, want all but the halted and the settled one", n)
		}
		for i := range 400 {
			task := w.task(fmt.Sprintf("w%04d", i))
			want := protocol.Task{ID: task.ID, State: protocol.TaskPending, Version: 1, Resumes: 1}
			switch i {
			case 399:
				want.State = protocol.TaskHalted
			case 398:
				want.State, want.Resumes = protocol.TaskFulfilled, 0
			}
			if task != want {
				t.Fatalf("%+v, want %+v", task, want)
			}
		}
		// Fired once more: nothing.
		if _, more := w.fire(timer{kind: keyspace.TimerDrain, id: "p"}); more {
			t.Error("a stale firing found something to drain")
		}
	}
}

// Few waiters with large records end a step as well.
func TestDrainIsBoundedByBytes(t *testing.T) {
	w := newQuickWorld(t)
	w.waiting("p", 100, 30_000)
	w.do(200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
	left := w.count("callback ")
	if left == 0 || left == 100 || w.count("drain") != 1 {
		t.Fatalf("100 awaiters of 30 KB: %d are left after the settlement", left)
	}
	for more := true; more; {
		_, more = w.fire(timer{kind: keyspace.TimerDrain, id: "p"})
	}
	if w.count("execute ") != 100 || w.count("unblock ") != 100 {
		t.Errorf("%d tasks dispatched, %d listeners told", w.count("execute "), w.count("unblock "))
	}
}

// The largest suspend there is fits one transaction: every awaited promise is read, marked, armed and given a
// callback.
func TestSuspendOnAsManyAsAllowed(t *testing.T) {
	w := newQuickWorld(t)
	var promises []protocol.PromiseCreate
	var awaited []string
	for i := range protocol.MaxSuspendActions {
		id := fmt.Sprintf("p%04d", i)
		promises = append(promises, protocol.PromiseCreate{ID: id, TimeoutAt: far})
		awaited = append(awaited, id)
	}
	w.create(promises...)
	w.do(200, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: target}})
	w.do(200, &protocol.TaskSuspend{ID: "t", Version: 1, Awaited: awaited})
	if n := w.count("callback "); n != protocol.MaxSuspendActions {
		t.Errorf("%d callbacks", n)
	}
}

// The longest ids, addresses and pids there are fit every key, and the signals of a commit.
func TestLongestNames(t *testing.T) {
	w := newWorld(t)
	id := func(c string) string { return strings.Repeat(c, protocol.MaxIDBytes) }
	long := "poll://any@" + strings.Repeat("g", protocol.MaxAddressBytes-len("poll://any@"))
	unicast := "poll://uni@g/" + strings.Repeat("i", protocol.MaxAddressBytes-len("poll://uni@g/"))
	web := "http://example.com/" + strings.Repeat("h", protocol.MaxAddressBytes-len("http://example.com/"))
	pid := strings.Repeat("p", protocol.MaxPIDBytes)
	for i, address := range []string{long, unicast, web} {
		name := id(string(rune('a' + i)))
		w.do(200, &protocol.PromiseCreate{ID: name, TimeoutAt: far, Tags: tags(protocol.TagTarget, address)})
		w.do(200, &protocol.TaskAcquire{ID: name, Version: 0, PID: pid, TTL: 1000})
		w.do(200, &protocol.PromiseCreate{ID: id("x"), TimeoutAt: far})
		w.do(200, &protocol.PromiseRegisterListener{Awaited: id("x"), Address: address})
		w.do(200, &protocol.TaskSuspend{ID: name, Version: 1, Awaited: []string{id("x")}})
	}
	w.do(200, &protocol.PromiseSettle{ID: id("x"), State: protocol.Resolved, Value: payload(200_000)})
	w.do(200, &protocol.TaskHeartbeat{PID: pid})
	w.do(200, &protocol.ScheduleCreate{ID: id("s"), Cron: "* * * * *", PromiseID: id("t"), PromiseParam: payload(100_000)})
	w.now = 60_000
	w.pass()
	if w.count("execute ") != 3 || w.count("unblock ") != 3 {
		t.Errorf("%d executes and %d unblocks", w.count("execute "), w.count("unblock "))
	}
}

// An occurrence's id is bounded when the schedule is made, not when it fires.
func TestScheduleWhoseIDsGetTooLong(t *testing.T) {
	w := newWorld(t)
	create := func(status int, id, template string) {
		t.Helper()
		w.do(status, &protocol.ScheduleCreate{ID: id, Cron: "* * * * *", PromiseID: template, PromiseTimeout: 1})
	}
	id := strings.Repeat("s", 500)
	create(400, id, "{{.id}}{{.id}}"+strings.Repeat("x", 25))
	create(200, id, "{{.id}}{{.id}}"+strings.Repeat("x", 24))
	create(400, "a", "{{.timestamp}}"+strings.Repeat("x", protocol.MaxIDBytes-13+1))
	create(200, "a", "{{.timestamp}}"+strings.Repeat("x", protocol.MaxIDBytes-13))
	// A schedule's id that looks like a template is expanded with it, once.
	create(200, "b{{.timestamp}}", "{{.id}}")
	w.now = 60_000
	w.pass()
	if p := w.promise("b60000"); p.CreatedAt != 60_000 {
		t.Errorf("%+v", p)
	}
}

// Missed occurrences are caught up in order, a bounded number in one step, and none twice. (A13, A15)
func TestScheduleCatchUp(t *testing.T) {
	w := newQuickWorld(t)
	for i := range 10 {
		for range 3 { // made again: one row
			w.do(200, &protocol.ScheduleCreate{ID: fmt.Sprint("s", i), Cron: "* * * * *", PromiseID: "{{.id}}.{{.timestamp}}", PromiseTimeout: 1e12})
		}
	}
	if n := w.count("timer    schedule "); n != 10 {
		t.Fatalf("%d timers for 10 schedules", n)
	}
	w.now = 60_000
	w.pass()
	if n := w.count("promise "); n != 10 {
		t.Errorf("10 schedules with one cron made %d promises in one tick", n)
	}
	w.now = 200 * 60_000
	steps := 0
	for more := true; more; steps++ {
		before := w.count("promise  s0.")
		_, more = w.fire(timer{kind: keyspace.TimerSchedule, id: "s0"})
		if made := w.count("promise  s0.") - before; made > 64 || made == 0 {
			t.Fatalf("one step made %d promises", made)
		}
		latest := w.do(200, &protocol.ScheduleGet{ID: "s0"}).Body.(protocol.ScheduleBody).Schedule.LastRunAt
		if n := w.count("promise  s0."); int64(n) != latest/60_000 {
			t.Fatalf("%d promises up to the run at %d: not in order, or not each once", n, latest)
		}
	}
	if n := w.count("promise  s0."); n != 200 || steps != 4 {
		t.Errorf("200 minutes made %d promises in %d steps", n, steps)
	}
}

// A large promiseParam lives outside the schedule's record, reaches every occurrence whole and goes with the
// schedule; large occurrences end a step by their bytes.
func TestScheduleWithLargeParam(t *testing.T) {
	w := newQuickWorld(t)
	param := payload(400_000)
	s := &protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 1e12, PromiseParam: param}
	created := w.do(200, s).Body.(protocol.ScheduleBody).Schedule
	got := w.do(200, &protocol.ScheduleGet{ID: "s"}).Body.(protocol.ScheduleBody).Schedule
	if string(created.PromiseParam) != string(param) || string(got.PromiseParam) != string(param) {
		t.Fatal("the param did not come back whole")
	}
	w.now = 10 * 60_000
	_, more := w.fire(timer{kind: keyspace.TimerSchedule, id: "s"})
	if n := w.count("promise "); !more || n == 0 || n == 10 {
		t.Errorf("one step made %d promises of 400 KB", n)
	}
	for more {
		_, more = w.fire(timer{kind: keyspace.TimerSchedule, id: "s"})
	}
	for i := 1; i <= 10; i++ {
		if p := w.promise(fmt.Sprintf("s.%d", i*60_000)); string(p.Param) != string(param) {
			t.Fatalf("%s has another param", p.ID)
		}
	}
	w.do(200, &protocol.ScheduleDelete{ID: "s"})
	w.do(404, &protocol.ScheduleGet{ID: "s"})
	w.do(200, s)
}

// A preload is bounded in count and in bytes, more tightly for a fence than for a claim.
func TestPreloadBounds(t *testing.T) {
	w := newQuickWorld(t)
	branch := target.With(protocol.TagBranch, "r")
	promises := []protocol.PromiseCreate{{ID: "r", TimeoutAt: far, Tags: branch}}
	for i := range 1100 {
		promises = append(promises, protocol.PromiseCreate{ID: fmt.Sprintf("r.%04d", i), TimeoutAt: far, Tags: tags(protocol.TagBranch, "r")})
	}
	w.create(promises...)
	claim := w.do(200, &protocol.TaskAcquire{ID: "r", Version: 0, PID: "w", TTL: 1000}).Body.(protocol.ClaimBody)
	if n := len(claim.Preload); n != 1000 || claim.Preload[0].ID != "r.0000" {
		t.Errorf("a claim's preload holds %d promises", n)
	}
	fence := w.do(200, &protocol.TaskFence{ID: "r", Version: 1, Settle: &protocol.PromiseSettle{ID: "r.0003", State: protocol.Resolved}}).Body.(protocol.FenceBody)
	if n := len(fence.Preload); n != 64 || fence.Preload[3].State != protocol.Resolved {
		t.Errorf("a fence's preload holds %d promises", n)
	}
	// Large ones: a few.
	big := target.With(protocol.TagBranch, "b")
	promises = []protocol.PromiseCreate{{ID: "b", TimeoutAt: far, Tags: big}}
	for i := range 20 {
		promises = append(promises, protocol.PromiseCreate{ID: fmt.Sprintf("b.%02d", i), TimeoutAt: far, Tags: tags(protocol.TagBranch, "b"), Param: payload(100_000)})
	}
	for i := range promises {
		w.do(200, &promises[i])
	}
	claim = w.do(200, &protocol.TaskAcquire{ID: "b", Version: 0, PID: "w", TTL: 1000}).Body.(protocol.ClaimBody)
	if n := len(claim.Preload); n == 0 || n > 10 {
		t.Errorf("a claim's preload holds %d promises of 100 KB", n)
	}
	fence = w.do(200, &protocol.TaskFence{ID: "b", Version: 1, Settle: &protocol.PromiseSettle{ID: "none", State: protocol.Resolved}}).Body.(protocol.FenceBody)
	if n := len(fence.Preload); n != 0 {
		t.Errorf("a fence's preload holds %d promises of 100 KB", n)
	}
}

// The largest payloads come back whole from every request that shows them, and a claim never rewrites them.
func TestLargePayloads(t *testing.T) {
	w := newWorld(t)
	for _, size := range []int{0, 1, keyspace.InlineBytes - 11, keyspace.InlineBytes - 10, 60 << 10, 61 << 10, 2 << 20} {
		id := fmt.Sprint("p", size)
		param := payload(size)
		created := w.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: far, Param: param, Tags: target}).Body.(protocol.PromiseBody)
		claim := w.do(200, &protocol.TaskAcquire{ID: id, Version: 0, PID: "w", TTL: 1000}).Body.(protocol.ClaimBody)
		done := w.do(200, &protocol.TaskFulfill{ID: id, Version: 1, Action: protocol.PromiseSettle{ID: id, State: protocol.Resolved, Value: param}}).Body.(protocol.PromiseBody)
		got := w.promise(id)
		for _, v := range []protocol.Value{created.Promise.Param, claim.Promise.Param, done.Promise.Param, done.Promise.Value, got.Param, got.Value} {
			if string(v) != string(param) {
				t.Fatalf("a payload of %d bytes came back with %d", len(param), len(v))
			}
		}
	}
}

// Ids are opaque: any character but NUL, compared byte by byte, in both dialects of child ids. (I1)
func TestHostileIDs(t *testing.T) {
	w := newWorld(t)
	ids := []string{"a/b", "a%2Fb", "a b", "a?b#c", "é", "e\u0301", "😀", "..", ".", ":", "a\nb", "a\tb", "\x01", "'", `"`, `\`, "{{.id}}",
		"a.", "a:", ".a", ":a", "a.b", "a:b", "A.B", "a..b", strings.Repeat("k", protocol.MaxIDBytes)}
	for _, id := range ids {
		w.do(200, &protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: target.With("k", id).With(protocol.TagOrigin, id).With(protocol.TagBranch, id)})
	}
	for _, id := range ids {
		if p := w.promise(id); p.ID != id {
			t.Errorf("%q came back as %q", id, p.ID)
		}
		w.do(200, &protocol.TaskAcquire{ID: id, Version: 0, PID: id, TTL: 1000})
		for _, tag := range []string{"k", protocol.TagOrigin, protocol.TagBranch} {
			if got := w.ids(protocol.PromiseSearch{Tags: tags(tag, id), Limit: 10}); len(got) != 1 || got[0] != id {
				t.Errorf("%q by its %s: %q", id, tag, got)
			}
		}
	}
	if n := len(w.ids(protocol.PromiseSearch{Limit: 3})); n != len(ids) {
		t.Errorf("%d of %d are listed", n, len(ids))
	}
}
