package engine

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

func openClock(t *testing.T, m *manual, ceiling int64) *clock {
	t.Helper()
	c, err := newClock(context.Background(), m, ceiling)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The clock follows the wall forward at once, and absorbs a backward step by running at half speed until the wall
// has caught up: it never goes back and never stops.
func TestClockAbsorbsSteps(t *testing.T) {
	m := newManual()
	c := openClock(t, m, 0)
	expect := func(what string, want int64) {
		t.Helper()
		if got := c.now(); got != want {
			t.Fatalf("%s: %d, want %d", what, got, want)
		}
	}
	expect("at first", 1_000_000)
	m.advance(70 * time.Millisecond)
	expect("time passes", 1_000_070)
	m.step(time.Hour)
	expect("an hour forward is followed at once", 4_600_070)
	m.step(-time.Hour)
	expect("an hour back is not", 4_600_070)
	m.advance(100 * time.Millisecond)
	expect("half speed", 4_600_120)
	m.advance(time.Millisecond)
	m.advance(time.Millisecond)
	expect("half speed in small steps", 4_600_121)
	for range 1000 { // halves of nanoseconds add up
		m.advance(time.Microsecond)
		c.now()
	}
	expect("half speed read often", 4_600_121)
	m.advance(time.Millisecond)
	expect("half speed still", 4_600_122)
	m.step(-time.Hour)
	expect("another step back while behind", 4_600_122)
	m.advance(3 * time.Hour)
	expect("the wall has not caught up: half of what passed", 4_600_122+3*1_800_000)
	m.advance(2 * time.Hour)
	if got, wall := c.now(), m.Wall().UnixMilli(); got != wall {
		t.Fatalf("the wall has caught up: %d, wall %d", got, wall)
	}
}

// A clock that starts behind its ceiling by less than a second waits for it; by more, it begins there.
func TestClockStartsAtItsCeiling(t *testing.T) {
	for _, c := range []struct {
		what                 string
		lag                  time.Duration
		wantSlept, wantAhead time.Duration
	}{
		{"ahead of the ceiling", -5 * time.Second, 0, 0},
		{"at the ceiling", 0, 0, 0},
		{"behind by a little", 999 * time.Millisecond, 999 * time.Millisecond, 0},
		{"behind by a second", time.Second, 0, time.Second},
		{"behind by an hour", time.Hour, 0, time.Hour},
	} {
		m := newManual()
		before := m.Wall()
		clock := openClock(t, m, before.Add(c.lag).UnixMilli())
		if slept := m.Wall().Sub(before); slept != c.wantSlept {
			t.Errorf("%s: slept %s, want %s", c.what, slept, c.wantSlept)
		}
		if ahead := time.Duration(clock.now()-m.Wall().UnixMilli()) * time.Millisecond; ahead != c.wantAhead {
			t.Errorf("%s: begins %s ahead of the wall, want %s", c.what, ahead, c.wantAhead)
		}
	}
}

// A reader that rests on a deadline waits for the writers that began before it, in whatever order they end, and
// for no later ones.
func TestClockSettles(t *testing.T) {
	m := newManual()
	c := openClock(t, m, 0)
	var early, middle, late *ticket
	c.enter(&early)
	m.advance(time.Millisecond)
	c.enter(&middle)
	m.advance(time.Millisecond)
	at := c.now()
	c.enter(&late)
	settled := make(chan error, 1)
	go func() { settled <- c.settle(context.Background(), at) }()
	still := func(what string) {
		t.Helper()
		select {
		case <-settled:
			t.Fatalf("settled %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
	still("with two older writers under way")
	c.leave(middle)
	still("with the oldest writer under way")
	c.leave(early)
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	// A new attempt of a writer begins anew, at a later instant.
	c.enter(&late)
	m.advance(time.Millisecond)
	if err := c.settle(context.Background(), c.now()-1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.settle(ctx, c.now()); err == nil {
		t.Error("settled with a writer under way and a caller that has gone")
	}
	c.leave(late)
	c.leave(nil)
	if len(c.inFlight) != 0 {
		t.Errorf("%d writers are left", len(c.inFlight))
	}
}

// The ceiling is raised a quarter of a second ahead by riding on commits: a busy server spends no transaction on
// it, an idle one none at all, and a reader's raise serves all readers of the next quarter.
func TestCeilingRidesOnCommits(t *testing.T) {
	f, s := newHooked(t)
	f.do(200, &protocol.PromiseCreate{ID: "warm", TimeoutAt: far})
	f.clock.advance(time.Second)
	updates, ceilings := s.updates.Load(), s.ceilings.Load()
	for i := range 100 {
		f.clock.advance(5 * time.Millisecond)
		f.do(200, &protocol.PromiseCreate{ID: string(rune('a'+i%26)) + string(rune('a'+i/26)), TimeoutAt: far})
		f.do(200, &protocol.PromiseGet{ID: "warm"})
	}
	if n := s.updates.Load() - updates; n != 100 {
		t.Errorf("100 writes and 100 reads within 0.5 s took %d transactions", n)
	}
	if n := s.ceilings.Load() - ceilings; n < 2 || n > 3 {
		t.Errorf("0.5 s raised the ceiling %d times", n)
	}
	f.clock.advance(time.Second)
	updates = s.updates.Load()
	for range 20 {
		f.clock.advance(time.Millisecond)
		f.do(200, &protocol.PromiseGet{ID: "warm"})
	}
	if n := s.updates.Load() - updates; n != 1 {
		t.Errorf("20 reads after a pause took %d raises", n)
	}
}

// durableCeiling is the server's ceiling as it stands in the store.
func (f *fixture) durableCeiling() int64 {
	f.t.Helper()
	ms, err := keyspace.Instant("server", f.raw(keyspace.Server("server")))
	if err != nil {
		f.t.Fatal(err)
	}
	return ms
}

// No instant is served beyond the durable ceiling, and the durable ceiling never falls: not even when a raise of a
// reader commits after a higher one of a writer.
func TestCeilingNeverFalls(t *testing.T) {
	f, s := newHooked(t)
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far})
	f.clock.advance(time.Second)
	entered, release := make(chan struct{}), make(chan struct{})
	s.set(func(s *hooked) {
		s.before = func(kv.Hints) error {
			s.set(func(s *hooked) { s.before = nil }) // this one only: the reader's raise
			close(entered)
			<-release
			return nil
		}
	})
	read := make(chan int)
	go func() {
		read <- f.Do(context.Background(), "default", &protocol.PromiseGet{ID: "p"}, nil).Status
	}()
	<-entered
	f.clock.advance(200 * time.Millisecond)
	f.do(200, &protocol.PromiseCreate{ID: "q", TimeoutAt: far})
	high := f.durableCeiling()
	close(release)
	if status := <-read; status != 200 {
		t.Fatalf("the read was answered %d", status)
	}
	if now := f.durableCeiling(); now < high {
		t.Errorf("the durable ceiling fell from %d to %d", high, now)
	}
	f.clock.advance(200 * time.Millisecond)
	f.do(200, &protocol.PromiseGet{ID: "q"})
	if now, ceiling := f.Now(), f.durableCeiling(); now > ceiling {
		t.Errorf("served %d, beyond the durable ceiling %d", now, ceiling)
	}
}

// What was once answered as expired stays expired, also after a crash with the clock set back. (B1)
func TestExpiredStaysExpiredAcrossRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "abide.db")
	open := func() *sqlitekv.Store {
		s, err := sqlitekv.Open(sqlitekv.Options{Path: path, Keys: keyspace.Register()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	clock := newManual()
	f := fixtureOver(t, s, clock)
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: f.Now() + 5000})
	clock.advance(5 * time.Second)
	if p := f.do(200, &protocol.PromiseGet{ID: "p"}).Body.(protocol.PromiseBody).Promise; p.State != protocol.RejectedTimedout {
		t.Fatalf("%+v", p)
	}
	served := f.Now()
	for _, back := range []time.Duration{100 * time.Millisecond, time.Hour} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		clock.step(-back)
		s = open()
		f = fixtureOver(t, s, clock)
		if now := f.Now(); now < served {
			t.Errorf("set back by %s: begins at %d, after having served %d", back, now, served)
		}
		if p := f.do(200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved}).Body.(protocol.PromiseBody).Promise; p.State != protocol.RejectedTimedout {
			t.Errorf("set back by %s: %+v", back, p)
		}
		served = f.Now()
	}
	s.Close()
}

// The wall steps an hour back while a timer is armed, and back and forth again: the timer fires, once, and nothing
// is unsettled again. (B1)
func TestTimersUnderSteppingWall(t *testing.T) {
	f := newFixture(t)
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: f.Now() + 1000, Tags: tags(protocol.TagTimer, "true")})
	f.do(200, &protocol.TaskCreate{PID: "w", TTL: 400, Action: protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")}})
	steps, _, err := f.Tick(context.Background(), f.Now()+1000) // planned by a clock that stood later
	if err != nil || len(steps) != 2 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	f.clock.step(-time.Hour)
	for _, s := range steps {
		if err := f.Fire(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.rows("timer")); n != 3 { // two promises and a lease
		t.Fatalf("%d timers stand: one was consumed without effect", n)
	}
	f.clock.advance(time.Second) // half a second for the server: the lease lapses, the promise lives
	f.do(200, &protocol.TaskHeartbeat{PID: "w"})
	f.fireDue()
	if s := f.do(200, &protocol.PromiseGet{ID: "p"}).Body.(protocol.PromiseBody).Promise.State; s != protocol.Pending {
		t.Fatalf("half a second before its deadline: %s", s)
	}
	f.clock.advance(time.Second)
	f.fireDue()
	f.clock.step(2 * time.Hour)
	f.fireDue()
	p := f.do(200, &protocol.PromiseGet{ID: "p"}).Body.(protocol.PromiseBody).Promise
	if p.State != protocol.Resolved || p.SettledAt != p.TimeoutAt {
		t.Errorf("%+v", p)
	}
}
