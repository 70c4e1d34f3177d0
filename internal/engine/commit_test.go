package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/kv"
	"abide/protocol"
)

// promiseOf is the promise of an answer.
func promiseOf(r protocol.Reply) protocol.Promise { return r.Body.(protocol.PromiseBody).Promise }

// An answer that rests on a deadline having passed is final: it waits for a writer that began before the deadline
// and may yet settle the promise otherwise.
func TestReadsThatRestOnProjectionWaitForOlderWriters(t *testing.T) {
	for name, read := range map[string]protocol.Request{
		"promise.get":    &protocol.PromiseGet{ID: "p"},
		"task.get":       &protocol.TaskGet{ID: "p"},
		"promise.search": &protocol.PromiseSearch{State: protocol.RejectedTimedout},
	} {
		f, s := newHooked(t)
		f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: f.Now() + 100, Tags: tags(protocol.TagTarget, "poll://any@g")})
		inside, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		s.set(func(s *hooked) {
			s.within = func(kv.Hints, kv.Tx) error {
				once.Do(func() { close(inside); <-release })
				return nil
			}
		})
		f.clock.advance(99 * time.Millisecond)
		settled := make(chan protocol.Reply, 1)
		go func() {
			settled <- f.Do(context.Background(), "default", &protocol.PromiseSettle{ID: "p", State: protocol.Resolved}, nil)
		}()
		<-inside
		f.clock.advance(time.Millisecond)
		answered := make(chan protocol.Reply, 1)
		go func() { answered <- f.Do(context.Background(), "default", read, nil) }()
		select {
		case r := <-answered:
			close(release)
			t.Fatalf("%s was answered %+v while an older settlement was under way", name, r)
		case <-time.After(20 * time.Millisecond):
		}
		close(release)
		if p := promiseOf(<-settled); p.State != protocol.Resolved {
			t.Fatalf("settled a millisecond before the deadline: %+v", p)
		}
		switch body := (<-answered).Body.(type) {
		case protocol.PromiseBody:
			if body.Promise.State != protocol.Resolved {
				t.Errorf("%s: %+v", name, body)
			}
		case protocol.TaskBody:
			if body.Task.State != protocol.TaskFulfilled {
				t.Errorf("%s: %+v", name, body)
			}
		case protocol.PromisesBody:
			if len(body.Promises) != 0 {
				t.Errorf("%s: %+v", name, body)
			}
		}
	}
}

// A read with a debug time is in order by itself; it does not wait for whoever writes by the real clock.
func TestDebugReadsWaitForNoRealWriter(t *testing.T) {
	f, s := newHooked(t)
	at := f.Now()
	create := &protocol.PromiseCreate{ID: "p", TimeoutAt: at + 10}
	if r := f.Do(context.Background(), "debugged", create, &at); r.Status != 200 {
		t.Fatalf("%+v", r)
	}
	inside, release := make(chan struct{}), make(chan struct{})
	s.set(func(s *hooked) {
		s.after = func(h kv.Hints, pos kv.Position, err error) (kv.Position, error) {
			if h.Lane == "busy" {
				s.set(func(s *hooked) { s.after = nil })
				close(inside)
				<-release
			}
			return pos, err
		}
	})
	f.workspaces.Store("busy", struct{}{})
	done := make(chan struct{})
	go func() {
		f.Do(context.Background(), "busy", &protocol.PromiseSettle{ID: "none", State: protocol.Resolved}, nil)
		close(done)
	}()
	<-inside
	later := at + 1_000_000
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, req := range []protocol.Request{&protocol.PromiseGet{ID: "p"}, &protocol.PromiseSearch{}} {
		if r := f.Do(ctx, "debugged", req, &later); r.Status != 200 {
			t.Errorf("%s: %d %s", req.Kind(), r.Status, r.Message)
		}
	}
	close(release)
	<-done
}

// One id, claimed by very many at once: one acquires it, the others are told. (C1)
func TestConcurrentClaimsOfOneID(t *testing.T) {
	f := newFixture(t)
	statuses := make(chan int, 100)
	for i := range 100 {
		go func() {
			statuses <- f.Do(context.Background(), "default", &protocol.TaskCreate{PID: fmt.Sprint("w", i), TTL: 10_000,
				Action: protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")}}, nil).Status
		}()
	}
	counts := map[int]int{}
	for range 100 {
		counts[<-statuses]++
	}
	if counts[200] != 1 || counts[409] != 99 {
		t.Errorf("statuses: %v", counts)
	}
	f.do(200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
	f.do(200, &protocol.TaskCreate{PID: "late", TTL: 1, Action: protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")}})
}

// A commit whose outcome the store cannot tell at once is asked about, and never repeated. (C11)
func TestUnknownCommits(t *testing.T) {
	unknown := func(token kv.Token) func(kv.Hints, kv.Position, error) (kv.Position, error) {
		return func(kv.Hints, kv.Position, error) (kv.Position, error) {
			return kv.Position{}, &kv.Error{Is: kv.ErrCommitUnknown, Store: "test", Op: "commit", Token: token}
		}
	}
	for _, c := range []struct {
		name    string
		token   kv.Token
		outcome kv.Outcome
		err     error
		status  int
		asked   int
	}{
		{"committed", "t", kv.OutcomeCommitted, nil, 200, 1},
		{"not committed", "t", kv.OutcomeNotCommitted, nil, 503, 1},
		{"still unknown", "t", kv.OutcomeUnknown, nil, 500, 1},
		{"the question fails", "t", kv.OutcomeCommitted, kv.ErrUnavailable, 500, 1},
		{"no token", "", kv.OutcomeCommitted, nil, 500, 0},
	} {
		f, s := newHooked(t)
		f.do(200, &protocol.PromiseCreate{ID: "warm", TimeoutAt: far})
		asked, before := 0, s.updates.Load()
		s.set(func(s *hooked) {
			s.after = unknown(c.token)
			s.resolve = func(token kv.Token) (kv.Outcome, error) {
				if token != c.token {
					t.Errorf("%s: asked about %q", c.name, token)
				}
				asked++
				return c.outcome, c.err
			}
		})
		r := f.Do(context.Background(), "default", &protocol.TaskCreate{PID: "w", TTL: 1000,
			Action: protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: tags(protocol.TagTarget, "poll://any@g")}}, nil)
		if r.Status != c.status || asked != c.asked {
			t.Errorf("%s: %d %s, asked %d times", c.name, r.Status, r.Message, asked)
		}
		if n := s.updates.Load() - before; n != 1 {
			t.Errorf("%s: %d attempts", c.name, n)
		}
		if c.status == 500 && (!strings.Contains(r.Message, "unknown") || !strings.Contains(r.Message, "never applies twice")) {
			t.Errorf("%s: the message is %q", c.name, r.Message)
		}
		s.set(func(s *hooked) { s.after = nil })
		// The commit took place, whatever was said: it has applied once.
		if task := f.do(200, &protocol.TaskGet{ID: "p"}).Body.(protocol.TaskBody).Task; task.Version != 1 {
			t.Errorf("%s: %+v", c.name, task)
		}
		if len(f.clock2().inFlight) != 0 {
			t.Errorf("%s: the operation is under way for ever", c.name)
		}
	}
}

// clock2 is the engine's clock; the fixture's own field of that name is its source.
func (f *fixture) clock2() *clock { return f.Engine.clock }

// Every first attempt meets a conflict: everything happens all the same, once, and is counted once. (C10)
func TestConflictsOnEveryFirstTry(t *testing.T) {
	f, s := newHooked(t)
	var mu sync.Mutex
	tries := 0
	s.set(func(s *hooked) {
		s.within = func(kv.Hints, kv.Tx) error {
			mu.Lock()
			defer mu.Unlock()
			if tries++; tries%2 == 1 {
				return kv.ErrConflict
			}
			return nil
		}
	})
	target := tags(protocol.TagTarget, "poll://any@g")
	for i := range 20 {
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprint("p", i), TimeoutAt: f.Now() + 1000, Tags: target})
		claim := f.do(200, &protocol.TaskAcquire{ID: fmt.Sprint("p", i), Version: 0, PID: "w", TTL: 100}).Body.(protocol.ClaimBody)
		if claim.Task.Version != 1 {
			t.Fatalf("%+v", claim.Task)
		}
	}
	f.do(200, &protocol.TaskHeartbeat{PID: "w"})
	f.clock.advance(2 * time.Second)
	before := f.Counts().Steps
	steps, _, err := f.Tick(context.Background(), f.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		if err := f.Fire(context.Background(), step); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.Counts().Steps - before; n != int64(len(steps)) {
		t.Errorf("%d steps were counted as %d", len(steps), n)
	}
	for i := range 5 {
		f.do(200, &protocol.PromiseCreate{ID: fmt.Sprint("unarmed", i), TimeoutAt: f.Now() + 10})
	}
	f.clock.advance(time.Second)
	f.sweepAll()
	settled := len(f.do(200, &protocol.PromiseSearch{State: protocol.RejectedTimedout, Limit: 1000}).Body.(protocol.PromisesBody).Promises)
	if c := f.Counts(); settled != 25 || c.Swept != 5 {
		t.Errorf("25 promises timed out: %d are, the sweep counted %d of 5", settled, c.Swept)
	}
	// Conflicts without end: 503 within the request's deadline, nothing changed.
	s.set(func(s *hooked) { s.within = func(kv.Hints, kv.Tx) error { return kv.ErrConflict } })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if r := f.Do(ctx, "default", &protocol.PromiseCreate{ID: "never", TimeoutAt: far}, nil); r.Status != 503 || !strings.Contains(r.Message, "nothing was changed") {
		t.Errorf("%d %s", r.Status, r.Message)
	}
	s.set(func(s *hooked) { s.within = nil })
	f.do(404, &protocol.PromiseGet{ID: "never"})
}

// What is answered when the store fails; nothing of it is an answer that an SDK takes for one of the protocol's.
func TestFailuresOfTheStore(t *testing.T) {
	f, s := newHooked(t)
	f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far})
	for want, errs := range map[int][]error{
		503: {kv.ErrOverloaded, kv.ErrUnavailable, kv.ErrClosed, context.DeadlineExceeded, context.Canceled},
		400: {kv.ErrTooLarge, kv.ErrLimit},
		501: {kv.ErrPartition},
		500: {kv.ErrCorrupt, errForeign},
	} {
		for _, err := range errs {
			s.set(func(s *hooked) {
				s.before = func(kv.Hints) error { return err }
				s.reading = func() error { return err }
			})
			f.do(want, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
			f.do(want, &protocol.PromiseGet{ID: "p"})
			if ready := f.Ready(context.Background()); ready == nil {
				t.Errorf("ready while the store says %v", err)
			}
		}
	}
	s.set(func(s *hooked) { s.before, s.reading = nil, nil })
	if p := promiseOf(f.do(200, &protocol.PromiseGet{ID: "p"})); p.State != protocol.Pending {
		t.Errorf("%+v", p)
	}
	if err := f.Ready(context.Background()); err != nil {
		t.Error(err)
	}
}

// sweepAll sweeps until the sweep has gone round.
func (f *fixture) sweepAll() {
	f.t.Helper()
	for range 200 {
		if err := f.Sweep(context.Background()); err != nil {
			f.t.Fatal(err)
		}
		if f.sweeper.workspace == "" && f.sweeper.unblocks == nil {
			return
		}
	}
	f.t.Fatal("the sweep does not come round")
}
