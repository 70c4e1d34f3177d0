package bench

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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

func TestRetryAfter(t *testing.T) {
	for head, want := range map[string]time.Duration{
		"HTTP/1.1 200 OK": 0,
		"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1":                     time.Second,
		"HTTP/1.1 503 x\r\nRetry-After:  2 \r\nContent-Length: 7":              2 * time.Second,
		"HTTP/1.1 503 x\r\nRetry-After: 3600":                                  maxRetryAfter,
		"HTTP/1.1 503 x\r\nRetry-After: -1":                                    0,
		"HTTP/1.1 503 x\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\nX: y": 0,
		"HTTP/1.1 200 OK\r\nX-Retry-After: 1":                                  0,
	} {
		if got := retryAfter([]byte(head)); got != want {
			t.Errorf("%q: %s, want %s", head, got, want)
		}
	}
}

// TestPatientClients: who is told to wait a second comes back after it and not before; others come back at once.
func TestPatientClients(t *testing.T) {
	for _, patient := range []bool{true, false} {
		var asked atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				asked.Add(1)
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		c := config(Create, s.URL)
		c.Patient = patient
		for {
			asked.Store(0)
			began := time.Now()
			r, err := Run(t.Context(), c)
			if err != nil || r.Operations != 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			// A patient client asks once, and once more for each second that has passed.
			n, most := asked.Load(), int64(c.Clients)*(1+int64(time.Since(began)/time.Second))
			switch {
			case patient && n > most:
				t.Errorf("patient clients asked %d times, want at most %d", n, most)
			case !patient && n <= most && c.For < 20*time.Second: // a busy machine may do little for a while
				c.For *= 2
				continue
			case !patient && n <= most:
				t.Errorf("clients that do not wait asked %d times in %s", n, c.For)
			}
			break
		}
		s.Close()
	}
}
