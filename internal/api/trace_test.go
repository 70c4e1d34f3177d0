package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"abide/protocol"
)

const (
	parentA = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	parentB = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

// tracing is an engine that keeps the creations that it is asked for, and whose every call takes as long as it is told.
type tracing struct {
	now     time.Time
	takes   time.Duration
	created []*protocol.PromiseCreate
}

func (e *tracing) Do(_ context.Context, _ string, req protocol.Request, _ *int64) protocol.Reply {
	e.now = e.now.Add(e.takes)
	if c := protocol.Creates(req); c != nil {
		e.created = append(e.created, c)
	}
	return protocol.OK(protocol.EmptyBody{})
}

func (e *tracing) Ready(context.Context) error { return nil }

// posted sends one request, with lines of headers and members of the head.
func posted(h *Handler, kind, data, head string, headers ...string) int {
	body := `{"kind":"` + kind + `","head":{"corrId":"c","version":"` + protocol.Version + `"` + head + `},"data":` + data + `}`
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// What creates a promise is told the trace that the request is part of: of its headers first, then of its envelope. What is
// no trace, in either place, changes nothing.
func TestCreationsLearnTheirTrace(t *testing.T) {
	inHead := func(parent string) string { return `,"traceparent":"` + parent + `","tracestate":"h=1"` }
	inner := `{"kind":"promise.create","head":{},"data":{"id":"p","timeoutAt":5,"tags":{"resonate:target":"poll://any@g"}}}`
	for name, c := range map[string]struct {
		kind, data, head string
		headers          []string
		parent, state    string
	}{
		"none":                  {"promise.create", `{"id":"p","timeoutAt":5}`, "", nil, "", ""},
		"a header":              {"promise.create", `{"id":"p","timeoutAt":5}`, "", []string{"traceparent: " + parentA}, parentA, ""},
		"a header and a state":  {"promise.create", `{"id":"p","timeoutAt":5}`, "", []string{"Traceparent: " + parentA, "tracestate: a=1", "tracestate: b=2"}, parentA, "a=1,b=2"},
		"the head":              {"promise.create", `{"id":"p","timeoutAt":5}`, inHead(parentB), nil, parentB, "h=1"},
		"both":                  {"promise.create", `{"id":"p","timeoutAt":5}`, inHead(parentB), []string{"traceparent: " + parentA}, parentA, ""},
		"a bad header":          {"promise.create", `{"id":"p","timeoutAt":5}`, inHead(parentB), []string{"traceparent: " + parentA + "x"}, parentB, "h=1"},
		"two headers":           {"promise.create", `{"id":"p","timeoutAt":5}`, "", []string{"traceparent: " + parentA, "traceparent: " + parentB}, "", ""},
		"a long state":          {"promise.create", `{"id":"p","timeoutAt":5}`, "", []string{"traceparent: " + parentA, "tracestate: a=" + strings.Repeat("x", 600)}, parentA, ""},
		"nonsense in both":      {"promise.create", `{"id":"p","timeoutAt":5}`, inHead("nonsense"), []string{"traceparent: 00-0-0-0"}, "", ""},
		"a created task":        {"task.create", `{"pid":"w","ttl":5,"action":` + inner + `}`, "", []string{"traceparent: " + parentA}, parentA, ""},
		"a creation in a fence": {"task.fence", `{"id":"t","version":1,"action":` + inner + `}`, "", []string{"traceparent: " + parentA}, parentA, ""},
	} {
		e := &tracing{}
		h, err := New(e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if status := posted(h, c.kind, c.data, c.head, c.headers...); status != 200 || len(e.created) != 1 {
			t.Fatalf("%s: status %d, %d created", name, status, len(e.created))
		}
		got := e.created[0].Trace
		switch {
		case (got == nil) != (c.parent == ""):
			t.Errorf("%s: %+v", name, got)
		case got != nil && (string(got.AppendParent(nil)) != c.parent || got.State != c.state):
			t.Errorf("%s: %s %q, want %s %q", name, got.AppendParent(nil), got.State, c.parent, c.state)
		}
	}
}

// slowFixture is a handler whose clock moves only in the engine, and whose log is at hand.
func slowFixture(t *testing.T, e *tracing, spent Spent) (*Handler, *bytes.Buffer, func()) {
	t.Helper()
	var log bytes.Buffer
	h, err := New(e, Options{
		Now: func() time.Time { return e.now }, SlowRequest: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Timed: func(ctx context.Context) (context.Context, func() Spent) { return ctx, func() Spent { return spent } },
	})
	if err != nil {
		t.Fatal(err)
	}
	var ends func()
	h.slow.after = func(d time.Duration, f func()) { ends = f }
	return h, &log, func() { ends() }
}

// A request at the limit or above it is told of, with where its time went; one below it is not.
func TestSlowRequestsAreToldOf(t *testing.T) {
	for _, c := range []struct {
		takes  time.Duration
		spent  Spent
		reason string // empty: not told of
	}{
		{999 * time.Millisecond, Spent{}, ""},
		{time.Second, Spent{}, "it waited in the engine"},
		{3 * time.Second, Spent{Queued: 2 * time.Second, Committed: 900 * time.Millisecond, Transactions: 4, Conflicts: 3}, "the store's writer was busy"},
		{3 * time.Second, Spent{Committed: 2 * time.Second}, "the store was slow to commit"},
		{3 * time.Second, Spent{Read: 2 * time.Second}, "the store was slow to read"},
	} {
		e := &tracing{now: time.Unix(1000, 0), takes: c.takes}
		h, log, _ := slowFixture(t, e, c.spent)
		posted(h, "promise.create", `{"id":"secret-id","timeoutAt":5,"param":{"data":"c2VjcmV0"}}`, `,"auth":"secret-token"`)
		line := log.String()
		if c.reason == "" {
			if line != "" {
				t.Errorf("%s: %s", c.takes, line)
			}
			continue
		}
		for _, want := range []string{
			`msg="slow request" kind=promise.create workspace=default status=200`, fmt.Sprintf("took_ms=%d ", c.takes.Milliseconds()), `reason="` + c.reason + `"`,
			fmt.Sprintf("queue_ms=%d commit_ms=%d read_ms=%d", c.spent.Queued.Milliseconds(), c.spent.Committed.Milliseconds(), c.spent.Read.Milliseconds()),
			fmt.Sprintf("transactions=%d conflicts=%d", c.spent.Transactions, c.spent.Conflicts),
		} {
			if !strings.Contains(line, want) {
				t.Errorf("%s: %s\ndoes not say %s", c.takes, line, want)
			}
		}
		for _, never := range []string{"secret", "c2VjcmV0"} {
			if strings.Contains(line, never) {
				t.Errorf("%s holds %s", line, never)
			}
		}
	}
}

// stalling is a body that takes its time.
type stalling struct {
	e    *tracing
	text *strings.Reader
}

func (s stalling) Read(b []byte) (int, error) {
	s.e.now = s.e.now.Add(2 * time.Second)
	return s.text.Read(b)
}

// A body that comes slowly is its own reason; and one that is nonsense has no kind, whatever it says.
func TestSlowBodies(t *testing.T) {
	e := &tracing{now: time.Unix(1000, 0)}
	h, log, _ := slowFixture(t, e, Spent{})
	r := httptest.NewRequest(http.MethodPost, "/w/orders", stalling{e, strings.NewReader(`{"kind":"made.up","head":{"corrId":"c","version":"` + protocol.Version + `"},"data":{}}`)})
	h.ServeHTTP(httptest.NewRecorder(), r)
	if line := log.String(); !strings.Contains(line, `kind=unknown workspace=orders status=400`) || !strings.Contains(line, `reason="its body came slowly"`) ||
		strings.Contains(line, "made.up") {
		t.Errorf("%s", line)
	}
}

// A stall writes some lines and how many it left out, and the next interval begins anew.
func TestSlowRequestsAreToldOfInMeasure(t *testing.T) {
	e := &tracing{now: time.Unix(1000, 0), takes: 2 * time.Second}
	h, log, ends := slowFixture(t, e, Spent{})
	for range 2 {
		log.Reset()
		for range slowLines + 25 {
			posted(h, "promise.get", `{"id":"p"}`, "")
		}
		if n := strings.Count(log.String(), "\n"); n != slowLines {
			t.Errorf("%d lines, want %d", n, slowLines)
		}
		log.Reset()
		ends()
		if !strings.Contains(log.String(), "left_out=25") {
			t.Errorf("%q does not say how many were left out", log.String())
		}
	}
	log.Reset()
	posted(h, "promise.get", `{"id":"p"}`, "")
	ends()
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("one slow request: %s", log.String())
	}
}
