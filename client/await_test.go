package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"abide/client"
	"abide/internal/testserver"
	"abide/protocol"
)

func serverAndClient(t *testing.T, o testserver.Options) *client.Client {
	t.Helper()
	server, err := testserver.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pendingPromise(t *testing.T, c *client.Client, id string, timeout time.Duration) {
	t.Helper()
	if _, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: time.Now().Add(timeout).UnixMilli()}); err != nil {
		t.Fatal(err)
	}
}

func TestAwait(t *testing.T) {
	c := serverAndClient(t, testserver.Options{})
	if _, err := c.Await(t.Context(), "nobody"); client.Status(err) != 404 {
		t.Errorf("no such promise: %v", err)
	}
	// Nobody settles it: what waits for a promise arms its timeout.
	pendingPromise(t, c, "late", 100*time.Millisecond)
	if p, err := c.Await(t.Context(), "late"); err != nil || p.State != protocol.RejectedTimedout {
		t.Errorf("timeout: %+v, %v", p, err)
	}
	if p, err := c.Await(t.Context(), "late"); err != nil || p.State != protocol.RejectedTimedout {
		t.Errorf("settled before: %+v, %v", p, err)
	}
	pendingPromise(t, c, "never", time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Await(ctx, "never"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("context: %v", err)
	}
}

// TestAwaitNeedsNoMessage: without streams, and through a server that fails for a while, it looks by itself.
func TestAwaitNeedsNoMessage(t *testing.T) {
	// It fails at the first two looks that follow the create, the get and the listener.
	const before, outage = 3, 2
	var asked atomic.Int64
	over := make(chan struct{})
	c := serverAndClient(t, testserver.Options{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/poll/") {
				http.Error(w, "not here", http.StatusNotFound)
				return
			}
			n := asked.Add(1)
			if n <= before || n > before+outage {
				h.ServeHTTP(w, r)
				return
			}
			http.Error(w, "not here", http.StatusNotFound)
			if n == before+outage {
				close(over)
			}
		})
	}})
	pendingPromise(t, c, "p", time.Hour)
	go func() {
		<-over
		_, _ = c.PromiseSettle(context.Background(), protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
	}()
	if p, err := c.Await(t.Context(), "p"); err != nil || p.State != protocol.Resolved {
		t.Errorf("%+v, %v", p, err)
	}
}
