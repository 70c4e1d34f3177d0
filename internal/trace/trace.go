// Package trace records what a server does as spans, and sends them to an OpenTelemetry collector. It is the one package
// that knows OpenTelemetry. The others begin a Span, which is nothing and costs nothing unless its trace is sampled.
//
// A request that is part of a sampled trace is recorded. Of those that are part of none, a share is, which begins a trace of
// its own; those that are part of a trace that is not sampled are not. So whoever is first in a trace decides for all.
// (docs/tracing.md)
package trace

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"abide/protocol"
)

// Options are what a Tracer is made from.
type Options struct {
	// Endpoint is the URL of the collector: http:// or https://, a host, and a port.
	Endpoint string
	// Protocol is how it is spoken to: GRPC or HTTP.
	Protocol string
	// Sample is the share of requests without a trace that are recorded, from 0 to 1.
	Sample float64
	// Version and Instance say which server this is: the service's version and instance of every span.
	Version, Instance string
	// Log takes what goes wrong with the collector, once when it begins and once when it ends.
	Log *slog.Logger
}

// Tracer records spans. A nil Tracer records none. Safe for concurrent use.
type Tracer struct {
	sample float64
	tracer api.Tracer
	pipe   *pipe
}

// scope names what the spans are of.
const scope = "abide"

// New makes a Tracer and begins to send. It connects to nothing yet: a collector that is away is noticed with the first
// spans, and holds nothing up. Stop it.
func New(ctx context.Context, o Options) (*Tracer, error) {
	exporter, err := newExporter(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("cannot send traces to %s: %w", o.Endpoint, err)
	}
	// What the SDK finds wrong has no other place to be told.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Log.Warn("traces", "error", err) }))
	// Who runs a server names it in OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which win.
	attributes, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", scope),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Instance),
		),
		resource.WithFromEnv(),
	)
	if err != nil {
		o.Log.Warn("traces: OTEL_RESOURCE_ATTRIBUTES is not understood", "error", err)
	}
	return newTracer(exporter, attributes, o), nil
}

func newTracer(exporter sdk.SpanExporter, attributes *resource.Resource, o Options) *Tracer {
	t := &Tracer{sample: o.Sample, pipe: newPipe(exporter, o.Log)}
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // what is not to be recorded does not come that far
		sdk.WithResource(attributes),
		sdk.WithSpanProcessor(t.pipe),
	)
	t.tracer = provider.Tracer(scope, api.WithInstrumentationVersion(o.Version))
	return t
}

// Stop sends what is recorded and not yet sent, until ctx ends. Spans that end afterwards are dropped.
func (t *Tracer) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.pipe.Shutdown(ctx)
}

// Stats are the counts of a Tracer since its start.
type Stats struct {
	// Exported spans were taken by the collector, Failed ones were not, Dropped ones found no room in front of it.
	Exported, Failed, Dropped uint64
	// Queued spans wait to be sent.
	Queued int
}

// Stats returns the counts; all 0 for a nil Tracer.
func (t *Tracer) Stats() Stats {
	if t == nil {
		return Stats{}
	}
	return t.pipe.stats()
}

// Kind says on which side of a connection a span is.
type Kind int

// The kinds of spans.
const (
	Server   Kind = iota // answers somebody's request
	Internal             // is a part of another
	Producer             // hands over a message
	Client               // asks somebody
)

var kinds = [...]api.SpanKind{api.SpanKindServer, api.SpanKindInternal, api.SpanKindProducer, api.SpanKindClient}

// Span is something that takes time. The zero Span is not recorded: its methods do nothing. One goroutine at a time.
type Span struct {
	span   api.Span
	tracer *Tracer
}

// Begin begins a span that is caused by parent, at an instant or, if it is zero, now. Without a parent it begins a trace, if
// chance has it that this one is recorded. End it.
func (t *Tracer) Begin(name string, kind Kind, parent *protocol.Trace, at time.Time) Span {
	if t == nil || !t.samples(parent) {
		return Span{}
	}
	return t.begin(context.Background(), name, kind, parent, at)
}

// samples decides whether a span is recorded.
func (t *Tracer) samples(parent *protocol.Trace) bool {
	if parent != nil {
		return parent.Sampled()
	}
	return t.sample > 0 && rand.Float64() < t.sample
}

func (t *Tracer) begin(ctx context.Context, name string, kind Kind, parent *protocol.Trace, at time.Time) Span {
	if parent != nil {
		ctx = api.ContextWithRemoteSpanContext(ctx, toContext(parent))
	}
	options := []api.SpanStartOption{api.WithSpanKind(kinds[kind])}
	if !at.IsZero() {
		options = append(options, api.WithTimestamp(at))
	}
	_, span := t.tracer.Start(ctx, name, options...)
	return Span{span, t}
}

// Child begins a span that is a part of s, at an instant or, if it is zero, now. Of one that is not recorded no part is.
func (s Span) Child(name string, kind Kind, at time.Time) Span {
	if s.span == nil {
		return Span{}
	}
	return s.tracer.begin(api.ContextWithSpan(context.Background(), s.span), name, kind, nil, at)
}

// Recorded reports whether s is.
func (s Span) Recorded() bool { return s.span != nil }

// Trace is the trace of s with s as the cause of what comes; nil if s is not recorded.
func (s Span) Trace() *protocol.Trace {
	if s.span == nil {
		return nil
	}
	c := s.span.SpanContext()
	t := &protocol.Trace{ID: c.TraceID(), Span: c.SpanID(), Flags: byte(c.TraceFlags()) & protocol.TraceSampled}
	if state := c.TraceState().String(); len(state) <= protocol.MaxTraceStateBytes {
		t.State = state
	}
	return t
}

// Text says something about s. The value must be one of few, or bounded; never an id, a payload or a secret.
func (s Span) Text(key, value string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Int says a number about s.
func (s Span) Int(key string, value int64) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(key, value))
	}
}

// Fail says that what s is about went wrong, and how, in one of few texts.
func (s Span) Fail(reason string) {
	if s.span != nil {
		s.span.SetStatus(codes.Error, reason)
	}
}

// End ends s, at an instant or, if it is zero, now.
func (s Span) End(at time.Time) {
	switch {
	case s.span == nil:
	case at.IsZero():
		s.span.End()
	default:
		s.span.End(api.WithTimestamp(at))
	}
}

// toContext is t as OpenTelemetry has it. A state that it does not understand is left out.
func toContext(t *protocol.Trace) api.SpanContext {
	state, err := api.ParseTraceState(t.State)
	if err != nil {
		state = api.TraceState{}
	}
	return api.NewSpanContext(api.SpanContextConfig{
		TraceID: t.ID, SpanID: t.Span, TraceFlags: api.TraceFlags(t.Flags), TraceState: state, Remote: true,
	})
}
