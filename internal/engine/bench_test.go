package engine

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"abide/internal/keyspace"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

// openBenchmark is an engine on the real clock over a fresh file.
func openBenchmark(b *testing.B) *Engine {
	b.Helper()
	s, err := sqlitekv.Open(sqlitekv.Options{Path: filepath.Join(b.TempDir(), "abide.db"), Keys: keyspace.Register()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	e, err := Open(context.Background(), s, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkLifecycle creates and settles promises with 200-byte payloads, 64 callers at a time.
func BenchmarkLifecycle(b *testing.B) {
	e := openBenchmark(b)
	param := protocol.MakeValue(nil, string(make([]byte, 0, 200))+"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789")
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := "bench." + strconv.FormatInt(n.Add(1), 10)
			for _, req := range []protocol.Request{
				&protocol.PromiseCreate{ID: id, TimeoutAt: far, Param: param},
				&protocol.PromiseSettle{ID: id, State: protocol.Resolved, Value: param},
			} {
				if r := e.Do(context.Background(), "default", req, nil); r.Status != 200 {
					b.Fatal(r)
				}
			}
		}
	})
}

// BenchmarkDispatch creates targeted promises, acquires and fulfils their tasks, 64 callers at a time.
func BenchmarkDispatch(b *testing.B) {
	e := openBenchmark(b)
	target := tags(protocol.TagTarget, "poll://any@default")
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := "bench." + strconv.FormatInt(n.Add(1), 10)
			for _, req := range []protocol.Request{
				&protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: target},
				&protocol.TaskAcquire{ID: id, PID: "w", TTL: 60_000},
				&protocol.TaskFulfill{ID: id, Version: 1, Action: protocol.PromiseSettle{ID: id, State: protocol.Resolved}},
			} {
				if r := e.Do(context.Background(), "default", req, nil); r.Status != 200 {
					b.Fatal(r)
				}
			}
		}
	})
}
