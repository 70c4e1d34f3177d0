// Package metrics shows in Prometheus' form what a server counts. It is the only package besides cmd that knows
// Prometheus: the others expose plain counters, which are read when somebody scrapes, so that nobody pays for
// metrics that nobody reads. The one thing that is counted as it happens is a request.
//
// Names that begin with resonate_ are those of the reference server, with its labels; ours begin with abide_. Labels
// have few values: kinds, statuses, and at most MaxGroups groups of workers. They never hold an id.
//
// docs/metrics.md lists every metric; the list is held against the code by a test.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of a scrape.
const (
	// scrapeTimeout bounds one scrape, the look at the store's queues included.
	scrapeTimeout = 10 * time.Second
	// maxScrapes is how many scrapes run at once; one more is answered 503.
	maxScrapes = 2
)

// Metrics counts requests and collects the rest. Safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	requests *requests
}

// New makes the metrics of one server. log takes what goes wrong in a scrape.
func New(s Sources, log *slog.Logger) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), requests: newRequests()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.requests.total, m.requests.duration,
		&collector{sources: s, log: log, groups: newGroups()},
	)
	return m
}

// Request counts one answered request: its kind as the client named it, the status of the answer, and how long it took.
func (m *Metrics) Request(kind string, status int, took time.Duration) {
	m.requests.observe(kind, status, took)
}

// Handler serves GET /metrics, and 404 for everything else. log takes what goes wrong in a scrape.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	scrape := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            scrapeLog{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrape)
	return mux
}

// scrapeLog is where Prometheus' handler logs to.
type scrapeLog struct{ log *slog.Logger }

// Println logs one line, unless it is that whoever scrapes has gone away or given up: that is said for each metric.
func (l scrapeLog) Println(v ...any) {
	level := slog.LevelError
	for _, value := range v {
		if err, ok := value.(error); ok && (errors.Is(err, context.Canceled) || errors.Is(err, http.ErrHandlerTimeout)) {
			level = slog.LevelDebug
		}
	}
	l.log.Log(context.Background(), level, "metrics", "error", fmt.Sprint(v...))
}
