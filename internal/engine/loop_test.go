package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/memkv"
	"abide/protocol"
)

// patience is how long a test waits for what must happen; nothing is asserted about how soon it does.
const patience = 30 * time.Second

// longPoll is a poll interval that no test waits for, longer than patience: what happens before it, a wake-up has caused.
const longPoll = 600_000

// newRunning is an engine on the real clock, over a store in memory with hooks, its loops not started yet.
func newRunning(t *testing.T, pollMs int64) (*fixture, *hooked) {
	t.Helper()
	inner := memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register()})
	s := &hooked{Store: inner}
	e, err := Open(context.Background(), s, Options{PollIntervalMs: pollMs, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Engine: e, t: t, store: s}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
		f.check()
		inner.Close()
	})
	return f, s
}

// in performs a request in a workspace.
func (f *fixture) in(workspace string, want int, req protocol.Request) protocol.Reply {
	f.t.Helper()
	reply := f.Do(context.Background(), workspace, req, nil)
	if reply.Status != want {
		f.t.Fatalf("%s: status %d (%s), want %d", req.Kind(), reply.Status, reply.Message, want)
	}
	return reply
}

// eventually waits until a condition holds.
func (f *fixture) eventually(what string, holds func() bool) {
	f.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if holds() {
			return
		}
	}
	f.t.Fatalf("it does not happen that %s", what)
}

func (f *fixture) persisted(workspace, id string) bool {
	b := f.raw(keyspace.For(workspace, f.layout).Object(id))
	o, err := keyspace.Object(id, b)
	if err != nil {
		f.t.Fatal(err)
	}
	return o.State != protocol.Pending
}

func sleep(ms int64, now int64) protocol.PromiseCreate {
	return protocol.PromiseCreate{TimeoutAt: now + ms, Tags: tags(protocol.TagTimer, "true")}
}

// timer arms a timer that is due in a while.
func (f *fixture) timer(workspace, id string, ms int64) {
	f.t.Helper()
	c := sleep(ms, f.Now())
	c.ID = id
	f.in(workspace, 200, &c)
}

// An idle loop is woken by a timer that is armed: it fires long before the next poll. (B3)
func TestArmedTimerWakesTheLoop(t *testing.T) {
	f, _ := newRunning(t, longPoll)
	f.Start(nil)
	f.timer("default", "later", 300_000) // the loop now sleeps until then
	time.Sleep(20 * time.Millisecond)
	f.timer("default", "soon", 50)
	f.eventually("the earlier timer fires", func() bool { return f.persisted("default", "soon") })
	if f.persisted("default", "later") {
		t.Error("a timer fired before its time")
	}
	// A chain: each timer is armed when the one before has fired.
	for i := range 5 {
		id := fmt.Sprint("chain", i)
		f.timer("default", id, 10)
		f.eventually("a chained timer fires", func() bool { return f.persisted("default", id) })
	}
	// A lease, a retry and a drain wake it as well.
	f.in("default", 200, &protocol.TaskCreate{PID: "w", TTL: 30, Action: protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")}})
	f.eventually("the lease expires", func() bool {
		return f.in("default", 200, &protocol.TaskGet{ID: "t"}).Body.(protocol.TaskBody).Task.State == protocol.TaskPending
	})
}

// Timers that are due later than the loop looks next do not wake it: not while it sleeps, nor by the pass that was under
// way when they were armed.
func TestLateTimersDoNotWakeTheLoop(t *testing.T) {
	f := newFixture(t)
	defer f.Attach(nil)()
	pass := func() time.Duration {
		t.Helper()
		sleep, err := f.TimerPass(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return sleep
	}
	pass()
	poll := f.opt.PollIntervalMs
	for i := range 20 {
		f.timer("default", fmt.Sprint("late", i), poll+1000+int64(i))
	}
	if f.Woken() {
		t.Error("the loop was woken for a timer that is due after its next look")
	}
	f.timer("default", "soon", poll/2)
	if !f.Woken() {
		t.Error("the loop was not woken for a timer that is due before its next look")
	}
	if sleep := pass(); sleep > time.Duration(poll/2)*time.Millisecond {
		t.Errorf("the loop sleeps for %s, past a timer", sleep)
	}

	// Armed while a pass is under way: the loop sleeps until then without being woken.
	f.loops.begin()
	f.loops.arm(f.Now() + poll/4)
	if f.Woken() {
		t.Error("a pass that is under way was woken")
	}
	if until := f.loops.end(f.Now() + poll); until != f.Now()+poll/4 {
		t.Errorf("the loop sleeps until %d, not %d", until, f.Now()+poll/4)
	}
}

// Without any signal everything happens all the same, later.
func TestPollFiresWithoutSignals(t *testing.T) {
	f, s := newRunning(t, 30)
	f.loops.woken = make(chan struct{}, 1)
	f.Start(nil)
	f.loops.unsub() // every hint is dropped from here on
	before := s.views.Load()
	f.timer("default", "p", 50)
	f.eventually("the timer fires by the poll alone", func() bool { return f.persisted("default", "p") })
	if s.views.Load() == before {
		t.Error("nobody looked")
	}
}

// An idle loop does not look more often than its poll interval says.
func TestIdleLoopSleeps(t *testing.T) {
	f, s := newRunning(t, longPoll)
	f.timer("default", "later", 500_000)
	f.Start(nil)
	time.Sleep(50 * time.Millisecond)
	before := s.views.Load()
	time.Sleep(200 * time.Millisecond)
	if n := s.views.Load() - before; n > 20 {
		t.Errorf("an idle loop read the store %d times in 0.2 s", n)
	}
}

// Deadlines may be as far away as numbers go; the loop sleeps all the same. (A23)
func TestFarDeadlinesDoNotSpin(t *testing.T) {
	for _, at := range []int64{1 << 43, 1 << 44, 1 << 45, 1 << 50, 1<<53 - 1, 1 << 60, 1<<62 + 12345, 1<<63 - 1} {
		f, s := newRunning(t, longPoll)
		f.in("default", 200, &protocol.PromiseCreate{ID: "p", TimeoutAt: at, Tags: tags(protocol.TagTimer, "true")})
		f.Start(nil)
		time.Sleep(10 * time.Millisecond)
		before := s.views.Load()
		time.Sleep(30 * time.Millisecond)
		if n := s.views.Load() - before; n > 20 {
			t.Errorf("a deadline at %d made the loop read the store %d times in 0.03 s", at, n)
		}
	}
}

// debug.start pauses one workspace's loops: its due timers stand, do not make the loop spin, and do not keep others
// from being fired in time. debug.stop lets them go.
func TestPausedWorkspace(t *testing.T) {
	f, s := newRunning(t, longPoll)
	f.Start(nil)
	f.in("paused", 200, &protocol.DebugStart{})
	for i := range 5 {
		f.timer("paused", fmt.Sprint("p", i), 5)
	}
	f.in("paused", 200, &protocol.TaskCreate{PID: "w", TTL: 5, Action: protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")}})
	time.Sleep(50 * time.Millisecond)
	before := s.views.Load()
	time.Sleep(200 * time.Millisecond)
	if n := s.views.Load() - before; n > 50 {
		t.Errorf("paused entries that are due made the loop read the store %d times in 0.2 s", n)
	}
	f.timer("other", "p", 50)
	f.eventually("a timer of another workspace fires", func() bool { return f.persisted("other", "p") })
	if f.persisted("paused", "p0") {
		t.Error("a timer of a paused workspace fired")
	}
	// Requests on it are served, and see the projection.
	if p := f.in("paused", 200, &protocol.PromiseGet{ID: "p0"}).Body.(protocol.PromiseBody).Promise; p.State != protocol.Resolved {
		t.Errorf("%+v", p)
	}
	f.in("paused", 200, &protocol.DebugStop{})
	f.eventually("the timers fire when the pause ends", func() bool { return f.persisted("paused", "p0") && f.persisted("paused", "p4") })
}

// A pass that panics is a pass that failed: the loop goes on.
func TestPanickingPassSurvives(t *testing.T) {
	f, s := newRunning(t, 20)
	var panics atomic.Int64
	s.set(func(s *hooked) {
		s.reading = func() error {
			if panics.Add(1) <= 3 {
				panic("a bug")
			}
			return nil
		}
	})
	f.Start(nil)
	f.eventually("the loops have met the panics", func() bool { return panics.Load() > 3 })
	f.timer("default", "p", 10)
	f.eventually("a timer fires", func() bool { return f.persisted("default", "p") })
	if f.Counts().Failures == 0 {
		t.Error("the failed passes were not counted")
	}
}

// A step that fails every time, or panics, holds up no other step and does not make the loop spin.
func TestPoisonedStepHoldsUpNobody(t *testing.T) {
	for name, poison := range map[string]func() error{
		"fails":  func() error { return kv.ErrTooLarge },
		"panics": func() error { panic("a bug") },
	} {
		t.Run(name, func(t *testing.T) {
			f, s := newRunning(t, longPoll) // so that only a wake-up makes another pass
			for i := range 3 {
				f.timer("bad", fmt.Sprint("b", i), 1)
			}
			for i := range 200 {
				f.timer("good", fmt.Sprint("g", i), 2)
			}
			time.Sleep(10 * time.Millisecond)
			var attempts atomic.Int64
			s.set(func(s *hooked) {
				s.before = func(h kv.Hints) error {
					if h.Lane == "bad" {
						attempts.Add(1)
						return poison()
					}
					return nil
				}
			})
			f.Start(nil)
			f.eventually("the other timers fire", func() bool { return f.persisted("good", "g0") && f.persisted("good", "g199") })
			time.Sleep(100 * time.Millisecond)
			if n := attempts.Load(); n > 6 {
				t.Errorf("three poisoned steps were tried %d times in 0.1 s: the loop spins, or 200 good steps took several passes", n)
			}
			f.timer("good", "after", 1)
			f.eventually("later timers fire", func() bool { return f.persisted("good", "after") })
			if f.Counts().Failures == 0 {
				t.Error("the failed steps were not counted")
			}
			s.set(func(s *hooked) { s.before = nil })
			f.timer("good", "wakes", 1)
			f.eventually("the poisoned steps are done once they can be", func() bool { return f.persisted("bad", "b0") && f.persisted("bad", "b2") })
		})
	}
}

// The store is away for a while: the server is not broken by it, and goes on by itself.
func TestLoopsSurviveAnAbsentStore(t *testing.T) {
	f, s := newRunning(t, 20)
	f.Start(nil)
	f.timer("default", "p", 30)
	s.set(func(s *hooked) {
		s.reading = func() error { return kv.ErrUnavailable }
		s.before = func(kv.Hints) error { return kv.ErrUnavailable }
	})
	f.eventually("passes fail", func() bool { return f.Counts().Failures >= 2 })
	s.set(func(s *hooked) { s.reading, s.before = nil, nil })
	f.eventually("the timer fires when the store is back", func() bool { return f.persisted("default", "p") })
}

// A backlog is worked off in bounded passes, none left behind.
func TestBacklogIsWorkedOff(t *testing.T) {
	f, _ := newHooked(t)
	const n = duePerPass + 300
	for i := range n {
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprint("p", i), TimeoutAt: f.Now() + 10, Tags: tags(protocol.TagTimer, "true")})
	}
	f.clock.advance(time.Minute)
	steps, more, err := f.Tick(context.Background(), f.Now())
	if err != nil || len(steps) != duePerPass || !more {
		t.Fatalf("one pass takes %d steps, more: %t, %v", len(steps), more, err)
	}
	for _, s := range steps {
		if err := f.Fire(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	steps, more, err = f.Tick(context.Background(), f.Now())
	if err != nil || len(steps) != 300 || more {
		t.Errorf("the second pass takes %d steps, more: %t, %v", len(steps), more, err)
	}
}

// hinted collects what delivery is told.
type hinted struct{ events chan string }

func (h hinted) HintExecute(e deliver.Execute) {
	h.events <- fmt.Sprintf("execute %s/%s v%d %s", e.Workspace, e.ID, e.Version, e.Address)
}
func (h hinted) HintClaimed(workspace, id string, version int64) {
	h.events <- fmt.Sprintf("claimed %s/%s v%d", workspace, id, version)
}
func (h hinted) HintUnblock(workspace string, u deliver.UnblockRef) {
	h.events <- fmt.Sprintf("unblock %s/%s %s", workspace, u.ID, u.Address)
}

// Commits tell delivery what they queued and what they took away; a paused workspace is silent.
func TestCommitsHintDelivery(t *testing.T) {
	f, _ := newRunning(t, longPoll)
	h := hinted{make(chan string, 100)}
	f.Start(h)
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case got := <-h.events:
				if got != w {
					t.Fatalf("hint %q, want %q", got, w)
				}
			case <-time.After(patience):
				t.Fatalf("no hint %q", w)
			}
		}
	}
	target := tags(protocol.TagTarget, "poll://any@g")
	f.in("default", 200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: target})
	expect("execute default/p v0 poll://any@g")
	f.in("default", 200, &protocol.TaskAcquire{ID: "p", Version: 0, PID: "w", TTL: 10_000})
	expect("claimed default/p v0")
	f.in("default", 200, &protocol.TaskRelease{ID: "p", Version: 1})
	expect("execute default/p v1 poll://any@g")
	f.in("default", 200, &protocol.TaskHalt{ID: "p"})
	expect("claimed default/p v1")
	f.in("default", 200, &protocol.TaskContinue{ID: "p"})
	expect("execute default/p v1 poll://any@g")
	f.in("default", 200, &protocol.PromiseRegisterListener{Awaited: "p", Address: "poll://uni@g/x"})
	f.in("default", 200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
	got := []string{<-h.events, <-h.events}
	if all := strings.Join(got, ", "); !strings.Contains(all, "claimed default/p v1") || !strings.Contains(all, "unblock default/p poll://uni@g/x") {
		t.Errorf("the settlement hinted %s", all)
	}
	f.in("quiet", 200, &protocol.DebugStart{})
	f.in("quiet", 200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: target})
	f.in("default", 200, &protocol.PromiseCreate{ID: "q", TimeoutAt: far, Tags: target})
	expect("execute default/q v0 poll://any@g")
}

// Stopping is bounded, harmless twice and before a start.
func TestStop(t *testing.T) {
	f, s := newRunning(t, 20)
	if err := f.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	hangs, release := make(chan struct{}, 10), make(chan struct{})
	s.set(func(s *hooked) { s.reading = func() error { hangs <- struct{}{}; <-release; return nil } })
	f.Start(nil)
	<-hangs
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := f.Stop(ctx); err == nil {
		t.Error("stopped while a pass hangs in the store")
	}
	s.set(func(s *hooked) { s.reading = nil })
	close(release)
}
