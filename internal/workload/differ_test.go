package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/api"
	"abide/internal/engine"
	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
	"abide/kv/memkv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

const serverRetryMs = 30_000

// bigDrain is more than the 256 waiters that the server wakes in one transaction.
const bigDrain = 300

// maxRepeats is how often a request is repeated that has done a part.
const maxRepeats = 10

// handlerServer posts to an API without sockets, and remembers the latest debug time.
type handlerServer struct {
	handler http.Handler
	latest  atomic.Int64
}

// Post posts. On a busy disk a request that takes many transactions may not end in its time, does a part, and asks to
// be repeated.
func (s *handlerServer) Post(path string, body []byte) (int, []byte, error) {
	if asked, err := protocol.DecodeEnvelope(body); err == nil && asked.DebugTime != nil {
		for at := s.latest.Load(); *asked.DebugTime > at && !s.latest.CompareAndSwap(at, *asked.DebugTime); at = s.latest.Load() {
		}
	}
	for n := 0; ; n++ {
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
		if n == maxRepeats || !bytes.Contains(w.Body.Bytes(), []byte("part of it has been done. Repeat it.")) {
			return w.Code, w.Body.Bytes(), nil
		}
	}
}

// stores are what the server is tested on. In memory every transaction runs twice: a retry must change nothing.
var stores = map[string]func(t *testing.T) kv.Store{
	"sqlite": func(t *testing.T) kv.Store {
		s, err := sqlitekv.Open(sqlitekv.Options{
			Path: filepath.Join(t.TempDir(), "abide.db"), Keys: keyspace.Register(), Now: time.Now,
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	},
	"memory": func(*testing.T) kv.Store {
		return memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register(), Now: time.Now, RunTwice: true})
	},
}

func startServer(t *testing.T) Server { return startServerOn(t, "sqlite") }

// startServerOn is a whole server, but for the sockets, the timers and the delivery.
func startServerOn(t *testing.T, name string) *handlerServer {
	t.Helper()
	server, _ := startServerOver(t, stores[name](t), engine.Options{})
	return server
}

// startServerOver is startServerOn over any store, which the test's end closes after it has been checked from end to
// end.
func startServerOver(t *testing.T, s kv.Store, opt engine.Options) (*handlerServer, *engine.Engine) {
	t.Helper()
	opt.RetryTimeoutMs = serverRetryMs
	e, err := engine.Open(context.Background(), s, opt)
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	handler, err := api.New(e, api.Options{Debug: true})
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	server := &handlerServer{handler: handler}
	t.Cleanup(func() {
		checker := store.Checker{
			Store: s, Layout: keyspace.Layout{Shards: 1}, NowMs: server.latest.Load(),
			Report: func(p store.Problem) { t.Errorf("the store breaks an invariant: %s", p) },
		}
		_, err := checker.Check(context.Background())
		if err := errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return server, e
}

// seeds are those of a test: as many as are given from 0 on, or the one of the environment's ABIDE_SEED.
func seeds(t *testing.T, n int) []uint64 {
	if text := os.Getenv("ABIDE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	var out []uint64
	for seed := range n {
		out = append(out, uint64(seed))
	}
	return out
}

// long is more where ABIDE_LONG is set.
func long(few, many int) int {
	if os.Getenv("ABIDE_LONG") != "" {
		return many
	}
	return few
}

// differentialRequests is how long a run is where requests are quick.
const differentialRequests = 2000

// TestDifferential asks the same of the server and of the model.
func TestDifferential(t *testing.T) {
	for name, runs := range map[string]int{"sqlite": long(3, 300), "memory": long(1, 300)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			differential(t, startServerOn(t, name), seeds(t, runs), differentialRequests)
		})
	}
}

func differential(t *testing.T, server Server, seeds []uint64, requests int) {
	met := NewCoverage()
	for _, seed := range seeds {
		run := NewRun(server, fmt.Sprintf("seed%d-", seed), serverRetryMs)
		g := NewGenerator(seed)
		if seed%3 == 0 {
			g.BigDrain = bigDrain
		}
		err := run.Generate(g, requests, 100)
		met.Merge(run.Coverage)
		var found *Difference
		if errors.As(err, &found) {
			short := Shrink(found, Replayer(server, fmt.Sprintf("shrink%d", seed), serverRetryMs))
			t.Fatalf("the server and the model differ; ABIDE_SEED=%d repeats it:\n%v", seed, short)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d runs of %d requests, %d situations", len(seeds), requests, len(met.Situations()))
}

// TestWide asks what takes a server more than one transaction, or more than one page: suspends on hundreds of
// promises with large tags, searches of megabytes, a promise that all of them wait for.
func TestWide(t *testing.T) {
	t.Parallel()
	const awaited = 200
	run := NewRun(startServer(t), "wide-", serverRetryMs)
	do := func(req protocol.Request) {
		t.Helper()
		if err := run.Do(Op{firstSpace, Start, req}); err != nil {
			var found *Difference
			if errors.As(err, &found) {
				t.Fatalf("%s: %s", req.Kind(), found.What)
			}
			t.Fatal(err)
		}
	}
	filler := strings.Repeat("x", 30<<10)
	suspend := &protocol.TaskSuspend{ID: "waits", Version: 1}
	for n := range awaited {
		id := fmt.Sprintf("wide.%d", n)
		do(&protocol.PromiseCreate{ID: id, TimeoutAt: Start + farMs, Tags: protocol.Tags{{Name: "filler", Value: filler}}})
		suspend.Awaited = append(suspend.Awaited, id)
	}
	do(&protocol.PromiseCreate{ID: "waits", TimeoutAt: Start + farMs, Tags: flavours[2]})
	do(&protocol.TaskAcquire{ID: "waits", PID: "p", TTL: 60_000})
	refused := *suspend
	refused.Awaited = append(slices.Clone(suspend.Awaited), "nobody")
	do(&refused)
	do(&protocol.DebugSnap{})
	do(suspend)
	do(&protocol.DebugSnap{})
	do(&protocol.PromiseSearch{Limit: 1000, Tags: protocol.Tags{{Name: "filler", Value: filler}}})
	do(&protocol.PromiseSearch{Limit: 1000, State: protocol.Pending})
	do(&protocol.PromiseSettle{ID: "wide.7", State: protocol.Resolved})
	do(&protocol.TaskAcquire{ID: "waits", Version: 1, PID: "p", TTL: 60_000})
	do(&protocol.TaskSuspend{ID: "waits", Version: 2, Awaited: suspend.Awaited})
	do(&protocol.DebugSnap{})
}
