package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Run runs c and returns what it has measured. An error means that there is nothing to report: the
// parameters are wrong, there is no server, the preload failed, or ctx ended. Operations that fail are
// counted in the report. An own server and its data are gone when Run returns.
func Run(ctx context.Context, c Config) (Report, error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	r := &runner{config: c, report: newReport(c), metricsURL: c.MetricsURL}
	if c.Mode.pushes() {
		c.Own.Flags = append(slices.Clone(c.Own.Flags), sinkFlags)
	}
	if c.URL == "" {
		server, err := startServer(ctx, c.Own, c.Clients+preloaders)
		if err != nil {
			return Report{}, err
		}
		defer server.kill()
		r.server = server
		r.metricsURL = server.metrics
		r.report.URL = server.url
	}
	err := r.run(ctx)
	return r.report, err
}

func newReport(c Config) Report {
	return Report{
		Mode: c.Mode, URL: c.URL, OwnServer: c.URL == "", Clients: c.Clients,
		ForMs: c.For.Milliseconds(), WarmupMs: c.Warmup.Milliseconds(),
		SizeBytes: c.SizeBytes, Seed: c.Seed, Preload: c.Preload,
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Run:     fmt.Sprintf("%08x", rand.Uint32()),
		Errors:  map[string]int64{},
		Missing: map[string]string{},
	}
}

// runner is one run in progress.
type runner struct {
	config Config
	report Report
	server *ownServer // nil if the server is somebody else's
	plan   plan
	// metricsURL is where the server shows its metrics; empty if that is not known.
	metricsURL string
	before     figures // of the store, when the measured time began
}

func (r *runner) run(ctx context.Context) error {
	t, err := parseTarget(r.report.URL)
	if err != nil {
		return err
	}
	if err := waitReady(ctx, t); err != nil {
		return err
	}
	t.token = r.config.Token
	r.plan = plan{
		target:    t,
		run:       r.report.Run,
		mode:      r.config.Mode,
		sizeBytes: r.config.SizeBytes,
		seed:      r.config.Seed,
		timeoutAt: inADay(),
		patient:   r.config.Patient,
	}
	if r.config.Mode.pushes() {
		if r.plan.sink, err = openSink(); err != nil {
			return err
		}
		defer r.plan.sink.close()
	}
	if err := r.preload(ctx); err != nil {
		return err
	}
	commits := hdrhistogram.New(1, maxLatencyUs, latencyDigits)
	if r.config.EngineCommit != nil {
		if err := r.measureEngine(ctx, commits); err != nil {
			return err
		}
	}
	if err := r.measure(ctx); err != nil {
		return err
	}
	if r.config.EngineCommit != nil {
		if err := r.measureEngine(ctx, commits); err != nil {
			return err
		}
	}
	r.sumEngine(commits)
	return r.finish()
}

// inADay is the deadline of promises that must not expire during a run.
func inADay() string { return strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10) }

func (r *runner) progress(format string, args ...any) {
	if r.config.Progress != nil {
		r.config.Progress(fmt.Sprintf(format, args...))
	}
}

// maxHistograms is how many histograms the clients share at most.
const maxHistograms = 64

// measure lets the clients run through warmup and measured time, and counts.
func (r *runner) measure(ctx context.Context) error {
	var measuring, over atomic.Bool
	clients := make([]*client, r.config.Clients)
	histograms := make([]*latencies, min(len(clients), maxHistograms))
	for i := range histograms {
		histograms[i] = newLatencies()
	}
	for i := range clients {
		clients[i] = newClient(&r.plan, fmt.Sprintf("%04d", i), measuring.Load, histograms[i%len(histograms)])
		if err := clients[i].connect(); err != nil {
			closeAll(clients[:i+1])
			return fmt.Errorf("client %d of %d cannot connect: %w", i+1, len(clients), err)
		}
	}
	r.plan.endBy = time.Now().Add(r.config.Warmup + r.config.For + endGrace)
	var running sync.WaitGroup
	for _, c := range clients {
		running.Go(func() {
			defer c.close()
			for !over.Load() {
				c.operate()
			}
		})
	}
	r.progress("warming up for %s", r.config.Warmup)
	err := pause(ctx, r.config.Warmup)
	if err == nil {
		var unread error
		r.before, unread = r.figures(ctx)
		before := r.sample()
		measuring.Store(true)
		err = r.watch(ctx, before.at)
		measuring.Store(false)
		r.account(before, r.sample())
		if err == nil {
			r.accountStore(ctx, unread)
		}
	}
	over.Store(true)
	if err != nil {
		return err // the clients end by themselves, at endBy at the latest
	}
	running.Wait()
	r.sum(clients, histograms)
	return nil
}

func closeAll(clients []*client) {
	for _, c := range clients {
		c.close()
	}
}

// watch waits for the measured time to pass.
func (r *runner) watch(ctx context.Context, start time.Time) error {
	for {
		left := r.config.For - time.Since(start)
		if left <= 0 {
			return nil
		}
		r.progress("measuring, %s left", left.Round(time.Second))
		if err := pause(ctx, min(left, time.Second)); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sample is a look at the clocks.
type sample struct {
	at        time.Time
	server    time.Duration // CPU time
	serverErr error
	runner    time.Duration
	runnerErr error
}

func (r *runner) sample() sample {
	s := sample{}
	if r.server != nil {
		s.server, s.serverErr = processCPU(r.server.command.Process.Pid)
	} else {
		s.serverErr = errNotOwn
	}
	s.runner, s.runnerErr = processCPU(os.Getpid())
	s.at = time.Now()
	return s
}

// errNotOwn is why a server that is reached by its URL has no figures of its process.
var errNotOwn = fmt.Errorf("the server is not a child of this process")

// account notes how long was measured and what CPU time it took; per-request figures follow in sum.
func (r *runner) account(before, after sample) {
	elapsed := after.at.Sub(before.at)
	r.report.MeasuredMs = elapsed.Milliseconds()
	share := func(used time.Duration) *float64 {
		cpus := shown(float64(used) / float64(elapsed))
		return &cpus
	}
	if err := firstError(before.serverErr, after.serverErr); err != nil {
		r.missing(err, "serverCpuUsPerRequest", "serverCpuUsPerOperation", "serverCpus")
	} else {
		r.report.ServerCPUs = share(after.server - before.server)
	}
	if err := firstError(before.runnerErr, after.runnerErr); err != nil {
		r.missing(err, "runnerCpus")
	} else {
		r.report.RunnerCPUs = share(after.runner - before.runner)
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) missing(reason error, members ...string) {
	for _, m := range members {
		r.report.Missing[m] = reason.Error()
	}
}

// sum adds the clients' tallies up.
func (r *runner) sum(clients []*client, histograms []*latencies) {
	all := histograms[0].histogram
	for _, other := range histograms[1:] {
		all.Merge(other.histogram)
	}
	rep := &r.report
	for _, c := range clients {
		rep.Objects += c.tally.objects
		rep.Operations += c.tally.operations
		rep.Requests += c.tally.requests
		for name, n := range c.tally.errors {
			rep.Errors[name] += n
		}
	}
	if rep.Latency = summarize(all); rep.Latency == nil {
		r.missing(fmt.Errorf("no operation ended well"), "latencyMs")
	}
	rep.OperationsPerSecond = perSecond(rep.Operations, rep.MeasuredMs)
	rep.RequestsPerSecond = perSecond(rep.Requests, rep.MeasuredMs)
	if rep.ServerCPUs != nil {
		usedUs := *rep.ServerCPUs * float64(rep.MeasuredMs) * 1000
		rep.ServerCPUUsPerRequest = r.ratio(usedUs, rep.Requests, "serverCpuUsPerRequest")
		rep.ServerCPUUsPerOperation = r.ratio(usedUs, rep.Operations, "serverCpuUsPerOperation")
	}
	if rep.PhysicalTransactions != nil {
		rep.PhysicalTransactionsPerRequest = r.ratio(float64(*rep.PhysicalTransactions), rep.Requests, "physicalTransactionsPerRequest")
	}
	if rep.RoundTrips != nil {
		rep.RoundTripsPerRequest = r.ratio(float64(*rep.RoundTrips), rep.Requests, "roundTripsPerRequest")
	}
}

// ratio is amount over n, or null for the member if n is 0.
func (r *runner) ratio(amount float64, n int64, member string) *float64 {
	if n == 0 {
		r.missing(fmt.Errorf("there was none to divide by"), member)
		return nil
	}
	result := shown(amount / float64(n))
	return &result
}

// finish takes the figures that need the end of the run, and ends an own server.
func (r *runner) finish() error {
	rep := &r.report
	if r.server == nil {
		r.missing(errNotOwn, "peakMemoryBytes", "databaseBytes", "databaseBytesPerObject")
		return nil
	}
	rep.PeakMemoryBytes = r.peakMemory("peakMemoryBytes")
	bytes, err := r.server.stop()
	if err != nil {
		return err
	}
	if len(r.config.Own.Storage) > 0 {
		r.missing(fmt.Errorf("the data are the database's"), "databaseBytes", "databaseBytesPerObject")
		return nil
	}
	rep.DatabaseBytes = &bytes
	rep.DatabaseBytesPerObject = r.ratio(float64(bytes), rep.Objects, "databaseBytesPerObject")
	return nil
}

func (r *runner) peakMemory(member string) *int64 {
	if r.server == nil {
		return nil
	}
	peak, err := processPeakMemory(r.server.command.Process.Pid)
	if err != nil {
		r.missing(err, member)
		return nil
	}
	return &peak
}
