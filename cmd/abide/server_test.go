package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"abide/client"
	"abide/protocol"
)

// TestMain lets the test binary be abide itself, for the own server of abide bench.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_PROGRAM") != "" {
		main()
	}
	forgetEnvironment()
	os.Exit(m.Run())
}

// lockedBuffer is an output that is read while the program writes.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// running is a server that runs inside the test.
type running struct {
	url            string
	stdout, stderr lockedBuffer
	signals        chan os.Signal
	aborted        chan struct{}
	code           chan int
	ended          chan struct{} // closed when the program has ended
}

// listeningLine is a whole line that says where a server listens, in either format of the log.
var listeningLine = regexp.MustCompile(`(?m)(?:msg=listening address=|"msg":"listening","address":")([^" ]+).*\n`)

// start runs the program until it listens.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	return startIn(t, nil, args...)
}

// startIn is start with an environment.
func startIn(t *testing.T, environ []string, args ...string) *running {
	t.Helper()
	r := &running{signals: make(chan os.Signal, 2), aborted: make(chan struct{}, 1), code: make(chan int, 1), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.code <- run(args, surroundings{
			environ: environ, stdout: &r.stdout, stderr: &r.stderr, signals: r.signals, abort: func() { r.aborted <- struct{}{} },
		})
	}()
	t.Cleanup(func() {
		select {
		case r.signals <- os.Interrupt:
		default:
		}
		select { // the folder that it writes into is removed next
		case <-r.ended:
		case <-time.After(10 * time.Second):
		}
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", r.stdout.String(), r.stderr.String())
		}
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if said := listeningLine.FindStringSubmatch(r.stderr.String()); said != nil {
			r.url = "http://" + said[1]
			return r
		}
		select {
		case code := <-r.code:
			t.Fatalf("%v ended with %d: %s", args, code, r.stderr.String())
		default:
			if time.Now().After(deadline) {
				t.Fatalf("%v does not listen: %s", args, r.stderr.String())
			}
		}
	}
}

// stop asks the program to end and returns its exit code.
func (r *running) stop(t *testing.T) int {
	t.Helper()
	r.signals <- syscall.SIGTERM
	select {
	case code := <-r.code:
		return code
	case <-time.After(2 * time.Minute):
		t.Fatalf("does not end: %s", r.stderr.String())
		return -1
	}
}

func (r *running) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: r.url, Retry: client.Retry{Attempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serveArgs are those of a server on free ports, which has all the time to stop that a slow machine takes.
func serveArgs(file string, more ...string) []string {
	return append([]string{"serve", "--server-shutdown-timeout", "1m", "--server-bind", "127.0.0.1", "--server-port", "0", "--observability-metrics-port", "0", "--storage-sqlite-path", file}, more...)
}

func TestServeKeepsWhatItHasAcknowledged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	first := start(t, serveArgs(file)...)
	if _, err := first.client(t).PromiseCreate(t.Context(), protocol.PromiseCreate{ID: "p", TimeoutAt: 1 << 50}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.client(t).DebugSnap(t.Context()); client.Status(err) != protocol.StatusForbidden {
		t.Errorf("debug.snap in production: %v", err)
	}
	if code := first.stop(t); code != exitOK || !strings.Contains(first.stderr.String(), "msg=stopped") {
		t.Errorf("exit %d", code)
	}
	second := start(t, serveArgs(file)...)
	if p, err := second.client(t).PromiseGet(t.Context(), "p"); err != nil || p.State != protocol.Pending {
		t.Errorf("%+v %v", p, err)
	}
	if code := second.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func TestASecondServerOnTheFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	start(t, serveArgs(file)...)
	r := runWith(nil, serveArgs(file)...)
	if r.code != exitFailure || !strings.HasPrefix(lastLine(r.stderr), "Fatal: ") || !strings.Contains(r.stderr, "x.db") {
		t.Errorf("exit %d, stderr %q", r.code, r.stderr)
	}
}

func TestFailuresAtStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	folder := t.TempDir()
	notADatabase := filepath.Join(folder, "text.db")
	if err := os.WriteFile(notADatabase, []byte(strings.Repeat("this is a diary, not a database\n", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{append(serveArgs(filepath.Join(folder, "x.db")), "--server-port", port), "--server-port"},
		{serveArgs(filepath.Join(folder, "missing", "x.db")), "missing"},
		{serveArgs(notADatabase), "text.db"},
		{[]string{"serve", "--server-bind", "203.0.113.1", "--storage-sqlite-path", filepath.Join(folder, "x.db")}, "203.0.113.1"},
	} {
		r := runWith(nil, c.args...)
		if last := lastLine(r.stderr); r.code != exitFailure || !strings.HasPrefix(last, "Fatal: ") || !strings.Contains(last, c.says) {
			t.Errorf("%v: exit %d, stderr %q", c.args, r.code, r.stderr)
		}
	}
	if text, err := os.ReadFile(notADatabase); err != nil || !bytes.HasPrefix(text, []byte("this is a diary")) {
		t.Errorf("a file that is no database was changed: %v", err)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestDev(t *testing.T) {
	t.Chdir(t.TempDir())
	r := start(t, "dev", "--server-port", "0")
	port := r.url[strings.LastIndex(r.url, ":"):]
	lines := strings.Split(r.stdout.String(), "\n")
	if len(lines) < 2 || !strings.Contains(lines[0], filepath.Join(devFolder, devFile)) || !strings.Contains(lines[1], "RESONATE_URL=http://localhost"+port) {
		t.Errorf("the first lines are %q", lines)
	}
	if !strings.HasPrefix(r.url, "http://127.0.0.1:") {
		t.Errorf("listening on %s", r.url)
	}
	if _, err := r.client(t).DebugSnap(t.Context()); err != nil {
		t.Errorf("debug.snap: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(devFolder, ".gitignore")); err != nil || string(text) != "*\n" {
		t.Errorf(".gitignore: %q %v", text, err)
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	if _, err := os.Stat(filepath.Join(devFolder, devFile)); err != nil {
		t.Error(err)
	}
}

func TestDevEphemeralLeavesNothing(t *testing.T) {
	temporary, project := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("TMP", temporary)
	t.Chdir(project)
	r := start(t, "dev", "--server-port", "0", "--ephemeral")
	if made, _ := os.ReadDir(temporary); len(made) != 1 {
		t.Errorf("the data is not in the temporary folder: %v", made)
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	for _, folder := range []string{temporary, project} {
		if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
			t.Errorf("left in %s: %v %v", folder, left, err)
		}
	}
}

func TestStopEndsStreamsAndIdleConnections(t *testing.T) {
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--observability-slow-request", "0")...) // a slow machine is no warning
	stream, err := http.Get(r.url + "/poll/g/p")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("status %d", stream.StatusCode)
	}
	if _, err := r.client(t).PromiseGet(t.Context(), "p"); client.Status(err) != protocol.StatusNotFound {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, bufio.NewReader(stream.Body))
		ended <- err
	}()
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	if err := <-ended; err != nil {
		t.Errorf("the stream does not end cleanly: %v", err)
	}
	if _, log, _ := strings.Cut(r.stderr.String(), "msg=stopping"); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
		t.Error("a regular stop is not a warning")
	}
}

// TestStopUnderLoad stops a server that many clients write to, and then looks for everything that was
// acknowledged.
func TestStopUnderLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	r := start(t, serveArgs(file, "--observability-slow-request", "0")...) // a slow machine is no warning
	var mu sync.Mutex
	var acknowledged []string
	var clients sync.WaitGroup
	enough := make(chan struct{})
	for i := range 16 {
		c := r.client(t)
		clients.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("p%d.%d", i, n)
				_, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50})
				if status := client.Status(err); err != nil && status != 0 && status != protocol.StatusUnavailable {
					t.Errorf("%s: %v", id, err)
				}
				if err != nil {
					return
				}
				mu.Lock()
				if acknowledged = append(acknowledged, id); len(acknowledged) == 200 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	clients.Wait()
	if _, log, _ := strings.Cut(r.stderr.String(), "msg=stopping"); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Error("a regular stop is not a warning")
	}
	again := start(t, serveArgs(file)...).client(t) // one connection: there may be few files
	for _, id := range acknowledged {
		if _, err := again.PromiseGet(t.Context(), id); err != nil {
			t.Errorf("%s was acknowledged: %v", id, err)
		}
	}
}

// TestStopIsBounded stops a server while a client holds a request back.
func TestStopIsBounded(t *testing.T) {
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--server-shutdown-timeout", "300ms")...)
	conn := halfRequest(t, r.url)
	defer conn.Close()
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	asked, release := make(chan struct{}, 10), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	defer hanging.Close()
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--transports-http-push-allow", "127.0.0.1", "--server-shutdown-timeout", "1h")...)
	pushed(t, r.client(t), "t", hanging.URL)
	<-asked // and that holds the stop up
	r.signals <- syscall.SIGTERM
	deadline := time.After(time.Minute)
	for waiting := true; waiting; {
		select {
		case <-r.aborted:
			waiting = false
		case <-time.After(2 * echo): // by the server's watch it may be less, and then it is no second one
			select {
			case r.signals <- syscall.SIGTERM:
			default:
			}
		case <-deadline:
			t.Error("still waiting")
			waiting = false
		}
	}
	close(release)
	<-r.code
}

// Supervisors signal a process and then its group: that is one wish, not an impatient second one.
func TestTwoSignalsAtOnceAreOne(t *testing.T) {
	for range 20 {
		r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"))...)
		begun := time.Now()
		r.signals <- syscall.SIGTERM
		r.signals <- syscall.SIGTERM
		if code := <-r.code; code != exitOK {
			t.Errorf("exit %d", code)
		}
		took := time.Since(begun)
		if !strings.Contains(r.stderr.String(), "msg=stopped") {
			t.Error("did not stop in order")
		}
		select {
		case <-r.aborted:
			if took < echo {
				t.Fatal("ended at once")
			} // else the second may have been heard so late that it was no echo
		default:
			return
		}
	}
	t.Skip("this machine is so slow that signals sent together are heard far apart")
}

// halfRequest sends the beginning of a request, and waits until the server must have seen it.
func halfRequest(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	for range 20 { // other requests pass it by
		if _, err := http.Get(url + "/health"); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

func TestBenchWithItsOwnServer(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, mode := range []string{"create", "workflow"} {
		r := runWith([]string{"BE_THE_PROGRAM=1", "ABIDE_SERVER__PORT=1", "RESONATE_DEBUG=junk"},
			"bench", mode, "--clients", "4", "--for", "200ms", "--warmup", "50ms", "--preload", "70")
		var report struct {
			Mode       string
			Operations int64
			Objects    int64
			Errors     map[string]int64
			Database   *int64 `json:"databaseBytes"`
		}
		if err := json.Unmarshal([]byte(r.stdout), &report); r.code != exitOK || err != nil {
			t.Fatalf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
		}
		if report.Mode != mode || report.Operations == 0 || len(report.Errors) != 0 || report.Objects < 70 || report.Database == nil {
			t.Errorf("%s", r.stdout)
		}
		if r.stderr != "" {
			t.Errorf("progress is for terminals: %q", r.stderr)
		}
	}
	if left, err := filepath.Glob(filepath.Join(devFolder, "bench-*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestBenchStopsAtASignal(t *testing.T) {
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"))...)
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	var stdout, stderr bytes.Buffer
	code := run([]string{"bench", "create", "--url", r.url, "--for", "1h"}, surroundings{stdout: &stdout, stderr: &stderr, signals: signals})
	if code != exitFailure || stdout.Len() != 0 || !strings.Contains(stderr.String(), "Fatal: interrupted") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}

// 0.0.0.0 is every IPv4 address and no IPv6 one.
func TestListenOnAnIPv4Address(t *testing.T) {
	l, err := listen("0.0.0.0", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := l.Addr().String(); !strings.HasPrefix(got, "0.0.0.0:") {
		t.Errorf("listens on %s", got)
	}
}

// The largest param and the largest value that a body can carry come back as they were, after a restart as well.
func TestLargestBodiesRoundTrip(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	server := start(t, serveArgs(file)...)
	post := func(body string) (status int, answer string) {
		t.Helper()
		response, err := http.Post(server.url, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	filled := func(format string) (body, data string) {
		var text strings.Builder // without a period, so that it is quickly found or missed
		for n := 0; text.Len() < protocol.MaxBodyBytes; n++ {
			fmt.Fprint(&text, n)
		}
		data = text.String()[:protocol.MaxBodyBytes-len(format)+len("%s")]
		return fmt.Sprintf(format, data), data
	}
	head := `"head":{"corrId":"c","version":"` + protocol.Version + `"}`
	create, param := filled(`{"kind":"promise.create",` + head + `,"data":{"id":"p","timeoutAt":1125899906842624,"tags":{},"param":{"headers":{},"data":"%s"}}}`)
	settle, value := filled(`{"kind":"promise.settle",` + head + `,"data":{"id":"p","state":"resolved","value":{"headers":{},"data":"%s"}}}`)
	get := `{"kind":"promise.get",` + head + `,"data":{"id":"p"}}`
	if len(create) != protocol.MaxBodyBytes || len(settle) != protocol.MaxBodyBytes {
		t.Fatal(len(create), len(settle))
	}
	if status, answer := post(create); status != 200 || !strings.Contains(answer, param) {
		t.Fatalf("create: %d %.200s", status, answer)
	}
	if status, answer := post(settle); status != 200 || !strings.Contains(answer, value) || !strings.Contains(answer, param) {
		t.Fatalf("settle: %d %.200s", status, answer)
	}
	if code := server.stop(t); code != exitOK {
		t.Fatal(code)
	}
	server = start(t, serveArgs(file)...)
	if status, answer := post(get); status != 200 || !strings.Contains(answer, value) || !strings.Contains(answer, param) {
		t.Errorf("get after a restart: %d %.200s", status, answer)
	}
	if code := server.stop(t); code != exitOK {
		t.Fatal(code)
	}
	if r := runWith(nil, "check", file, "--replay"); r.code != exitOK {
		t.Errorf("check: %d %s%s", r.code, r.stdout, r.stderr)
	}
}
