package workload

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/engine"
	"abide/internal/testenv"
	"abide/kv"
	"abide/protocol"
)

// crossing has many workers at three servers claim, wait for and settle the same few promises, in every order. Nobody may
// hear an error of the server's, and no request may be tried again more than maxRetries times.
func crossing(t *testing.T, url string, workers, each int) {
	t.Helper()
	const promises, maxRetries = 8, 10
	var servers []*engine.Engine
	for n := range 3 {
		_, e := startServerOver(t, openDatabase(t, url), engine.Options{ServerID: fmt.Sprintf("server-%d", n)})
		e.Start(nil)
		servers = append(servers, e)
		t.Cleanup(func() {
			if err := e.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	far := time.Now().Add(time.Hour).UnixMilli()
	var retries, transactions atomic.Int64
	do := func(w int, req protocol.Request) protocol.Reply {
		timing := &kv.Timing{Now: time.Now}
		reply := servers[w%len(servers)].Do(kv.WithTiming(context.Background(), timing), "default", req, nil)
		if reply.Status >= 500 {
			t.Errorf("%s: %d %s", req.Kind(), reply.Status, reply.Message)
		}
		spent := timing.Spent()
		transactions.Add(spent.Transactions)
		if spent.Conflicts > maxRetries {
			t.Errorf("%s was tried again %d times", req.Kind(), spent.Conflicts)
		}
		for most := retries.Load(); spent.Conflicts > most && !retries.CompareAndSwap(most, spent.Conflicts); most = retries.Load() {
		}
		return reply
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			pid := fmt.Sprint("w", w)
			for i := range each {
				// Half of the workers go up, half down: each pair of promises is taken in both orders.
				step := 1 + i%(promises-1)
				if w%2 == 0 {
					step = promises - step
				}
				round := i / promises
				id := func(k int) string { return fmt.Sprintf("p%d.%d", round, k%promises) }
				a, b := id(w+i), id(w+i+step)
				for _, p := range []string{a, b} {
					do(w, &protocol.PromiseCreate{ID: p, TimeoutAt: far, Tags: protocol.Tags{}.With(protocol.TagTarget, "poll://any@g")})
				}
				do(w, &protocol.TaskAcquire{ID: a, Version: 0, PID: pid, TTL: 60_000})
				do(w, &protocol.TaskAcquire{ID: b, Version: 1, PID: pid, TTL: 60_000})
				do(w, &protocol.PromiseRegisterListener{Awaited: b, Address: "poll://uni@g/" + pid})
				do(w, &protocol.TaskFulfill{ID: a, Version: 1, Action: protocol.PromiseSettle{ID: a, State: protocol.Resolved}})
				do(w, &protocol.PromiseSettle{ID: b, State: protocol.Resolved})
			}
		})
	}
	wg.Wait()
	if transactions.Load() == 0 {
		t.Error("no transaction was counted")
	}
	t.Logf("%d transactions, none tried again more than %d times", transactions.Load(), retries.Load())
}

// No deadlock of the database reaches anybody, however soon it looks for one. (G1, G2)
func TestCrossingWorkersOnDatabases(t *testing.T) {
	for _, kind := range testenv.Databases() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := testenv.Database(t, kind)
			if strings.HasPrefix(url, "postgres") { // MySQL looks at once
				separator := "?"
				if strings.Contains(url, "?") {
					separator = "&"
				}
				url += separator + "options=-c%20deadlock_timeout%3D10ms"
			}
			crossing(t, url, 64, long(3, 60))
		})
	}
}
