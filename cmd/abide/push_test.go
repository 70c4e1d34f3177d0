package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/client"
	"abide/internal/bench"
	"abide/internal/testenv"
	"abide/protocol"
)

// function is a worker that lives behind a URL: it takes the task of the message that it is sent, and fulfils it.
type function struct {
	t *testing.T
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	unblocks map[string]int
	fail     int // how many requests it answers with 503 first
}

func newFunction(t *testing.T, fail int) *function {
	f := &function{t: t, unblocks: map[string]int{}, fail: fail}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *function) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m struct {
		Kind string
		Head struct{ ServerURL string }
		Data struct {
			Task struct {
				ID      string
				Version int64
			}
			Promise struct{ ID, State string }
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		f.t.Errorf("%s: %v", body, err)
	}
	f.mu.Lock()
	f.requests = append(f.requests, r)
	if f.fail > 0 {
		f.fail--
		f.mu.Unlock()
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if m.Kind == "unblock" {
		f.unblocks[m.Data.Promise.ID+" "+m.Data.Promise.State]++
	}
	f.mu.Unlock()
	if m.Kind == "unblock" {
		return
	}
	c, err := client.New(client.Options{URL: m.Head.ServerURL})
	if err != nil {
		f.t.Error(err)
		return
	}
	task, err := c.TaskAcquire(r.Context(), protocol.TaskAcquire{ID: m.Data.Task.ID, Version: m.Data.Task.Version, PID: "function", TTL: 60_000})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, err = c.TaskFulfill(r.Context(), protocol.TaskFulfill{ID: task.Task.ID, Version: task.Task.Version, Action: protocol.PromiseSettle{ID: task.Task.ID, State: protocol.Resolved}})
	if err != nil {
		f.t.Error(err)
	}
}

// A function behind a URL is run, at first failures too, and whoever listens at a URL is told.
func TestFunctionsArePushedTo(t *testing.T) {
	f := newFunction(t, 2)
	s := start(t, "dev", "--ephemeral", "--server-port", "0", "--observability-metrics-port", "0")
	c := s.client(t)
	const tasks = 20
	for i := range tasks {
		id := fmt.Sprint("t", i)
		_, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, f.URL+"/run")})
		if err == nil {
			_, err = c.PromiseRegisterListener(t.Context(), id, f.URL+"/done")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		told := len(f.unblocks)
		f.mu.Unlock()
		if told == tasks {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d listeners were told", told, tasks)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for what, n := range f.unblocks {
		if !strings.HasSuffix(what, " resolved") || n != 1 {
			t.Errorf("%s: %d times", what, n)
		}
	}
	if len(f.requests) > 2*tasks+2 {
		t.Errorf("%d requests", len(f.requests))
	}
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// pushed creates a task for an address.
func pushed(t *testing.T, c *client.Client, id, address string) {
	t.Helper()
	_, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, address)})
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something to come true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never comes true that %s", what)
		}
	}
}

// A server in production sends nothing to its own machine or network, and says why; what is allowed by a rule it does send
// to, with a signature.
func TestProductionSendsToTheWorldAlone(t *testing.T) {
	f := newFunction(t, 0)
	file := filepath.Join(t.TempDir(), "x.db")
	s := start(t, serveArgs(file)...)
	c := s.client(t)
	pushed(t, c, "t", f.URL)
	eventually(t, "it is refused", func() bool {
		why, err := c.TaskExplain(t.Context(), "t")
		return err == nil && why.Push == protocol.PushRefused && strings.Contains(why.PushError, "transports.http_push.allow")
	})
	if code := s.stop(t); code != exitOK || len(f.requests) != 0 {
		t.Errorf("exit %d, %d requests", code, len(f.requests))
	}
	s = startIn(t, []string{"ABIDE_TRANSPORTS__HTTP_PUSH__ALLOW=127.0.0.0/8", "RESONATE_TRANSPORTS__HTTP_PUSH__AUTH__MODE=hmac",
		"ABIDE_TRANSPORTS__HTTP_PUSH__AUTH__SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		serveArgs(file, "--server-url", "http://127.0.0.1:1")...) // where the function finds nobody
	eventually(t, "it is sent", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.requests) > 0
	})
	f.mu.Lock()
	if signed := f.requests[0].Header.Get("Webhook-Signature"); !strings.HasPrefix(signed, "v1,") {
		t.Errorf("signature %q", signed)
	}
	f.mu.Unlock()
	if code := s.stop(t); code != exitOK || strings.Contains(s.stderr.String(), "MfKQ9r8") {
		t.Errorf("exit %d: %s", code, s.stderr.String())
	}
}

// A thousand tasks for a host that nobody reaches: few requests, a quick claim, a quick stop (scenario D13).
func TestAHostThatNobodyReaches(t *testing.T) {
	address := fmt.Sprintf("http://127.0.0.1:%d/", testenv.FreePort(t))
	s := start(t, "dev", "--ephemeral", "--server-port", "0", "--observability-metrics-port", "0", "--server-shutdown-timeout", "1h", "--observability-slow-request", "0")
	c := s.client(t)
	var made sync.WaitGroup
	for worker := range 20 {
		made.Go(func() {
			for i := range 50 {
				pushed(t, c, fmt.Sprint("t", worker, ".", i), address)
			}
		})
	}
	made.Wait()
	eventually(t, "it has failed", func() bool { return strings.Contains(s.stderr.String(), "are not accepted") })
	if _, err := c.TaskAcquire(t.Context(), protocol.TaskAcquire{ID: "t7.7", PID: "somebody", TTL: 60_000}); err != nil {
		t.Error(err)
	}
	if code := s.stop(t); code != exitOK { // long before the shutdown timeout
		t.Errorf("exit %d", code)
	}
	if lines := strings.Count(s.stderr.String(), "level=WARN"); lines > 5 {
		t.Errorf("%d warnings", lines)
	}
}

// One host hangs and nine are good: the good ones get theirs, the age of what is undelivered is seen, and a stop cuts the
// request off that hangs; its message is sent again by the next server (scenarios J7, D12).
func TestAHostThatHangs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	serve := func() *running {
		return start(t, serveArgs(file, "--transports-http-push-allow=127.0.0.1", "--server-shutdown-timeout=1s", "--tasks-retry-timeout=1h")...)
	}
	s := serve()
	c := s.client(t)
	release := make(chan struct{})
	var hung, late atomic.Int64
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the end of the connection shows
		select {
		case <-release:
			late.Add(1)
		default:
			hung.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(hanging.Close)
	var good atomic.Int64
	var hosts []string
	for range 9 {
		h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { good.Add(1) }))
		t.Cleanup(h.Close)
		hosts = append(hosts, h.URL)
	}
	const each = 20
	for i := range each {
		pushed(t, c, fmt.Sprint("h.", i), hanging.URL)
		for n, host := range hosts {
			pushed(t, c, fmt.Sprint("g.", n, ".", i), host)
		}
	}
	eventually(t, "the good ones have theirs", func() bool { return good.Load() == 9*each })
	for i := range each {
		for n := range hosts {
			id := fmt.Sprint("g.", n, ".", i)
			eventually(t, "it is known of "+id, func() bool { // or a stop that comes before has it sent again
				why, err := c.TaskExplain(t.Context(), id)
				return err == nil && !why.Queued
			})
		}
	}
	if n := hung.Load(); n == 0 || n >= each {
		t.Errorf("%d requests hang", n)
	}
	if code := s.stop(t); code != exitOK || !strings.Contains(s.stderr.String(), "are sent again") {
		t.Errorf("exit %d", code)
	}
	close(release)
	s = serve()
	eventually(t, "the next server has sent the rest", func() bool { return late.Load() >= each })
	if good.Load() != 9*each {
		t.Errorf("what was accepted is sent again: %d", good.Load())
	}
	s.stop(t)
}

func TestPushSettings(t *testing.T) {
	for _, c := range []struct {
		flags []string
		says  string
	}{
		{[]string{"--transports-http-push-auth-mode=bearer"}, "go together"},
		{[]string{"--transports-http-push-auth-token=x"}, "go together"},
		{[]string{"--transports-http-push-auth-mode=hmac"}, "go together"},
		{[]string{"--transports-http-push-auth-mode=hmac", "--transports-http-push-auth-secret=tooshort"}, "secret 1"},
		{[]string{"--transports-http-push-auth-mode=basic"}, "use none, bearer, gcp or hmac"},
		{[]string{"--transports-http-push-auth-mode=bearer", "--transports-http-push-auth-token=a b"}, "printable ASCII"},
		{[]string{"--transports-http-push-auth-header=a:b"}, "name of a header"},
		{[]string{"--transports-http-push-auth-aud=x"}, "gcp alone"},
		{[]string{"--transports-http-push-concurrency=0"}, "from 1 to"},
		{[]string{"--transports-http-push-max-outstanding=1000000"}, "from 1 to"},
		{[]string{"--transports-http-push-request-timeout=0"}, "at least 1 ms"},
		{[]string{"--transports-http-push-allow=http://h"}, "is no rule"},
		{[]string{"--transports-http-push-deny=10.0.0.0/64"}, "is no rule"},
		{[]string{"--transports-http-push-enabled=maybe"}, "neither true nor false"},
		{[]string{"--transports-http-push-ca-file=/does/not/exist"}, "ca_file"},
	} {
		var out, errs lockedBuffer
		code := run(serveArgs(filepath.Join(t.TempDir(), "x.db"), c.flags...), surroundings{stdout: &out, stderr: &errs, signals: make(chan os.Signal), abort: func() {}})
		if code == exitOK || !strings.Contains(errs.String(), c.says) || strings.Contains(errs.String(), "a b") {
			t.Errorf("%v: exit %d, %s", c.flags, code, errs.String())
		}
	}
	// A rule that was not understood is no rule.
	var out, errs lockedBuffer
	code := run(serveArgs(filepath.Join(t.TempDir(), "x.db")), surroundings{environ: []string{"ABIDE_TRANSPORTS__HTTP_PUSH__DENNY=10.0.0.0/8"}, stdout: &out, stderr: &errs, signals: make(chan os.Signal), abort: func() {}})
	if code == exitOK || !strings.Contains(errs.String(), "transports.http_push.deny") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
	// Off, messages stay where they are.
	f := newFunction(t, 0)
	s := start(t, "dev", "--ephemeral", "--server-port", "0", "--observability-metrics-port", "0", "--transports-http-push-enabled", "false")
	pushed(t, s.client(t), "t", f.URL)
	why, err := s.client(t).TaskExplain(t.Context(), "t")
	if err != nil || why.Push != protocol.PushUnserved || !why.Queued {
		t.Errorf("%+v %v", why, err)
	}
}

// Every mode that measures push runs once.
func TestBenchPush(t *testing.T) {
	s := start(t, "dev", "--ephemeral", "--server-port", "0", "--observability-metrics-port", "0")
	for _, mode := range bench.PushModes() {
		var out, errs lockedBuffer
		code := run([]string{"bench", string(mode), "--url", s.url, "--clients", "4", "--for", "200ms", "--warmup", "50ms"}, surroundings{stdout: &out, stderr: &errs, signals: make(chan os.Signal), abort: func() {}})
		var report bench.Report
		if err := json.Unmarshal([]byte(out.String()), &report); err != nil || code != exitOK || report.Operations == 0 || len(report.Errors) != 0 {
			t.Errorf("%s: exit %d, %v, %s %s", mode, code, err, out.String(), errs.String())
		}
	}
}
