package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"abide/internal/api"
	"abide/internal/deliver"
	"abide/internal/engine"
	"abide/internal/metrics"
	"abide/internal/push"
	"abide/internal/trace"
	"abide/protocol"
)

const (
	// openTimeout bounds the opening of a service: the wait for a clock that is behind, the first transactions.
	openTimeout = 30 * time.Second
	// deliveryStuck is how long beyond a poll interval, in which they come round at least once, delivery's
	// loops may be silent before the server is not ready. A call that hangs ends at its deadline.
	deliveryStuck = 30 * time.Second
)

// service is the server behind the listeners, from the HTTP surface down to the store.
type service struct {
	http      *api.Server
	handler   *api.Handler
	delivery  *deliver.Deliverer
	push      *push.Pusher
	engine    *engine.Engine
	store     dataStore
	metrics   *metrics.Metrics
	tracer    *trace.Tracer
	readiness readiness
}

// openService opens the store, starts the engine and delivery on top of it, and puts the API in front.
func openService(logger *slog.Logger, o serverOptions) (*service, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	store, err := openStore(ctx, o.store, logger)
	if err != nil {
		return nil, err
	}
	s := &service{store: store}
	if s.tracer, err = openTracer(ctx, logger, o); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s.engine, err = engine.Open(ctx, store, engine.Options{
		RetryTimeoutMs: int64(o.settings.TasksRetryTimeout),
		PollIntervalMs: int64(o.settings.TimeoutsPollInterval),
		JournalAgeMs:   int64(o.settings.JournalRetentionAge),
		JournalEntries: int64(o.settings.JournalRetentionEntries),
		ServerID:       serverID(o, store),
		Identity:       o.identity(),
		MaxWorkspaces:  o.settings.LimitsWorkspaces,
		Log:            logger,
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if s.push, err = newPush(logger, o, s.engine, s.tracer); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s.delivery = newDelivery(logger, o, s.engine, s.tracer)
	if s.metrics, err = s.newMetrics(ctx, logger, o); err != nil {
		return nil, errors.Join(err, s.delivery.Stop(ctx), s.push.Stop(ctx, ctx), store.Close())
	}
	stuckAfter := o.settings.MessagesPollInterval.duration() + deliveryStuck
	s.readiness = readiness{s.engine, s.delivery, s.push, store, stuckAfter}
	s.handler, err = api.New(s.readiness, api.Options{
		Debug:       o.debug,
		CORSOrigins: o.settings.ServerCORSAllowOrigin,
		Hosts:       o.hosts,
		Auth:        o.guard.auth,
		Poll:        api.Poll(s.delivery, api.PollOptions{Now: time.Now, Log: logger}),
		Log:         logger,
		Observe:     s.observer(o),
		Tracer:      s.tracer,
		SlowRequest: o.settings.ObservabilitySlowRequest.duration(),
		Timed:       timed,
		Now:         time.Now,

		MaxInFlight:          o.settings.LimitsRequests,
		MaxWorkspaceInFlight: o.settings.requestsPerWorkspace(),
		MaxBufferedBytes:     int64(o.settings.LimitsBufferedBytes),
	})
	if err != nil {
		return nil, errors.Join(err, s.delivery.Stop(ctx), s.push.Stop(ctx, ctx), store.Close())
	}
	s.http = api.NewServer(s.handler, logger)
	s.http.MaxConnections = o.settings.openConnections(logger)
	s.engine.Start(hints{s.delivery, s.push})
	return s, nil
}

func newDelivery(logger *slog.Logger, o serverOptions, e *engine.Engine, tracer *trace.Tracer) *deliver.Deliverer {
	base := o.settings.baseURL(portOf(o.listeners[0]))
	started := time.Now()
	limits := o.settings.streams()
	limits.PollMs = int64(o.settings.MessagesPollInterval)
	limits.HoldMs = int64(o.settings.TasksRetryTimeout) // then the task is queued again anyway
	return deliver.New(deliver.Options{
		Outbox:    e.Outbox(),
		Roster:    e.Roster(),
		ServerURL: func(workspace string) string { return workspaceURL(base, workspace) },
		NowMs:     func() int64 { return time.Since(started).Milliseconds() },
		Logger:    logger,
		Tracer:    tracer,
		Limits:    limits,
	})
}

// serverID names the server among those that share the store; empty where there are no others, for the engine's own name.
func serverID(o serverOptions, s dataStore) string {
	of, ok := s.(interface{ Shared() bool })
	switch {
	case !ok || !of.Shared():
		return ""
	case o.settings.ServerID != "":
		return o.settings.ServerID
	}
	return net.JoinHostPort(hostname(), strconv.Itoa(portOf(o.listeners[0])))
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// identity is what other servers on the store, and people, are told of this one.
func (o serverOptions) identity() engine.Identity {
	return engine.Identity{
		Host: hostname(), ProcessID: int64(os.Getpid()), URL: o.settings.baseURL(portOf(o.listeners[0])), Version: buildVersion(),
	}
}

// workspaceURL is where a worker of the workspace reaches the server. Names of workspaces need no escaping.
func workspaceURL(base, workspace string) string {
	if workspace == api.DefaultWorkspace {
		return base
	}
	return base + "/w/" + workspace
}

// readiness is the engine as the API sees it: a server whose delivery hangs, or whose store cannot write, is
// not ready either, and an answer may need what only delivery knows.
type readiness struct {
	*engine.Engine
	delivery   *deliver.Deliverer
	push       *push.Pusher
	store      dataStore
	stuckAfter time.Duration
}

// Ready reports what keeps the server from serving.
func (r readiness) Ready(ctx context.Context) error { return withoutAddresses(r.ready(ctx)) }

func (r readiness) ready(ctx context.Context) error {
	if err := r.store.Writable(); err != nil {
		return fmt.Errorf("the store cannot be written: %w", err)
	}
	if stuck := time.Duration(r.delivery.Health().StuckMs()) * time.Millisecond; stuck > r.stuckAfter {
		return fmt.Errorf("delivery has not moved for %s", stuck.Round(time.Second))
	}
	if stuck := time.Duration(r.push.Health().StuckMs()) * time.Millisecond; stuck > r.stuckAfter {
		return fmt.Errorf("push has not moved for %s", stuck.Round(time.Second))
	}
	return r.Engine.Ready(ctx)
}

// Note is what a server that is ready has to say of its store.
func (r readiness) Note() string {
	if weak := weakness(r.store); weak != "" {
		return "the store may lose acknowledged writes, as --accept-data-loss allows: " + weak
	}
	return ""
}

// Do serves a request. Only delivery knows who is connected: it completes the answer of task.explain.
func (r readiness) Do(ctx context.Context, workspace string, req protocol.Request, debugTime *int64) protocol.Reply {
	return r.push.Explain(workspace, r.delivery.Explain(workspace, r.Engine.Do(ctx, workspace, req, debugTime)))
}

// stop ends the service within timeout. What does not end by then is logged and left: the store loses
// nothing that was acknowledged, however the process ends.
func (s *service) stop(logger *slog.Logger, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s.handler.Drain()
	streams, pushed := make(chan error, 1), make(chan error, 1)
	go func() { streams <- s.delivery.Stop(ctx) }()
	go func() { pushed <- stopPush(ctx, s.push, timeout) }()
	if err := errors.Join(s.http.Shutdown(ctx), <-streams, <-pushed); err != nil {
		logger.Warn("requests were still in flight at the shutdown timeout", "error", err)
		_ = s.http.Close()
	}
	if err := s.closeStore(ctx); err != nil {
		logger.Warn("the store was not closed in time; nothing acknowledged is lost", "error", err)
		return
	}
	stopTracing(ctx, logger, s.tracer)
	logger.Info("stopped")
}

// closeStore ends the engine's loops and closes the store, or gives up waiting for it when ctx ends.
func (s *service) closeStore(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(s.engine.Stop(ctx), s.store.Close()) }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
