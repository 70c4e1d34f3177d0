package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"abide/internal/engine"
	"abide/internal/testenv"
)

// A server on a file tells that it is alone.
func TestClusterOfOneServer(t *testing.T) {
	port := testenv.FreePort(t)
	start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--observability-metrics-port", fmt.Sprint(port))...)
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	r := runWith(nil, "cluster", "--url", url+"/", "--json")
	var census engine.Census
	if err := json.Unmarshal([]byte(r.stdout), &census); err != nil || r.code != exitOK {
		t.Fatalf("exit %d: %v: %s %s", r.code, err, r.stdout, r.stderr)
	}
	if census.Shared || len(census.Servers) != 1 || !census.Servers[0].Live || census.Servers[0].Version != buildVersion() || len(census.Duties) == 0 {
		t.Errorf("%+v", census)
	}
	if r := runWith(nil, "cluster", "--url", url); r.code != exitOK || !strings.Contains(r.stdout, "this server's alone") {
		t.Errorf("exit %d: %s %s", r.code, r.stdout, r.stderr)
	}
}

// What a person sees of three servers, in local time and in UTC.
func TestClusterTable(t *testing.T) {
	const at = 1_767_225_600_000
	census := engine.Census{Shared: true, Server: "a:8001", NowMs: at, LostMs: at - 60_000, Servers: []engine.CensusServer{
		{ID: "a:8001", Live: true, Host: "a", ProcessID: 7, URL: "http://a:8001", Version: "1.2.3", StartedMs: at - 3_600_000, RenewedMs: at - 1500, LeaseMs: 10_000, OffsetMs: 12, Connections: 3},
		{ID: "b:8001", Live: true, Host: "b", ProcessID: 8, URL: "http://b:8001", Version: "1.2.3", StartedMs: at - 60_000, RenewedMs: at - 100, LeaseMs: 10_000, OffsetMs: -2500},
		{ID: "c:8001", Host: "c", ProcessID: 9, URL: "http://c:8001", Version: "1.2.2", StartedMs: at - 7_200_000, RenewedMs: at - 70_000, LeaseMs: 10_000, Connections: 1},
	}, Duties: []engine.CensusDuty{{Name: "sweep", Server: "b:8001"}, {Name: "journal"}}}
	var b strings.Builder
	if err := printCluster(&b, census, time.FixedZone("CET", 3600)); err != nil {
		t.Fatal(err)
	}
	golden(t, "cluster.txt", b.String())
}

func TestClusterErrors(t *testing.T) {
	other := httptest.NewServer(nil)
	defer other.Close()
	for _, c := range []struct{ url, says string }{
		{"localhost:9090", "is not an address"},
		{"ftp://x", "is not an address"},
		{fmt.Sprintf("http://127.0.0.1:%d", testenv.FreePort(t)), "--observability-metrics-port"},
		{other.URL, "404"},
	} {
		r := runWith(nil, "cluster", "--url", c.url)
		if r.code == exitOK || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%s: exit %d: %s", c.url, r.code, r.stderr)
		}
	}
}

func TestHelpOfCluster(t *testing.T) {
	golden(t, "help_cluster.txt", runWith(nil, "cluster", "--help").stdout)
}
