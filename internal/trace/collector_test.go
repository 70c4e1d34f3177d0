package trace

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// received is what a collector has been sent.
type received struct {
	collector.UnimplementedTraceServiceServer

	mu       sync.Mutex
	spans    []*otlp.Span
	resource map[string]string
	paths    []string
}

// Export implements the service of a collector.
func (r *received) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range req.ResourceSpans {
		r.resource = map[string]string{}
		for _, a := range of.Resource.Attributes {
			r.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, scoped := range of.ScopeSpans {
			r.spans = append(r.spans, scoped.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *received) all() []*otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*otlp.Span(nil), r.spans...)
}

// overGRPC serves a collector, and returns where.
func (r *received) overGRPC(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return "http://" + l.Addr().String()
}

// overHTTP is the same in the other protocol.
func (r *received) overHTTP(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var export collector.ExportTraceServiceRequest
		if proto.Unmarshal(body, &export) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		r.paths = append(r.paths, req.URL.Path)
		r.mu.Unlock()
		_, _ = r.Export(req.Context(), &export)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func stop(t *testing.T, tracer *Tracer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := tracer.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}
