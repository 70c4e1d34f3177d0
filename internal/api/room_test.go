package api_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"abide/internal/api"
)

// TestConnectionsAreBounded: as many as the limit are served, further ones are told to come back, and one that has been
// closed makes room.
func TestConnectionsAreBounded(t *testing.T) {
	const limit = 3
	h, err := api.New(&stub{}, api.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := &syncBuffer{}
	s := api.NewServer(h, slog.New(slog.NewTextHandler(log, nil)))
	s.MaxConnections = limit
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	// ask sends a request on a new connection, which stays open. Who is turned away is answered before it asks, if it waits
	// for long enough.
	ask := func(pause time.Duration) (net.Conn, *http.Response, string) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		time.Sleep(pause)
		_, _ = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return c, nil, ""
		}
		body, _ := io.ReadAll(resp.Body)
		return c, resp, string(body)
	}
	var open []net.Conn
	for i := range limit {
		c, resp, _ := ask(0)
		if resp == nil || resp.StatusCode != 200 {
			t.Fatalf("connection %d of %d: %v", i+1, limit, resp)
		}
		open = append(open, c)
	}
	answered := false
	for try := time.Duration(1); try <= 20 || !answered && try <= 100; try++ {
		_, resp, body := ask(try * 5 * time.Millisecond)
		if resp == nil {
			continue // its request met the closed connection
		}
		answered = true
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !resp.Close || !strings.Contains(body, "limits.connections") || !strings.HasSuffix(body, ").\n") {
			t.Fatalf("one more: %d %v %q", resp.StatusCode, resp.Header, body)
		}
	}
	if !answered {
		t.Error("nobody who was turned away was told why")
	}
	if n := strings.Count(log.String(), "turned away"); n != 1 {
		t.Errorf("the log tells of it %d times, want once:\n%s", n, log)
	}
	open[0].Close()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if c, resp, _ := ask(10 * time.Millisecond); resp != nil && resp.StatusCode == 200 {
			return
		} else {
			c.Close()
		}
	}
	t.Error("a closed connection makes no room")
}
