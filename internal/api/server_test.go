package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// A connection that has sent nothing is nobody's request: a stop does not wait for it.
func TestShutdownDoesNotWaitForSilentConnections(t *testing.T) {
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
	// net/http itself lets go of such a connection after five seconds; the context ends well before.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if err := <-served; err != http.ErrServerClosed {
		t.Fatal(err)
	}
}
