// Package testserver starts a whole server in the process of a test: the HTTP surface, the engine and delivery, over a
// store in memory. It is for tests of what speaks to servers; those of a server's own parts make them themselves.
package testserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"time"

	"abide/internal/api"
	"abide/internal/deliver"
	"abide/internal/engine"
	"abide/internal/keyspace"
	"abide/kv/memkv"
	"abide/protocol"
)

// stopTimeout bounds the end of a server.
const stopTimeout = 10 * time.Second

// Options of a Server; the zero value is a plain one.
type Options struct {
	// Wrap, if not nil, is put around the server's handler.
	Wrap func(http.Handler) http.Handler
}

// Server is a running server with debug on. All its data is gone when it stops.
type Server struct {
	// URL is where it is reached, without a slash at the end.
	URL string

	http     *httptest.Server
	handler  *api.Handler
	delivery *deliver.Deliverer
	engine   *engine.Engine
	store    *memkv.Store
}

// Start starts a server on a free port of the loopback interface. Stop it.
func Start(o Options) (*Server, error) {
	s := &Server{store: memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register(), Now: time.Now})}
	var err error
	if s.engine, err = engine.Open(context.Background(), s.store, engine.Options{}); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	started := time.Now()
	s.delivery = deliver.New(deliver.Options{
		Outbox:    s.engine.Outbox(),
		ServerURL: func(string) string { return s.URL },
		NowMs:     func() int64 { return time.Since(started).Milliseconds() },
	})
	s.handler, err = api.New(served{s.engine, s.delivery}, api.Options{
		Debug: true, Poll: api.Poll(s.delivery, api.PollOptions{Now: time.Now}),
	})
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	var handler http.Handler = s.handler
	if o.Wrap != nil {
		handler = o.Wrap(handler)
	}
	s.http = httptest.NewServer(handler)
	s.URL = s.http.URL
	s.engine.Start(s.delivery)
	return s, nil
}

// Stop ends the server and everything that it has started.
func (s *Server) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := s.delivery.Stop(ctx)
	if s.http != nil {
		s.http.CloseClientConnections()
		s.http.Close()
	}
	return errors.Join(err, s.engine.Stop(ctx), s.store.Close())
}

// served is the engine, with what only delivery knows added to its answers, as the command serves it.
type served struct {
	*engine.Engine
	delivery *deliver.Deliverer
}

// Do serves one request.
func (s served) Do(ctx context.Context, workspace string, req protocol.Request, debugTime *int64) protocol.Reply {
	return s.delivery.Explain(workspace, s.Engine.Do(ctx, workspace, req, debugTime))
}
