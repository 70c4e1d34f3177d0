package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ModeFlood is the mode of Flood, as reports name it.
const ModeFlood Mode = "flood"

// The workspaces of a flood: nobody else's load goes there.
const (
	gentleWorkspace = "/w/bench-gentle"
	floodWorkspace  = "/w/bench-flood"
)

// floodWarmup is how long a flood runs before the clients beside it are measured, and how long the server is left alone
// after it.
const floodWarmup = 500 * time.Millisecond

// FloodConfig says how to measure what a flood in one workspace does to the clients of another. The zero value is not
// valid.
type FloodConfig struct {
	// Clients is how many gentle clients there are, each of which begins a lifecycle every Every, unless its last one is on
	// its way still; 1 to MaxClients.
	Clients int
	Every   time.Duration // above 0
	// Flood is how many clients flood the other workspace, each with one operation of FloodMode after the other.
	Flood     int
	FloodMode Mode
	// Rounds is how often it is measured without the flood and with it, each time for For.
	Rounds int
	For    time.Duration
	// SizeBytes, Seed, URL, Token, Own and Progress are those of Config; URL names no workspace. Own.Binary floods, as
	// a process of its own, so that a gentle client does not wait for its turn among those of the flood.
	SizeBytes int
	Seed      uint64
	URL       string
	Token     string
	Own       OwnServer
	Progress  func(text string)
}

// Validate says what is wrong with c, nil if nothing is.
func (c FloodConfig) Validate() error {
	plain := Config{Mode: c.FloodMode, Clients: c.Clients, For: c.For, SizeBytes: c.SizeBytes, URL: c.URL, Token: c.Token, Own: c.Own}
	switch {
	case c.Flood < 1 || c.Flood > MaxClients:
		return fmt.Errorf("a flood of %d clients: use 1 to %d", c.Flood, MaxClients)
	case c.Every <= 0:
		return errors.New("the time from one operation of a client to its next must be longer than 0")
	case c.Rounds < 1 || c.Rounds > MaxRounds:
		return fmt.Errorf("%d rounds: use 1 to %d", c.Rounds, MaxRounds)
	}
	return plain.Validate()
}

// MaxRounds bounds the rounds of FloodConfig and CostConfig.
const MaxRounds = 1000

// FloodReport is what Flood has measured; its JSON is the output of abide bench flood. Members are only ever added.
type FloodReport struct {
	Where
	Clients      int   `json:"clients"`
	EveryMs      int64 `json:"everyMs"`
	FloodClients int   `json:"floodClients"`
	FloodMode    Mode  `json:"floodMode"`
	Rounds       int   `json:"rounds"`

	// Alone and Flooded are those of the gentle clients, over all rounds.
	Alone   Share `json:"alone"`
	Flooded Share `json:"flooded"`
	// RatioP50 and RatioP99 are Flooded over Alone; RoundsP99 is RatioP99 of each round.
	RatioP50  *float64  `json:"ratioP50"`
	RatioP99  *float64  `json:"ratioP99"`
	RoundsP99 []float64 `json:"roundsP99"`

	// FloodOperationsPerSecond is what the flood got done, FloodLatency its own latency in the last round, and
	// FloodErrors what it was refused, by status.
	FloodOperationsPerSecond float64          `json:"floodOperationsPerSecond"`
	FloodLatency             *Latency         `json:"floodLatencyMs"`
	FloodErrors              map[string]int64 `json:"floodErrors"`
}

// Share is what some clients did in the measured time.
type Share struct {
	Operations int64            `json:"operations"`
	Latency    *Latency         `json:"latencyMs"`
	Errors     map[string]int64 `json:"errors"`
}

// Where is how and where a comparison ran: the beginning of its report.
type Where struct {
	Mode      Mode   `json:"mode"`
	URL       string `json:"url"`
	OwnServer bool   `json:"ownServer"`
	ForMs     int64  `json:"forMs"`
	SizeBytes int    `json:"sizeBytes"`
	Seed      uint64 `json:"seed"`
	Version   string `json:"version"` // of the runner, and of own servers
	Go        string `json:"go"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	CPUs      int    `json:"cpus"` // shared by runner, flood and own servers
	Run       string `json:"run"`
}

func where(mode Mode, url string, each time.Duration, sizeBytes int, seed uint64) Where {
	return Where{Mode: mode, URL: url, OwnServer: url == "", ForMs: each.Milliseconds(), SizeBytes: sizeBytes, Seed: seed,
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Run: fmt.Sprintf("%08x", rand.Uint32())}
}

// Flood measures gentle clients alone and beside a flood, turn by turn, so that what else the machine does meets both.
func Flood(ctx context.Context, c FloodConfig) (FloodReport, error) {
	if err := c.Validate(); err != nil {
		return FloodReport{}, err
	}
	f := &flood{config: c, report: FloodReport{Where: where(ModeFlood, c.URL, c.For, c.SizeBytes, c.Seed),
		Clients: c.Clients, EveryMs: c.Every.Milliseconds(), FloodClients: c.Flood, FloodMode: c.FloodMode, Rounds: c.Rounds,
		Alone: Share{Errors: map[string]int64{}}, Flooded: Share{Errors: map[string]int64{}}, FloodErrors: map[string]int64{}}}
	url := c.URL
	if url == "" {
		server, err := startServer(ctx, c.Own, c.Clients+c.Flood)
		if err != nil {
			return FloodReport{}, err
		}
		defer server.kill()
		url = server.url
		f.report.URL = url
	}
	t, err := parseTarget(url)
	if err != nil {
		return FloodReport{}, err
	}
	if err := waitReady(ctx, t); err != nil {
		return FloodReport{}, err
	}
	t.token = c.Token
	err = f.run(ctx, t)
	return f.report, err
}

// flood is one run of Flood.
type flood struct {
	config FloodConfig
	report FloodReport
	target target
	window atomic.Pointer[window] // what is measured now; nil: nothing
}

// window is a time in which the gentle clients are measured.
type window struct {
	latencies *latencies
	mu        sync.Mutex
	errors    map[string]int64
}

func (f *flood) run(ctx context.Context, t target) error {
	f.target = t
	p := &plan{target: t.at(gentleWorkspace), run: f.report.Run, mode: Lifecycle, sizeBytes: f.config.SizeBytes, seed: f.config.Seed,
		timeoutAt: inADay()}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop() // before the wait
	for i := range f.config.Clients {
		c := newClient(p, fmt.Sprintf("%04d", i), func() bool { return false }, nil)
		if err := c.connect(); err != nil {
			return fmt.Errorf("client %d of %d cannot connect: %w", i+1, f.config.Clients, err)
		}
		offset := f.config.Every * time.Duration(i) / time.Duration(f.config.Clients)
		running.Go(func() { f.pace(ctx, c, offset) })
	}
	alone, flooded := newLatencies(), newLatencies()
	for n := range f.config.Rounds {
		if err := f.round(ctx, n, alone.histogram, flooded.histogram); err != nil {
			return err
		}
	}
	f.report.Alone.Latency, f.report.Flooded.Latency = summarize(alone.histogram), summarize(flooded.histogram)
	f.report.Alone.Operations, f.report.Flooded.Operations = alone.histogram.TotalCount(), flooded.histogram.TotalCount()
	f.report.RatioP50 = ratioAt(flooded.histogram, alone.histogram, 50)
	f.report.RatioP99 = ratioAt(flooded.histogram, alone.histogram, 99)
	f.report.FloodOperationsPerSecond = shown(f.report.FloodOperationsPerSecond / float64(f.config.Rounds))
	return nil
}

// ratioAt is a percentile of one histogram over that of another; nil if there is none.
func ratioAt(over, under *hdrhistogram.Histogram, percentile float64) *float64 {
	if over.TotalCount() == 0 || under.ValueAtPercentile(percentile) == 0 {
		return nil
	}
	r := shown(float64(over.ValueAtPercentile(percentile)) / float64(under.ValueAtPercentile(percentile)))
	return &r
}

// round measures once without the flood and once with it.
func (f *flood) round(ctx context.Context, n int, alone, flooded *hdrhistogram.Histogram) error {
	f.progress("round %d of %d, alone", n+1, f.config.Rounds)
	before, err := f.measure(ctx, &f.report.Alone)
	if err != nil {
		return err
	}
	f.progress("round %d of %d, beside the flood", n+1, f.config.Rounds)
	wait, err := f.start(ctx)
	if err != nil {
		return err
	}
	err = pause(ctx, floodWarmup)
	var during *hdrhistogram.Histogram
	if err == nil {
		during, err = f.measure(ctx, &f.report.Flooded)
	}
	report, failed := wait()
	if err = firstError(err, failed); err != nil {
		return err
	}
	f.report.FloodOperationsPerSecond += report.OperationsPerSecond
	f.report.FloodLatency = report.Latency
	for name, count := range report.Errors {
		f.report.FloodErrors[name] += count
	}
	if ratio := ratioAt(during, before, 99); ratio != nil {
		f.report.RoundsP99 = append(f.report.RoundsP99, *ratio)
	}
	alone.Merge(before)
	flooded.Merge(during)
	return pause(ctx, floodWarmup)
}

func (f *flood) progress(format string, args ...any) {
	if f.config.Progress != nil {
		f.config.Progress(fmt.Sprintf(format, args...))
	}
}

// measure records the gentle clients for the measured time.
func (f *flood) measure(ctx context.Context, share *Share) (*hdrhistogram.Histogram, error) {
	w := &window{latencies: newLatencies(), errors: map[string]int64{}}
	f.window.Store(w)
	err := pause(ctx, f.config.For)
	f.window.Store(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, n := range w.errors {
		share.Errors[name] += n
	}
	w.latencies.mu.Lock()
	defer w.latencies.mu.Unlock()
	return hdrhistogram.Import(w.latencies.histogram.Export()), err
}

// start floods the other workspace from a process of its own until it has ended by itself or ctx ends. The caller calls
// wait.
func (f *flood) start(ctx context.Context) (wait func() (Report, error), err error) {
	command := exec.CommandContext(ctx, f.config.Own.Binary, "bench", string(f.config.FloodMode), "--url", f.target.at(floodWorkspace).url,
		"--clients", strconv.Itoa(f.config.Flood), "--size", strconv.Itoa(f.config.SizeBytes), "--seed", strconv.FormatUint(f.config.Seed, 10),
		"--warmup", strconv.FormatInt(floodWarmup.Milliseconds(), 10), "--for", strconv.FormatInt(f.config.For.Milliseconds(), 10))
	command.Env = f.config.Own.Environ
	if f.config.Token != "" { // not among the arguments, which everybody can list
		command.Env = append(command.Env[:len(command.Env):len(command.Env)], TokenVariable+"="+f.config.Token)
	}
	var out, log bytes.Buffer
	command.Stdout, command.Stderr = &out, &log
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", f.config.Own.Binary, err)
	}
	return func() (report Report, err error) {
		if err := command.Wait(); err != nil {
			return report, fmt.Errorf("the flood ended early (%w): %s", err, bytes.TrimSpace(log.Bytes()))
		}
		err = json.Unmarshal(out.Bytes(), &report)
		return report, err
	}, nil
}

// TokenVariable is the environment variable from which abide bench takes a token.
const TokenVariable = "ABIDE_TOKEN"

// pace has a client begin a lifecycle every Every. Beats that pass while its last one is on its way are left out.
func (f *flood) pace(ctx context.Context, c *client, offset time.Duration) {
	defer c.close()
	for due := time.Now().Add(offset); pause(ctx, time.Until(due)) == nil; {
		w := f.window.Load()
		began := time.Now()
		c.conn.limit(began.Add(operationTimeout))
		err := c.lifecycle()
		ended := time.Now()
		if w != nil && w == f.window.Load() {
			w.note(ended.Sub(began), err)
		}
		missed := max(0, ended.Sub(due)/f.config.Every)
		due = due.Add((missed + 1) * f.config.Every)
	}
}

func (w *window) note(took time.Duration, err error) {
	if err == nil {
		w.latencies.record(took)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors[errorName(err)]++
}
