package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"abide/internal/conform"
)

func TestVerifyHelp(t *testing.T) {
	r := runWith(nil, "verify", "--help")
	if r.code != exitOK || r.stderr != "" {
		t.Errorf("exit %d, stderr %q", r.code, r.stderr)
	}
	golden(t, "help_verify.txt", r.stdout)
}

func TestVerifyUsage(t *testing.T) {
	for _, args := range [][]string{{"verify"}, {"verify", "--url", "http://localhost", "--wait", "0s"}} {
		if r := runWith(nil, args...); r.code != exitUsage {
			t.Errorf("%v: exit %d, want %d", args, r.code, exitUsage)
		}
	}
	for _, address := range []string{"localhost:8001", "http://127.0.0.1:1"} {
		r := runWith(nil, "verify", "--url", address)
		if r.code != exitFailure || !strings.Contains(r.stderr, "Fatal: ") {
			t.Errorf("%s: exit %d, stderr %q", address, r.code, r.stderr)
		}
	}
}

// verify runs the checks against a server and returns the report. Those of the time may fail on a machine that stands
// still for as long as their deadlines are away, so they are made again.
func verify(t *testing.T, address string, want int) conform.Report {
	t.Helper()
	var r result
	var report conform.Report
	for range 4 {
		r = runWith(nil, "verify", "--url", address, "--json", "--wait", "20s")
		report = conform.Report{}
		if json.Unmarshal([]byte(r.stdout), &report) != nil || !slices.ContainsFunc(report.Results, func(r conform.Result) bool {
			return r.Subject == "time" && r.Outcome == conform.Fail
		}) {
			break
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("%v: %q", err, r.stdout)
	}
	if r.code != want {
		t.Errorf("exit %d, want %d (stderr %q)", r.code, want, r.stderr)
	}
	return report
}

// wantNoFailures also wants a number of checks to have been made, so that none is lost unseen.
func wantNoFailures(t *testing.T, report conform.Report, passed int) {
	t.Helper()
	for _, r := range report.Results {
		if r.Outcome == conform.Fail {
			t.Errorf("%s: %s: expected %s, got %s", r.Subject, r.Check, r.Expected, r.Got)
		}
	}
	if n := report.Count(conform.Pass); n < passed {
		t.Errorf("%d checks passed, want at least %d", n, passed)
	}
}

// proxied puts a handler in front of a server.
func proxied(t *testing.T, server *running, handle func(proxy http.Handler, w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	target, err := url.Parse(server.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(proxy, w, r) }))
	t.Cleanup(front.Close)
	return front.URL
}

func TestVerify(t *testing.T) {
	t.Parallel()
	server := start(t, "dev", "--ephemeral", "--server-port", "0")
	t.Run("everything", func(t *testing.T) {
		t.Parallel()
		report := verify(t, server.url, exitOK)
		wantNoFailures(t, report, 300)
		if report.Count(conform.Skip) != 0 || len(report.Left) != 0 || report.Workspace == "" {
			t.Errorf("%d skipped, %d left, workspace %q", report.Count(conform.Skip), len(report.Left), report.Workspace)
		}
	})
	t.Run("a given workspace", func(t *testing.T) {
		t.Parallel()
		report := verify(t, server.url+"/w/mine", exitOK)
		wantNoFailures(t, report, 250)
		if report.Workspace != "" || len(report.Left) == 0 || report.Count(conform.Skip) == 0 {
			t.Errorf("workspace %q made, %d left, %d skipped", report.Workspace, len(report.Left), report.Count(conform.Skip))
		}
	})
}

// TestVerifyWithoutDebugAndWorkspaces checks what any server has, and that what stays is settled.
func TestVerifyWithoutDebugAndWorkspaces(t *testing.T) {
	t.Parallel()
	server := start(t, serveArgs(filepath.Join(t.TempDir(), "abide.db"))...)
	address := proxied(t, server, func(proxy http.Handler, w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/w/") {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	report := verify(t, address, exitOK)
	wantNoFailures(t, report, 250)
	c := server.client(t)
	for _, id := range report.Left {
		promise, err := c.PromiseGet(t.Context(), id)
		if err != nil || promise.State == "pending" {
			t.Errorf("%s was left %s, %v", id, promise.State, err)
		}
	}
	if len(report.Left) == 0 {
		t.Error("nothing is said to be left")
	}
}

// TestVerifyFindsLies has a proxy falsify answers in one way each. Every way must be found, in the subject
// that is about it.
func TestVerifyFindsLies(t *testing.T) {
	t.Parallel()
	server := start(t, "dev", "--ephemeral", "--server-port", "0")
	for _, lie := range []struct{ name, from, to, subject string }{
		{"a conflict that is none", `"status":409`, `"status":200`, "task"},
		{"a wrong version of the protocol", `"version":"2026-04-01"`, `"version":"2026-04-02"`, "promise"},
		{"a null", `"tags":{}`, `"tags":null`, "promise"},
		{"a version that was not raised", `"version":2,`, `"version":1,`, "task"},
		{"a settled promise that is not", `"state":"rejected_timedout"`, `"state":"pending"`, "time"},
		{"a resume that is not counted", `"resumes":1`, `"resumes":0`, "suspend"},
		{"a preload that is missing", `"preload":[]`, `"preloads":[]`, "task"},
		{"a holder that stays", `"state":"pending","version":1`, `"state":"pending","pid":"v","version":1`, "task"},
	} {
		t.Run(lie.name, func(t *testing.T) {
			t.Parallel()
			address := proxied(t, server, func(proxy http.Handler, w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					proxy.ServeHTTP(w, r)
					return
				}
				recorded := httptest.NewRecorder()
				proxy.ServeHTTP(recorded, r)
				body := bytes.ReplaceAll(recorded.Body.Bytes(), []byte(lie.from), []byte(lie.to))
				w.Header().Set("Content-Type", recorded.Header().Get("Content-Type"))
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
				w.WriteHeader(recorded.Code)
				_, _ = io.Copy(w, bytes.NewReader(body))
			})
			r := runWith(nil, "verify", "--url", address, "--json", "--wait", "300ms")
			var report conform.Report
			if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
				t.Fatal(err)
			}
			found := false
			for _, result := range report.Results {
				found = found || result.Outcome == conform.Fail && result.Subject == lie.subject && result.Expected != "" && result.Got != ""
			}
			if r.code != exitFailure || !found {
				t.Errorf("exit %d, found under %q: %t", r.code, lie.subject, found)
			}
		})
	}
}
