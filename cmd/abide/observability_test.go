package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"abide/client"
	"abide/internal/testenv"
	"abide/protocol"
)

func fetch(t testing.TB, url string) (status int, body string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestMetricsOfAServer runs a scripted workload and demands its exact counts.
func TestMetricsOfAServer(t *testing.T) {
	t.Parallel()
	port := testenv.FreePort(t)
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--observability-metrics-port", fmt.Sprint(port))...)
	c, ctx := r.client(t), t.Context()
	target := protocol.Tags{}.With(protocol.TagTarget, "poll://any@zzgroup")
	for i := range 5 {
		if _, err := c.PromiseCreate(ctx, protocol.PromiseCreate{ID: fmt.Sprint("p", i), TimeoutAt: 1 << 50, Tags: target}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if _, err := c.PromiseSettle(ctx, protocol.PromiseSettle{ID: fmt.Sprint("p", i), State: protocol.Resolved}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.PromiseGet(ctx, "none"); client.Status(err) != protocol.StatusNotFound {
		t.Fatal(err)
	}
	if answer, err := http.Post(r.url, "application/json", strings.NewReader("{")); err != nil || answer.StatusCode != 400 {
		t.Fatal(err)
	}
	status, text := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	for _, want := range []string{
		`resonate_request_total{kind="promise.create",status="200"} 5`,
		`resonate_request_total{kind="promise.settle",status="200"} 3`,
		`resonate_request_total{kind="promise.get",status="404"} 1`,
		`resonate_request_total{kind="unknown",status="400"} 1`,
		`resonate_request_duration_seconds_count{kind="promise.create"} 5`,
		`resonate_messages_total{kind="execute"} 0`,
		`resonate_schedule_promises_total 0`,
		`abide_undelivered_messages{kind="execute"} 2`,
		`abide_undelivered_messages{kind="unblock"} 0`,
		`abide_store_info{durable="true",engine="sqlite"} 1`,
		`abide_build_info{version="` + buildVersion() + `"} 1`,
		`abide_requests_in_flight 0`,
		`abide_ready 1`,
		`abide_store_writable 1`,
		`abide_connections_max 1000`,
		`abide_servers{state="live"} 1`,
		`abide_server_duty{duty="journal"} 1`,
		`abide_quarantined_rows 0`,
		`abide_journal_lag_seconds 0`,
		`abide_transactions_failed_total{cause="conflict"} 0`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("not in the scrape: %s", want)
		}
	}
	for _, secret := range []string{"p0", "p4", `"none"`, "zzgroup"} {
		if strings.Contains(text, secret) {
			t.Errorf("the scrape holds %s, which a user chose", secret)
		}
	}
	if status, _ := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/", port)); status != http.StatusNotFound {
		t.Errorf("profiles on the metrics port: %d", status)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/"} {
		if status, _ := fetch(t, r.url+path); status != http.StatusNotFound {
			t.Errorf("%s on the server's port: %d", path, status)
		}
	}
}

// TestSideListenersThatFail serves all the same, and says what is missing.
func TestSideListenersThatFail(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--observability-metrics-port", fmt.Sprint(portOf(l)))...)
	if status, _ := fetch(t, r.url+"/ready"); status != http.StatusOK {
		t.Errorf("/ready: %d", status)
	}
	if log := r.stderr.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "--observability-metrics-port") {
		t.Errorf("%s", log)
	}
}

// TestAdminListener has profiles, on loopback, if it is asked for.
func TestAdminListener(t *testing.T) {
	t.Parallel()
	port := testenv.FreePort(t)
	start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--observability-admin-port", fmt.Sprint(port))...)
	for path, want := range map[string]int{"/debug/pprof/": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/symbol": 200, "/": 404, "/metrics": 404} {
		if status, text := fetch(t, fmt.Sprintf("http://127.0.0.1:%d%s", port, path)); status != want {
			t.Errorf("%s: %d, want %d: %.200s", path, status, want, text)
		}
	}
}
