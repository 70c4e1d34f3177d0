package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/client"
	"abide/internal/testserver"
	"abide/protocol"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// seen keeps what a client's transport has read and written.
type seen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// waitFor waits until the transport has seen a text.
func (s *seen) waitFor(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if strings.Contains(s.String(), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s never came, but\n%s", text, s.String())
}

// rig is a server of promises, a server of MCP in front of it, and the SDK's own client of that.
type rig struct {
	direct  *client.Client
	session *sdk.ClientSession
	seen    *seen
	tokens  func() []string // what the server of promises was sent
}

func promises(t *testing.T) (url string, direct *client.Client, tokens func() []string) {
	t.Helper()
	var mu sync.Mutex
	var sent []string
	server, err := testserver.Start(testserver.Options{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			sent = append(sent, r.Header.Get("Authorization"))
			mu.Unlock()
			h.ServeHTTP(w, r)
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	direct, err = client.New(client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, direct, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), sent...)
	}
}

func options(url string) Options {
	return Options{URL: url, Token: "own", Version: "1", NowMs: func() int64 { return time.Now().UnixMilli() }}
}

func (r *rig) connect(t *testing.T, transport sdk.Transport) {
	t.Helper()
	r.seen = &seen{}
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &sdk.LoggingTransport{Transport: transport, Writer: r.seen}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	r.session = session
}

func overStdio(t *testing.T) *rig {
	t.Helper()
	url, direct, tokens := promises(t)
	r := &rig{direct: direct, tokens: tokens}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := ServeStdio(context.Background(), in, out, options(url))
		out.Close()
		done <- err
	}()
	t.Cleanup(func() {
		toServer.Close()
		if err := <-done; err != nil {
			t.Errorf("the end of the input is no failure: %v", err)
		}
	})
	r.connect(t, &sdk.IOTransport{Reader: fromServer, Writer: toServer})
	return r
}

// bearing adds a token to every request.
type bearing struct{ token string }

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func overHTTP(t *testing.T, token string) *rig {
	t.Helper()
	url, direct, tokens := promises(t)
	r := &rig{direct: direct, tokens: tokens}
	handler, err := Handler(options(url), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	r.connect(t, &sdk.StreamableClientTransport{Endpoint: s.URL, HTTPClient: &http.Client{Transport: bearing{token}}})
	return r
}

// call calls a tool and returns its text.
func (r *rig) call(t *testing.T, name string, arguments map[string]any) (text string, failed bool) {
	t.Helper()
	result, err := r.session.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return result.Content[0].(*sdk.TextContent).Text, result.IsError
}

func (r *rig) want(t *testing.T, name string, arguments map[string]any, says ...string) {
	t.Helper()
	text, failed := r.call(t, name, arguments)
	for _, part := range says {
		if failed || !strings.Contains(text, part) {
			t.Errorf("%s %v: %s (failed %v), want %q", name, arguments, text, failed, part)
		}
	}
	if !json.Valid([]byte(text)) {
		t.Errorf("%s: no JSON: %s", name, text)
	}
}

func (r *rig) refuse(t *testing.T, name string, arguments map[string]any, says string) {
	t.Helper()
	if text, failed := r.call(t, name, arguments); !failed || !strings.Contains(text, says) {
		t.Errorf("%s %v: %s (failed %v), want a failure with %q", name, arguments, text, failed, says)
	}
}

func TestToolsAndTheirAnnotations(t *testing.T) {
	listed, err := overStdio(t).session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, tool := range listed.Tools {
		a := tool.Annotations
		lines = append(lines, fmt.Sprintf("%s reads=%v destroys=%v open=%v", tool.Name, a.ReadOnlyHint, *a.DestructiveHint, *a.OpenWorldHint))
		if tool.Description == "" || a.Title == "" {
			t.Errorf("%s does not say what it is", tool.Name)
		}
	}
	sort.Strings(lines)
	want := `promise-create reads=false destroys=false open=false
promise-get reads=true destroys=false open=false
promise-listen reads=false destroys=false open=false
promise-search reads=true destroys=false open=false
promise-settle reads=false destroys=true open=false
promise-wait reads=true destroys=false open=false
resonate-bash reads=false destroys=true open=true
task-explain reads=true destroys=false open=false`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("tools:\n%s", got)
	}
}

// TestPromiseTools: the same calls on both transports.
func TestPromiseTools(t *testing.T) {
	for name, connect := range map[string]func(*testing.T) *rig{"stdio": overStdio, "http": func(t *testing.T) *rig { return overHTTP(t, "") }} {
		t.Run(name, func(t *testing.T) {
			r := connect(t)
			if err := r.session.Ping(t.Context(), nil); err != nil {
				t.Error(err)
			}
			inAnHour := time.Now().Add(time.Hour).UnixMilli()
			r.want(t, "promise-create", map[string]any{
				"id": "p", "timeout_at": inAnHour, "param": map[string]any{"headers": map[string]any{"h": "v"}, "data": []int{1}}, "tags": map[string]any{"k": "v"},
			}, `"state": "pending"`, `"data": "WzFd"`, `"h": "v"`, `"k": "v"`)
			r.want(t, "promise-create", map[string]any{"id": "p", "timeout_at": 5}, `"data": "WzFd"`)
			r.want(t, "promise-get", map[string]any{"id": "p"}, `"id": "p"`)
			r.want(t, "promise-search", map[string]any{"state": "pending", "tags": map[string]any{"k": "v"}, "limit": 5}, `"promises": [`, `"id": "p"`)
			r.want(t, "promise-wait", map[string]any{"id": "p", "timeoutMs": 20}, `"state": "pending"`)
			r.want(t, "promise-settle", map[string]any{"id": "p", "resolution": "reject", "value": map[string]any{"data": "no"}}, `"state": "rejected"`, `"data": "bm8="`)
			r.want(t, "promise-wait", map[string]any{"id": "p"}, `"state": "rejected"`)
			r.want(t, "promise-search", map[string]any{}, `"id": "p"`)
			r.want(t, "promise-create", map[string]any{"id": "t", "timeout_at": inAnHour, "tags": map[string]any{"resonate:target": "poll://any@g"}}, "pending")
			r.want(t, "task-explain", map[string]any{"id": "t"}, `"reason": "no_worker"`, "group g")

			r.refuse(t, "promise-get", map[string]any{"id": "nobody"}, "404")
			r.refuse(t, "promise-get", map[string]any{}, "id")
			r.refuse(t, "promise-wait", map[string]any{"id": "p", "timeoutMs": maxWaitMs + 1}, "timeoutMs")
			r.refuse(t, "promise-wait", map[string]any{"id": "nobody"}, "404")
			r.refuse(t, "promise-settle", map[string]any{"id": "p", "resolution": "forget"}, "resolution")
			r.refuse(t, "promise-create", map[string]any{"id": "p", "timeout_at": 1, "param": map[string]any{"dat": 1}}, "param")
			r.refuse(t, "promise-create", map[string]any{"id": "p", "timeout_at": "soon"}, "timeout_at")
			r.refuse(t, "promise-search", map[string]any{"state": "odd"}, "400")
			r.refuse(t, "task-explain", map[string]any{"id": "p"}, "404")
			r.refuse(t, "resonate-bash", map[string]any{"script": ""}, "script")
			r.refuse(t, "resonate-bash", map[string]any{"script": "x", "timeoutMs": -1}, "timeoutMs")
			if _, err := r.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "promise-forget"}); err == nil {
				t.Error("a tool that does not exist answers")
			}
		})
	}
}

func TestListening(t *testing.T) {
	r := overStdio(t)
	inAnHour := time.Now().Add(time.Hour).UnixMilli()
	for _, id := range []string{"p", "é 😀"} {
		r.want(t, "promise-create", map[string]any{"id": id, "timeout_at": inAnHour}, "pending")
		r.want(t, "promise-listen", map[string]any{"id": id}, `"state": "pending"`)
		if _, err := r.direct.PromiseSettle(t.Context(), protocol.PromiseSettle{ID: id, State: protocol.RejectedCanceled}); err != nil {
			t.Fatal(err)
		}
		handle, _ := json.Marshal(id)
		r.seen.waitFor(t, `"meta":{"handle":`+string(handle)+`,"status":"canceled"}`)
	}
	if !strings.Contains(r.seen.String(), `"method":"notifications/claude/channel"`) {
		t.Error(r.seen.String())
	}
	// One that is settled already is told as well, as nothing else will come.
	r.want(t, "promise-create", map[string]any{"id": "old", "timeout_at": 1}, "rejected_timedout")
	r.want(t, "promise-listen", map[string]any{"id": "old"}, "rejected_timedout")
	r.seen.waitFor(t, `"meta":{"handle":"old","status":"timedout"}`)

	r.want(t, "resonate-bash", map[string]any{"script": "echo é", "id": "b", "tags": map[string]any{"k": "v"}, "target": "poll://any@shell"},
		`"listener_registered": true`, `"data": "ZWNobyDDqQ=="`, `"resonate:target": "poll://any@shell"`, `"k": "v"`)
	if _, err := r.direct.PromiseSettle(t.Context(), protocol.PromiseSettle{ID: "b", State: protocol.Resolved}); err != nil {
		t.Fatal(err)
	}
	r.seen.waitFor(t, `"meta":{"handle":"b","status":"resolved"}`)
	for _, token := range r.tokens() {
		if token != "Bearer own" && token != "" { // the test's own client has none
			t.Errorf("token %q", token)
		}
	}
}

func TestOverHTTPNobodyListens(t *testing.T) {
	r := overHTTP(t, "")
	r.refuse(t, "promise-listen", map[string]any{"id": "p"}, "promise-wait")
	r.want(t, "resonate-bash", map[string]any{"script": "true", "target": "poll://any@shell"}, `"listener_registered": false`, `"id": "bash-`)
}

func TestTokensArePassedOn(t *testing.T) {
	for given, want := range map[string]string{"": "Bearer own", "theirs": "Bearer theirs"} {
		r := overHTTP(t, given)
		r.refuse(t, "promise-get", map[string]any{"id": "nobody"}, "404")
		for _, token := range r.tokens() {
			if token != want {
				t.Errorf("with %q: %q is sent on", given, token)
			}
		}
		if len(r.tokens()) == 0 {
			t.Error("nothing was sent")
		}
	}
}

func TestWebPagesAreKeptOut(t *testing.T) {
	url, _, _ := promises(t)
	handler, err := Handler(options(url), []string{"https://inspector.example"})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler)
	defer s.Close()
	for _, c := range []struct {
		method, origin, host string
		status               int
	}{
		{"POST", "", "", 200},
		{"POST", "https://inspector.example", "", 200},
		{"OPTIONS", "https://inspector.example", "", 204},
		{"POST", "https://evil.example", "", 403},
		{"GET", "https://evil.example", "", 403},
		{"OPTIONS", "https://evil.example", "", 403},
		{"POST", "null", "", 403},
		{"POST", "", "evil.example", 403},
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
		r, _ := http.NewRequest(c.method, s.URL, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		r.Host = c.host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		allowed := answer.Header.Get("Access-Control-Allow-Origin")
		if answer.StatusCode != c.status || (allowed != "") != (c.origin != "" && c.status < 300) {
			t.Errorf("%+v: status %d, allowed %q", c, answer.StatusCode, allowed)
		}
	}
	if _, err := Handler(Options{URL: "localhost"}, nil); err == nil {
		t.Error("a URL that is none is accepted")
	}
}

// TestLinesThatAreNoMessages: a session survives them, and answers those that are not blank.
func TestLinesThatAreNoMessages(t *testing.T) {
	url, _, _ := promises(t)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	go func() { _ = ServeStdio(context.Background(), in, out, options(url)); out.Close() }()
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	go func() {
		for _, line := range []string{"", "not JSON", "  ", "[]", `{"half":`, strings.Repeat("x", maxLineBytes+1), initialize} {
			_, _ = io.WriteString(toServer, line+"\r\n")
		}
		_, _ = io.WriteString(toServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+`{"jsonrpc":"2.0","id":2,"method":"ping"}`) // without its end
		_ = toServer.Close()
	}()
	var got []string
	lines := bufio.NewScanner(fromServer)
	for lines.Scan() {
		var message struct {
			ID     any
			Error  struct{ Code int }
			Result struct {
				ProtocolVersion string
				ServerInfo      struct{ Name string }
				Capabilities    map[string]any
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%v %d %s", message.ID, message.Error.Code, message.Result.ProtocolVersion))
		if message.Result.ServerInfo.Name != "" {
			if experimental, _ := message.Result.Capabilities["experimental"].(map[string]any); experimental["claude/channel"] == nil {
				t.Errorf("capabilities %v", message.Result.Capabilities)
			}
		}
	}
	if want := []string{"<nil> -32700 ", "<nil> -32700 ", "<nil> -32700 ", "<nil> -32700 ", "1 0 2025-11-25", "2 0 "}; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("answers %q, want %q", got, want)
	}
}

// TestNoSessionsOverHTTP: whoever reaches the address may ask again and again to begin, and nothing is kept of it.
func TestNoSessionsOverHTTP(t *testing.T) {
	handler, err := Handler(options("http://127.0.0.1:1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler)
	defer s.Close()
	for range 3 {
		r, err := http.NewRequest(http.MethodPost, s.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+
			`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if session := answer.Header.Get("Mcp-Session-Id"); answer.StatusCode != http.StatusOK || session != "" {
			t.Errorf("status %d, session %q", answer.StatusCode, session)
		}
	}
}
