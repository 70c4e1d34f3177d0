package engine

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

var target = tags(protocol.TagTarget, "poll://any@g")

// at performs a request at a debug time in a workspace.
func (f *fixture) at(workspace string, ms int64, want int, req protocol.Request) protocol.Reply {
	f.t.Helper()
	reply := f.Do(context.Background(), workspace, req, &ms)
	if reply.Status != want {
		f.t.Fatalf("%s at %d: status %d (%s), want %d", req.Kind(), ms, reply.Status, reply.Message, want)
	}
	return reply
}

// tick is debug.tick.
func (f *fixture) tick(workspace string, ms int64) {
	f.t.Helper()
	if body := f.in(workspace, 200, &protocol.DebugTick{Time: ms}).Body; string(body.AppendJSON(nil)) != "[]" {
		f.t.Fatalf("debug.tick answered %s", body.AppendJSON(nil))
	}
}

func (f *fixture) snapAt(workspace string, ms int64) protocol.SnapBody {
	f.t.Helper()
	return f.at(workspace, ms, 200, &protocol.DebugSnap{}).Body.(protocol.SnapBody)
}

// A debug time replaces the clock, however far below it. An earlier one than the workspace's largest is raised to
// that; only requests raise it, reads too, each workspace for itself; it is no ceiling; debug.reset clears it.
func TestDebugTime(t *testing.T) {
	f, s := newHooked(t)
	f.do(200, &protocol.PromiseCreate{ID: "real", TimeoutAt: far})
	ceilings := s.ceilings.Load()
	created := promiseOf(f.at("w", 5000, 200, &protocol.PromiseCreate{ID: "p", TimeoutAt: 6000}))
	if created.CreatedAt != 5000 {
		t.Errorf("%+v", created)
	}
	if p := promiseOf(f.at("w", 6000, 200, &protocol.PromiseGet{ID: "p"})); p.State != protocol.RejectedTimedout {
		t.Errorf("at its deadline: %+v", p)
	}
	if p := promiseOf(f.at("w", 5500, 200, &protocol.PromiseGet{ID: "p"})); p.State != protocol.RejectedTimedout {
		t.Errorf("an earlier instant than one that was served: %+v", p)
	}
	if p := promiseOf(f.at("w", 1, 200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved})); p.State != protocol.RejectedTimedout {
		t.Errorf("settled before its deadline after it had been past it: %+v", p)
	}
	// Searches and snapshots raise it too.
	f.at("w", 7000, 200, &protocol.PromiseSearch{})
	if p := promiseOf(f.at("w", 2, 200, &protocol.PromiseCreate{ID: "q", TimeoutAt: far})); p.CreatedAt != 7000 {
		t.Errorf("after a search at 7000: %+v", p)
	}
	f.at("w", 8000, 200, &protocol.DebugSnap{})
	f.tick("w", 9000)
	f.at("w", 9500, 200, &protocol.TaskHeartbeat{PID: "w"})
	if p := promiseOf(f.at("w", 2, 200, &protocol.PromiseCreate{ID: "r", TimeoutAt: far})); p.CreatedAt != 9500 {
		t.Errorf("after a snapshot, a tick and a heartbeat: %+v", p)
	}
	// Real requests and other workspaces do not see it, nor does it see them.
	if p := promiseOf(f.in("w", 200, &protocol.PromiseCreate{ID: "s", TimeoutAt: far})); p.CreatedAt != f.Now() {
		t.Errorf("without a debug time: %+v", p)
	}
	if p := promiseOf(f.at("w", 9600, 200, &protocol.PromiseCreate{ID: "t", TimeoutAt: far})); p.CreatedAt != 9600 {
		t.Errorf("after a real request: %+v", p)
	}
	if p := promiseOf(f.at("x", 3, 200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far})); p.CreatedAt != 3 {
		t.Errorf("in another workspace: %+v", p)
	}
	if s.ceilings.Load() != ceilings {
		t.Error("a debug time raised the server's ceiling")
	}
	f.in("w", 200, &protocol.DebugReset{})
	if p := promiseOf(f.at("w", 4, 200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far})); p.CreatedAt != 4 {
		t.Errorf("after a reset: %+v", p)
	}
}

// A tick runs exactly one pass, in order: open drains whole, promise timeouts each with its whole drain, dispatches
// (queued ones too), lease expiries, schedules with all due occurrences. Each stage sees the effects of the earlier
// ones; what becomes due because of the pass waits for the next.
func TestTickIsOnePass(t *testing.T) {
	f, _ := newHooked(t)
	do := func(ms int64, req protocol.Request) { f.at("w", ms, 200, req) }
	for _, id := range []string{"drained", "ending"} {
		do(1000, &protocol.PromiseCreate{ID: id, TimeoutAt: 50_000})
		for i := range 600 {
			do(1000, &protocol.PromiseRegisterListener{Awaited: id, Address: fmt.Sprintf("poll://uni@g/%s%d", id, i)})
		}
	}
	do(1000, &protocol.PromiseSettle{ID: "drained", State: protocol.Resolved}) // leaves an obligation
	do(1000, &protocol.PromiseCreate{ID: "queued", TimeoutAt: far, Tags: target})
	do(1000, &protocol.PromiseCreate{ID: "delayed", TimeoutAt: far, Tags: target.With(protocol.TagDelay, "40000")})
	do(1000, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: "leased", TimeoutAt: far, Tags: target}})
	// Its lease and its deadline are both past: the deadline comes first, it is not dispatched.
	do(1000, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: "both", TimeoutAt: 2000, Tags: target}})
	// It waits for what ends in this pass: woken by the second stage, dispatched there.
	do(1000, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: "waiting", TimeoutAt: far, Tags: target}})
	do(1000, &protocol.TaskSuspend{ID: "waiting", Version: 1, Awaited: []string{"ending"}})
	// More occurrences than one bounded step makes; each is delayed into this very pass's past.
	do(1000, &protocol.ScheduleCreate{ID: "s", Cron: "* * * * * *", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 1_000_000,
		PromiseTags: target.With(protocol.TagDelay, "90000")})

	f.tick("w", 100_000)
	snap := f.snapAt("w", 100_000)
	unblocks, executes := 0, map[string]int{}
	for _, m := range snap.Messages {
		if m.Execute != nil {
			executes[m.Execute.ID]++
		} else {
			unblocks++
		}
	}
	if unblocks != 1200 || len(snap.Listeners) != 0 {
		t.Errorf("%d unblock messages, %d listeners are left: a drain was not whole", unblocks, len(snap.Listeners))
	}
	for _, id := range []string{"queued", "delayed", "leased", "waiting"} {
		if executes[id] != 1 {
			t.Errorf("%s has %d executes queued", id, executes[id])
		}
	}
	if executes["both"] != 0 {
		t.Error("a task past its deadline was dispatched")
	}
	retries := map[string]int64{}
	for _, timeout := range snap.TaskTimeouts {
		retries[timeout.ID] = timeout.Timeout
	}
	for _, id := range []string{"queued", "delayed", "leased", "waiting"} {
		if retries[id] != 130_000 {
			t.Errorf("%s: retry at %d, want the tick's time and 30 s", id, retries[id])
		}
	}
	occurrences := 0
	for _, p := range snap.Promises {
		if !strings.HasPrefix(p.ID, "s.") {
			continue
		}
		occurrences++
		if dispatched := executes[p.ID] != 0; dispatched != (p.CreatedAt >= 90_000) { // at birth, if their delay is over by then
			t.Fatalf("%s: dispatched: %t. What becomes due because of a pass waits for the next", p.ID, dispatched)
		}
	}
	if occurrences != 99 { // 2 s to 100 s: the first match after 1000 ms is 2000 ms
		t.Errorf("%d occurrences", occurrences)
	}
	// The next pass dispatches those whose delay had come, though its time is the same.
	f.tick("w", 100_000)
	again := 0
	for _, m := range f.snapAt("w", 100_000).Messages {
		if m.Execute != nil && strings.HasPrefix(m.Execute.ID, "s.") {
			again++
		}
	}
	if again != 99 {
		t.Errorf("%d of the occurrences are dispatched", again)
	}
	// An earlier tick is raised to the mark: nothing is due any more, nothing goes back.
	before := f.snapAt("w", 100_000)
	f.tick("w", 5)
	if after := f.snapAt("w", 100_000); string(after.AppendJSON(nil)) != string(before.AppendJSON(nil)) {
		t.Error("a tick in the past changed something")
	}
}

// The snapshot's form and order, every list of it. (docs/protocol.md, Debugging and tests)
func TestSnap(t *testing.T) {
	f, _ := newHooked(t)
	do := func(req protocol.Request) { f.at("w", 1000, 200, req) }
	do(&protocol.PromiseCreate{ID: "b", TimeoutAt: 9000, Tags: target})
	do(&protocol.PromiseCreate{ID: "a", TimeoutAt: 9000})
	do(&protocol.PromiseRegisterCallback{Awaited: "a", Awaiter: "b"})
	do(&protocol.PromiseRegisterListener{Awaited: "a", Address: "poll://uni@g/2"})
	do(&protocol.PromiseRegisterListener{Awaited: "a", Address: "poll://uni@g/1"})
	do(&protocol.TaskCreate{PID: "w", TTL: 500, Action: protocol.PromiseCreate{ID: "c", TimeoutAt: 9000, Tags: target}})
	do(&protocol.PromiseCreate{ID: "d", TimeoutAt: 9000})
	do(&protocol.PromiseRegisterListener{Awaited: "d", Address: "poll://uni@g/1"})
	do(&protocol.PromiseSettle{ID: "d", State: protocol.Resolved, Value: protocol.MakeValue(nil, "eA==")})
	do(&protocol.PromiseCreate{ID: "e", TimeoutAt: 1500, Tags: target})
	got := string(f.snapAt("w", 1500).AppendJSON(nil))
	promise := func(id, rest string) string { return `{"id":"` + id + `",` + rest + `}` }
	pending := `"state":"pending","param":{},"value":{},"tags":%s,"timeoutAt":9000,"createdAt":1000`
	targetTag := `{"resonate:target":"poll://any@g"}`
	d := promise("d", `"state":"resolved","param":{},"value":{"data":"eA=="},"tags":{},"timeoutAt":9000,"createdAt":1000,"settledAt":1000`)
	want := `{"promises":[` + strings.Join([]string{
		promise("a", fmt.Sprintf(pending, "{}")), promise("b", fmt.Sprintf(pending, targetTag)), promise("c", fmt.Sprintf(pending, targetTag)), d,
		promise("e", `"state":"rejected_timedout","param":{},"value":{},"tags":`+targetTag+`,"timeoutAt":1500,"createdAt":1000,"settledAt":1500`),
	}, ",") + `],` +
		`"promiseTimeouts":[{"id":"a","timeout":9000},{"id":"b","timeout":9000},{"id":"c","timeout":9000}],` +
		`"callbacks":[{"awaiter":"b","awaited":"a"}],` +
		`"listeners":[{"id":"a","address":"poll://uni@g/1"},{"id":"a","address":"poll://uni@g/2"}],` +
		`"tasks":[{"id":"b","state":"pending","version":0,"resumes":0},{"id":"c","state":"acquired","version":1,"resumes":0,"ttl":500,"pid":"w"},` +
		`{"id":"e","state":"fulfilled","version":0,"resumes":0}],` +
		`"taskTimeouts":[{"id":"b","type":0,"timeout":31000},{"id":"c","type":1,"timeout":1500}],` +
		`"messages":[{"address":"poll://any@g","message":{"kind":"execute","head":{},"data":{"task":{"id":"b","version":0}}}},` +
		`{"address":"poll://uni@g/1","message":{"kind":"unblock","head":{},"data":{"promise":` + d + `}}}]}`
	if got != want {
		t.Errorf("snapshot\n%s\nwant\n%s", got, want)
	}
	// Nothing of it was written: reads write no object, and a snapshot in a workspace that nobody uses is empty.
	empty := string(f.in("nobody", 200, &protocol.DebugSnap{}).Body.AppendJSON(nil))
	if empty != `{"promises":[],"promiseTimeouts":[],"callbacks":[],"listeners":[],"tasks":[],"taskTimeouts":[],"messages":[]}` {
		t.Errorf("an empty workspace: %s", empty)
	}
}

// A reset removes everything of its workspace and nothing of another's.
func TestReset(t *testing.T) {
	f, _ := newHooked(t)
	fill := func(workspace string, objects, idBytes int) {
		wide := tags(protocol.TagTarget, "poll://any@"+strings.Repeat("g", 1000))
		for i := range 40 {
			wide = wide.With(fmt.Sprintf("k%02d", i), "v")
		}
		for i := range objects {
			id := fmt.Sprintf("%0*d", idBytes, i)
			f.in(workspace, 200, &protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: wide.With(protocol.TagBranch, id).With(protocol.TagOrigin, "o")})
		}
		f.in(workspace, 200, &protocol.PromiseCreate{ID: "big", TimeoutAt: far, Param: protocol.MakeValue(nil, strings.Repeat("x", 70_000))})
		for i := range 300 {
			f.in(workspace, 200, &protocol.PromiseRegisterListener{Awaited: "big", Address: fmt.Sprint("poll://uni@g/", i)})
		}
		f.in(workspace, 200, &protocol.PromiseSettle{ID: "big", State: protocol.Resolved})
		for i := range 150 {
			f.in(workspace, 200, &protocol.ScheduleCreate{ID: fmt.Sprint("s", i), Cron: "* * * * *", PromiseID: "x",
				PromiseParam: protocol.MakeValue(nil, strings.Repeat("x", 2000))})
		}
	}
	fill(strings.Repeat("w", protocol.MaxWorkspaceBytes), 110, protocol.MaxIDBytes)
	fill("other", 10, 8)
	other := string(f.in("other", 200, &protocol.DebugSnap{}).Body.AppendJSON(nil))
	f.in(strings.Repeat("w", protocol.MaxWorkspaceBytes), 200, &protocol.DebugReset{})
	f.check()
	if got := string(f.in("other", 200, &protocol.DebugSnap{}).Body.AppendJSON(nil)); got != other {
		t.Error("a reset changed another workspace")
	}
	f.in("other", 200, &protocol.DebugReset{})
	tally, err := store.Check(context.Background(), f.store, f.layout, f.Now(), func(p store.Problem) { t.Error(p) })
	for kind, n := range tally {
		switch kind {
		case "format", "server", "workspace", "journal entry", "journal floor":
		default:
			t.Errorf("%d rows of kind %s are left, %v", n, kind, err)
		}
	}
	f.in("other", 200, &protocol.PromiseCreate{ID: "big", TimeoutAt: far})
}

// Workspaces share nothing: ids, pids, schedules, searches, timers.
func TestWorkspacesAreIsolated(t *testing.T) {
	f := newFixture(t)
	for i, w := range []string{"default", "other", "Other"} {
		f.in(w, 404, &protocol.PromiseGet{ID: "p"})
		f.in(w, 200, &protocol.TaskCreate{PID: "w", TTL: 1000, Action: protocol.PromiseCreate{ID: "p", TimeoutAt: f.Now() + 5000 + int64(i), Tags: target.With("k", "v")}})
		f.in(w, 200, &protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "s.{{.timestamp}}"})
	}
	f.clock.advance(900 * time.Millisecond)
	f.in("other", 200, &protocol.TaskHeartbeat{PID: "w"})
	f.clock.advance(200 * time.Millisecond)
	f.fireDue()
	for w, want := range map[string]protocol.TaskState{"default": protocol.TaskPending, "other": protocol.TaskAcquired, "Other": protocol.TaskPending} {
		if got := f.in(w, 200, &protocol.TaskGet{ID: "p"}).Body.(protocol.TaskBody).Task.State; got != want {
			t.Errorf("%s: the task is %s, want %s", w, got, want)
		}
		found := f.in(w, 200, &protocol.PromiseSearch{Tags: tags("k", "v")}).Body.(protocol.PromisesBody).Promises
		if len(found) != 1 {
			t.Errorf("%s: %d promises", w, len(found))
		}
	}
	f.in("other", 200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
	if p := promiseOf(f.in("default", 200, &protocol.PromiseGet{ID: "p"})); p.State != protocol.Pending {
		t.Errorf("settled in another workspace: %+v", p)
	}
	f.in("Other", 200, &protocol.ScheduleDelete{ID: "s"})
	f.in("default", 200, &protocol.ScheduleGet{ID: "s"})
	// A failed write of one lane, or a paused one, changes nothing for another.
	f.in("default", 200, &protocol.DebugStart{})
	f.clock.advance(time.Minute)
	f.fireDue()
	if f.persisted("default", "p") || !f.persisted("Other", "p") {
		t.Error("debug.start paused another workspace, or not its own")
	}
	f.in("default", 200, &protocol.DebugStop{})
	f.fireDue()
	if !f.persisted("default", "p") {
		t.Error("debug.stop did not end the pause")
	}
}

// What one page of the sweep has to write is submitted together, so that it shares commits and a slow store does not
// outlast a deadline; and one promise or message that cannot be written holds up no other.
func TestSweepIsNotSlowedOrStopped(t *testing.T) {
	f, s := newHooked(t)
	const n = 200
	for i := range n {
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprintf("p%04d", i), TimeoutAt: f.Now() + 100})
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprintf("u%04d", i), TimeoutAt: far})
		f.do(200, &protocol.PromiseRegisterListener{Awaited: fmt.Sprintf("u%04d", i), Address: "https://example.com/x"})
		f.do(200, &protocol.PromiseSettle{ID: fmt.Sprintf("u%04d", i), State: protocol.Resolved})
	}
	f.clock.advance(25 * time.Hour)
	var now, most, writes atomic.Int64
	s.set(func(s *hooked) {
		s.before = func(h kv.Hints) error {
			if !h.Background {
				return nil
			}
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Millisecond)
			if writes.Add(1)%10 == 5 {
				return kv.ErrTooLarge
			}
			return nil
		}
	})
	f.sweepAll()
	s.set(func(s *hooked) { s.before = nil })
	if most.Load() < 2 {
		t.Error("the sweep writes one thing after the other, and waits for a commit each time")
	}
	if c := f.Counts(); c.Swept < n*8/10 || c.Swept == n || c.ExpiredUnblocks < n*8/10 || c.Failures == 0 {
		t.Errorf("one write in ten fails: %d swept and %d given up of %d each, %d failures were counted", c.Swept, c.ExpiredUnblocks, n, c.Failures)
	}
	f.sweepAll() // what failed is done the next time round
	if c := f.Counts(); c.Swept != n || c.ExpiredUnblocks != n {
		t.Errorf("%d swept and %d given up of %d each", c.Swept, c.ExpiredUnblocks, n)
	}
}

// The sweep persists the expired promises that nobody armed, in every workspace, in bounded pages, and passes over
// paused ones.
func TestSweep(t *testing.T) {
	f, s := newHooked(t)
	const n = sweepRows + 100
	for _, w := range []string{"a", "b", "c"} {
		for i := range n {
			f.in(w, 200, &protocol.PromiseCreate{ID: fmt.Sprintf("p%04d", i), TimeoutAt: f.Now() + 100})
		}
		f.in(w, 200, &protocol.PromiseCreate{ID: "alive", TimeoutAt: far})
	}
	f.sweepAll()
	if c := f.Counts(); c.Swept != 0 {
		t.Errorf("%d promises were swept before their deadline", c.Swept)
	}
	f.clock.advance(time.Second)
	f.in("b", 200, &protocol.DebugStart{})
	s.set(func(s *hooked) {
		s.before = func(h kv.Hints) error {
			if !h.Background && h.Lane != "" {
				t.Error("the sweep does not yield to requests")
			}
			return nil
		}
	})
	f.sweepAll()
	s.set(func(s *hooked) { s.before = nil })
	if c := f.Counts(); c.Swept != 2*n {
		t.Errorf("%d promises were swept, want %d", c.Swept, 2*n)
	}
	if f.persisted("b", "p0000") || !f.persisted("a", "p0599") || !f.persisted("c", "p0000") || f.persisted("a", "alive") {
		t.Error("the wrong ones were swept")
	}
	f.in("b", 200, &protocol.DebugStop{})
	f.sweepAll()
	if c := f.Counts(); c.Swept != 3*n {
		t.Errorf("%d promises were swept, want %d", c.Swept, 3*n)
	}
}

// A reset removes what does not decode as well, and the journal says so of everything.
func TestResetOfDamagedRecords(t *testing.T) {
	f := newFixture(t)
	keys := keyspace.For("default", f.layout)
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")})
	f.do(200, &protocol.PromiseCreate{ID: "q", TimeoutAt: far})
	for _, id := range []string{"r", "s"} {
		f.do(200, &protocol.ScheduleCreate{ID: id, Cron: "* * * * *", PromiseID: "x", PromiseParam: protocol.MakeValue(nil, strings.Repeat("x", 100_000))})
	}
	for _, key := range [][]byte{keys.Object("p"), keys.Schedule("s")} {
		f.put(key, flip(f.raw(key)))
	}
	f.do(200, &protocol.DebugReset{})
	for _, kind := range []string{"object", "schedule", "schedule chunk"} {
		if rows := f.rows(kind); len(rows) != 0 {
			t.Errorf("%d rows of kind %s are left", len(rows), kind)
		}
	}
	checker := store.Checker{Store: f.store, Layout: f.layout, NowMs: f.Now(), Report: func(p store.Problem) { t.Error(p) }}
	if n, err := checker.Replay(context.Background()); err != nil || n != 8 {
		t.Errorf("%d entries, %v", n, err)
	}
	f.damaged = true // their timers are stale until they fire
}
