package bench

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// standInServer is this test's binary, as a server.
func standInServer(t *testing.T) OwnServer {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return OwnServer{Binary: binary, Environ: []string{"BENCH_STAND_IN=serve"}, Folder: t.TempDir()}
}

func pollsConfig() PollsConfig {
	return PollsConfig{Idle: 200, Workers: 20, Clients: 4, Rounds: 2, For: 60 * time.Millisecond, Warmup: time.Millisecond, SizeBytes: 100, Seed: 1}
}

func TestPolls(t *testing.T) {
	t.Parallel()
	c := pollsConfig()
	c.Own = standInServer(t)
	r, err := Polls(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Operations == 0 || len(r.Errors) != 0 || r.Alone == nil || r.Beside == nil || r.RatioP50 == nil {
		t.Errorf("%+v", r)
	}
	if runtime.GOOS == "linux" && (r.AloneMemoryBytes == nil || r.IdleMemoryBytes == nil || r.BusyMemoryBytes == nil ||
		r.PeakMemoryBytes == nil || *r.PeakMemoryBytes < *r.BusyMemoryBytes) {
		t.Errorf("memory: %+v", r)
	}
	if left, err := os.ReadDir(c.Own.Folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	c := StartConfig{Promises: 301, Rounds: 2, SizeBytes: 10, Seed: 1, Own: standInServer(t)}
	r, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, took := range [][]float64{r.AfterStopMs, r.AfterKillMs} {
		if len(took) != c.Rounds || !slices.IsSorted(took) || took[0] <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if r.DatabaseBytes == nil || *r.DatabaseBytes == 0 || r.Promises != c.Promises {
		t.Errorf("%+v", r)
	}
	if left, err := os.ReadDir(c.Own.Folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestStandingConfigs(t *testing.T) {
	own := OwnServer{Binary: "x", Folder: "y"}
	for want, change := range map[string]func(*PollsConfig){
		"0 idle streams":          func(c *PollsConfig) { c.Idle = 0 },
		"20001 idle streams":      func(c *PollsConfig) { c.Idle = MaxIdle + 1 },
		"0 workers":               func(c *PollsConfig) { c.Workers = 0 },
		"21 clients":              func(c *PollsConfig) { c.Clients = 21 },
		"0 rounds":                func(c *PollsConfig) { c.Rounds = 0 },
		"at most 3m0s":            func(c *PollsConfig) { c.For = time.Hour },
		"longer than 0":           func(c *PollsConfig) { c.For = 0 },
		"neither a URL nor":       func(c *PollsConfig) { c.Own = OwnServer{} },
		"payload of -1 bytes":     func(c *PollsConfig) { c.SizeBytes = -1 },
		"warmup must not be nega": func(c *PollsConfig) { c.Warmup = -1 },
	} {
		c := pollsConfig()
		c.Own = own
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	for want, c := range map[string]StartConfig{
		"0 promises":      {Rounds: 1, Own: own},
		"0 rounds":        {Promises: 1, Own: own},
		"no own server":   {Promises: 1, Rounds: 1},
		"payload of 1048": {Promises: 1, Rounds: 1, Own: own, SizeBytes: MaxSizeBytes + 1},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
