package engine

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/memkv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

var stormFlag = flag.Duration("storm", 700*time.Millisecond, "how long the storms blow")

// storm is very many clients at once on few ids, on the real clock, with the loops running.
type storm struct {
	*fixture
	mu      sync.Mutex
	settled map[string][]byte // the first answer that showed the promise as settled
	reads   atomic.Int64
	claims  sync.Map // "id v" -> struct{}: versions that a claim has returned
}

// The answers of many clients at once are those of one server: once an answer has shown a promise as settled, every
// later one shows the same record; no version is handed out twice; no request fails but for what was injected; and
// afterwards everything is as it must be.
func TestStorm(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) kv.Store{
		"memory": func(*testing.T) kv.Store {
			return memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register(), RunTwice: true})
		},
		"sqlite": func(t *testing.T) kv.Store {
			s, err := sqlitekv.Open(sqlitekv.Options{Path: filepath.Join(t.TempDir(), "abide.db"), Keys: keyspace.Register()})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			inner := open(t)
			hooks := &hooked{Store: inner}
			var faults atomic.Int64
			hooks.within = func(kv.Hints, kv.Tx) error {
				if faults.Add(1)%7 == 0 {
					return kv.ErrConflict
				}
				return nil
			}
			e, err := Open(context.Background(), hooks, Options{PollIntervalMs: 50, RetryTimeoutMs: 40, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			s := &storm{fixture: &fixture{Engine: e, t: t, store: hooks}, settled: map[string][]byte{}}
			e.Start(nil)
			s.blow(*stormFlag)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := e.Stop(ctx); err != nil {
				t.Error(err)
			}
			hooks.set(func(h *hooked) { h.within = nil })
			s.check()
			if n := len(e.clock.inFlight); n != 0 {
				t.Errorf("%d operations are under way for ever", n)
			}
			t.Logf("%d answers showed promises", s.reads.Load())
			inner.Close()
		})
	}
}

func (s *storm) blow(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var clients sync.WaitGroup
	for i := range 32 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for n := 0; ctx.Err() == nil; n++ {
				s.one(r, n)
			}
		}()
	}
	clients.Wait()
}

// one is one request of one client. Ids come and go, so that there is always something that is alive.
func (s *storm) one(r *rand.Rand, n int) {
	id := func() string { return fmt.Sprintf("p%d.%d", n/40, r.IntN(4)) }
	a, b := id(), id()
	if a == b {
		b += "x"
	}
	version := r.Int64N(4)
	timeout := s.Now() + r.Int64N(60) - 2
	var req protocol.Request
	switch r.IntN(13) {
	case 0, 1:
		req = &protocol.PromiseCreate{ID: a, TimeoutAt: timeout, Tags: target}
	case 2:
		req = &protocol.PromiseCreate{ID: a, TimeoutAt: timeout}
	case 3:
		req = &protocol.PromiseSettle{ID: a, State: protocol.Resolved, Value: protocol.MakeValue(nil, fmt.Sprint(n))}
	case 4:
		req = &protocol.TaskCreate{PID: "w", TTL: 5, Action: protocol.PromiseCreate{ID: a, TimeoutAt: timeout, Tags: target}}
	case 5:
		req = &protocol.TaskAcquire{ID: a, Version: version, PID: "w", TTL: 5}
	case 6:
		req = &protocol.TaskSuspend{ID: a, Version: version, Awaited: []string{b}}
	case 7:
		req = &protocol.TaskFulfill{ID: a, Version: version, Action: protocol.PromiseSettle{ID: a, State: protocol.Rejected}}
	case 8:
		req = &protocol.TaskHeartbeat{PID: "w"}
	case 9:
		req = &protocol.PromiseRegisterListener{Awaited: a, Address: "poll://uni@g/w"}
	case 10:
		req = &protocol.PromiseSearch{State: protocol.Resolved, Limit: 20}
	default:
		req = &protocol.PromiseGet{ID: a}
	}
	s.mu.Lock()
	known := make(map[string][]byte, len(s.settled))
	for id, record := range s.settled {
		known[id] = record
	}
	s.mu.Unlock()
	reply := s.Do(context.Background(), "default", req, nil)
	if reply.Status >= 500 {
		s.t.Errorf("%s: %d %s", req.Kind(), reply.Status, reply.Message)
	}
	s.look(known, reply)
}

// look holds an answer against what had been answered before it was asked for.
func (s *storm) look(known map[string][]byte, reply protocol.Reply) {
	var promises []protocol.Promise
	switch body := reply.Body.(type) {
	case protocol.PromiseBody:
		promises = append(promises, body.Promise)
	case protocol.PromisesBody:
		promises = body.Promises
	case protocol.ClaimBody:
		promises = append(promises, body.Promise)
		if body.Task.State == protocol.TaskAcquired {
			if _, twice := s.claims.LoadOrStore(fmt.Sprint(body.Task.ID, " v", body.Task.Version), struct{}{}); twice {
				s.t.Errorf("%s was claimed twice at version %d", body.Task.ID, body.Task.Version)
			}
		}
	}
	for _, p := range promises {
		s.reads.Add(1)
		record := p.AppendJSON(nil)
		if was, ok := known[p.ID]; ok && !bytes.Equal(was, record) {
			s.t.Errorf("answered before: %s\nanswered now:    %s", was, record)
		}
		if p.State == protocol.Pending {
			continue
		}
		s.mu.Lock()
		if was, ok := s.settled[p.ID]; !ok {
			s.settled[p.ID] = record
		} else if !bytes.Equal(was, record) {
			s.t.Errorf("two clients were told\n%s\n%s", was, record)
		}
		s.mu.Unlock()
	}
}
