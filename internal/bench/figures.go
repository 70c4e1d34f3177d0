package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// figures are counters of a server's store, as its /metrics shows them. A server without one of them has 0.
type figures struct {
	commits    float64 // physical transactions
	roundTrips float64 // to a database, of transactions and of snapshots
	remote     bool    // there are any
}

// maxMetricsBytes is how much of a scrape is read.
const maxMetricsBytes = 4 << 20

// metricsTimeout bounds one scrape.
const metricsTimeout = 15 * time.Second

// readFigures scrapes a server.
func readFigures(ctx context.Context, url string) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return figures{}, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return figures{}, fmt.Errorf("the server's metrics cannot be read: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return figures{}, fmt.Errorf("the server's metrics cannot be read: status %d", answer.StatusCode)
	}
	return parseFigures(answer.Body)
}

func parseFigures(text io.Reader) (f figures, err error) {
	found := false
	lines := bufio.NewScanner(io.LimitReader(text, maxMetricsBytes))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "abide_commits_total":
			f.commits, found = f.commits+n, true
		case "abide_store_round_trips_total":
			f.roundTrips, f.remote = f.roundTrips+n, true
		}
	}
	if err := lines.Err(); err != nil {
		return figures{}, err
	}
	if !found {
		return figures{}, fmt.Errorf("the server's metrics do not say how often it commits: it is no abide, or an old one")
	}
	return f, nil
}

// freePort is a port of 127.0.0.1 that nobody listens on now. It lies below those that systems give to whoever asks for
// any, so that nobody is given it before it is used.
func freePort() (port int, err error) {
	for range 100 {
		port = 20_000 + rand.IntN(10_000)
		var l net.Listener
		if l, err = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// The engine's own commits are measured before the run and after it, each time for a tenth of the measured time
// within these bounds.
const (
	minCommitTime = 100 * time.Millisecond
	maxCommitTime = time.Second
)

// measureEngine times the engine's own commits of one row for a while.
func (r *runner) measureEngine(ctx context.Context, h *hdrhistogram.Histogram) error {
	r.progress("measuring the engine's own commits")
	for start := time.Now(); time.Since(start) < min(max(r.config.For/10, minCommitTime), maxCommitTime) && ctx.Err() == nil; {
		began := time.Now()
		if err := r.config.EngineCommit(ctx); err != nil {
			return fmt.Errorf("the engine's own commit: %w", err)
		}
		_ = h.RecordValue(time.Since(began).Microseconds()) // what is out of range is a minute long
	}
	return ctx.Err()
}

// errNoMetrics is why nothing is known of a server's store.
var errNoMetrics = fmt.Errorf("where the server shows its metrics is not known")

// figures reads the counters of the server's store.
func (r *runner) figures(ctx context.Context) (figures, error) {
	if r.metricsURL == "" {
		return figures{}, errNoMetrics
	}
	return readFigures(ctx, r.metricsURL)
}

// accountStore notes what the store did in the measured time, unless the first look failed.
func (r *runner) accountStore(ctx context.Context, unread error) {
	after, err := r.figures(ctx)
	if err = firstError(unread, err); err != nil {
		r.missing(err, "physicalTransactions", "physicalTransactionsPerRequest", "roundTrips", "roundTripsPerRequest")
		return
	}
	commits := int64(after.commits - r.before.commits)
	r.report.PhysicalTransactions = &commits
	if !after.remote {
		r.missing(fmt.Errorf("the storage engine is in the server's process"), "roundTrips", "roundTripsPerRequest")
		return
	}
	trips := int64(after.roundTrips - r.before.roundTrips)
	r.report.RoundTrips = &trips
}

// sumEngine notes how long the engine's own commits took.
func (r *runner) sumEngine(h *hdrhistogram.Histogram) {
	rep := &r.report
	if rep.EngineCommit = summarize(h); rep.EngineCommit == nil {
		r.missing(fmt.Errorf("the engine's own commits were not measured"), "engineCommitMs", "latencyPerEngineCommit")
		return
	}
	if rep.Latency != nil && rep.EngineCommit.P50 > 0 {
		over := shown(rep.Latency.P50 / rep.EngineCommit.P50)
		rep.LatencyPerEngineCommit = &over
	}
}
