package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadyOfAServer asks a server by its URL and by its settings, before, while and after it serves.
func TestReadyOfAServer(t *testing.T) {
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"))...)
	u, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	port := u.Port()
	for _, c := range []struct{ environ, args []string }{
		{nil, []string{"--url", r.url}},
		{nil, []string{"--url", r.url + "/"}},
		{nil, []string{"--server-port", port}},
		{[]string{"ABIDE_SERVER__PORT=" + port, "HTTP_PROXY=http://127.0.0.1:1"}, nil},
		{[]string{"RESONATE_SERVER__PORT=" + port, "ABIDE_URL=http://127.0.0.1:1"}, nil},
		{[]string{"ABIDE_SERVER__PORT=" + port, "ABIDE_SERVER__BIND=127.0.0.1"}, nil},
	} {
		if got := runWith(c.environ, append([]string{"ready"}, c.args...)...); got.code != exitOK || got.stdout != "ready\n" {
			t.Errorf("%v %v: %+v", c.environ, c.args, got)
		}
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	if got := runWith(nil, "ready", "--server-port", port); got.code != exitFailure || !strings.HasPrefix(got.stderr, "Error: http://127.0.0.1:"+port) || got.stdout != "" {
		t.Errorf("after its end: %+v", got)
	}
}

// TestReadySaysWhyNot tells what the server answers, whatever server it is.
func TestReadySaysWhyNot(t *testing.T) {
	for _, c := range []struct {
		status    int
		body      string
		code      int
		out, says string
	}{
		{200, `{"ready":true,"note":"may lose data"}`, exitOK, "ready: may lose data\n", ""},
		{200, ``, exitOK, "ready\n", ""},
		{503, `{"ready":false,"reason":"the disk is full"}`, exitFailure, "", "Error: not ready: /ready answers 503: the disk is full\n"},
		{503, ``, exitFailure, "", "Error: not ready: /ready answers 503\n"},
		{301, ``, exitFailure, "", "Error: not ready: /ready answers 301\n"},
		{404, `not found`, exitFailure, "", "Error: not ready: /ready answers 404\n"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		if got := runWith(nil, "ready", "--url", s.URL); got.code != c.code || got.stdout != c.out || got.stderr != c.says {
			t.Errorf("%d %s: %+v", c.status, c.body, got)
		}
		s.Close()
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	if got := runWith(nil, "ready", "--url", s.URL); got.code != exitFailure || !strings.Contains(got.stderr, "certificate") {
		t.Errorf("a certificate that nobody has signed: %+v", got)
	}
	port := s.URL[strings.LastIndex(s.URL, ":")+1:]
	if got := runWith([]string{"ABIDE_SERVER__TLS__CERT_FILE=x.pem"}, "ready", "--server-port", port); got.code != exitFailure || !strings.Contains(got.stderr, "404") {
		t.Errorf("one's own TLS: %+v", got)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := runWith(nil, "ready", "--deadline", "20ms", "--server-port", fmt.Sprint(portOf(l))); got.code != exitFailure || !strings.Contains(got.stderr, "no answer within") {
		t.Errorf("no answer: %+v", got)
	}
	for _, args := range [][]string{{"--url", "localhost:8001"}, {"--server-port", "0"}, {"--server-bind", "a b"}, {"--deadline", "5"}} {
		if got := runWith(nil, append([]string{"ready"}, args...)...); got.code != exitUsage {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
