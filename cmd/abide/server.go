package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"abide/internal/bench"
)

// serverOptions is what serve and dev have decided before anything is opened.
type serverOptions struct {
	settings  serverSettings
	listeners []net.Listener // open; runServer closes them
	dataFile  string
	debug     bool
}

// service is the server behind the HTTP listener.
type service struct {
	http *http.Server
	// drain makes new requests be refused.
	drain func()
	// endStreams ends the workers' streams and waits until they are gone, or ctx ends.
	endStreams func(ctx context.Context) error
	// close stops the loops, flushes and closes the store.
	close func(ctx context.Context) error
}

// stopSignals gives the signals that ask the process to end.
func stopSignals() <-chan os.Signal {
	// Room for two: the second one ends the process at once and must not be lost.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return signals
}

// runServer serves until a signal, and then stops: it refuses new requests, ends the streams, finishes the
// requests in flight, and closes the store. All of it together takes at most the shutdown timeout. A
// second signal ends the process at once.
func runServer(in surroundings, logger *slog.Logger, o serverOptions) error {
	s, err := openService(logger, o)
	if err != nil {
		for _, l := range o.listeners {
			_ = l.Close()
		}
		return err
	}
	ended := make(chan error, len(o.listeners))
	for _, l := range o.listeners {
		logger.Info(bench.ListeningMessage, bench.ListeningAddress, l.Addr().String(), "version", buildVersion(), "data", o.dataFile)
		go func() { ended <- s.http.Serve(l) }()
	}
	var failure error
	select {
	case sig := <-in.signals:
		logger.Info("stopping", "signal", sig.String(), "timeout", o.settings.ServerShutdownTimeout.duration())
	case failure = <-ended: // a listener failed: nothing can reach the server any more
	}
	stopped := make(chan struct{})
	go func() {
		select {
		case <-in.signals:
			in.abort()
		case <-stopped:
		}
	}()
	s.stop(logger, o.settings.ServerShutdownTimeout.duration())
	close(stopped)
	return failure
}

// stop ends the service within timeout. What does not end by then is logged and left: the store loses
// nothing that was acknowledged, however the process ends.
func (s *service) stop(logger *slog.Logger, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s.drain()
	streams := make(chan error, 1)
	go func() { streams <- s.endStreams(ctx) }()
	if err := errors.Join(s.http.Shutdown(ctx), <-streams); err != nil {
		logger.Warn("requests were still in flight at the shutdown timeout", "error", err)
		_ = s.http.Close()
	}
	if err := s.close(ctx); err != nil {
		logger.Warn("the store was not closed in time; nothing acknowledged is lost", "error", err)
		return
	}
	logger.Info("stopped")
}
