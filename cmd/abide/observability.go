package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"abide/internal/engine"
	"abide/internal/metrics"
	"abide/internal/store"
)

// observabilitySettings are the settings of what looks at a server: its metrics and its profiles.
type observabilitySettings struct {
	ObservabilityMetricsPort int    `setting:"observability.metrics_port" default:"9090" placeholder:"PORT" help:"Port of GET /metrics; 0 for none."`
	ObservabilityMetricsBind string `setting:"observability.metrics_bind" placeholder:"ADDRESS" help:"Address that it listens on; by default the server's."`
	ObservabilityAdminPort   int    `setting:"observability.admin_port" default:"0" placeholder:"PORT" help:"Port of /debug/pprof, on 127.0.0.1 alone; 0 for none."`
}

// Validate checks the values.
func (s *observabilitySettings) Validate() error {
	for flag, port := range map[string]int{"observability-metrics-port": s.ObservabilityMetricsPort, "observability-admin-port": s.ObservabilityAdminPort} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("--%s is %d: it must be from 0 to 65535", flag, port)
		}
	}
	if s.ObservabilityMetricsBind == "" {
		return nil
	}
	return checkAddress("observability-metrics-bind", "observability-metrics-port", s.ObservabilityMetricsBind)
}

// Times of the side listeners' connections: they serve few, and may be reached by anybody.
const (
	sideHeaderTimeout = 5 * time.Second
	sideIdleTimeout   = time.Minute
	metricsTimeout    = 30 * time.Second // of a scrape
	profileTimeout    = 10 * time.Minute // of a profile, which takes as long as it is asked to
)

// sideListeners serve beside the server: they fail and stop by themselves, and nobody waits for them.
type sideListeners struct{ servers []*http.Server }

// startSide starts what the settings ask for, about a service. A port that cannot be had is an error in the log: the server runs on.
func startSide(logger *slog.Logger, s observabilitySettings, bind string, of *service) *sideListeners {
	side := &sideListeners{}
	if s.ObservabilityMetricsBind != "" {
		bind = s.ObservabilityMetricsBind
	}
	if s.ObservabilityMetricsPort > 0 {
		side.listen(logger, "metrics", bind, s.ObservabilityMetricsPort, withCluster(logger, of.engine, of.metrics.Handler(logger)), metricsTimeout)
	}
	if s.ObservabilityAdminPort > 0 {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		side.listen(logger, "admin", "127.0.0.1", s.ObservabilityAdminPort, mux, profileTimeout)
	}
	return side
}

func (s *sideListeners) listen(logger *slog.Logger, name, bind string, port int, h http.Handler, answer time.Duration) {
	l, err := listenAs("observability-"+name+"-port", bind, port)
	if err != nil {
		logger.Error("a side listener does not listen; the server runs on without it", "listener", name, "port", port, "error", err)
		return
	}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: sideHeaderTimeout, ReadTimeout: sideHeaderTimeout, WriteTimeout: answer, IdleTimeout: sideIdleTimeout,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	s.servers = append(s.servers, server)
	logger.Info("listening for "+name, "address", l.Addr().String())
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			logger.Error("a side listener ended; the server runs on without it", "listener", name, "error", err)
		}
	}()
}

// close ends them at once: what they serve is for people and can be asked again.
func (s *sideListeners) close() {
	for _, server := range s.servers {
		_ = server.Close()
	}
}

// lookInterval is how often a scrape looks at the store's queues: more often it shows what the last one has found.
const lookInterval = 5 * time.Second

// queueWatch looks at the store's queues for whoever scrapes. Safe for concurrent use.
type queueWatch struct {
	watch store.Watch
	now   func() int64 // epoch ms, by the engine's clock

	mu     sync.Mutex
	looked time.Time
	last   store.Queues
}

func (w *queueWatch) look(ctx context.Context) (store.Queues, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.looked.IsZero() && time.Since(w.looked) < lookInterval {
		return w.last, nil
	}
	q, err := w.watch.Look(ctx, w.now())
	if err == nil {
		w.last, w.looked = q, time.Now()
	}
	return q, err
}

// censusWatch reads which servers run on the store for whoever scrapes, as seldom. Safe for concurrent use.
type censusWatch struct {
	engine *engine.Engine

	mu     sync.Mutex
	looked time.Time
	last   engine.Census
}

func (w *censusWatch) look(ctx context.Context) (engine.Census, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.looked.IsZero() && time.Since(w.looked) < lookInterval {
		return w.last, nil
	}
	c, err := w.engine.Census(ctx)
	if err == nil {
		w.last, w.looked = c, time.Now()
	}
	return c, err
}

// newMetrics makes the metrics of a service whose parts are there, but for the handler.
func (s *service) newMetrics(ctx context.Context, logger *slog.Logger, o serverOptions) (*metrics.Metrics, error) {
	layout, err := layoutOf(ctx, s.store)
	if err != nil {
		return nil, err
	}
	w := &queueWatch{now: s.engine.Now, watch: store.Watch{
		Store: s.store, Layout: layout, RetryTimeoutMs: int64(o.settings.TasksRetryTimeout), JournalAgeMs: int64(o.settings.JournalRetentionAge),
	}}
	figures := engines[o.store.engine].figures
	return metrics.New(metrics.Sources{
		Version: buildVersion(),
		Store: func() metrics.Store {
			st := figures(s.store)
			st.Writable, st.DiskFreeBytes = s.store.Writable() == nil, diskFree(o.store)
			return st
		},
		Engine:         s.engine.Counts,
		Delivery:       s.delivery.Stats,
		Push:           s.push.Stats,
		InFlight:       func() int64 { return s.handler.InFlight() },
		MaxConnections: o.settings.TransportsHTTPPollMaxConnections,
		MaxPushes:      o.settings.HTTPPushMaxOutstanding,
		Workspaces:     s.engine.Workspaces,
		Ready:          func(ctx context.Context) error { return s.handler.Ready(ctx) },
		Traces:         s.traces(),
		Queues:         w.look,
		Census:         (&censusWatch{engine: s.engine}).look,
	}, logger), nil
}

// observer is what counts requests; nil without metrics.
func (s *service) observer(o serverOptions) func(kind string, status int, took time.Duration) {
	if o.settings.ObservabilityMetricsPort == 0 {
		return nil
	}
	return s.metrics.Request
}
