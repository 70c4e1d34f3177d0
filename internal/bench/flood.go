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
	// Clients is how many gentle clients each of the two servers has, each of which begins a lifecycle every Every, unless
	// its last one is on its way still; 1 to MaxClients.
	Clients int
	Every   time.Duration // above 0
	// Flood is how many clients flood the other workspace, each with one operation of FloodMode after the other.
	Flood     int
	FloodMode Mode
	// Patient is that of Config, for the clients of the flood.
	Patient bool
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
	// Elsewhere are the flags that say which database the second server runs on, which must not be that of Own.Storage;
	// none for a new file in Own.Folder.
	Elsewhere []string
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
	FloodPatient bool  `json:"floodPatient"`
	Rounds       int   `json:"rounds"`

	// Alone and Flooded are those of the gentle clients of the server that is flooded, over all rounds.
	Alone   Share `json:"alone"`
	Flooded Share `json:"flooded"`
	// ElsewhereAlone and Elsewhere are, at the same times, those of another server on this machine, which has the same
	// gentle clients and no flood: what the machine does to them while it floods and serves a flood.
	ElsewhereAlone Share `json:"elsewhereAlone"`
	Elsewhere      Share `json:"elsewhere"`
	// RatioP50 and RatioP99 are Flooded over Alone; RoundsP99 is RatioP99 of each round.
	RatioP50  *float64  `json:"ratioP50"`
	RatioP99  *float64  `json:"ratioP99"`
	RoundsP99 []float64 `json:"roundsP99"`
	// The same of Elsewhere over ElsewhereAlone.
	ElsewhereRatioP50  *float64  `json:"elsewhereRatioP50"`
	ElsewhereRatioP99  *float64  `json:"elsewhereRatioP99"`
	ElsewhereRoundsP99 []float64 `json:"elsewhereRoundsP99"`
	// The same of Flooded over Elsewhere: what is left of the flood's effect without the machine's part.
	OverElsewhereP50       *float64  `json:"overElsewhereP50"`
	OverElsewhereP99       *float64  `json:"overElsewhereP99"`
	OverElsewhereRoundsP99 []float64 `json:"overElsewhereRoundsP99"`

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

// Flood measures gentle clients of two servers, without a flood and while one of the two is flooded, turn by turn, so that
// what else the machine does meets all alike. Two own servers change places in every round.
func Flood(ctx context.Context, c FloodConfig) (FloodReport, error) {
	if err := c.Validate(); err != nil {
		return FloodReport{}, err
	}
	share := func() Share { return Share{Errors: map[string]int64{}} }
	f := &flood{config: c, report: FloodReport{Where: where(ModeFlood, c.URL, c.For, c.SizeBytes, c.Seed),
		Clients: c.Clients, EveryMs: c.Every.Milliseconds(), FloodClients: c.Flood, FloodMode: c.FloodMode, FloodPatient: c.Patient, Rounds: c.Rounds,
		Alone: share(), Flooded: share(), ElsewhereAlone: share(), Elsewhere: share(), FloodErrors: map[string]int64{}}}
	elsewhere := c.Own
	elsewhere.Storage = c.Elsewhere
	for i, own := range []OwnServer{c.Own, elsewhere} {
		url := c.URL
		if url == "" || i > 0 {
			server, err := startServer(ctx, own, c.Clients+c.Flood)
			if err != nil {
				return FloodReport{}, err
			}
			defer server.kill()
			url = server.url
		}
		t, err := parseTarget(url)
		if err != nil {
			return FloodReport{}, err
		}
		if err := waitReady(ctx, t); err != nil {
			return FloodReport{}, err
		}
		t.token = c.Token
		f.sides[i] = &floodSide{target: t}
	}
	f.report.URL = f.sides[0].target.url
	err := f.run(ctx)
	return f.report, err
}

// flood is one run of Flood.
type flood struct {
	config FloodConfig
	report FloodReport
	sides  [2]*floodSide
}

// floodSide is one of the two servers.
type floodSide struct {
	target target
	window atomic.Pointer[window] // what is measured now; nil: nothing
}

// window is a time in which the gentle clients of a server are measured.
type window struct {
	latencies *latencies
	mu        sync.Mutex
	errors    map[string]int64
}

// phase is what the gentle clients of both servers did in some time: of the one that is flooded in this round, and of the
// other.
type phase struct{ here, elsewhere *hdrhistogram.Histogram }

func newPhase() phase { return phase{newLatencies().histogram, newLatencies().histogram} }

func (p phase) merge(other phase) {
	p.here.Merge(other.here)
	p.elsewhere.Merge(other.elsewhere)
}

func (f *flood) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop() // before the wait
	for i := range f.config.Clients * len(f.sides) {
		side := f.sides[i%len(f.sides)]
		p := &plan{target: side.target.at(gentleWorkspace), run: f.report.Run, mode: Lifecycle, sizeBytes: f.config.SizeBytes,
			seed: f.config.Seed, timeoutAt: inADay()}
		c := newClient(p, fmt.Sprintf("%04d", i), func() bool { return false }, nil)
		if err := c.connect(); err != nil {
			return fmt.Errorf("client %d of %d cannot connect: %w", i+1, f.config.Clients*len(f.sides), err)
		}
		offset := f.config.Every * time.Duration(i) / time.Duration(f.config.Clients*len(f.sides))
		running.Go(func() { f.pace(ctx, side, c, offset) })
	}
	alone, flooded := newPhase(), newPhase()
	for n := range f.config.Rounds {
		if err := f.round(ctx, n, alone, flooded); err != nil {
			return err
		}
	}
	f.sum(alone, flooded)
	return nil
}

// sum reports all rounds together.
func (f *flood) sum(alone, flooded phase) {
	r := &f.report
	for share, h := range map[*Share]*hdrhistogram.Histogram{
		&r.Alone: alone.here, &r.Flooded: flooded.here, &r.ElsewhereAlone: alone.elsewhere, &r.Elsewhere: flooded.elsewhere,
	} {
		share.Latency, share.Operations = summarize(h), h.TotalCount()
	}
	r.RatioP50, r.RatioP99 = ratioAt(flooded.here, alone.here, 50), ratioAt(flooded.here, alone.here, 99)
	r.ElsewhereRatioP50, r.ElsewhereRatioP99 = ratioAt(flooded.elsewhere, alone.elsewhere, 50), ratioAt(flooded.elsewhere, alone.elsewhere, 99)
	r.OverElsewhereP50, r.OverElsewhereP99 = ratioAt(flooded.here, flooded.elsewhere, 50), ratioAt(flooded.here, flooded.elsewhere, 99)
	r.FloodOperationsPerSecond = shown(r.FloodOperationsPerSecond / float64(f.config.Rounds))
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
func (f *flood) round(ctx context.Context, n int, alone, flooded phase) error {
	here, elsewhere := f.places(n)
	f.progress("round %d of %d, alone", n+1, f.config.Rounds)
	before, err := f.measure(ctx, here, elsewhere, &f.report.Alone, &f.report.ElsewhereAlone)
	if err != nil {
		return err
	}
	f.progress("round %d of %d, beside the flood", n+1, f.config.Rounds)
	wait, err := f.start(ctx, here.target)
	if err != nil {
		return err
	}
	err = pause(ctx, floodWarmup)
	var during phase
	if err == nil {
		during, err = f.measure(ctx, here, elsewhere, &f.report.Flooded, &f.report.Elsewhere)
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
	note := func(rounds *[]float64, over, under *hdrhistogram.Histogram) {
		if ratio := ratioAt(over, under, 99); ratio != nil {
			*rounds = append(*rounds, *ratio)
		}
	}
	note(&f.report.RoundsP99, during.here, before.here)
	note(&f.report.ElsewhereRoundsP99, during.elsewhere, before.elsewhere)
	note(&f.report.OverElsewhereRoundsP99, during.here, during.elsewhere)
	alone.merge(before)
	flooded.merge(during)
	return pause(ctx, floodWarmup)
}

// places says which server is flooded in the n-th round, and which is not.
func (f *flood) places(n int) (here, elsewhere *floodSide) {
	if f.config.URL == "" && n%2 == 1 {
		return f.sides[1], f.sides[0]
	}
	return f.sides[0], f.sides[1]
}

func (f *flood) progress(format string, args ...any) {
	if f.config.Progress != nil {
		f.config.Progress(fmt.Sprintf(format, args...))
	}
}

// measure records the gentle clients of both servers for the measured time.
func (f *flood) measure(ctx context.Context, here, elsewhere *floodSide, hereShare, elsewhereShare *Share) (phase, error) {
	h, e := here.open(), elsewhere.open()
	err := pause(ctx, f.config.For)
	here.window.Store(nil)
	elsewhere.window.Store(nil)
	return phase{h.close(hereShare), e.close(elsewhereShare)}, err
}

// open begins a window.
func (s *floodSide) open() *window {
	w := &window{latencies: newLatencies(), errors: map[string]int64{}}
	s.window.Store(w)
	return w
}

// close adds the errors of a window that is over to share and returns its latencies.
func (w *window) close(share *Share) *hdrhistogram.Histogram {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, n := range w.errors {
		share.Errors[name] += n
	}
	w.latencies.mu.Lock()
	defer w.latencies.mu.Unlock()
	return hdrhistogram.Import(w.latencies.histogram.Export())
}

// start floods the other workspace of a server from a process of its own until it has ended by itself or ctx ends. The caller calls
// wait.
func (f *flood) start(ctx context.Context, t target) (wait func() (Report, error), err error) {
	command := exec.CommandContext(ctx, f.config.Own.Binary, "bench", string(f.config.FloodMode), "--url", t.at(floodWorkspace).url,
		"--clients", strconv.Itoa(f.config.Flood), "--size", strconv.Itoa(f.config.SizeBytes), "--seed", strconv.FormatUint(f.config.Seed, 10),
		"--warmup", strconv.FormatInt(floodWarmup.Milliseconds(), 10), "--for", strconv.FormatInt(f.config.For.Milliseconds(), 10))
	if f.config.Patient {
		command.Args = append(command.Args, "--patient")
	}
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
func (f *flood) pace(ctx context.Context, side *floodSide, c *client, offset time.Duration) {
	defer c.close()
	for due := time.Now().Add(offset); pause(ctx, time.Until(due)) == nil; {
		w := side.window.Load()
		began := time.Now()
		c.conn.limit(began.Add(operationTimeout))
		err := c.lifecycle()
		ended := time.Now()
		if w != nil && w == side.window.Load() {
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
