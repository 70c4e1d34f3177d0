package main

import (
	"context"
	"log/slog"
	"net"
	"time"

	"abide/internal/bench"
	"abide/internal/children"
)

// serverOptions is what serve and dev have decided before anything is opened.
type serverOptions struct {
	settings  serverSettings
	listeners []net.Listener // open; runServer closes them
	store     storeAddress
	bind      string // where side listeners listen, unless their settings say otherwise
	debug     bool
	hosts     []string // the only names that the server answers to; empty: any
	guard     *guard   // what runServer has opened in front
	children  *children.Register
}

// runServer serves until a signal, and then stops: it refuses new requests, ends the streams, finishes the
// requests in flight, and closes the store. All of it together takes at most the shutdown timeout. A
// second signal ends the process at once.
func runServer(in surroundings, logger *slog.Logger, o serverOptions) error {
	defer reserveHeap()()
	hangUps, forget := surviveTerminal()
	defer forget()
	o.children = &children.Register{}
	var s *service
	var err error
	if o.guard, err = openGuard(logger, &o.settings, o.debug); err == nil {
		s, err = openService(logger, o)
	}
	if err != nil {
		for _, l := range o.listeners {
			_ = l.Close()
		}
		return err
	}
	guarding, stopGuarding := context.WithCancel(context.Background())
	defer stopGuarding()
	go o.guard.run(guarding, hangUps)
	go o.children.Run(guarding, logger)
	side := startSide(logger, o.settings.observabilitySettings, o.bind, s)
	defer side.close()
	boss := openSupervisor(in, logger)
	defer boss.close()
	ended := make(chan error, len(o.listeners))
	for _, l := range o.listeners {
		logger.Info(bench.ListeningMessage, bench.ListeningAddress, l.Addr().String(), "version", buildVersion(), "data", o.store.String())
		go func() { ended <- s.http.Serve(o.guard.listener(l)) }()
	}
	boss.ready(o.listeners[0].Addr().String())
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	go boss.watch(watching, s.readiness.alive)
	var failure error
	select {
	case sig := <-in.signals:
		logger.Info("stopping", "signal", sig.String(), "timeout", o.settings.ServerShutdownTimeout.duration())
	case failure = <-ended: // a listener failed: nothing can reach the server any more
	}
	boss.stopping(o.settings.ServerShutdownTimeout.duration())
	stopped := make(chan struct{})
	go func() {
		for begun := time.Now(); ; {
			select {
			case <-in.signals:
				if time.Since(begun) < echo {
					continue
				}
				in.abort()
			case <-stopped:
			}
			return
		}
	}()
	s.stop(logger, o.settings.ServerShutdownTimeout.duration())
	close(stopped)
	return failure
}
