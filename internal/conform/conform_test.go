package conform

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func config(address string) Config {
	return Config{URL: address, Prefix: "vtest", Wait: 20 * time.Millisecond, NowMs: func() int64 { return 1_000_000 }}
}

// TestNonsense wants a server that answers anything to everything to fail nearly all checks, and nothing
// to hang or to panic.
func TestNonsense(t *testing.T) {
	for name, body := range map[string]string{
		"one promise":  `{"kind":"promise.create","head":{"corrId":"verify-1","status":200,"version":"2026-04-01"},"data":{"promise":{"createdAt":5}}}`,
		"odd types":    `{"kind":1,"head":[],"data":{"promise":{"createdAt":5},"promises":7,"tasks":{"a":1}}}`,
		"deep members": `{"data":{"promise":{"createdAt":5,"state":{}},"promises":[1,{"id":2}],"tasks":[3]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
			}))
			defer server.Close()
			report, err := Run(t.Context(), config(server.URL))
			if err != nil {
				t.Fatal(err)
			}
			if failed, passed := report.Count(Fail), report.Count(Pass); failed < 200 || passed > failed/4 {
				t.Errorf("%d failed, %d passed", failed, passed)
			}
			for _, r := range report.Results {
				if r.Outcome == Fail && (r.Expected == "" || r.Got == "") {
					t.Errorf("%s: %s does not say what was expected (%q) and got (%q)", r.Subject, r.Check, r.Expected, r.Got)
				}
			}
		})
	}
}

// TestNoServer wants an error where there is nothing to check.
func TestNoServer(t *testing.T) {
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	for _, address := range []string{"", "localhost:1", "ftp://localhost", "http://127.0.0.1:1", refuses.URL} {
		if _, err := Run(t.Context(), config(address)); err == nil {
			t.Errorf("%q is checked", address)
		}
	}
}

// TestServerThatStops wants the checks to end when nobody answers any more.
func TestServerThatStops(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests > 20 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"data":{"promise":{"createdAt":5}}}`)
	}))
	defer server.Close()
	if _, err := Run(t.Context(), config(server.URL)); err == nil {
		t.Error("no error")
	}
	if requests > 60 {
		t.Errorf("%d requests to a server that has stopped", requests)
	}
}

func TestFacts(t *testing.T) {
	var a answer
	text := `{"data":{"promise":{"id":"x","n":7,"tags":{},"null":null},"list":[{"id":"y"}]}}`
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&a.fields); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fact  fact
		holds bool
	}{
		{is("promise.id", "x"), true}, {is("promise.id", "z"), false}, {is("promise.n", 7), true}, {is("promise.n", "7"), false},
		{is("promise.tags", object{}), true}, {is("promise.tags", object{"k": "v"}), false}, {is("list.0.id", "y"), true}, {is("list.1.id", "y"), false},
		{has("promise.id"), true}, {has("promise.none"), false}, {has("promise.null"), false},
		{lacks("promise.none"), true}, {lacks("promise.id"), false}, {lacks("promise.null"), false}, {lacks("none.none"), false},
	} {
		if got := c.fact.holds(a); got != c.holds {
			t.Errorf("%s: %t, want %t", c.fact.says, got, c.holds)
		}
	}
}

func TestEnvelopeFaults(t *testing.T) {
	const good = `{"kind":"k","head":{"corrId":"c","status":404,"version":"2026-04-01"},"data":"no"}`
	for _, c := range []struct{ from, to, says string }{
		{"", "", ""},
		{`"kind":"k"`, `"kind":"l"`, "kind"},
		{`"corrId":"c"`, `"corrId":"d"`, "corrId"},
		{`"status":404`, `"status":200`, "head.status"},
		{`2026-04-01`, `2026-04-02`, "version"},
		{`"no"`, `{}`, "text"},
		{good, `nothing`, "JSON"},
	} {
		a := answer{status: 404, header: http.Header{"Content-Type": {"application/json"}}}
		d := json.NewDecoder(strings.NewReader(strings.Replace(good, c.from, c.to, 1)))
		d.UseNumber()
		_ = d.Decode(&a.fields)
		if got := envelopeFault(a, "k", "c", 404); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%q for %q: %q, want %q", c.to, c.from, got, c.says)
		}
	}
}

// TestStream reads messages as servers write them.
func TestStream(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": a comment\n\ndata: nonsense\n\ndata: {\"kind\":\"execute\",\"data\":{\"task\":{\"id\":\"other\",\"version\":1}}}\n\n")
		fmt.Fprint(w, "data: {\"kind\":\"execute\",\"data\":{\"task\":{\"id\":\"mine\",\"version\":3}}}\r\n\r\n")
	}))
	defer server.Close()
	p := &probe{ctx: t.Context(), config: config(server.URL), base: server.URL}
	p.config.HTTP, p.config.Wait = server.Client(), time.Minute
	s, err := p.open("a group", "w/1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	m, ok := s.next("execute", "mine", p.config.Wait)
	if !ok || m.version() != 3 {
		t.Errorf("%t, version %d, want 3", ok, m.version())
	}
	if _, ok := s.next("unblock", "mine", p.config.Wait); ok {
		t.Error("a message that was not sent")
	}
	if !s.ended(p.config.Wait) {
		t.Error("the stream does not end")
	}
}
