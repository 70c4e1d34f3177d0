package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/internal/trace"
	"abide/protocol"
)

// planted are texts that nobody may find anywhere, by where they were planted.
type planted map[string]string

// at plants a new one.
func (s planted) at(place string) string {
	s[place] = "hush" + strings.ReplaceAll(place, " ", "x") + "hush"
	return s[place]
}

// lookFor demands that a text holds none of them, in whatever form.
func (s planted) lookFor(t *testing.T, where, text string) {
	t.Helper()
	for place, secret := range s {
		forms := []string{secret, url.QueryEscape(secret), hex.EncodeToString([]byte(secret))}
		for shift := range 3 { // as a part of something in base64
			encoded := base64.StdEncoding.EncodeToString([]byte("abc"[:shift] + secret))
			forms = append(forms, encoded[shift+1:len(encoded)-4])
		}
		for _, form := range forms {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%s shows the secret of the %s: ...%q...", where, place, text[max(0, i-200):min(len(text), i+200)])
				break
			}
		}
	}
}

// secretRequests are requests with secrets in every part that has room for one.
func secretRequests(s planted, token string) (requests []*http.Request) {
	post := func(path, auth, kind, data string, headers ...string) {
		body := fmt.Sprintf(`{"kind":%q,"head":{"corrId":%q,"version":"2026-04-01","auth":%q},"data":%s}`, kind, s.at("correlation"), auth, data)
		r, _ := http.NewRequest(http.MethodPost, path, strings.NewReader(body))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		requests = append(requests, r)
	}
	payload := func(place string) string {
		return fmt.Sprintf(`{"headers":{"x":%q},"data":%q}`, s.at("header of a "+place), base64.StdEncoding.EncodeToString([]byte(s.at(place))))
	}
	create := fmt.Sprintf(`{"id":%q,"timeoutAt":4102444800000,"param":%s,"tags":{"resonate:target":"poll://any@g","mine":%q}}`, s.at("id"), payload("param"), s.at("tag"))
	// Nobody listens there, so that the log tells of it.
	push := fmt.Sprintf(`{"id":%q,"timeoutAt":4102444800000,"tags":{"resonate:target":%q}}`, s.at("pushed id"),
		"http://user:"+s.at("password of an address")+"@127.0.0.1:1/"+s.at("path of an address")+"?key="+s.at("query of an address"))
	post("/?key="+s.at("query"), token, "promise.create", create, "Cookie", s.at("cookie"), "X-Api-Key", s.at("key"))
	post("/", token, "promise.create", push)
	post("/", token, "promise.register_listener", fmt.Sprintf(`{"awaited":%q,"address":%q}`, s["id"], "http://user:"+s.at("password of a listener")+"@127.0.0.1:1/"))
	post("/", token, "promise.settle", fmt.Sprintf(`{"id":%q,"state":"resolved","value":%s}`, s["id"], payload("value")))
	post("/", token, "promise.search", fmt.Sprintf(`{"tags":{"mine":%q},"cursor":%q}`, s["tag"], s.at("cursor")))
	post("/", token, s.at("kind"), `{}`)
	post("/", token, "promise.create", fmt.Sprintf(`{"id":%q,"timeoutAt":%q}`, s["id"], s.at("wrong type")))
	post("/", token, "schedule.create", fmt.Sprintf(`{"id":%q,"cron":%q,"promiseId":"x","promiseTimeout":1,"promiseParam":%s,"promiseTags":{}}`, s.at("schedule"), s.at("cron"), payload("schedule's param")))
	post("/", s.at("token"), "promise.get", `{"id":"x"}`)
	post("/", "", "promise.get", `{"id":"x"}`, "Authorization", "Bearer "+s.at("bearer"))
	post("/", "", "promise.get", `{"id":"x"}`, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+s.at("password"))))
	post("/w/"+s.at("workspace's path")+"!", token, "promise.get", `{"id":"x"}`)
	post("/promises/"+s.at("old path"), token, "promise.get", `{}`)
	post("/", token, "promise.get", `{"id":"x"}`, "Origin", "http://"+s.at("origin"))
	broken, _ := http.NewRequest(http.MethodPost, "/", strings.NewReader(`{"kind": `+s.at("broken body")))
	return append(requests, broken)
}

// A server that is told secrets in every part of every request, and in its settings, shows none of them: not in its log at
// the level debug, not in its metrics, profiles and traces, not where it says whether it is ready.
func TestSecretsStaySecret(t *testing.T) {
	keys := keygen(t)
	for _, format := range []string{"text", "json"} {
		s := planted{}
		token := newToken(t, keys, "--role", "admin", "--workspace", "*")
		requests := secretRequests(s, token)
		s["good token"] = token
		c := collect(t)
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization="+s.at("collector's header"))
		metrics, admin := testenv.FreePort(t), testenv.FreePort(t)
		r := startSecretly(t, s, format, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--debug", "--auth-publickey", filepath.Join(keys, "public.pem"),
			"--observability-otlp-endpoint", c.url, "--observability-otlp-protocol", trace.HTTP, "--observability-trace-sample", "1",
			"--observability-metrics-port", fmt.Sprint(metrics), "--observability-admin-port", fmt.Sprint(admin), "--observability-slow-request", "1ms")...)
		statuses := map[int]bool{}
		for _, q := range requests {
			q.URL, _ = url.Parse(r.url + q.URL.RequestURI())
			answer, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			statuses[answer.StatusCode] = true
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
		for _, want := range []int{200, 400, 401, 403, 410} { // or the requests are no longer what they are for
			if !statuses[want] {
				t.Errorf("%s: no request was answered %d", format, want)
			}
		}
		waitForText(t, r, "not accepted") // the push has failed
		shown := ""
		for _, page := range []string{fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics), r.url + "/ready", r.url + "/health",
			fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/", admin), fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/goroutine?debug=2", admin),
			fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/heap?debug=1", admin)} {
			_, text := fetch(t, page)
			shown += text
		}
		if code := r.stop(t); code != exitOK {
			t.Errorf("exit %d", code)
		}
		s.lookFor(t, format+": standard output", r.stdout.String())
		s.lookFor(t, format+": the log", r.stderr.String())
		s.lookFor(t, format+": what is served to operators", shown)
		s.lookFor(t, format+": the traces", string(c.bodies))
		if len(c.spans) == 0 || len(r.stderr.String()) < 1000 || len(shown) < 1000 {
			t.Errorf("%s: %d spans, %d bytes of log, %d bytes shown: there was nothing to look at", format, len(c.spans), len(r.stderr.String()), len(shown))
		}
	}
}

// startSecretly starts a server with secrets in its settings.
func startSecretly(t *testing.T, s planted, format string, args ...string) *running {
	t.Helper()
	args = append(args, "--level", "debug", "--log-format", format)
	environ := []string{"ABIDE_TRANSPORTS__HTTP_PUSH__AUTH__MODE=bearer", "ABIDE_TRANSPORTS__HTTP_PUSH__AUTH__TOKEN=" + s.at("push token"),
		"ABIDE_STORAGE__POSTGRES__URL=", "ABIDE_NONSENSE=" + s.at("unknown setting")}
	return startIn(t, environ, args...)
}

// decodeLine is a line of a log in JSON.
func decodeLine(t *testing.T, line string) (fields map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return fields
}

func waitForText(t *testing.T, r *running, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(r.stderr.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log never says %q", text)
		}
	}
}

// Commands that are given the address of a database, and cannot reach it, do not show its password; nor does whatever shows
// the settings.
func TestPasswordsOfDatabasesStaySecret(t *testing.T) {
	for _, scheme := range []string{"postgres", "mysql"} {
		s := planted{}
		address := scheme + "://user:" + s.at("password") + "@127.0.0.1:1/abide"
		setting := "ABIDE_STORAGE__" + strings.ToUpper(scheme) + "__URL=" + address
		for _, c := range []struct {
			environ []string
			args    []string
			code    []int
		}{
			{[]string{setting}, []string{"serve", "--level", "debug", "--server-port", "0", "--server-bind", "127.0.0.1", "--observability-metrics-port", "0"}, []int{exitFailure}},
			{[]string{setting}, []string{"config", "show"}, []int{exitOK}},
			{[]string{setting}, []string{"config", "show", "--json"}, []int{exitOK}},
			{[]string{setting}, []string{"config", "check"}, []int{exitOK}},
			{nil, []string{"serve", "--storage-" + scheme + "-url", strings.Replace(address, "127.0.0.1:1", "127.0.0.1:x", 1)}, []int{exitUsage, exitFailure}},
			{nil, []string{"check", address}, []int{exitFailure}},
			{nil, []string{"copy", address, filepath.Join(t.TempDir(), "x.db")}, []int{exitFailure}},
			{nil, []string{"cluster", address}, []int{exitUsage}}, // it takes no such argument
		} {
			r := runWith(c.environ, c.args...)
			if !slices.Contains(c.code, r.code) {
				t.Errorf("%v: exit %d: %s", c.args, r.code, r.stderr)
			}
			s.lookFor(t, strings.Join(c.args[:2], " "), r.stdout+r.stderr)
		}
	}
}

// A log in JSON is an object a line, with spans of time that a person can read.
func TestLogsInJSON(t *testing.T) {
	t.Parallel()
	r := start(t, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--log-format", "json", "--observability-slow-request", "1ms")...)
	const reason = `"reason":"its body came slowly"`
	for try := 0; try < 10 && !strings.Contains(r.stderr.String(), reason); try++ { // a busy machine may be slow elsewhere
		// Its head is there long before its body.
		slowly, feed := io.Pipe()
		go func() {
			time.Sleep(30 * time.Millisecond)
			_, _ = io.WriteString(feed, `{"kind":"promise.get","head":{"corrId":"1","version":"`+protocol.Version+`"},"data":{"id":"p"}}`)
			_ = feed.Close()
		}()
		answer, err := http.Post(r.url, "application/json", slowly)
		if err != nil || answer.StatusCode != http.StatusNotFound {
			t.Fatal(answer, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	if code := r.stop(t); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	lines := strings.Split(strings.TrimSpace(r.stderr.String()), "\n")
	found := map[string]map[string]any{}
	for _, line := range lines {
		fields := decodeLine(t, line)
		found[fields["msg"].(string)] = fields
	}
	if got := found["slow request"]; got == nil || got["kind"] != "promise.get" || got["reason"] != "its body came slowly" || got["status"] != 404.0 || got["level"] != "WARN" {
		t.Errorf("the slow request: %v in\n%s", got, r.stderr.String())
	}
	if got := found["stopping"]; got == nil || got["timeout"] != "1m0s" {
		t.Errorf("the stop: %v", got)
	}
}
