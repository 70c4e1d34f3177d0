package bench

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serveRaw answers each request on one connection with the next of answers, byte for byte, in pieces of
// the given size.
func serveRaw(t *testing.T, piece int, answers ...string) target {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		requests := bufio.NewReader(conn)
		for _, answer := range answers {
			request, err := http.ReadRequest(requests)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, request.Body)
			for len(answer) > 0 {
				n := min(piece, len(answer))
				_, _ = io.WriteString(conn, answer[:n])
				answer = answer[n:]
			}
		}
	}()
	tgt, err := parseTarget("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return tgt
}

func TestAnswersInEveryForm(t *testing.T) {
	long := strings.Repeat("x", 40_000)
	answers := []struct{ raw, body string }{
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "hi"},
		{"HTTP/1.1 409 Conflict\r\nDate: now\r\ncontent-length:3\r\n\r\nbye", "bye"},
		{"HTTP/1.1 503 \r\n\r\n", ""},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", "abcde"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n" + long, long},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nz", "z"},
	}
	var raw []string
	for _, a := range answers {
		raw = append(raw, a.raw)
	}
	for _, piece := range []int{7, 1000, 1 << 20} {
		c := newConnection(serveRaw(t, piece, raw...))
		c.limit(time.Now().Add(time.Minute))
		for _, a := range answers {
			status, body, err := c.roundTrip(append(c.begin(), "{}"...))
			if err != nil || string(body) != a.body || status == 0 {
				t.Fatalf("pieces of %d: %.40q: status %d, body %.20q, error %v", piece, a.raw, status, body, err)
			}
		}
		c.close()
	}
}

func TestBrokenAnswersAreErrors(t *testing.T) {
	for _, raw := range []string{
		"SSH-2.0-x\r\n\r\n",
		"HTTP/1.1 abc OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi",
		"HTTP/1.1 200",
	} {
		c := newConnection(serveRaw(t, 1<<20, raw))
		c.limit(time.Now().Add(time.Minute))
		if status, body, err := c.roundTrip(append(c.begin(), "{}"...)); err == nil {
			t.Errorf("%q: status %d, body %q", raw, status, body)
		}
		if c.conn != nil {
			t.Errorf("%q: the connection is kept", raw)
		}
	}
}

func TestPatchLength(t *testing.T) {
	for n, want := range map[int]string{0: "   0", 7: "   7", 120: " 120", 9999: "9999"} {
		field := []byte("xxxx")
		patchLength(field, n)
		if string(field) != want {
			t.Errorf("%d is written %q", n, field)
		}
	}
}

func TestExecuteTask(t *testing.T) {
	for _, c := range []struct {
		message, id string
		version     int64
	}{
		{`{"kind":"execute","head":{"serverUrl":"x"},"data":{"task":{"id":"a.1","version":12}}}`, "a.1", 12},
		{`{"data":{"task":{"version":0,"id":"b"}},"head":{},"kind":"execute"}`, "b", 0},
	} {
		id, version, err := executeTask([]byte(c.message))
		if err != nil || string(id) != c.id || version != c.version {
			t.Errorf("%s: %s %d %v", c.message, id, version, err)
		}
	}
	for _, broken := range []string{`{}`, `{"task":{"id":"a"}}`, `{"task":{"version":1}}`, `{"task":{"id":"a","version":"x"}}`} {
		if _, _, err := executeTask([]byte(broken)); err == nil {
			t.Errorf("%s: no error", broken)
		}
	}
}
