package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"abide/internal/api"
	"abide/internal/trace"
	"abide/kv"
)

// tracingSettings are the settings of traces, and of what the log says of slow requests. Those with a `variable` tag have a
// variable of OpenTelemetry's too, which counts after their own.
type tracingSettings struct {
	ObservabilityOTLPEndpoint string       `setting:"observability.otlp_endpoint" name:"observability-otlp-endpoint" variable:"OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"OpenTelemetry collector that traces are sent to: http://HOST:PORT, https://HOST:PORT, or HOST:PORT for the former. By default there are none."`
	ObservabilityOTLPProtocol string       `setting:"observability.otlp_protocol" name:"observability-otlp-protocol" variable:"OTEL_EXPORTER_OTLP_PROTOCOL" words:"grpc,http/protobuf" placeholder:"NAME" help:"How the collector is spoken to: grpc, or http/protobuf; by default the latter on port 4318, else grpc."`
	ObservabilityTraceSample  ratio        `setting:"observability.trace_sample" default:"0.01" placeholder:"RATIO" help:"Share of requests without a traceparent that are recorded, from 0 to 1. Those with one are recorded if it says sampled."`
	ObservabilitySlowRequest  milliseconds `setting:"observability.slow_request" default:"1s" placeholder:"DURATION" help:"A request that takes so long is a line in the log, with where its time went; 0 for none."`
}

// Validate checks the values.
func (s *tracingSettings) Validate() error {
	if s.ObservabilityOTLPEndpoint != "" {
		if _, err := collectorURL(s.ObservabilityOTLPEndpoint); err != nil {
			return fmt.Errorf("--observability-otlp-endpoint: %w", err)
		}
	}
	switch s.ObservabilityOTLPProtocol {
	case "", trace.GRPC, trace.HTTP:
		return nil
	}
	return fmt.Errorf("--observability-otlp-protocol is %.50q: it must be %s or %s", s.ObservabilityOTLPProtocol, trace.GRPC, trace.HTTP)
}

// collectorURL is where a collector is. The reference's settings have it without a scheme.
func collectorURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("%.100q is not a URL", text)
	case u.User != nil:
		return "", fmt.Errorf("a URL with a password would end up in logs; put it into the variable OTEL_EXPORTER_OTLP_HEADERS")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%.100q must be http://HOST:PORT, https://HOST:PORT or HOST:PORT", text)
	}
	return text, nil
}

// protocolOf is how the collector at an endpoint is spoken to.
func (s *tracingSettings) protocolOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	switch {
	case s.ObservabilityOTLPProtocol != "":
		return s.ObservabilityOTLPProtocol
	case err == nil && u.Port() == "4318":
		return trace.HTTP
	}
	return trace.GRPC
}

// openTracer begins to record traces; nil if there is nobody to send them to.
func openTracer(ctx context.Context, logger *slog.Logger, o serverOptions) (*trace.Tracer, error) {
	s := &o.settings.tracingSettings
	if s.ObservabilityOTLPEndpoint == "" {
		return nil, nil
	}
	endpoint, err := collectorURL(s.ObservabilityOTLPEndpoint)
	if err != nil {
		return nil, err
	}
	name := o.settings.ServerID
	if name == "" {
		name = hostname() + ":" + strconv.Itoa(portOf(o.listeners[0]))
	}
	tracer, err := trace.New(ctx, trace.Options{
		Endpoint: endpoint, Protocol: s.protocolOf(endpoint), Sample: float64(s.ObservabilityTraceSample),
		Version: buildVersion(), Instance: name, Log: logger,
	})
	if err == nil {
		logger.Info("traces", "endpoint", endpoint, "protocol", s.protocolOf(endpoint), "sample", float64(s.ObservabilityTraceSample))
	}
	return tracer, err
}

// flushTimeout is what a stop spends on traces that are not yet sent.
const flushTimeout = 2 * time.Second

// stopTracing sends what is left of the traces; a collector that is away must not hold up a stop for long.
func stopTracing(ctx context.Context, logger *slog.Logger, t *trace.Tracer) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := t.Stop(ctx); err != nil {
		logger.Warn("traces: the last ones were not sent", "error", err)
	}
}

// timed is a context in which calls to the store are timed, and what tells how.
func timed(ctx context.Context) (context.Context, func() api.Spent) {
	t := &kv.Timing{Now: time.Now}
	return kv.WithTiming(ctx, t), func() api.Spent { return api.Spent(t.Spent()) }
}

// ratio is a share, from 0 to 1.
type ratio float64

// UnmarshalText parses a share; kong calls it.
func (r *ratio) UnmarshalText(text []byte) error {
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(value >= 0 && value <= 1) { // also what is no number
		return fmt.Errorf("%.50q is not a share: it must be from 0 to 1, such as 0.01", text)
	}
	*r = ratio(value)
	return nil
}

// traces tells the metrics what was recorded; nil without traces.
func (s *service) traces() func() trace.Stats {
	if s.tracer == nil {
		return nil
	}
	return s.tracer.Stats
}
