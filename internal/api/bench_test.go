package api_test

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"abide/internal/api"
	"abide/internal/trace"
	"abide/kv"
	"abide/protocol"
)

// benchmark sends one request again and again over some connections. The client does as little as it can, so
// that what is measured is the server.
func benchmark(b *testing.B, engine api.Engine, o api.Options, body string, want string) {
	h, err := api.New(engine, o)
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := api.NewServer(h, discard)
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	text := []byte(request("POST", "/", body, "Content-Type: application/json", "Accept: */*", "Connection: keep-alive", "User-Agent: node"))
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		r := bufio.NewReaderSize(conn, 8<<10)
		for pb.Next() {
			if _, err := conn.Write(text); err != nil {
				b.Error(err)
				return
			}
			if answer, err := readAnswer(r); err != nil || !bytes.Contains(answer, []byte(want)) {
				b.Errorf("%s %v", answer, err)
				return
			}
		}
	})
}

// readAnswer reads a response that has a Content-Length, without the cost of understanding its head.
func readAnswer(r *bufio.Reader) ([]byte, error) {
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if len(line) <= 2 {
			break
		}
		if n, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(n))); err != nil {
				return nil, err
			}
		}
	}
	answer, err := r.Peek(length)
	if err != nil {
		return nil, err
	}
	_, err = r.Discard(length)
	return answer, err
}

// echo answers a create with the promise that it would have made.
type echo struct{ stub }

func (*echo) Do(_ context.Context, _ string, req protocol.Request, _ *int64) protocol.Reply {
	r := req.(*protocol.PromiseCreate)
	return protocol.OK(protocol.PromiseBody{Promise: protocol.Promise{ID: r.ID, State: protocol.Pending, Param: r.Param, Tags: r.Tags,
		TimeoutAt: r.TimeoutAt, CreatedAt: 1798000000000}})
}

// BenchmarkNoop is the floor: HTTP, and an envelope of a kind that does not exist.
func BenchmarkNoop(b *testing.B) {
	benchmark(b, &stub{}, api.Options{}, envelope("noop", "{}"), `"status":400`)
}

const createData = `{"id":"transfer.42.0","timeoutAt":1798761600000,"param":{"headers":{},"data":"eyJmeyJmeyJmeyJmeyJmeyJmeyJmeyJmeyJmeyJmeyJmeyJmeyJmeyJmeyJmeyJm"},` +
	`"tags":{"resonate:scope":"global","resonate:target":"poll://any@default","resonate:branch":"transfer.42.0","resonate:parent":"transfer.42","resonate:origin":"transfer.42"}}`

func BenchmarkCreate(b *testing.B) {
	benchmark(b, &echo{}, api.Options{}, envelope("promise.create", createData), `"status":200`)
}

// BenchmarkCreateWithToken is the same with a token to look at, and a prefix to judge.
func BenchmarkCreateWithToken(b *testing.B) {
	i := newIssuer(b)
	benchmark(b, &echo{}, api.Options{Auth: i.o}, withToken(i.prefix("transfer."), "promise.create", createData), `"status":200`)
}

var discard = slog.New(slog.DiscardHandler)

// What traces at one in a hundred, the watch for slow requests and the timing of the store add to a create.
func BenchmarkCreateWatched(b *testing.B) {
	tracer, err := trace.New(context.Background(), trace.Options{Endpoint: "http://127.0.0.1:1", Protocol: trace.HTTP, Sample: 0.01, Log: discard})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = tracer.Stop(ctx)
	}()
	benchmark(b, &echo{}, api.Options{
		Now: time.Now, SlowRequest: time.Second, Tracer: tracer,
		Timed: func(ctx context.Context) (context.Context, func() api.Spent) {
			t := &kv.Timing{Now: time.Now}
			return kv.WithTiming(ctx, t), func() api.Spent { return api.Spent(t.Spent()) }
		},
	}, envelope("promise.create", createData), `"status":200`)
}
