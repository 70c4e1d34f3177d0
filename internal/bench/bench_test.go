package bench

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func config(mode Mode, url string) Config {
	return Config{Mode: mode, Clients: 4, For: 150 * time.Millisecond, Warmup: 20 * time.Millisecond, SizeBytes: 200, Seed: 1, URL: url}
}

// measured runs for ever longer, until it has measured so many operations: a busy machine may do none for a while.
func measured(t *testing.T, c Config, least int64) Report {
	t.Helper()
	for ; ; c.For *= 2 {
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Operations >= least || c.For > 20*time.Second {
			return r
		}
	}
}

// requestsOf is how many requests one operation of each mode takes.
var requestsOf = map[Mode]int64{Noop: 1, Create: 1, Get: 1, Lifecycle: 2, Dispatch: 3, Workflow: 8}

func TestEveryModeRunsWithoutErrors(t *testing.T) {
	for _, mode := range Modes() {
		for _, path := range []string{"", "/w/x/"} {
			t.Run(string(mode)+path, func(t *testing.T) {
				t.Parallel()
				s := httptest.NewServer(newStandIn())
				defer s.Close()
				r := measured(t, config(mode, s.URL+path), 1)
				if r.Operations == 0 || len(r.Errors) != 0 {
					t.Fatalf("%d operations, errors %v", r.Operations, r.Errors)
				}
				// Operations that straddle either end of the measured time blur the ratio by one per client.
				if low, high := (r.Operations-4)*requestsOf[mode], (r.Operations+8)*requestsOf[mode]; r.Requests < low || r.Requests > high {
					t.Errorf("%d requests for %d operations", r.Requests, r.Operations)
				}
				if r.Latency == nil || r.Latency.P50 > r.Latency.P95 || r.Latency.P95 > r.Latency.P999 || r.Latency.P999 > r.Latency.Max {
					t.Errorf("latencies out of order: %+v", r.Latency)
				}
				for _, member := range []string{"serverCpus", "peakMemoryBytes", "databaseBytes"} {
					if r.Missing[member] == "" {
						t.Errorf("no reason why %s is null", member)
					}
				}
			})
		}
	}
}

func TestOwnServer(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := config(Lifecycle, "")
	c.Preload = 130
	c.Own = OwnServer{Binary: binary, Environ: []string{"BENCH_STAND_IN=serve"}, Folder: t.TempDir()}
	r := measured(t, c, 100) // so many that those at either end are few
	if r.Objects <= 130 || r.Preloading == nil || r.Operations == 0 {
		t.Errorf("objects %d, preloading %v, operations %d", r.Objects, r.Preloading, r.Operations)
	}
	if runtime.GOOS == "linux" {
		if r.PeakMemoryBytes == nil || *r.PeakMemoryBytes < 1<<20 || r.ServerCPUs == nil {
			t.Errorf("no figures of the process: %v", r.Missing)
		}
		if r.DatabaseBytes == nil || *r.DatabaseBytes != 4096 {
			t.Errorf("database bytes %v, want the 4096 that the stand-in writes", r.DatabaseBytes)
		}
	}
	if r.PhysicalTransactionsPerRequest == nil || *r.PhysicalTransactionsPerRequest < 0.8 || *r.PhysicalTransactionsPerRequest > 1.2 {
		t.Errorf("physical transactions per request: %v, want about 1", r.PhysicalTransactionsPerRequest)
	}
	if r.RoundTrips != nil || r.Missing["roundTrips"] == "" || r.Missing["engineCommitMs"] == "" {
		t.Errorf("round trips %v, missing %v", r.RoundTrips, r.Missing)
	}
	if left, _ := os.ReadDir(c.Own.Folder); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOwnServerThatDies(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := config(Create, "")
	c.Own = OwnServer{Binary: binary, Environ: []string{"BENCH_STAND_IN=die"}, Folder: t.TempDir()}
	_, err = Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("the error does not show the server's last words: %v", err)
	}
	if left, _ := os.ReadDir(c.Own.Folder); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestErrorsAreCountedByStatus(t *testing.T) {
	stand := newStandIn()
	stand.refuse = func(kind string) int {
		if kind == "promise.settle" {
			return 503
		}
		return 0
	}
	s := httptest.NewServer(stand)
	defer s.Close()
	var r Report
	for c := config(Lifecycle, s.URL); r.Errors["503"] == 0 && c.For < 20*time.Second; c.For *= 2 {
		var err error
		if r, err = Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if r.Operations != 0 || r.Errors["503"] == 0 || len(r.Errors) != 1 || r.Latency != nil || r.Requests == 0 {
		t.Errorf("operations %d, requests %d, latency %v, errors %v", r.Operations, r.Requests, r.Latency, r.Errors)
	}
}

func TestServerThatGoesAwayIsCounted(t *testing.T) {
	for length := 400 * time.Millisecond; ; length *= 2 {
		stand := newStandIn()
		s := httptest.NewServer(stand)
		var requests atomic.Int64
		stand.refuse = func(string) int {
			if requests.Add(1) == 200 {
				go func() { s.CloseClientConnections(); s.Listener.Close() }()
			}
			return 0
		}
		c := config(Dispatch, s.URL)
		c.Warmup, c.For = 0, length
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Operations > 0 && r.Errors["connection"]+r.Errors["stream"] > 0 {
			return
		}
		if length > 20*time.Second {
			t.Fatalf("operations %d, errors %v", r.Operations, r.Errors)
		}
	}
}

func TestNoServer(t *testing.T) {
	if _, err := Run(t.Context(), config(Create, "http://127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), "cannot reach") {
		t.Errorf("error %v", err)
	}
}

func TestCancel(t *testing.T) {
	s := httptest.NewServer(newStandIn())
	defer s.Close()
	for _, preload := range []int{0, 10_000_000} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		c := config(Create, s.URL)
		c.For, c.Preload = time.Hour, preload
		if _, err := Run(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("preload %d: error %v", preload, err)
		}
		cancel()
	}
}

func TestPreloadGivesUp(t *testing.T) {
	stand := newStandIn()
	stand.refuse = func(kind string) int { return 500 }
	s := httptest.NewServer(stand)
	defer s.Close()
	c := config(Create, s.URL)
	c.Preload = 1000
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "promise.create was answered 500") {
		t.Errorf("error %v", err)
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"mode":     func(c *Config) { c.Mode = "creat" },
		"clients":  func(c *Config) { c.Clients = 0 },
		"for":      func(c *Config) { c.For = 0 },
		"warmup":   func(c *Config) { c.Warmup = -1 },
		"size":     func(c *Config) { c.SizeBytes = MaxSizeBytes + 1 },
		"preload":  func(c *Config) { c.Preload = -1 },
		"url":      func(c *Config) { c.URL = "localhost:8001" },
		"nowhere":  func(c *Config) { c.URL = "" },
		"host":     func(c *Config) { c.URL = "http://" },
		"too many": func(c *Config) { c.Clients = MaxClients + 1 },
	} {
		c := config(Create, "http://localhost:8001")
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := c.Validate(); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

func TestReportIsOneObjectWithEveryMember(t *testing.T) {
	s := httptest.NewServer(newStandIn())
	defer s.Close()
	r, err := Run(t.Context(), config(Get, s.URL))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"mode", "url", "clients", "forMs", "warmupMs", "sizeBytes", "seed", "preload", "operationsPerSecond", "latencyMs",
		"serverCpuUsPerRequest", "peakMemoryBytes", "databaseBytesPerObject", "errors", "missing",
	} {
		if _, ok := members[name]; !ok {
			t.Errorf("no member %s", name)
		}
	}
	if r.Preload != defaultGetSet {
		t.Errorf("get made %d promises to read, want %d", r.Preload, defaultGetSet)
	}
}

func TestSameSeedSamePayload(t *testing.T) {
	payload := func(seed uint64, name string) string {
		return newClient(&plan{seed: seed, sizeBytes: 50}, name, nil, nil).payload
	}
	if first, again := payload(1, "0000"), payload(1, "0000"); first != again {
		t.Error("one seed gave two payloads")
	}
	if payload(1, "0000") == payload(2, "0000") || payload(1, "0000") == payload(1, "0001") {
		t.Error("two seeds, or two clients, gave one payload")
	}
}

// TestOwnServerOnADatabase hands its flags on, and compares with the engine's own commits.
func TestOwnServerOnADatabase(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	commits := 0
	c := config(Create, "")
	c.EngineCommit = func(context.Context) error { commits++; time.Sleep(100 * time.Microsecond); return nil }
	c.Own = OwnServer{Binary: binary, Environ: []string{"BENCH_STAND_IN=serve"}, Folder: t.TempDir(), Storage: []string{"--storage-type", "x"}}
	r := measured(t, c, 100)
	if r.RoundTripsPerRequest == nil || *r.RoundTripsPerRequest < 1.6 || *r.RoundTripsPerRequest > 2.4 {
		t.Errorf("round trips per request: %v, want about 2", r.RoundTripsPerRequest)
	}
	if r.EngineCommit == nil || r.EngineCommit.P50 < 0.1 || r.LatencyPerEngineCommit == nil || commits < 5 {
		t.Errorf("%d commits of the engine: %+v, ratio %v", commits, r.EngineCommit, r.LatencyPerEngineCommit)
	}
	if r.DatabaseBytes != nil || r.Missing["databaseBytes"] == "" {
		t.Errorf("database bytes %v, missing %v", r.DatabaseBytes, r.Missing)
	}
	c.EngineCommit = func(context.Context) error { return errors.New("the disk is on fire") }
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "on fire") {
		t.Errorf("an engine that fails: %v", err)
	}
}

func TestParseFigures(t *testing.T) {
	f, err := parseFigures(strings.NewReader("# TYPE abide_commits_total counter\nabide_commits_total 1.5e+06\n" +
		"abide_store_round_trips_total{of=\"read\"} 3\nabide_store_round_trips_total{of=\"write\"} 4\nabide_commits_total_of_others 9\nnonsense\n"))
	if want := (figures{commits: 1.5e6, roundTrips: 7, remote: true}); err != nil || f != want {
		t.Errorf("%+v, %v, want %+v", f, err, want)
	}
	if _, err := parseFigures(strings.NewReader("go_goroutines 5\n")); err == nil {
		t.Error("a scrape of something else is taken for one")
	}
}
