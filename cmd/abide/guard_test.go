package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// asked sends one request of the protocol with a token in its envelope and returns its status and data.
func asked(t *testing.T, c *http.Client, url, token, kind, data string) (status int, body string) {
	t.Helper()
	text := fmt.Sprintf(`{"kind":%q,"head":{"corrId":"c","version":"2026-04-01","auth":%q},"data":%s}`, kind, token, data)
	response, err := c.Post(url, "application/json", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// A whole server with tokens and TLS: two tenants that share it see nothing of each other, by whatever request, and no
// token comes into the log.
func TestTenantsOfOneServer(t *testing.T) {
	keys := keygen(t)
	admin := newToken(t, keys, "--role", "admin", "--workspace", "*")
	a, b := newToken(t, keys, "--prefix", "a."), newToken(t, keys, "--prefix", "b.")
	authority := newAuthority(t)
	cert, key := authority.pair("localhost")
	s := files(t, cert, key, nil)
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--level", "debug", "--auth-publickey", filepath.Join(keys, "public.pem"),
		"--server-tls-cert", s.ServerTLSCert, "--server-tls-key", s.ServerTLSKey)...)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.pool()}}}
	url := strings.Replace(r.url, "http://", "https://", 1)
	ask := func(token, kind, data string, want int) string {
		t.Helper()
		status, body := asked(t, c, url, token, kind, data)
		if status != want {
			t.Errorf("%s %s: %d %s, want %d", kind, data, status, body, want)
		}
		return body
	}
	create := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"timeoutAt":4102444800000,"tags":{"resonate:target":"poll://any@a","resonate:branch":%q,"color":"red"}}`, id, id)
	}
	ask("", "promise.get", `{"id":"a.1"}`, 401)
	for _, id := range []string{"a.1", "a.2", "a.3"} {
		ask(a, "promise.create", create(id), 200)
	}
	for _, id := range []string{"b.1", "b.2"} {
		ask(b, "promise.create", create(id), 200)
		ask(a, "promise.create", create(id), 403)
	}
	// What is there and what is not is told apart by nobody who may not know.
	if there, not := ask(a, "promise.get", `{"id":"b.1"}`, 403), ask(a, "promise.get", `{"id":"b.none"}`, 403); there != not {
		t.Errorf("answers differ: %s, %s", there, not)
	}
	for kind, data := range map[string]string{"promise.search": `{"limit":1}`, "task.search": `{"limit":1}`} {
		seen, cursor := "", ""
		for range 10 {
			page := ask(b, kind, strings.TrimSuffix(data, "}")+cursor+"}", 200)
			seen += page
			_, rest, more := strings.Cut(page, `"cursor":"`)
			if !more {
				break
			}
			next, _, _ := strings.Cut(rest, `"`)
			cursor = fmt.Sprintf(`,"cursor":%q`, next)
		}
		if strings.Contains(seen, `"a.`) || !strings.Contains(seen, `"b.1"`) || !strings.Contains(seen, `"b.2"`) {
			t.Errorf("%s shows %s", kind, seen)
		}
	}
	if all := ask(admin, "promise.search", `{}`, 200); !strings.Contains(all, `"a.1"`) || !strings.Contains(all, `"b.1"`) {
		t.Errorf("an admin is shown %s", all)
	}
	ask(b, "promise.register_callback", `{"awaited":"b.1","awaiter":"a.1"}`, 403)
	ask(b, "promise.register_listener", `{"awaited":"b.1","address":"poll://uni@a/x"}`, 403)
	ask(b, "schedule.create", `{"id":"b.s","cron":"* * * * *","promiseId":"a.{{.timestamp}}","promiseTimeout":1,"promiseTags":{}}`, 403)
	ask(b, "task.heartbeat", `{"pid":"p","tasks":[{"id":"a.1","version":0}]}`, 403)
	ask(b, "debug.snap", `{}`, 403)
	if status, _ := asked(t, c, url+"/w/other", a, "promise.get", `{"id":"a.1"}`); status != 403 {
		t.Errorf("a token of the workspace default in another: %d", status)
	}
	if status, _ := asked(t, c, url+"/w/other", admin, "promise.get", `{"id":"a.1"}`); status != 404 {
		t.Errorf("a token of every workspace: %d", status)
	}
	for group, want := range map[string]int{"a": 200, "a.x": 200, "b": 403, "default": 403} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/poll/"+group+"/w", nil)
		request.Header.Set("Authorization", "Bearer "+a)
		response, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != want {
			t.Errorf("poll of group %s: %d", group, response.StatusCode)
		}
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	for name, secret := range map[string]string{"admin's": admin, "a's": a, "b's": b} {
		for _, part := range strings.Split(secret, ".")[1:] {
			if strings.Contains(r.stderr.String()+r.stdout.String(), part) {
				t.Errorf("%s token is in the log:\n%s", name, r.stderr.String())
			}
		}
	}
	if !strings.Contains(r.stderr.String(), `reason="id outside the prefix"`) {
		t.Errorf("the log does not tell of refusals:\n%s", r.stderr.String())
	}
}
