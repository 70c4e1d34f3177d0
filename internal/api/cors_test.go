package api_test

import (
	"strings"
	"testing"

	"abide/internal/api"
)

func TestCORS(t *testing.T) {
	const vary = "origin, access-control-request-method, access-control-request-headers"
	body := envelope("task.get", `{"id":"t"}`)
	for _, c := range []struct {
		name         string
		origins      []string
		method, path string
		origin       string
		status       int
		headers      map[string]string
	}{
		{"off", nil, "POST", "/", "", 200, nil},
		{"off, preflight", nil, "OPTIONS", "/", "http://a", 405, map[string]string{"Allow": "POST"}},
		{"all", []string{"*"}, "POST", "/", "http://a", 200, map[string]string{"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "*", "Vary": vary}},
		{"all, preflight", []string{"http://b", "*"}, "OPTIONS", "/", "http://a", 200, map[string]string{
			"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "*", "Access-Control-Allow-Headers": "*", "Vary": vary}},
		{"all, 404", []string{"*"}, "GET", "/nowhere", "http://a", 404, map[string]string{"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "*", "Vary": vary}},
		{"list", []string{"http://a", "https://b:1"}, "POST", "/", "https://b:1", 200, map[string]string{"Access-Control-Allow-Origin": "https://b:1", "Vary": vary}},
		{"list, no origin", []string{"http://a"}, "POST", "/", "", 200, map[string]string{"Vary": vary}},
		{"list, health", []string{"http://a"}, "GET", "/health", "http://c", 200, map[string]string{"Vary": vary}},
		{"list, preflight", []string{"http://a"}, "OPTIONS", "/any/where", "http://a", 200, map[string]string{
			"Access-Control-Allow-Origin": "http://a", "Access-Control-Allow-Methods": "GET,POST,PUT,PATCH,DELETE,OPTIONS",
			"Access-Control-Allow-Headers": "origin,content-length,content-type,authorization,traceparent,tracestate", "Vary": vary}},
		{"list, preflight of another", []string{"http://a"}, "OPTIONS", "/", "http://c", 200, map[string]string{
			"Access-Control-Allow-Methods": "GET,POST,PUT,PATCH,DELETE,OPTIONS", "Access-Control-Allow-Headers": "origin,content-length,content-type,authorization,traceparent,tracestate", "Vary": vary}},
	} {
		f := start(t, api.Options{CORSOrigins: c.origins})
		var lines []string
		if c.origin != "" {
			lines = append(lines, "Origin: "+c.origin)
		}
		sent := ""
		if c.method == "POST" {
			sent = body
		}
		got := f.raw(request(c.method, c.path, sent, lines...))
		if got.status != c.status {
			t.Errorf("%s: status %d %s", c.name, got.status, got.body)
		}
		for _, name := range []string{"Allow", "Vary", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
			"Access-Control-Expose-Headers", "Access-Control-Max-Age", "Access-Control-Allow-Credentials"} {
			if got.header.Get(name) != c.headers[name] {
				t.Errorf("%s: %s is %q, want %q", c.name, name, got.header.Get(name), c.headers[name])
			}
		}
		if c.method == "OPTIONS" && c.status == 200 && got.body != "" {
			t.Errorf("%s: body %q", c.name, got.body)
		}
	}
}

// TestWebPagesOfOthersAreKeptOut: no page may post to a server that does not know its origin, whatever the
// type of the body is; programs, which send none of these headers, may.
func TestWebPagesOfOthersAreKeptOut(t *testing.T) {
	for _, c := range []struct {
		name    string
		origins []string
		lines   []string
		status  int
	}{
		{"a program", nil, nil, 200},
		{"another site", nil, []string{"Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Content-Type: text/plain"}, 403},
		{"another port of the same host", nil, []string{"Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"}, 403},
		{"an old browser", nil, []string{"Origin: http://evil.example"}, 403},
		{"a sandboxed page", nil, []string{"Origin: null", "Sec-Fetch-Site: cross-site"}, 403},
		{"its own page", nil, []string{"Origin: http://localhost", "Sec-Fetch-Site: same-origin"}, 200},
		{"a configured origin", []string{"http://app.example"}, []string{"Origin: http://app.example", "Sec-Fetch-Site: cross-site"}, 200},
		{"not the configured one", []string{"http://app.example"}, []string{"Origin: https://app.example", "Sec-Fetch-Site: cross-site"}, 403},
		{"all configured", []string{"*"}, []string{"Origin: http://evil.example", "Sec-Fetch-Site: cross-site"}, 200},
	} {
		f := start(t, api.Options{CORSOrigins: c.origins, Debug: true})
		got := f.raw(request("POST", "/w/x", envelope("debug.reset", `{}`), c.lines...))
		if got.status != c.status {
			t.Errorf("%s: status %d %s", c.name, got.status, got.body)
		}
		if calls := len(f.engine.calls()); (calls == 1) != (c.status == 200) {
			t.Errorf("%s: the engine was asked %d times", c.name, calls)
		}
		if c.status == 403 && !strings.Contains(got.body, "--server-cors-allow-origin") {
			t.Errorf("%s: %q", c.name, got.body)
		}
	}
}

func TestOriginsThatAreNone(t *testing.T) {
	for _, origin := range []string{"example.com", "http://a/", "http://a/path", "", "http://", "null"} {
		if _, err := api.New(&stub{}, api.Options{CORSOrigins: []string{origin}}); err == nil || !strings.Contains(err.Error(), "CORS origin") {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
