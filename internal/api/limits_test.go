package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"abide/internal/api"
	"abide/protocol"
)

func TestBodyLimit(t *testing.T) {
	f := start(t, api.Options{})
	fill := func(size int) string {
		frame := envelope("promise.settle", `{"id":"p","state":"resolved","value":{"data":""}}`)
		at := strings.Index(frame, `"data":""`) + len(`"data":"`)
		return frame[:at] + strings.Repeat("x", size-len(frame)) + frame[at:]
	}
	for size, want := range map[int]int{protocol.MaxBodyBytes - 1: 200, protocol.MaxBodyBytes: 200, protocol.MaxBodyBytes + 1: 413, 3 << 20: 413} {
		body := fill(size)
		chunked := request("POST", "/", "")
		chunked = strings.Replace(chunked, "Content-Length: 0", "Transfer-Encoding: chunked", 1) + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		for form, text := range map[string]string{"length": request("POST", "/", body), "chunked": chunked} {
			got := f.raw(text)
			if got.status != want {
				t.Errorf("%d bytes, %s: status %d", size, form, got.status)
			}
			if want == 413 && (!strings.HasPrefix(got.body, "Failed to buffer the request body: ") || !strings.Contains(got.body, "2097152") ||
				!strings.HasPrefix(got.header.Get("Content-Type"), "text/plain") || !got.closed) {
				t.Errorf("%d bytes, %s: %q %v", size, form, got.body, got.header)
			}
		}
	}
	// A client that waits for a go-ahead is answered without sending.
	got := f.raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n")
	if got.status != 413 {
		t.Errorf("a gigabyte announced: status %d", got.status)
	}
}

func TestBrokenBodies(t *testing.T) {
	f := start(t, api.Options{})
	got := f.raw("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	if got.status != 400 || !strings.HasPrefix(got.body, "Failed to buffer the request body: ") {
		t.Errorf("a bad chunk: %d %q", got.status, got.body)
	}
	got = f.raw("POST /%zz HTTP/1.1\r\nHost: x\r\n\r\n")
	if got.status != 400 {
		t.Errorf("a bad escape in the path: %d", got.status)
	}
}

func TestSlowSendersAreCutOff(t *testing.T) {
	f := start(t, api.Options{}, func(s *http.Server) { s.ReadTimeout = 200 * time.Millisecond })
	got := f.raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
	if got.status != http.StatusRequestTimeout || !got.closed {
		t.Errorf("status %d %q, closed %v", got.status, got.body, got.closed)
	}
	if calls := f.engine.calls(); len(calls) != 0 {
		t.Errorf("the engine was asked %q", calls)
	}
}

// TestSlowBodyKeepsItsTimeInTheEngine: the deadline for reading must not end a request that has been read.
func TestSlowBodyKeepsItsTimeInTheEngine(t *testing.T) {
	patiently(t, func(timeout time.Duration) error {
		f := start(t, api.Options{}, func(s *http.Server) { s.ReadTimeout = 4 * timeout })
		ended := make(chan error, 1)
		f.engine.reply = func(ctx context.Context, _ protocol.Request) protocol.Reply {
			select {
			case <-ctx.Done():
				ended <- ctx.Err()
			case <-time.After(7 * timeout):
				ended <- nil
			}
			return protocol.OK(protocol.EmptyBody{})
		}
		text := request("POST", "/", envelope("task.get", `{"id":"t"}`))
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		third := (len(text) - 60)
		for _, part := range []string{text[:third], text[third : third+20], text[third+20 : third+40], text[third+40:]} {
			if _, err := io.WriteString(conn, part); err != nil {
				return err
			}
			time.Sleep(timeout / 2)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		if err := <-ended; err != nil {
			return fmt.Errorf("the request was cut short: %w", err)
		}
		return nil
	})
}

// patiently tries what a server's timeout must not end, with ever longer timeouts: the first ones end also what a busy
// machine holds up.
func patiently(t *testing.T, try func(timeout time.Duration) error) {
	t.Helper()
	for timeout := 100 * time.Millisecond; ; timeout *= 2 {
		if err := try(timeout); err == nil {
			return
		} else if timeout > 5*time.Second {
			t.Fatal(err)
		}
	}
}

func TestIdleConnectionsStay(t *testing.T) {
	patiently(t, func(timeout time.Duration) error {
		f := start(t, api.Options{}, func(s *http.Server) { s.ReadTimeout, s.ReadHeaderTimeout = timeout, timeout })
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		text := request("POST", "/", envelope("task.get", `{"id":"t"}`))
		for range 3 {
			if _, err := io.WriteString(conn, text); err != nil {
				return err
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || resp.Close {
				return fmt.Errorf("status %d, closed %v, %w", resp.StatusCode, resp.Close, err)
			}
			time.Sleep(3 * timeout)
		}
		return nil
	})
}

func TestRequestDeadline(t *testing.T) {
	f := start(t, api.Options{RequestTimeout: 20 * time.Millisecond})
	f.engine.reply = func(ctx context.Context, _ protocol.Request) protocol.Reply {
		<-ctx.Done()
		return protocol.Fail(503, ctx.Err().Error())
	}
	if got := f.raw(request("POST", "/", envelope("task.get", `{"id":"t"}`))); got.status != 503 || !strings.Contains(got.body, "deadline") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestInFlightLimit(t *testing.T) {
	f := start(t, api.Options{MaxInFlight: 1})
	entered, leave := make(chan bool), make(chan bool)
	f.engine.reply = func(context.Context, protocol.Request) protocol.Reply {
		entered <- true
		<-leave
		return protocol.OK(protocol.EmptyBody{})
	}
	text := request("POST", "/", envelope("task.get", `{"id":"t"}`))
	first := make(chan answer)
	go func() { first <- f.raw(text) }()
	<-entered
	if got := f.raw(text); got.status != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "too many requests") || !strings.HasPrefix(got.body, `{"kind":"task.get"`) {
		t.Errorf("the second: %d %s", got.status, got.body)
	}
	leave <- true
	if got := <-first; got.status != 200 {
		t.Errorf("the first: %d", got.status)
	}
	go func() { first <- f.raw(text) }()
	<-entered
	leave <- true
	if got := <-first; got.status != 200 {
		t.Errorf("the third: %d", got.status)
	}
}

// TestBodiesInMemoryAreBounded: senders that stall hold memory for what they sent, up to a limit.
func TestBodiesInMemoryAreBounded(t *testing.T) {
	f := start(t, api.Options{MaxBufferedBytes: 1}) // becomes room for two bodies
	head := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n"
	var stalled []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		// The server asks for the body when it begins to read it.
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
			t.Fatalf("%q, %v", line, err)
		}
		if _, err := io.WriteString(conn, strings.Repeat(" ", 1_500_000)); err != nil {
			t.Fatal(err)
		}
		stalled = append(stalled, conn)
	}
	// Both have sent all that they will; what they wrote may still be on its way, and must not meet the next one there.
	time.Sleep(300 * time.Millisecond)
	refused := false
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		got := f.raw(request("POST", "/", strings.Repeat(" ", 2_000_000)))
		if got.status == 503 && got.header.Get("Retry-After") != "" {
			refused = true
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !refused {
		t.Error("a third large body was taken in")
	}
	if got := f.raw(request("POST", "/", envelope("task.get", `{"id":"t"}`))); got.status != 200 {
		t.Errorf("a small request: %d", got.status)
	}
	for _, conn := range stalled {
		conn.Close()
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if got := f.raw(request("POST", "/", strings.Repeat(" ", 2_000_000))); got.status == 400 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the memory of senders that went away was not given back")
}
