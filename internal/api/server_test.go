package api

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A connection that has sent nothing is nobody's request: a stop does not wait for it.
func TestShutdownDoesNotWaitForSilentConnections(t *testing.T) {
	// net/http itself lets go of such a connection after five seconds. A busy machine may need those.
	for range 10 {
		if took := stopWithASilentConnection(t); took < 4*time.Second {
			return
		}
	}
	t.Error("a stop waits for a silent connection")
}

func stopWithASilentConnection(t *testing.T) (took time.Duration) {
	t.Helper()
	accepted := make(chan struct{})
	s := NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	note := s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		note(c, state)
		if state == http.StateNew {
			close(accepted)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-accepted
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatalf("stop: %v", err)
	}
	took = time.Since(begun)
	if err := <-served; err != http.ErrServerClosed {
		t.Fatal(err)
	}
	return took
}

// A request that is on its way on a kept connection when the server begins to stop is told to try again: its connection
// is not closed under it. Once no connection is kept, a stop waits no longer.
func TestShutdownAnswersKeptConnections(t *testing.T) {
	const linger = time.Minute
	h, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(h, slog.New(slog.DiscardHandler))
	s.linger = linger
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{}}
	ask := func(method string) *http.Response {
		req, err := http.NewRequest(method, "http://"+l.Addr().String()+map[string]string{"GET": "/health", "POST": "/"}[method],
			strings.NewReader(`{"kind":"task.get","head":{"corrId":"1","version":"2026-04-01"},"data":{"id":"t"}}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	ask("GET")
	h.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), linger/2)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(ctx) }()
	time.Sleep(5 * lingerLook) // a stop that closes at once has done so by then
	if resp := ask("POST"); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !resp.Close {
		t.Errorf("a request on a kept connection while the server stops: %s %v", resp.Status, resp.Header)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}
