package bench

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// guarded asks for a token with every request but /ready, and counts requests by workspace.
type guarded struct {
	*standIn
	token string

	mu      sync.Mutex
	paths   map[string]int
	refused int
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.paths[r.URL.Path]++
	bad := r.URL.Path != "/ready" && r.Header.Get("Authorization") != "Bearer "+g.token
	if bad {
		g.refused++
	}
	g.mu.Unlock()
	if bad {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	g.standIn.ServeHTTP(w, r)
}

func startGuarded(t *testing.T) (*guarded, string) {
	g := &guarded{standIn: newStandIn(), token: "ab.cd.ef", paths: map[string]int{}}
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	return g, s.URL
}

func TestTokenGoesWithEveryRequest(t *testing.T) {
	g, url := startGuarded(t)
	c := config(Dispatch, url)
	c.Token = g.token
	r, err := Run(t.Context(), c)
	if err != nil || r.Operations == 0 || len(r.Errors) != 0 || g.refused != 0 {
		t.Errorf("%d operations, errors %v, %d refused, %v", r.Operations, r.Errors, g.refused, err)
	}
	for _, bad := range []string{"a b", "a\r\nX: y", "ä"} {
		if c.Token = bad; c.Validate() == nil {
			t.Errorf("%q is taken for a token", bad)
		}
	}
}

// floodOf measures for ever longer, until all has been measured: a busy machine may do nothing for a while.
func floodOf(t *testing.T, c FloodConfig) (r FloodReport, shares map[string]Share, took time.Duration) {
	t.Helper()
	for ; ; c.For *= 2 {
		began := time.Now()
		r, err := Flood(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		shares := map[string]Share{"alone": r.Alone, "flooded": r.Flooded, "elsewhere alone": r.ElsewhereAlone, "elsewhere": r.Elsewhere}
		least := min(len(r.RoundsP99), len(r.ElsewhereRoundsP99), len(r.OverElsewhereRoundsP99))
		if least == c.Rounds && r.FloodOperationsPerSecond > 0 || c.For > 20*time.Second {
			return r, shares, time.Since(began)
		}
	}
}

func TestFloodMeasuresBothTurns(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g, url := startGuarded(t)
	c := FloodConfig{Clients: 2, Every: 5 * time.Millisecond, Flood: 3, FloodMode: Create, Rounds: 2, For: 200 * time.Millisecond, SizeBytes: 10,
		URL: url, Token: g.token, Own: OwnServer{Binary: binary, Environ: []string{"BENCH_STAND_IN=flood"}, Folder: t.TempDir()}}
	r, shares, took := floodOf(t, c)
	operations := int64(0)
	for name, share := range shares {
		operations += share.Operations
		if share.Operations == 0 || share.Latency == nil || len(share.Errors) != 0 {
			t.Errorf("%s: %+v", name, share)
		}
	}
	// Four clients with a beat of 5 ms, whatever was measured of the time.
	if most := 4 * (int64(took/c.Every) + 1); operations > most {
		t.Errorf("%d operations in %s, the beat allows %d", operations, took, most)
	}
	for name, ratio := range map[string]*float64{
		"p50": r.RatioP50, "p99": r.RatioP99, "elsewhere p50": r.ElsewhereRatioP50, "elsewhere p99": r.ElsewhereRatioP99,
		"over elsewhere p50": r.OverElsewhereP50, "over elsewhere p99": r.OverElsewhereP99,
	} {
		if ratio == nil || *ratio <= 0 {
			t.Errorf("the ratio %s is missing or not above 0", name)
		}
	}
	if len(r.RoundsP99) != 2 || len(r.ElsewhereRoundsP99) != 2 || len(r.OverElsewhereRoundsP99) != 2 || len(r.FloodErrors) != 0 || r.FloodOperationsPerSecond == 0 {
		text, _ := json.Marshal(r)
		t.Errorf("%s", text)
	}
	if left, _ := os.ReadDir(c.Own.Folder); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paths[gentleWorkspace+"/"] == 0 || g.paths[floodWorkspace+"/"] == 0 || len(g.paths) != 3 || g.refused != 0 {
		t.Errorf("requests went to %v, %d refused", g.paths, g.refused)
	}
}

// TestFloodOfOwnServersChangesPlaces: each of two own servers is flooded in every other round.
func TestFloodOfOwnServersChangesPlaces(t *testing.T) {
	f := flood{config: FloodConfig{}, sides: [2]*floodSide{{}, {}}}
	for n, want := range []int{0, 1, 0, 1} {
		if here, elsewhere := f.places(n); here != f.sides[want] || elsewhere != f.sides[1-want] {
			t.Errorf("round %d: the wrong one is flooded", n)
		}
	}
	f.config.URL = "http://127.0.0.1:1" // not ours: only that one is asked about
	for n := range 4 {
		if here, elsewhere := f.places(n); here != f.sides[0] || elsewhere != f.sides[1] {
			t.Errorf("round %d: the server of the URL is not the one that is flooded", n)
		}
	}
}

func TestFloodThatDies(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, url := startGuarded(t)
	c := FloodConfig{Clients: 1, Every: time.Millisecond, Flood: 1, FloodMode: Create, Rounds: 1, For: 10 * time.Millisecond, URL: url,
		Own: OwnServer{Binary: binary, Environ: []string{"BENCH_STAND_IN=flood that dies"}, Folder: t.TempDir()}}
	if _, err := Flood(t.Context(), c); err == nil || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("%v", err)
	}
}

func TestCostMeasuresBothServers(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := CostConfig{Mode: Lifecycle, Clients: 3, For: 100 * time.Millisecond, SizeBytes: 10, Rounds: 2, Flags: []string{"--loaded"}, Token: "a.b.c",
		Own: OwnServer{Binary: binary, Environ: []string{"BENCH_STAND_IN=serve"}, Folder: t.TempDir()}}
	r, err := Cost(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for name, side := range map[string]Side{"plain": r.Plain, "loaded": r.Loaded} {
		if side.OperationsPerSecond == 0 || side.P99 == 0 || len(side.Errors) != 0 || (runtime.GOOS == "linux" && side.CPUUsPerOperation == nil) {
			t.Errorf("%s: %+v", name, side)
		}
	}
	if len(r.RoundsCost) != 2 || r.Cost >= 1 {
		t.Errorf("cost %v, rounds %v", r.Cost, r.RoundsCost)
	}
	if left, _ := os.ReadDir(c.Own.Folder); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestComparisonsAreValidated(t *testing.T) {
	own := OwnServer{Binary: "abide", Folder: "x"}
	flood := FloodConfig{Clients: 1, Every: 1, Flood: 1, FloodMode: Create, Rounds: 1, For: 1, Own: own}
	cost := CostConfig{Mode: Create, Clients: 1, Rounds: 1, For: 1, Own: own}
	if err := firstError(flood.Validate(), cost.Validate()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(f *FloodConfig){
		"no clients": func(f *FloodConfig) { f.Clients = 0 }, "no flood": func(f *FloodConfig) { f.Flood = 0 }, "too large a flood": func(f *FloodConfig) { f.Flood = MaxClients + 1 },
		"no beat": func(f *FloodConfig) { f.Every = 0 }, "no rounds": func(f *FloodConfig) { f.Rounds = 0 }, "too many rounds": func(f *FloodConfig) { f.Rounds = MaxRounds + 1 },
		"no such mode": func(f *FloodConfig) { f.FloodMode = "x" }, "no time": func(f *FloodConfig) { f.For = 0 },
	} {
		bad := flood
		if change(&bad); bad.Validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for name, change := range map[string]func(c *CostConfig){
		"no clients": func(c *CostConfig) { c.Clients = 0 }, "no rounds": func(c *CostConfig) { c.Rounds = 0 }, "no such mode": func(c *CostConfig) { c.Mode = "x" },
	} {
		bad := cost
		if change(&bad); bad.Validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
