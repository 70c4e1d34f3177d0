package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/protocol"
)

// clientNow is the clock of the client commands under test.
const clientNow = 1_800_000_000_000

// person runs the program as somebody at a terminal, or a script, would. The words of args are split at blanks; what
// stands between ' and ' is one.
func person(terminal bool, environ []string, stdin, args string) result {
	var stdout, stderr bytes.Buffer
	code := run(words(args), surroundings{
		environ: environ, stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, signals: make(chan os.Signal), abort: func() {},
		terminal: terminal, now: func() int64 { return clientNow }, zone: time.FixedZone("CET", 3600),
	})
	return result{code, stdout.String(), stderr.String()}
}

func words(args string) []string {
	var all []string
	for i, part := range strings.Split(args, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// stub answers every request the same and keeps what it was asked.
type stub struct {
	*httptest.Server
	mu            sync.Mutex
	envelope      protocol.Envelope
	data          string
	authorization string
}

func newStub(t *testing.T, reply protocol.Reply) *stub {
	t.Helper()
	s := &stub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		env, err := protocol.DecodeEnvelope(body)
		if err != nil {
			t.Errorf("%v: %s", err, body)
		}
		s.mu.Lock()
		s.envelope, s.data, s.authorization = env, string(env.Data), r.Header.Get("Authorization")
		s.mu.Unlock()
		w.WriteHeader(reply.Status)
		_, _ = w.Write(protocol.AppendResponse(nil, env.Kind, env.CorrID, reply))
	}))
	t.Cleanup(s.Close)
	return s
}

// requests are the client commands and what each sends, as the reference's do.
var requests = []struct{ args, kind, data string }{
	{"promises get p", "promise.get", `{"id":"p"}`},
	{"promise get p", "promise.get", `{"id":"p"}`},
	{"promises create p --timeout 1m30s", "promise.create", `{"id":"p","timeoutAt":1800000090000,"param":{},"tags":{}}`},
	{`promises create p --timeout 1s --param '{"headers":{"a":"b"},"data":{"x": 1}}' --tags '{"t":"u"}'`, "promise.create",
		`{"id":"p","timeoutAt":1800000001000,"param":{"headers":{"a":"b"},"data":"eyJ4IjoxfQ=="},"tags":{"t":"u"}}`},
	{`promises create p --timeout 1s --data hello --header k=v,w`, "promise.create",
		`{"id":"p","timeoutAt":1800000001000,"param":{"headers":{"k":"v,w"},"data":"ImhlbGxvIg=="},"tags":{}}`},
	{`promises create p --timeout 1s --data-file -`, "promise.create", `{"id":"p","timeoutAt":1800000001000,"param":{"data":"WzFd"},"tags":{}}`},
	{`promises resolve p --value '{"data":"hi"}'`, "promise.settle", `{"id":"p","state":"resolved","value":{"data":"aGk="}}`},
	{`promises reject p --data 42`, "promise.settle", `{"id":"p","state":"rejected","value":{"data":"NDI="}}`},
	{`promises cancel p`, "promise.settle", `{"id":"p","state":"rejected_canceled","value":{}}`},
	{`promises search`, "promise.search", `{"limit":100}`},
	{`promises search --state pending --tags '{"a":"b"}' --limit 7 --cursor c`, "promise.search", `{"state":"pending","tags":{"a":"b"},"limit":7,"cursor":"c"}`},
	{`promises register-callback a b`, "promise.register_callback", `{"awaited":"a","awaiter":"b"}`},
	{`promises register-listener a poll://any@g`, "promise.register_listener", `{"awaited":"a","address":"poll://any@g"}`},
	{`tasks get t`, "task.get", `{"id":"t"}`},
	{`tasks create t --pid w --ttl 1m --timeout 1h --param '{"data":"raw"}' --tags '{"resonate:target":"poll://any@g"}'`, "task.create",
		`{"pid":"w","ttl":60000,"action":{"kind":"promise.create","head":{},"data":{"id":"t","timeoutAt":1800003600000,"param":{"data":"raw"},"tags":{"resonate:target":"poll://any@g"}}}}`},
	{`task claim t --pid w --version 3 --ttl 500ms`, "task.acquire", `{"id":"t","version":3,"pid":"w","ttl":500}`},
	{`tasks fence t --version 3 --action '{"kind":"promise.settle","data":{"id":"p","state":"resolved"}}'`, "task.fence",
		`{"id":"t","version":3,"action":{"kind":"promise.settle","head":{},"data":{"id":"p","state":"resolved","value":{}}}}`},
	{`tasks heartbeat --pid w --tasks '[{"id":"t","version":1}]'`, "task.heartbeat", `{"pid":"w","tasks":[{"id":"t","version":1}]}`},
	{`tasks suspend t --version 1 --actions '[{"kind":"promise.register_callback","data":{"awaited":"p","awaiter":"t"}}]'`, "task.suspend",
		`{"id":"t","version":1,"actions":[{"kind":"promise.register_callback","head":{},"data":{"awaited":"p","awaiter":"t"}}]}`},
	{`tasks complete t --version 1 --action '{"kind":"promise.settle","head":{"x":1},"data":{"id":"t","state":"rejected"}}'`, "task.fulfill",
		`{"id":"t","version":1,"action":{"kind":"promise.settle","head":{},"data":{"id":"t","state":"rejected","value":{}}}}`},
	{`tasks release t --version 1`, "task.release", `{"id":"t","version":1}`},
	{`tasks halt t`, "task.halt", `{"id":"t"}`},
	{`tasks continue t`, "task.continue", `{"id":"t"}`},
	{`tasks search --state halted`, "task.search", `{"state":"halted","limit":100}`},
	{`schedules get s`, "schedule.get", `{"id":"s"}`},
	{`schedules create s --cron '0 * * * *' --promise-id s.{{.timestamp}} --promise-timeout 1d --promise-tags '{"a":"b"}' --promise-data 1`, "schedule.create",
		`{"id":"s","cron":"0 * * * *","promiseId":"s.{{.timestamp}}","promiseTimeout":86400000,"promiseParam":{"data":"MQ=="},"promiseTags":{"a":"b"}}`},
	{`schedules delete s`, "schedule.delete", `{"id":"s"}`},
	{`schedule search`, "schedule.search", `{"limit":10}`},
	{`invoke i -f charge --arg 1 --arg x --arg=-5 --arg '{"a": "<"}' --arg '' -t 1m --delay 5s --version 2 --target poll://any@g`, "promise.create",
		`{"id":"i","timeoutAt":1800000065000,"param":{"headers":{},"data":"` + "eyJmdW5jIjoiY2hhcmdlIiwiYXJncyI6WzEsIngiLC01LHsiYSI6IjwifSwiIl0sInZlcnNpb24iOjJ9" + `"},` +
			`"tags":{"resonate:branch":"i","resonate:delay":"1800000005000","resonate:origin":"i","resonate:parent":"i","resonate:scope":"global","resonate:target":"poll://any@g"}}`},
	{`invoke i --func f --json-args '[1,2]' --arg 3`, "promise.create",
		`{"id":"i","timeoutAt":1800003600000,"param":{"headers":{},"data":"` + "eyJmdW5jIjoiZiIsImFyZ3MiOlsxLDJdLCJ2ZXJzaW9uIjoxfQ==" + `"},` +
			`"tags":{"resonate:branch":"i","resonate:origin":"i","resonate:parent":"i","resonate:scope":"global","resonate:target":"poll://any@default"}}`},
}

func TestClientCommandsSend(t *testing.T) {
	s := newStub(t, protocol.Fail(404, "no such thing"))
	for _, c := range requests {
		r := person(false, []string{"ABIDE_URL=" + s.URL, "ABIDE_TOKEN=secret"}, "[1]", c.args)
		if r.code != exitFailure || r.stdout != "" || !strings.Contains(r.stderr, "Error: no such thing (404)") {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", c.args, r.code, r.stdout, r.stderr)
		}
		if s.envelope.Kind != c.kind || s.data != c.data {
			t.Errorf("%s sends %s\n     %s\nwant %s\n     %s", c.args, s.envelope.Kind, s.data, c.kind, c.data)
		}
		if s.envelope.Auth != "secret" || s.authorization != "Bearer secret" {
			t.Errorf("%s: token %q and %q", c.args, s.envelope.Auth, s.authorization)
		}
	}
}

func TestWhereClientFlagsMayStand(t *testing.T) {
	s := newStub(t, protocol.OK(protocol.TaskBody{Task: protocol.Task{ID: "t", State: protocol.TaskHalted}}))
	for _, args := range []string{
		"-S URL -T tok tasks get t", "--server URL --token=tok tasks get t", "tasks -S URL -T tok get t", "tasks get -SURL -Ttok t", "tasks get t --server=URL/ --token tok",
		"-SURL -Ttok --no-json --utc --deadline 5s tasks get t",
	} {
		r := person(false, []string{"ABIDE_URL=http://127.0.0.1:1", "RESONATE_TOKEN=other"}, "", strings.ReplaceAll(args, "URL", s.URL))
		if r.code != exitOK || s.envelope.Auth != "tok" {
			t.Errorf("%s: %+v, token %q", args, r, s.envelope.Auth)
		}
		s.envelope.Auth = ""
	}
	if r := person(false, []string{"RESONATE_URL=" + s.URL}, "", "tasks get t"); r.code != exitOK {
		t.Errorf("the SDKs' variable: %+v", r)
	}
	if r := person(false, nil, "", "-S "+s.URL); r.code != exitUsage {
		t.Errorf("flags alone: %+v", r)
	}
}

func TestJSONForProgramsTextForPeople(t *testing.T) {
	s := newStub(t, protocol.OK(protocol.TaskBody{Task: protocol.Task{ID: "t", State: protocol.TaskAcquired, Version: 2, PID: "w", TTL: 1000}}))
	document := "{\n  \"task\": {\n    \"id\": \"t\",\n    \"pid\": \"w\",\n    \"resumes\": 0,\n    \"state\": \"acquired\",\n    \"ttl\": 1000,\n    \"version\": 2\n  }\n}\n"
	for _, c := range []struct {
		terminal bool
		environ  string
		args     string
		json     bool
		coloured bool
	}{
		{false, "X=", "", true, false},
		{false, "X=", "--json", true, false},
		{false, "X=", "--no-json", false, false},
		{true, "X=", "", false, true},
		{true, "NO_COLOR=1", "", false, false},
		{true, "NO_COLOR=", "", false, true},
		{true, "TERM=dumb", "", false, false},
		{true, "X=", "--json", true, false},
	} {
		r := person(c.terminal, []string{"ABIDE_URL=" + s.URL, c.environ, "WT_SESSION=1"}, "", "tasks get t "+c.args)
		if (r.stdout == document) != c.json || strings.Contains(r.stdout, "\x1b[") != c.coloured || r.code != exitOK || !strings.Contains(r.stdout, "acquired") {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

// TestAnswersOfEveryShape: each command shows its success, for a person and for a program.
func TestAnswersOfEveryShape(t *testing.T) {
	promise := protocol.Promise{ID: "p", State: protocol.Pending, TimeoutAt: clientNow + 60_000, CreatedAt: clientNow - 60_000}
	schedule := protocol.Schedule{ID: "s", Cron: "@daily", NextRunAt: clientNow + 1000}
	for args, c := range map[string]struct {
		reply protocol.Reply
		says  string
	}{
		"promises get p":                             {protocol.OK(protocol.PromiseBody{Promise: promise}), "timeout  2027-01-15 09:01:00 CET (2027-01-15 08:01:00 UTC), in 1m\n"},
		"promises search":                            {protocol.OK(protocol.PromisesBody{Promises: []protocol.Promise{promise}, Cursor: "more"}), "--cursor more"},
		"promises search --limit 1":                  {protocol.OK(protocol.PromisesBody{}), "Nothing found"},
		"tasks search":                               {protocol.OK(protocol.TasksBody{Tasks: []protocol.Task{{ID: "t", State: protocol.TaskHalted}}}), "halted"},
		"tasks search --limit 1":                     {protocol.OK(protocol.TasksBody{Cursor: "c"}), "Nothing on this page"},
		"schedules search":                           {protocol.OK(protocol.SchedulesBody{Schedules: []protocol.Schedule{schedule}}), "@daily"},
		"schedules search --limit 1":                 {protocol.OK(protocol.SchedulesBody{}), "Nothing found"},
		"schedules get s":                            {protocol.OK(protocol.ScheduleBody{Schedule: schedule}), "in 1s"},
		"schedules delete s":                         {protocol.OK(protocol.EmptyBody{}), "Deleted."},
		"tasks release t --version 1":                {protocol.OK(protocol.EmptyBody{}), "Released."},
		"tasks halt t":                               {protocol.OK(protocol.EmptyBody{}), "Halted."},
		"tasks continue t":                           {protocol.OK(protocol.EmptyBody{}), "Continued."},
		"tasks claim t --pid w --version 1 --ttl 1s": {protocol.OK(protocol.ClaimBody{Task: protocol.Task{ID: "t", State: protocol.TaskAcquired, PID: "w"}, Promise: promise, Preload: []protocol.Promise{promise}}), "preload (1 promise)"},
		"tasks heartbeat --pid w --tasks '[]'":       {protocol.OK(protocol.HeartbeatBody{Lost: []string{"t"}}), "Not renewed"},
		`tasks suspend t --version 1 --actions '[{"kind":"promise.register_callback","data":{"awaited":"p","awaiter":"t"}}]'`: {protocol.OK(protocol.EmptyBody{}), "Suspended."},
		`tasks suspend t --version 2 --actions '[{"kind":"promise.register_callback","data":{"awaited":"p","awaiter":"t"}}]'`: {protocol.Reply{Status: 300, Body: protocol.PreloadBody{Preload: []protocol.Promise{promise}}}, "Not suspended"},
		`tasks fence t --version 1 --action '{"kind":"promise.settle","data":{"id":"p","state":"resolved"}}'`:                 {protocol.OK(protocol.FenceBody{ActionKind: "promise.settle", Action: protocol.Fail(404, "Promise not found")}), "Held, but: Promise not found (404)"},
		`tasks fence t --version 2 --action '{"kind":"promise.settle","data":{"id":"p","state":"resolved"}}'`:                 {protocol.OK(protocol.FenceBody{ActionKind: "promise.settle", Action: protocol.OK(protocol.PromiseBody{Promise: promise})}), "pending"},
		`tasks complete t --version 1 --action '{"kind":"promise.settle","data":{"id":"t","state":"resolved"}}'`:              {protocol.OK(protocol.PromiseBody{Promise: promise}), "pending"},
	} {
		s := newStub(t, c.reply)
		text := person(true, []string{"ABIDE_URL=" + s.URL, "NO_COLOR=1"}, "", args)
		if text.code != exitOK || text.stderr != "" || !strings.Contains(text.stdout, c.says) {
			t.Errorf("%s: %+v, want %q", args, text, c.says)
		}
		var got, want any
		document := person(false, []string{"ABIDE_URL=" + s.URL}, "", args)
		err := json.Unmarshal([]byte(document.stdout), &got)
		if json.Unmarshal(c.reply.Body.AppendJSON(nil), &want) != nil || err != nil || document.code != exitOK {
			t.Errorf("%s: %+v %v", args, document, err)
		}
		if _, fenced := c.reply.Body.(protocol.FenceBody); !fenced && !reflect.DeepEqual(got, want) { // a fence carries the corrId
			t.Errorf("%s: %s", args, document.stdout)
		}
	}
}

func TestClientFailures(t *testing.T) {
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>\x1b[2J", http.StatusNotFound) }))
	defer html.Close()
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hanging.Close()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"promises get p -S http://127.0.0.1:1", exitFailure, "Error: Connection error: http://127.0.0.1:1: "},
		{"promises get p -S http://127.0.0.1:1", exitFailure, "ABIDE_URL or --server"},
		{"promises get p -S " + html.URL, exitFailure, "404"},
		{"promises get p --deadline 20ms -S " + hanging.URL, exitFailure, "no answer within 20ms"},
		{"tasks halt p --deadline 20ms -S " + hanging.URL, exitFailure, "may have had its effect"},
		{"promises get p -S localhost:8001", exitUsage, "http://"},
		{"promises get", exitUsage, "<id>"},
		{"promises get a b", exitUsage, "b"},
		{"promises create p", exitUsage, "--timeout"},
		{"promises create p --timeout 42", exitUsage, "42s"},
		{"promises create p --timeout 0s", exitUsage, "no time"},
		{"promises create p --timeout 1h2", exitUsage, "units"},
		{"promises create p --timeout=", exitUsage, "missing or empty"},
		{"promises create p --timeout 1s --param {", exitFailure, "Invalid --param JSON"},
		{"promises create p --timeout 1s --tags []", exitFailure, "Invalid --tags JSON"},
		{"promises create p --timeout 1s --param {} --data x", exitUsage, "not both"},
		{"promises create p --timeout 1s --data-file x --data x", exitUsage, "not both"},
		{"promises create p --timeout 1s --data-file /nowhere/x", exitFailure, "cannot read the data"},
		{"promises search --limit many", exitUsage, "many"},
		{"promises get p --watch --interval=", exitUsage, "--interval"},
		{"tasks fence t --version 1 --action {", exitFailure, "Invalid --action JSON"},
		{"tasks fence t --version 1 --action {}", exitFailure, "action"},
		{"tasks suspend t --version 1 --actions {}", exitFailure, "Invalid --actions JSON"},
		{"tasks heartbeat --pid w --tasks {}", exitFailure, "Invalid --tasks JSON"},
		{"tasks claim t --pid w --ttl 1s", exitUsage, "--version"},
		{"invoke i", exitUsage, "--func"},
		{"invoke i -f f --version 0", exitUsage, "at least 1"},
		{"invoke i -f f --json-args 5", exitFailure, "Invalid --json-args JSON"},
		{"invoke i -f f --json-args null", exitFailure, "Invalid --json-args JSON"},
		{"schedules preview '61 * * * *'", exitFailure, "minute"},
		{"schedules preview @daily -n 0", exitUsage, "--count"},
		{"promises search --limit 0", exitUsage, "from 1 to 1000"},
		{"tasks search --limit 1001", exitUsage, "from 1 to 1000"},
		{"schedules search --limit x", exitUsage, "from 1 to 1000"},
		{"completion tcsh", exitUsage, "bash"},
		{"serve -S http://x", exitUsage, "-S"},
	} {
		r := person(false, nil, "", c.args)
		if r.code != c.code || !strings.Contains(r.stderr, c.says) || r.stdout != "" || strings.Contains(r.stderr, "\x1b") {
			t.Errorf("%s: %+v, want exit %d and %q", c.args, r, c.code, c.says)
		}
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		status     int
		args, says string
	}{
		{401, "promises get p", "ABIDE_TOKEN"},
		{409, "tasks claim t --pid w --version 1 --ttl 1s", "abide tasks explain"},
		{500, "tasks halt t", "look at the record"},
	} {
		s := newStub(t, protocol.Fail(c.status, "no\x1b"))
		r := person(false, []string{"ABIDE_URL=" + s.URL}, "", c.args)
		if r.code != exitFailure || !strings.Contains(r.stderr, c.says) || !strings.Contains(r.stderr, `no\x1b`) {
			t.Errorf("%d: %+v", c.status, r)
		}
	}
}

func TestPayloadFromAFile(t *testing.T) {
	s := newStub(t, protocol.Fail(404, "no"))
	name := filepath.Join(t.TempDir(), "data.json")
	if err := os.WriteFile(name, []byte(`{"a":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	person(false, []string{"ABIDE_URL=" + s.URL}, "", "promises resolve p --data-file "+name)
	if want := `{"id":"p","state":"resolved","value":{"data":"eyJhIjoxfQ=="}}`; s.data != want {
		t.Errorf("sent %s, want %s", s.data, want)
	}
	r := person(false, []string{"ABIDE_URL=" + s.URL}, strings.Repeat("x", maxPayloadBytes+1), "promises resolve p --data-file -")
	if r.code != exitFailure || !strings.Contains(r.stderr, "no request holds") {
		t.Errorf("too long: %+v", r)
	}
}
