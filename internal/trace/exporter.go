package trace

import (
	"context"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// How a collector is spoken to, as OTEL_EXPORTER_OTLP_PROTOCOL names it.
const (
	GRPC = "grpc"          // usually on port 4317
	HTTP = "http/protobuf" // usually on port 4318
)

// Pauses of an exporter that repeats a batch. What does not arrive within sendTimeout is given up: there will be more.
const (
	retryFirst = time.Second
	retryMost  = 5 * time.Second
)

// newExporter makes what sends batches. Headers and certificates are those of the OTEL_EXPORTER_OTLP_ variables, which the
// exporters read themselves.
func newExporter(ctx context.Context, o Options) (sdk.SpanExporter, error) {
	var client otlptrace.Client
	if o.Protocol == HTTP {
		endpoint, err := tracesURL(o.Endpoint)
		if err != nil {
			return nil, err
		}
		client = otlptracehttp.NewClient(
			otlptracehttp.WithEndpointURL(endpoint),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMost, MaxElapsedTime: sendTimeout}),
		)
	} else {
		client = otlptracegrpc.NewClient(
			otlptracegrpc.WithEndpointURL(o.Endpoint),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMost, MaxElapsedTime: sendTimeout}),
		)
	}
	return otlptrace.New(ctx, client)
}

// tracesURL is where a collector takes traces over HTTP: below its URL, unless that says it already.
func tracesURL(endpoint string) (string, error) {
	const path = "/v1/traces"
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(u.Path, path) {
		u.Path = strings.TrimRight(u.Path, "/") + path
	}
	return u.String(), nil
}
