package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"abide/client"
	"abide/internal/testenv"
	"abide/internal/trace"
	"abide/protocol"
)

// collected is what a collector of traces has been sent over HTTP.
type collected struct {
	url    string
	mu     sync.Mutex
	spans  []*otlp.Span
	bodies []byte // all together
}

func collect(t *testing.T) *collected {
	c := &collected{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var export collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &export); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies = append(c.bodies, body...)
		for _, of := range export.ResourceSpans {
			for _, scoped := range of.ScopeSpans {
				c.spans = append(c.spans, scoped.Spans...)
			}
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// of are the spans of a trace by their names.
func (c *collected) of(trace string) map[string][]*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string][]*otlp.Span{}
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			found[s.Name] = append(found[s.Name], s)
		}
	}
	return found
}

// postWith sends a request with headers, and wants a 200.
func postWith(t *testing.T, url, body string, headers map[string]string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", answer.StatusCode, text)
	}
}

// createTraced creates a promise for a target as part of a trace.
func createTraced(t *testing.T, url, id, target, parent string) {
	t.Helper()
	body := `{"kind":"promise.create","head":{"corrId":"1","version":"` + protocol.Version + `"},"data":{"id":"` + id + `","timeoutAt":1125899906842624,"tags":{"resonate:target":"` + target + `"}}}`
	postWith(t, url, body, map[string]string{"Traceparent": parent, "Tracestate": "vendor=1"})
}

// nextExecute is the next message to a worker.
func nextExecute(t *testing.T, c *client.Client, group string) protocol.Message {
	t.Helper()
	var first protocol.Message
	enough := errors.New("enough")
	err := c.Poll(t.Context(), group, "w", func(m protocol.Message) error {
		if first = m; m.Kind == protocol.MessageExecute {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	return first
}

// The trace of whoever creates a promise reaches the worker that runs it, with the server's own spans in between; and if
// the trace is not sampled, as it came.
func TestATraceGoesThroughTheServer(t *testing.T) {
	t.Parallel()
	const sampled, unsampled = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
	c := collect(t)
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--observability-otlp-endpoint", c.url, "--observability-otlp-protocol", trace.HTTP,
		"--observability-trace-sample", "0")...)
	createTraced(t, r.url, "sampled", "poll://any@g", "00-"+sampled+"-b7ad6b7169203331-01")
	m := nextExecute(t, r.client(t), "g")
	createTraced(t, r.url, "unsampled", "poll://any@h", "00-"+unsampled+"-00f067aa0ba902b7-00")
	plain := nextExecute(t, r.client(t), "h")
	if code := r.stop(t); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	if plain.Trace == nil || string(plain.Trace.AppendParent(nil)) != "00-"+unsampled+"-00f067aa0ba902b7-00" || plain.Trace.State != "vendor=1" {
		t.Errorf("the message of a trace that is not sampled says %+v", plain.Trace)
	}
	if got := c.of(unsampled); len(got) != 0 {
		t.Errorf("spans of a trace that is not sampled: %v", got)
	}
	spans := c.of(sampled)
	if len(spans["promise.create"]) != 1 || len(spans["engine"]) != 1 || len(spans["deliver execute"]) != 1 {
		t.Fatalf("spans %v", spans)
	}
	request, engine, delivery := spans["promise.create"][0], spans["engine"][0], spans["deliver execute"][0]
	if hex.EncodeToString(request.ParentSpanId) != "b7ad6b7169203331" || string(engine.ParentSpanId) != string(request.SpanId) || string(delivery.ParentSpanId) != string(request.SpanId) {
		t.Errorf("request of %x, engine of %x, delivery of %x", request.ParentSpanId, engine.ParentSpanId, delivery.ParentSpanId)
	}
	said := map[string]string{}
	for _, a := range append(request.Attributes, engine.Attributes...) {
		said[a.Key] = a.Value.GetStringValue() + fmt.Sprint(a.Value.GetIntValue())
	}
	if said["http.response.status_code"] != "200" || said["abide.workspace"] != "default0" || said["abide.transactions"] == "0" || said["abide.committed_us"] == "0" {
		t.Errorf("the request says %v", said)
	}
	if m.Trace == nil || hex.EncodeToString(m.Trace.ID[:]) != sampled || string(m.Trace.Span[:]) != string(delivery.SpanId) || !m.Trace.Sampled() || m.Trace.State != "vendor=1" {
		t.Errorf("the message says %+v, want the delivery %x", m.Trace, delivery.SpanId)
	}
	if strings.Contains(string(c.bodies), "\x07sampled") {
		t.Error("a span names an id")
	}
}

// A push carries the trace in its headers and in its body.
func TestATraceGoesWithAPush(t *testing.T) {
	t.Parallel()
	const id = "0af7651916cd43dd8448eb211c80319c"
	got := make(chan *http.Request, 10)
	bodies := make(chan []byte, 10)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- body
		got <- r
	}))
	defer target.Close()
	c := collect(t)
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--debug", "--observability-otlp-endpoint", c.url, "--observability-otlp-protocol", trace.HTTP)...)
	createTraced(t, r.url, "pushed", target.URL+"/", "00-"+id+"-b7ad6b7169203331-01")
	m, err := protocol.DecodeMessage(<-bodies)
	pushed := <-got
	if code := r.stop(t); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	spans := c.of(id)["push execute"]
	if len(spans) != 1 || string(spans[0].ParentSpanId) != string(c.of(id)["promise.create"][0].SpanId) {
		t.Fatalf("spans %v", spans)
	}
	want := "00-" + id + "-" + hex.EncodeToString(spans[0].SpanId) + "-01"
	if pushed.Header.Get("Traceparent") != want || pushed.Header.Get("Tracestate") != "vendor=1" {
		t.Errorf("headers %v, want %s", pushed.Header, want)
	}
	if err != nil || m.Trace == nil || string(m.Trace.AppendParent(nil)) != want {
		t.Errorf("the body says %+v, %v", m.Trace, err)
	}
}

// A collector that nobody serves, and one that hangs, hold up no start, no request and no stop.
func TestACollectorThatIsAwayHoldsNothingUp(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer hanging.Close()
	defer close(hang)
	for name, endpoint := range map[string]string{"nobody": fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)), "hangs": hanging.URL} {
		r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--observability-otlp-endpoint", endpoint, "--observability-otlp-protocol", trace.HTTP,
			"--observability-trace-sample", "1", "--server-shutdown-timeout", "5m")...)
		for range 20 {
			if _, err := r.client(t).PromiseCreate(t.Context(), protocol.PromiseCreate{ID: "p", TimeoutAt: 1 << 50}); err != nil {
				t.Fatal(err)
			}
		}
		// It waits for less than it ends within; that would be the shutdown timeout.
		if code := r.stop(t); code != exitOK || !strings.Contains(r.stderr.String(), "the last ones were not sent") && name == "hangs" {
			t.Errorf("%s: exit %d: %s", name, code, r.stderr.String())
		}
	}
}

// Where the settings of traces come from, and which wins.
func TestSettingsOfTraces(t *testing.T) {
	file := writeIn(t, "abide.toml", "[observability]\notlp_endpoint = \"file:1\"\ntrace_sample = 0.25\n")
	const own, otel, reference = "ABIDE_OBSERVABILITY__OTLP_ENDPOINT=own:1", "OTEL_EXPORTER_OTLP_ENDPOINT=http://otel:4318", "RESONATE_OBSERVABILITY__OTLP_ENDPOINT=reference:1"
	for _, c := range []struct {
		environ  []string
		args     []string
		endpoint string
	}{
		{nil, []string{"--config", ""}, ""},
		{nil, nil, "file:1"},
		{[]string{reference}, nil, "reference:1"},
		{[]string{reference, otel}, nil, "http://otel:4318"},
		{[]string{reference, otel, own}, nil, "own:1"},
		{[]string{own}, []string{"--observability-otlp-endpoint", "flag:1"}, "flag:1"},
		{[]string{otel}, []string{"--observability-otlp-endpoint", ""}, ""},
		{[]string{otel, "OTEL_SDK_DISABLED=TRUE"}, []string{"--config", ""}, ""},
		{[]string{otel, "OTEL_TRACES_EXPORTER=none"}, []string{"--config", ""}, ""},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT="}, nil, "file:1"},
	} {
		args := c.args
		if len(args) == 0 || args[0] != "--config" {
			args = append([]string{"--config", file}, args...)
		}
		s, _ := parsed(t, c.environ, args...)
		if s.ObservabilityOTLPEndpoint != c.endpoint {
			t.Errorf("%v %v: %q, want %q", c.environ, c.args, s.ObservabilityOTLPEndpoint, c.endpoint)
		}
	}
	if s, _ := parsed(t, nil, "--config", file); s.ObservabilityTraceSample != 0.25 {
		t.Errorf("sample %v", s.ObservabilityTraceSample)
	}
	for endpoint, want := range map[string]string{"http://h:4318": trace.HTTP, "http://h:4317": trace.GRPC, "https://h": trace.GRPC} {
		if got := (&tracingSettings{}).protocolOf(endpoint); got != want {
			t.Errorf("%s: %s, want %s", endpoint, got, want)
		}
	}
}
