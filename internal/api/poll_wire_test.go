package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"abide/internal/deliver"
)

// rawPoll sends a request of the version and gives what is answered up to the end of the connection.
func rawPoll(t *testing.T, s *pollServer, version string) (head *http.Response, body string) {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(c, "GET /g/a %s\r\nHost: x\r\n\r\n", version); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(answer), "\r\n")
	if first != version+" 200 OK" {
		t.Errorf("first line %q", first)
	}
	_, body, _ = strings.Cut(string(answer), "\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, body
}

// What goes over the wire is written by hand: whole chunks and their end to those who speak HTTP/1.1, plain bytes to others.
func TestPollOnTheWire(t *testing.T) {
	message := "data: {\"kind\":\"execute\",\"head\":{\"serverUrl\":\"http://abide:8001\"},\"data\":{\"task\":{\"id\":\"t\",\"version\":0}}}\n\n"
	for version, want := range map[string]string{
		"HTTP/1.1": fmt.Sprintf("9\r\n: abide\n\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(message), message),
		"HTTP/1.0": ": abide\n\n" + message,
	} {
		t.Run(version, func(t *testing.T) {
			var head *http.Response
			patiently(t, func(age time.Duration) (err error) { // the message must come before the stream's end
				s := newPollServer(t, PollOptions{MaxAge: age}, deliver.Limits{})
				s.dispatch("t", "g")
				got := ""
				if head, got = rawPoll(t, s, version); got != want {
					return fmt.Errorf("got %q, want %q", got, want)
				}
				return nil
			})
			if _, err := http.ParseTime(head.Header.Get("Date")); err != nil || !head.Close {
				t.Errorf("head %+v", head)
			}
		})
	}
}

// A peer that talks is none: it has nothing to say on its stream.
func TestPollPeerThatTalks(t *testing.T) {
	s := newPollServer(t, PollOptions{}, deliver.Limits{})
	c := dialPoll(t, s.addr, "/g/a")
	defer func() { _ = c.Close() }()
	waitConnections(t, s, 1)
	if _, err := c.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	s.dispatch("t", "g") // a little is passed over
	lines := bufio.NewReader(c)
	for line := ""; !strings.HasPrefix(line, "data:"); {
		var err error
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for range 10_000 {
		if _, err := c.Write(make([]byte, 10_000)); err != nil {
			break
		}
	}
	waitConnections(t, s, 0)
}

// A fault while a stream is served ends that stream and is told of; the process goes on.
func TestPollPanics(t *testing.T) {
	var log bytes.Buffer
	now := func() time.Time { panic("a fault") }
	server, client := net.Pipe()
	d := deliver.New(deliver.Options{Outbox: newPollOutbox(), ServerURL: func(string) string { return "" }, NowMs: func() int64 { return 0 }})
	cn, err := d.Connect("default", "g", "a")
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{o: PollOptions{Log: slog.New(slog.NewTextHandler(&log, nil)), Now: now}.withDefaults(), conn: server, cn: cn, gone: make(chan struct{})}
	s.serve([]byte("head"))
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection is open: %v", err)
	}
	if !strings.Contains(log.String(), "a fault") || d.Stats().Connections != 0 {
		t.Errorf("log %q, %d connections", log.String(), d.Stats().Connections)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whoever's connection cannot be taken over is told, and holds no place.
func TestPollWithoutAConnection(t *testing.T) {
	d := deliver.New(deliver.Options{Outbox: newPollOutbox(), ServerURL: func(string) string { return "" }, NowMs: func() int64 { return 0 }})
	w := httptest.NewRecorder()
	Poll(d, PollOptions{Now: time.Now})(w, httptest.NewRequest(http.MethodGet, "/g/a", nil), Worker{Workspace: "default", Group: "g", ID: "a"})
	if w.Code != http.StatusHTTPVersionNotSupported || d.Stats().Connections != 0 {
		t.Errorf("status %d, %d connections", w.Code, d.Stats().Connections)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// What an idle stream takes of memory, heap and stacks together: about 11 KiB, and 28 if net/http kept its connection.
func TestPollIdleStreamsAreSmall(t *testing.T) {
	const streams, bytesMax = 200, 20 << 10
	s := newPollServer(t, PollOptions{}, deliver.Limits{})
	taken := func() int64 {
		runtime.GC()
		runtime.GC() // the first one empties the pools, the second what was in them
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := taken()
	for i := range streams {
		c := dialPoll(t, s.addr, fmt.Sprintf("/g%d/%d", i%7, i))
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 OK"))); err != nil {
			t.Fatal(err)
		}
	}
	waitConnections(t, s, streams)
	if each := (taken() - before) / streams; each > bytesMax {
		t.Errorf("an idle stream takes %d bytes, at most %d", each, bytesMax)
	} else {
		t.Logf("an idle stream takes %d bytes", each)
	}
}
