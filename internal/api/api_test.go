package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"abide/internal/api"
	"abide/protocol"
)

// stub is an engine that answers what it is told and remembers what it was asked.
type stub struct {
	mu    sync.Mutex
	asked []string // workspace, kind and debug time
	reply func(ctx context.Context, req protocol.Request) protocol.Reply
	ready error
}

func (s *stub) Do(ctx context.Context, workspace string, req protocol.Request, debugTime *int64) protocol.Reply {
	at := "-"
	if debugTime != nil {
		at = fmt.Sprint(*debugTime)
	}
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprintf("%s %s %s", workspace, req.Kind(), at))
	s.mu.Unlock()
	if s.reply != nil {
		return s.reply(ctx, req)
	}
	return protocol.OK(protocol.EmptyBody{})
}

func (s *stub) Ready(context.Context) error { return s.ready }

// calls returns what was asked since the last time.
func (s *stub) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.asked
	s.asked = nil
	return out
}

// fixture is a server on a loopback port.
type fixture struct {
	t       *testing.T
	engine  *stub
	handler *api.Handler
	addr    string
	log     *syncBuffer
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func start(t *testing.T, o api.Options, adjust ...func(*http.Server)) *fixture {
	t.Helper()
	f := &fixture{t: t, engine: &stub{}, log: &syncBuffer{}}
	o.Log = slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if f.handler, err = api.New(f.engine, o); err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewUnstartedServer(f.handler)
	ts.Config = api.NewServer(f.handler, o.Log).Server
	for _, a := range adjust {
		a(ts.Config)
	}
	ts.Start()
	t.Cleanup(ts.Close)
	f.addr = ts.Listener.Addr().String()
	return f
}

// answer is what came back for one raw request.
type answer struct {
	status int
	header http.Header
	body   string
	closed bool
}

// raw sends text as it is and reads one response.
func (f *fixture) raw(text string) answer {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, text) }() // the server may answer before it has read all
	return f.read(bufio.NewReader(conn), text)
}

func (f *fixture) read(r *bufio.Reader, text string) answer {
	f.t.Helper()
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		f.t.Fatalf("%.80q: %v", text, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatalf("%.80q: %v", text, err)
	}
	return answer{resp.StatusCode, resp.Header, string(body), resp.Close}
}

// request writes a request for path; headers are whole lines.
func request(method, path, body string, headers ...string) string {
	text := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n"
	for _, h := range headers {
		text += h + "\r\n"
	}
	if body != "" || method == "POST" {
		text += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return text + "\r\n" + body
}

func envelope(kind, data string) string {
	return `{"kind":"` + kind + `","head":{"corrId":"c1","version":"2026-04-01","resonate:debug_time":77},"data":` + data + `}`
}

func response(kind string, status int, data string) string {
	return fmt.Sprintf(`{"kind":"%s","head":{"corrId":"c1","status":%d,"version":"2026-04-01"},"data":%s}`, kind, status, data)
}

// okAnswer is what the stub answers to a promise.get.
var okAnswer = response("promise.get", 200, "{}")

// paths lists what each method on each path leads to.
var paths = []struct {
	method, path string
	status       int
	allow        string // header
	body         string
	call         string // of the engine or of Poll
}{
	{"POST", "/", 200, "", okAnswer, "default promise.get -"},
	{"POST", "//", 200, "", okAnswer, "default promise.get -"},
	{"POST", "/?x=1", 200, "", okAnswer, "default promise.get -"},
	{"POST", "http://localhost/", 200, "", okAnswer, "default promise.get -"},
	{"POST", "http://localhost", 200, "", okAnswer, "default promise.get -"},
	{"POST", "/w/x", 200, "", okAnswer, "x promise.get -"},
	{"POST", "/w/x/", 200, "", okAnswer, "x promise.get -"},
	{"POST", "//w/x//", 200, "", okAnswer, "x promise.get -"},
	{"POST", "/w/A-1._z", 200, "", okAnswer, "A-1._z promise.get -"},
	{"POST", "/w/%64efault/", 200, "", okAnswer, "default promise.get -"},
	{"POST", "/w/" + strings.Repeat("n", 64), 200, "", okAnswer, strings.Repeat("n", 64) + " promise.get -"},
	{"POST", "/w/" + strings.Repeat("n", 65), 400, "", "a workspace is named with", ""},
	{"POST", "/w/a%20b", 400, "", "a workspace is named with", ""},
	{"POST", "/w/a%2Fb", 400, "", "a workspace is named with", ""},
	{"POST", "/w/%C3%A9", 400, "", "a workspace is named with", ""},
	{"POST", "/w/..", 400, "", "a workspace is named with", ""},
	{"POST", "/w/-a/", 400, "", "a workspace is named with", ""},
	{"POST", "/w", 404, "", "", ""},
	{"POST", "/w/", 404, "", "", ""},
	{"GET", "/", 405, "POST", "", ""},
	{"HEAD", "/", 405, "POST", "", ""},
	{"PUT", "/", 405, "POST", "", ""},
	{"OPTIONS", "/", 405, "POST", "", ""},
	{"POS", "/", 405, "POST", "", ""},
	{"DELETE", "/w/x", 405, "POST", "", ""},
	{"GET", "/health", 200, "", "", ""},
	{"GET", "//health", 200, "", "", ""},
	{"HEAD", "/health", 200, "", "", ""},
	{"POST", "/health", 405, "GET,HEAD", "", ""},
	{"GET", "/ready", 200, "", `{"ready":true}`, ""},
	{"HEAD", "/ready", 200, "", "", ""},
	{"POST", "/ready", 405, "GET,HEAD", "", ""},
	{"GET", "/health/", 404, "", "", ""},
	{"GET", "/poll/g/w", 200, "", "", "default|g|w"},
	{"GET", "//poll/g/w", 200, "", "", "default|g|w"},
	{"GET", "/poll/g/w?last=1", 200, "", "", "default|g|w"},
	{"GET", "/w/x/poll/g/w", 200, "", "", "x|g|w"},
	{"GET", "/w/x//poll/g/w", 200, "", "", "x|g|w"},
	{"GET", "/poll/g/a/b", 200, "", "", "default|g|a/b"},
	{"GET", "/poll/g/a%2Fb", 200, "", "", "default|g|a/b"},
	{"GET", "/poll/g/a%252Fb", 200, "", "", "default|g|a%2Fb"},
	{"GET", "/poll/g/..", 200, "", "", "default|g|.."},
	{"GET", "/poll/g/a+b%20c", 200, "", "", "default|g|a+b c"},
	{"GET", "/poll/gr%C3%BCp/%F0%9F%98%80%0A", 200, "", "", "default|grüp|😀\n"},
	{"GET", "/poll/a%2Fb/w", 200, "", "", "default|a/b|w"},
	{"GET", "/poll/g/%FF", 400, "", "the worker id in the path", ""},
	{"GET", "/poll/%FF/w", 400, "", "the group in the path", ""},
	{"GET", "/poll/" + strings.Repeat("g", 1025) + "/w", 400, "", "MaxAddressBytes", ""},
	{"GET", "/poll/g", 404, "", "", ""},
	{"GET", "/poll/g/", 404, "", "", ""},
	{"GET", "/poll//w", 404, "", "", ""},
	{"GET", "/poll", 404, "", "", ""},
	{"POST", "/poll/g/w", 405, "GET", "", ""},
	{"HEAD", "/poll/g/w", 405, "GET", "", ""},
	{"GET", "/promises", 410, "", `{"error":"this endpoint`, ""},
	{"PATCH", "/promises/x", 410, "", `{"error":"this endpoint`, ""},
	{"POST", "/tasks/claim", 410, "", `{"error":"this endpoint`, ""},
	{"GET", "/schedules/a/b", 410, "", `{"error":"this endpoint`, ""},
	{"GET", "/promises/", 404, "", "", ""},
	{"GET", "/schedules/", 404, "", "", ""},
	{"GET", "/tasks/", 404, "", "", ""},
	{"GET", "/promise", 404, "", "", ""},
	{"GET", "/api/v1/promises", 404, "", "", ""},
	{"POST", "/x", 404, "", "", ""},
	{"GET", "/../health", 404, "", "", ""},
}

func TestRoutes(t *testing.T) {
	get := envelope("promise.get", `{"id":"p"}`)
	var polled []string
	f := start(t, api.Options{Poll: func(w http.ResponseWriter, _ *http.Request, worker api.Worker) {
		polled = append(polled, worker.Workspace+"|"+worker.Group+"|"+worker.ID)
		w.WriteHeader(http.StatusOK)
	}})
	for _, c := range paths {
		body := ""
		if c.method == "POST" {
			body = get
		}
		polled = nil
		got := f.raw(request(c.method, c.path, body))
		calls := append(f.engine.calls(), polled...)
		if got.status != c.status || got.header.Get("Allow") != c.allow || !strings.HasPrefix(got.body, c.body) && !strings.Contains(got.body, c.body) {
			t.Errorf("%s %.60s: %d Allow=%q %q", c.method, c.path, got.status, got.header.Get("Allow"), got.body)
		}
		if c.body == "" && got.body != "" || got.header.Get("Location") != "" {
			t.Errorf("%s %.60s: body %q, Location %q", c.method, c.path, got.body, got.header.Get("Location"))
		}
		if strings.Join(calls, ",") != c.call {
			t.Errorf("%s %.60s: called %q, want %q", c.method, c.path, calls, c.call)
		}
		if c.status == 410 && got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: type %s", c.path, got.header.Get("Content-Type"))
		}
	}
	if strings.Contains(f.log.String(), "level=ERROR") {
		t.Errorf("logged at error:\n%s", f.log)
	}
}

func TestPollWithoutAPollOption(t *testing.T) {
	f := start(t, api.Options{})
	if got := f.raw(request("GET", "/poll/g/w", "")); got.status != 404 {
		t.Errorf("status %d", got.status)
	}
}

// TestStatuses: the HTTP status is the status of the head, the type is always JSON.
func TestStatuses(t *testing.T) {
	f := start(t, api.Options{})
	for _, reply := range []protocol.Reply{
		protocol.OK(protocol.EmptyBody{}),
		{Status: 300, Body: protocol.PreloadBody{}},
		protocol.Fail(404, "Promise not found"), protocol.Fail(409, "x"), protocol.Fail(422, "x"),
		protocol.Fail(500, "x"), protocol.Fail(501, "x"), protocol.Fail(503, "x"),
	} {
		f.engine.reply = func(context.Context, protocol.Request) protocol.Reply { return reply }
		got := f.raw(request("POST", "/", envelope("task.get", `{"id":"t"}`)))
		var env struct {
			Kind string
			Head struct {
				CorrID  string `json:"corrId"`
				Status  int
				Version string
			}
			Data any
		}
		if err := json.Unmarshal([]byte(got.body), &env); err != nil {
			t.Fatal(err)
		}
		if got.status != reply.Status || env.Head.Status != reply.Status || env.Kind != "task.get" || env.Head.CorrID != "c1" || env.Head.Version != "2026-04-01" {
			t.Errorf("%d: HTTP %d, %s", reply.Status, got.status, got.body)
		}
		if message, isText := env.Data.(string); isText != (reply.Body == nil) || message != reply.Message {
			t.Errorf("%d: data %v", reply.Status, env.Data)
		}
		if got.header.Get("Content-Type") != "application/json" || (got.header.Get("Retry-After") == "1") != (reply.Status == 503) {
			t.Errorf("%d: headers %v", reply.Status, got.header)
		}
	}
}

func TestFenceCarriesTheOuterCorrID(t *testing.T) {
	f := start(t, api.Options{})
	f.engine.reply = func(context.Context, protocol.Request) protocol.Reply {
		return protocol.OK(protocol.FenceBody{ActionKind: protocol.KindPromiseSettle, Action: protocol.Fail(404, "no")})
	}
	got := f.raw(request("POST", "/", envelope("task.fence", `{"id":"t","version":1,"action":{"kind":"promise.settle","head":{"corrId":"inner"},"data":{"id":"u","state":"resolved"}}}`)))
	want := response("task.fence", 200, `{"action":{"kind":"promise.settle","head":{"corrId":"c1","status":404,"version":"2026-04-01"},"data":"no"},"preload":[]}`)
	if got.body != want {
		t.Errorf("got %s\nwant %s", got.body, want)
	}
}

// TestBadInput: the list of the issue. Nothing reaches the engine, nothing is logged at error.
func TestBadInput(t *testing.T) {
	f := start(t, api.Options{})
	for _, c := range []struct {
		name, body string
		status     int
		kind, corr string // echoed
		part       string
	}{
		{"empty", "", 400, "unknown", "0", "Invalid request envelope: "},
		{"not JSON", "hello", 400, "unknown", "0", "Invalid request envelope: "},
		{"cut", `{"kind":"promise.get",`, 400, "unknown", "0", "Invalid request envelope: "},
		{"binary", "\x00\xff\xfe", 400, "unknown", "0", "UTF-8"},
		{"gzip", "\x1f\x8b\x08\x00", 400, "unknown", "0", "UTF-8"},
		{"array", "[]", 400, "unknown", "0", "must be an object"},
		{"no head", `{"kind":"promise.get","data":{}}`, 400, "promise.get", "0", "head is missing"},
		{"kind is a number", `{"kind":1,"head":{"corrId":"c1","version":"2026-04-01"},"data":{}}`, 400, "unknown", "c1", "kind must be a string"},
		{"empty kind", envelope("", `{}`), 400, "", "c1", "kind must not be empty"},
		{"data null", envelope("promise.get", `null`), 400, "promise.get", "c1", "data must be an object"},
		{"wrong version", strings.Replace(envelope("promise.get", `{"id":"p"}`), "2026-04-01", "2025-01-01", 1), 400, "promise.get", "c1", "2025-01-01"},
		{"unknown kind", envelope("promise.destroy", `{}`), 400, "promise.destroy", "c1", "Unknown operation: promise.destroy"},
		{"missing field", envelope("promise.get", `{}`), 400, "promise.get", "c1", "Invalid request: id is missing"},
		{"wrong type", envelope("promise.get", `{"id":{}}`), 400, "promise.get", "c1", "Invalid request: id must be a string, not an object"},
		{"long id", envelope("promise.get", `{"id":"`+strings.Repeat("x", 1025)+`"}`), 400, "promise.get", "c1", "the limit is 1024 (MaxIDBytes)"},
		{"bad address", envelope("promise.register_listener", `{"awaited":"p","address":"nowhere"}`), 400, "promise.register_listener", "c1", "Invalid listener address"},
		{"absurd number", envelope("promise.create", `{"id":"p","timeoutAt":1e999}`), 400, "promise.create", "c1", "timeoutAt must be an integer"},
		{"larger than int64", envelope("promise.create", `{"id":"p","timeoutAt":18446744073709551616}`), 400, "promise.create", "c1", "timeoutAt must be an integer"},
		{"NUL", envelope("promise.get", `{"id":"a\u0000"}`), 400, "promise.get", "c1", "NUL"},
		{"lone surrogate", envelope("promise.get", `{"id":"\udfff"}`), 400, "promise.get", "c1", "surrogate"},
		{"debug", envelope("debug.reset", `{}`), 403, "debug.reset", "c1", "--debug"},
		{"debug before its data", envelope("debug.tick", `{"time":"x"}`), 403, "debug.tick", "c1", "--debug"},
		{"unknown debug", envelope("debug.nope", `{}`), 400, "debug.nope", "c1", "Unknown operation"},
		{"deep", strings.Repeat(`{"":`, 11_000) + "1" + strings.Repeat("}", 11_000), 400, "unknown", "0", "depth"},
		{"large and cut off", `{"kind":"` + strings.Repeat("x", 70_000), 400, "unknown", "0", "unexpected end"},
	} {
		got := f.raw(request("POST", "/", c.body))
		var env struct {
			Kind string
			Head struct {
				CorrID string `json:"corrId"`
				Status int
			}
			Data string
		}
		if err := json.Unmarshal([]byte(got.body), &env); err != nil {
			t.Errorf("%s: %v in %q", c.name, err, got.body)
			continue
		}
		if got.status != c.status || env.Head.Status != c.status || env.Kind != c.kind || env.Head.CorrID != c.corr || !strings.Contains(env.Data, c.part) {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
	}
	if calls := f.engine.calls(); len(calls) != 0 {
		t.Errorf("the engine was asked %q", calls)
	}
	if strings.Contains(f.log.String(), "level=ERROR") {
		t.Errorf("logged at error:\n%s", f.log)
	}
}

func TestWeirdHeadersAreAccepted(t *testing.T) {
	f := start(t, api.Options{})
	for _, line := range []string{
		"resonate:origin: r.0", // a released Python SDK writes this
		"Authorization: Bearer nonsense",
		"Authorization:",
		"Content-Type: text/plain",
		"Content-Type: ;;;",
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
		"Accept: nothing/at-all",
		"Cookie: \xff",
		"X-Long: " + strings.Repeat("x", 30_000),
	} {
		if got := f.raw(request("POST", "/", envelope("task.get", `{"id":"t"}`), line)); got.status != 200 {
			t.Errorf("%.60q: %d %q", line, got.status, got.body)
		}
	}
}

func TestDebug(t *testing.T) {
	f := start(t, api.Options{Debug: true})
	for _, c := range []struct {
		body   string
		status int
		call   string
	}{
		{envelope("debug.snap", `{}`), 200, "default debug.snap 77"},
		{envelope("debug.tick", `{"time":77}`), 200, "default debug.tick 77"},
		{envelope("debug.tick", `{"time":78}`), 400, ""},
		{envelope("promise.get", `{"id":"p"}`), 200, "default promise.get 77"},
		{strings.Replace(envelope("promise.get", `{"id":"p"}`), "77", "-1", 1), 400, ""},
		{strings.Replace(envelope("promise.get", `{"id":"p"}`), "77", "null", 1), 200, "default promise.get -"},
	} {
		got := f.raw(request("POST", "/", c.body))
		if calls := strings.Join(f.engine.calls(), ","); got.status != c.status || calls != c.call {
			t.Errorf("%s: %d %s, called %q", c.body, got.status, got.body, calls)
		}
	}
	// Without debug even an impossible time is ignored.
	f = start(t, api.Options{})
	if got := f.raw(request("POST", "/", strings.Replace(envelope("promise.get", `{"id":"p"}`), "77", "-1", 1))); got.status != 200 {
		t.Errorf("status %d", got.status)
	}
}

func TestReady(t *testing.T) {
	f := start(t, api.Options{})
	f.engine.ready = errors.New("the store is gone")
	if got := f.raw(request("GET", "/ready", "")); got.status != 503 || got.body != `{"ready":false,"reason":"the store is gone"}`+"\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got := f.raw(request("GET", "/health", "")); got.status != 200 {
		t.Errorf("health %d", got.status)
	}
	if !strings.Contains(f.log.String(), "the store is gone") {
		t.Errorf("log: %s", f.log)
	}
}

func TestDrain(t *testing.T) {
	f := start(t, api.Options{Poll: func(w http.ResponseWriter, _ *http.Request, _ api.Worker) { w.WriteHeader(200) }})
	f.handler.Drain()
	got := f.raw(request("POST", "/", envelope("task.get", `{"id":"t"}`)))
	if got.status != 503 || !got.closed || got.header.Get("Retry-After") == "" || got.body != response("task.get", 503, `"The server is stopping; nothing was done, try again"`) {
		t.Errorf("POST: %d closed=%v %s", got.status, got.closed, got.body)
	}
	for path, want := range map[string]int{"/poll/g/w": 503, "/ready": 503, "/health": 200} {
		if got := f.raw(request("GET", path, "")); got.status != want || !got.closed {
			t.Errorf("%s: %d closed=%v", path, got.status, got.closed)
		}
	}
	if calls := f.engine.calls(); len(calls) != 0 {
		t.Errorf("the engine was asked %q", calls)
	}
}

func TestPanics(t *testing.T) {
	f := start(t, api.Options{Poll: func(http.ResponseWriter, *http.Request, api.Worker) { panic("poll broke") }})
	f.engine.reply = func(context.Context, protocol.Request) protocol.Reply { panic("engine broke") }
	got := f.raw(request("POST", "/", envelope("task.get", `{"id":"t"}`)))
	if got.status != 500 || !strings.HasPrefix(got.body, `{"kind":"task.get","head":{"corrId":"c1","status":500,`) || strings.Contains(got.body, "broke") {
		t.Errorf("%d %s", got.status, got.body)
	}
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request("GET", "/poll/g/w", "")); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); err != nil || len(text) != 0 {
		t.Errorf("after a panic in a stream came %q, %v", text, err)
	}
	for _, part := range []string{"engine broke", "poll broke", "level=ERROR", "api_test.go"} {
		if !strings.Contains(f.log.String(), part) {
			t.Errorf("the log lacks %q", part)
		}
	}
	// A fault outside the engine, here in a body of an answer.
	f.engine.reply = func(context.Context, protocol.Request) protocol.Reply { return protocol.OK(brokenBody{}) }
	got = f.raw(request("POST", "/", envelope("task.get", `{"id":"t"}`)))
	if got.status != 500 || !strings.HasPrefix(got.body, `{"kind":"unknown","head":{"corrId":"0","status":500,`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	f.engine.reply = nil
	if got := f.raw(request("POST", "/", envelope("task.get", `{"id":"t"}`))); got.status != 200 {
		t.Errorf("after the panics: %d", got.status)
	}
}

type brokenBody struct{}

func (brokenBody) AppendJSON([]byte) []byte { panic("body broke") }
