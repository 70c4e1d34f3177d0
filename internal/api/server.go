package api

import (
	"context"
	"errors"
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
	// lingerTime is how long a stop leaves connections without a request open. A request that is just on its way on one
	// gets an answer of a Handler that drains, which is to try again elsewhere; on a connection that is closed under it,
	// its client would not know whether it was served.
	lingerTime = 300 * time.Millisecond
	// lingerLook is how often a stop looks whether any are left.
	lingerLook = 10 * time.Millisecond
)

// Server is an http.Server that stops without waiting for connections on which nothing was ever sent: pools
// of clients leave such, and net/http would give each of them five seconds.
type Server struct {
	*http.Server
	// MaxConnections bounds the connections that are open at once, without those of streams, which have limits of their
	// own; one more is answered 503 and closed, without an answer if it is encrypted. 0 stands for DefaultMaxConnections. Set it before Serve.
	MaxConnections int

	linger time.Duration
	log    *slog.Logger

	mu        sync.Mutex
	open      int  // connections
	crowded   bool // the log has told that there are as many as there may be
	stopping  bool
	listeners []net.Listener
	silent    map[net.Conn]struct{}
	kept      map[net.Conn]struct{} // have served a request and wait for the next
}

// NewServer returns an HTTP server for h with the timeouts that keep slow and silent clients from holding
// it up. What net/http has to say about connections goes to log as debug messages: it is about clients.
func NewServer(h http.Handler, log *slog.Logger) *Server {
	s := &Server{silent: map[net.Conn]struct{}{}, kept: map[net.Conn]struct{}{}, linger: lingerTime, log: log}
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

// noteState remembers which connections have not sent a byte yet, and which are between two requests.
func (s *Server) noteState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.silent, c)
	delete(s.kept, c)
	switch state {
	case http.StateNew:
		s.open++
		s.silent[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		s.open--
	case http.StateIdle:
		s.kept[c] = struct{}{}
	}
}

// Serve is http.Server's, and returns http.ErrServerClosed once Shutdown has been called.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listeners = append(s.listeners, l)
	stopping := s.stopping
	s.mu.Unlock()
	if stopping {
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	err := s.Server.Serve(roomyListener{l, s})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return http.ErrServerClosed
	}
	return err
}

// Shutdown closes the listeners, serves on for a moment, 0.3 s at most, as long as there are connections without a
// request; then it closes those, and waits for the requests in flight until ctx ends. Have the Handler drain before:
// it closes each connection with its next answer.
func (s *Server) Shutdown(ctx context.Context) error {
	closed := s.closeListeners()
	s.lingerOn(ctx)
	s.RegisterOnShutdown(s.closeSilent)
	return errors.Join(closed, s.Server.Shutdown(ctx))
}

// closeListeners has new connections refused.
func (s *Server) closeListeners() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.listeners = nil
	return errors.Join(errs...)
}

// lingerOn waits until no connection is without a request, or for the time that they are left open.
func (s *Server) lingerOn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.linger)
	defer cancel()
	look := time.NewTicker(lingerLook)
	defer look.Stop()
	for s.waiting() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept)+len(s.silent) > 0
}

func (s *Server) closeSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.silent {
		_ = c.Close() // its reader sees the end and lets go of it
	}
}
