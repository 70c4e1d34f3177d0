package metrics

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"abide/protocol"
)

// unknownKind is the kind of requests whose kind is none of the protocol's, so that no client makes up labels.
const unknownKind = "unknown"

// maxStatus is above every status that is counted by itself.
const maxStatus = 600

// requests counts requests with the reference server's names.
type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	kinds    sync.Map // kind -> *kindOfRequest, of the protocol's kinds and unknownKind
}

// kindOfRequest holds the series of one kind, so that a request looks up no label.
type kindOfRequest struct {
	name     string
	duration prometheus.Observer
	statuses [maxStatus]atomic.Pointer[prometheus.Counter] // made with the first request that has it
}

func newRequests() *requests {
	return &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "resonate_request_total",
			Help: "Requests answered, by kind and by the status of the answer.",
		}, []string{"kind", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "resonate_request_duration_seconds",
			Help: "Time from the head of a request to its answer, by kind.",
			// The reference server's buckets, and finer ones below them.
			Buckets: []float64{0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		}, []string{"kind"}),
	}
}

func (r *requests) observe(kind string, status int, took time.Duration) {
	k := r.of(kind)
	if status < 0 || status >= maxStatus {
		status = 0
	}
	series := k.statuses[status].Load()
	if series == nil {
		c := r.total.WithLabelValues(k.name, strconv.Itoa(status))
		series = &c
		k.statuses[status].Store(series)
	}
	(*series).Inc()
	k.duration.Observe(took.Seconds())
}

// of is the series of a kind.
func (r *requests) of(kind string) *kindOfRequest {
	if k, ok := r.kinds.Load(kind); ok {
		return k.(*kindOfRequest)
	}
	if kind != unknownKind && !protocol.Known(kind) {
		return r.of(unknownKind)
	}
	kind = strings.Clone(kind) // it may be a part of a request's body
	k, _ := r.kinds.LoadOrStore(kind, &kindOfRequest{name: kind, duration: r.duration.WithLabelValues(kind)})
	return k.(*kindOfRequest)
}
