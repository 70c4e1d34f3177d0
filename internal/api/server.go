package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Times that an HTTP connection has. An idle one may stay for ever: SDKs pool their sockets, and one that the
// server closes at the wrong moment is a failed request there.
const (
	// headerTimeout is for the head of a request, from its first byte.
	headerTimeout = 10 * time.Second
	// readTimeout is for a whole request, head and body.
	readTimeout = 20 * time.Second
	// writeTimeout is for a request from its head to the end of its answer: reading the body, the engine's
	// time, and a client that is slow to read. Streams set their own deadline for each write.
	writeTimeout = 60 * time.Second
	// maxHeaderBytes is enough for tokens of every sort.
	maxHeaderBytes = 64 << 10
)

// Server is an http.Server that stops without waiting for connections on which nothing was ever sent: pools
// of clients leave such, and net/http would give each of them five seconds.
type Server struct {
	*http.Server
	mu     sync.Mutex
	silent map[net.Conn]struct{}
}

// NewServer returns an HTTP server for h with the timeouts that keep slow and silent clients from holding
// it up. What net/http has to say about connections goes to log as debug messages: it is about clients.
func NewServer(h http.Handler, log *slog.Logger) *Server {
	s := &Server{silent: map[net.Conn]struct{}{}}
	s.Server = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       -1, // zero would mean ReadTimeout
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState:         s.noteState,
	}
	return s
}

// noteState remembers which connections have not sent a byte yet.
func (s *Server) noteState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.silent[c] = struct{}{}
	} else {
		delete(s.silent, c)
	}
}

// Shutdown closes the listeners and the silent connections, and waits for the requests in flight until ctx
// ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.RegisterOnShutdown(s.closeSilent) // runs once the listeners are closed: no new ones come
	return s.Server.Shutdown(ctx)
}

func (s *Server) closeSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.silent {
		_ = c.Close() // its reader sees the end and lets go of it
	}
}
