package trace

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"abide/protocol"
)

const (
	sampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	otherParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

var quiet = slog.New(slog.DiscardHandler)

// Spans arrive at a collector, in either protocol, as they were: their trace, their cause, their times, what is said of them.
func TestSpansArrive(t *testing.T) {
	for _, protocolName := range []string{GRPC, HTTP} {
		r := &received{}
		var endpoint string
		if protocolName == GRPC {
			endpoint = r.overGRPC(t)
		} else {
			endpoint = r.overHTTP(t)
		}
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
		tracer, err := New(context.Background(), Options{Endpoint: endpoint, Protocol: protocolName, Version: "1.2.3", Instance: "here", Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Unix(1_700_000_000, 5)
		request := tracer.Begin("promise.create", Server, protocol.ParseTrace(sampledParent, "a=1"), began)
		request.Text("abide.workspace", "default")
		request.Int("abide.status", 503)
		request.Fail("unavailable")
		part := request.Child("transaction", Internal, began.Add(time.Millisecond))
		part.End(began.Add(2 * time.Millisecond))
		request.End(began.Add(3 * time.Millisecond))
		context := request.Trace()
		stop(t, tracer)

		spans := r.all()
		if len(spans) != 2 || spans[0].Name != "transaction" || spans[1].Name != "promise.create" {
			t.Fatalf("%s: %d spans: %v", protocolName, len(spans), spans)
		}
		got := spans[1]
		if hex.EncodeToString(got.TraceId) != "0af7651916cd43dd8448eb211c80319c" || hex.EncodeToString(got.ParentSpanId) != "b7ad6b7169203331" ||
			got.Kind != otlp.Span_SPAN_KIND_SERVER || got.StartTimeUnixNano != uint64(began.UnixNano()) || got.EndTimeUnixNano-got.StartTimeUnixNano != 3_000_000 ||
			got.Status.Code != otlp.Status_STATUS_CODE_ERROR || got.Status.Message != "unavailable" || len(got.Attributes) != 2 || got.TraceState != "a=1" {
			t.Errorf("%s: %v", protocolName, got)
		}
		if !bytes.Equal(spans[0].ParentSpanId, got.SpanId) || !bytes.Equal(spans[0].TraceId, got.TraceId) {
			t.Errorf("%s: the part is of %x", protocolName, spans[0].ParentSpanId)
		}
		if !bytes.Equal(context.Span[:], got.SpanId) || !bytes.Equal(context.ID[:], got.TraceId) || !context.Sampled() || context.State != "a=1" {
			t.Errorf("%s: what comes is caused by %+v", protocolName, context)
		}
		for key, want := range map[string]string{"service.name": "abide", "service.version": "1.2.3", "service.instance.id": "here", "deployment.environment": "test"} {
			if r.resource[key] != want {
				t.Errorf("%s: %s is %q, want %q", protocolName, key, r.resource[key], want)
			}
		}
		for _, path := range r.paths {
			if path != "/v1/traces" {
				t.Errorf("sent to %s", path)
			}
		}
		if s := tracer.Stats(); s.Exported != 2 || s.Dropped+s.Failed != 0 {
			t.Errorf("%s: %+v", protocolName, s)
		}
	}
}

// The service's name is the environment's, where that says one.
func TestServiceNameOfTheEnvironment(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "orders")
	r := &received{}
	tracer, err := New(context.Background(), Options{Endpoint: r.overGRPC(t), Sample: 1, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	tracer.Begin("x", Server, nil, time.Time{}).End(time.Time{})
	stop(t, tracer)
	if r.resource["service.name"] != "orders" {
		t.Errorf("%v", r.resource)
	}
}

// memory is an exporter that keeps what it gets.
type memory struct {
	mu    sync.Mutex
	spans int
	fail  func() error
}

func (m *memory) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	if m.fail != nil {
		if err := m.fail(); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spans += len(spans)
	return nil
}

func (m *memory) Shutdown(context.Context) error { return nil }

func inMemory(m *memory, sample float64, log *slog.Logger) *Tracer {
	return newTracer(m, resource.Empty(), Options{Sample: sample, Log: log})
}

// Whoever is first in a trace decides for all; without anybody before, the share that is set decides.
func TestSampling(t *testing.T) {
	for _, c := range []struct {
		sample      float64
		parent      string
		least, most int // of 10,000
	}{
		{0, "", 0, 0}, {1, "", 10_000, 10_000}, {0.01, "", 30, 250}, {0.5, "", 4000, 6000},
		{0, sampledParent, 10_000, 10_000}, {1, otherParent, 0, 0}, {1, "nonsense", 10_000, 10_000},
	} {
		tracer := inMemory(&memory{}, c.sample, quiet)
		recorded := 0
		for range 10_000 {
			if tracer.Begin("x", Server, protocol.ParseTrace(c.parent, ""), time.Time{}).Recorded() {
				recorded++
			}
		}
		if recorded < c.least || recorded > c.most {
			t.Errorf("%v of %q: %d recorded, want %d to %d", c.sample, c.parent, recorded, c.least, c.most)
		}
		stop(t, tracer)
	}
}

// What is not sampled allocates nothing, and so does a server without traces.
func TestUnsampledSpansAllocateNothing(t *testing.T) {
	tracer := inMemory(&memory{}, 0, quiet)
	defer stop(t, tracer)
	parent := protocol.ParseTrace(otherParent, "")
	for name, tracer := range map[string]*Tracer{"off": nil, "not sampled": tracer} {
		n := testing.AllocsPerRun(1000, func() {
			s := tracer.Begin("x", Server, parent, time.Time{})
			s.Text("a", "b")
			s.Int("c", 1)
			s.Child("y", Internal, time.Time{}).End(time.Time{})
			s.Fail("no")
			s.End(time.Time{})
			if s.Trace() != nil || s.Recorded() {
				t.Fatal("it is recorded")
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if err := (*Tracer)(nil).Stop(context.Background()); err != nil || (*Tracer)(nil).Stats() != (Stats{}) {
		t.Error("no tracer, and it does something")
	}
}

// A collector that hangs costs those who end spans nothing but the spans, which are counted; a stop ends when its time does.
func TestHangingCollectorHoldsNobodyUp(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	m := &memory{fail: func() error { <-hang; return nil }}
	tracer := inMemory(m, 1, quiet)
	const spans = 3 * maxQueued
	for range spans {
		tracer.Begin("x", Server, nil, time.Time{}).End(time.Time{})
	}
	s := tracer.Stats()
	if s.Queued > maxQueued || s.Dropped < spans-maxQueued-2*maxBatch || s.Dropped+uint64(s.Queued) > spans {
		t.Errorf("%+v of %d", s, spans)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tracer.Stop(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "were not sent") {
		t.Errorf("stop: %v", err)
	}
	dropped := tracer.Stats().Dropped
	tracer.Begin("late", Server, nil, time.Time{}).End(time.Time{})
	if got := tracer.Stats().Dropped; got != dropped+1 {
		t.Errorf("a late span: %d dropped, %d before", got, dropped)
	}
}

// An exporter that fails and panics is told of once, goes on being tried, and its return is told of.
func TestFailingCollectorIsToldOfOnce(t *testing.T) {
	var text bytes.Buffer
	calls := 0
	m := &memory{fail: func() error {
		switch calls++; {
		case calls <= 2:
			return errors.New("nobody listens")
		case calls == 3:
			panic("a bug")
		}
		return nil
	}}
	tracer := inMemory(m, 1, slog.New(slog.NewTextHandler(&text, nil)))
	for range 5 * maxBatch {
		tracer.Begin("x", Server, nil, time.Time{}).End(time.Time{})
		if len(tracer.pipe.queue) > maxQueued/2 {
			time.Sleep(time.Millisecond)
		}
	}
	stop(t, tracer)
	s := tracer.Stats()
	if s.Exported == 0 || s.Failed < 3 || s.Exported+s.Failed+s.Dropped != 5*maxBatch || uint64(m.spans) != s.Exported {
		t.Errorf("%+v, %d arrived", s, m.spans)
	}
	if n := strings.Count(text.String(), "cannot be sent"); n != 1 {
		t.Errorf("told of %d times:\n%s", n, text.String())
	}
	if !strings.Contains(text.String(), "sent again") {
		t.Errorf("its return is not told of:\n%s", text.String())
	}
}

// Where a collector takes traces over HTTP.
func TestTracesURL(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://h:4318":            "http://h:4318/v1/traces",
		"http://h:4318/":           "http://h:4318/v1/traces",
		"https://h/otlp":           "https://h/otlp/v1/traces",
		"https://h/otlp/v1/traces": "https://h/otlp/v1/traces",
	} {
		if got, err := tracesURL(endpoint); err != nil || got != want {
			t.Errorf("%s: %s, %v", endpoint, got, err)
		}
	}
}

func BenchmarkSpans(b *testing.B) {
	for name, sample := range map[string]float64{"off": 0, "one in a hundred": 0.01, "all": 1} {
		b.Run(name, func(b *testing.B) {
			tracer := inMemory(&memory{}, sample, quiet)
			defer func() { _ = tracer.Stop(context.Background()) }()
			b.ReportAllocs()
			for b.Loop() {
				s := tracer.Begin("promise.create", Server, nil, time.Time{})
				s.Int("abide.status", 200)
				s.End(time.Time{})
			}
		})
	}
}
