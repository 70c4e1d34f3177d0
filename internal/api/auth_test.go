package api_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/internal/api"
	"abide/internal/auth"
	"abide/protocol"
)

// issuer makes tokens, and a verifier of them.
type issuer struct {
	t    testing.TB
	pair auth.KeyPair
	now  time.Time
	o    *api.Auth
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	pair, err := auth.GenerateKey(auth.EdDSA)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "public.pem")
	if err := os.WriteFile(path, pair.Public, 0o600); err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, pair: pair, now: time.Unix(1_800_000_000, 0)}
	verifier, err := auth.Open(context.Background(), auth.Options{PublicKey: path, Now: func() time.Time { return i.now }})
	if err != nil {
		t.Fatal(err)
	}
	i.o = &api.Auth{Verifier: verifier, Policy: auth.Policy{SharedGroups: []string{"shared"}}, Now: func() time.Time { return i.now }}
	return i
}

func (i *issuer) token(set func(*auth.Token)) string {
	i.t.Helper()
	token := auth.Token{Expires: i.now.Add(time.Hour)}
	set(&token)
	text, err := auth.Sign(i.pair.Private, token)
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

func (i *issuer) admin() string { return i.token(func(t *auth.Token) { t.Role = "admin" }) }

func (i *issuer) prefix(prefix string) string {
	return i.token(func(t *auth.Token) { t.Prefix = &prefix })
}

func withToken(token, kind, data string) string {
	return `{"kind":"` + kind + `","head":{"corrId":"c1","version":"2026-04-01","auth":"` + token + `"},"data":` + data + `}`
}

const (
	noToken   = `"Unauthorized"`
	forbidden = `"Forbidden"`
)

// Where a token may stand, and that two of them which differ are none.
func TestWhereTokensStand(t *testing.T) {
	i := newIssuer(t)
	f := start(t, api.Options{Auth: i.o})
	good, other := i.admin(), i.prefix("")
	get := `{"id":"x"}`
	for name, c := range map[string]struct {
		inEnvelope string
		headers    []string
		status     int
	}{
		"nowhere":                   {"", nil, 401},
		"envelope":                  {good, nil, 200},
		"header":                    {"", []string{"Authorization: Bearer " + good}, 200},
		"header, scheme in small":   {"", []string{"authorization: bearer  " + good}, 200},
		"both, the same":            {good, []string{"Authorization: Bearer " + good}, 200},
		"both, another":             {good, []string{"Authorization: Bearer " + other}, 401},
		"two headers":               {"", []string{"Authorization: Bearer " + good, "Authorization: Bearer " + good}, 401},
		"two headers and envelope":  {good, []string{"Authorization: Basic x", "Authorization: Basic x"}, 401},
		"another scheme":            {"", []string{"Authorization: Basic " + good}, 401},
		"another scheme, envelope":  {good, []string{"Authorization: Basic dTpw"}, 200},
		"password":                  {"", []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+good))}, 200},
		"password and envelope":     {good, []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(":"+good))}, 200},
		"another password":          {good, []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+other))}, 401},
		"password of somebody else": {good, []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("any:a.b"))}, 200},
		"user":                      {"", []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(good))}, 401},
		"no scheme":                 {"", []string{"Authorization: " + good}, 401},
		"Bearer in the envelope":    {"Bearer " + good, nil, 401},
		"an empty header":           {"", []string{"Authorization:"}, 401},
		"an empty header, envelope": {good, []string{"Authorization:"}, 200},
		"two tokens in one header":  {"", []string{"Authorization: Bearer " + good + ", Bearer " + good}, 401},
		"oversized":                 {strings.Repeat("A", auth.MaxTokenBytes+1), nil, 401},
		"in the query":              {"", []string{"X-Token: " + good}, 401},
	} {
		got := f.raw(request("POST", "/?token="+good, withToken(c.inEnvelope, "promise.get", get), c.headers...))
		if got.status != c.status || (c.status == 401 && got.body != response("promise.get", 401, noToken)) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if challenge := got.header.Get("WWW-Authenticate"); (challenge == "Bearer") != (c.status == 401) {
			t.Errorf("%s: challenge %q", name, challenge)
		}
		if calls := f.engine.calls(); (len(calls) == 1) != (c.status == 200) {
			t.Errorf("%s: the engine was asked %q", name, calls)
		}
	}
}

// The first failure wins: envelope, token, kind, data, rights. What is refused never reaches the engine, and is told the
// same whatever it names.
func TestOrderOfRefusals(t *testing.T) {
	i := newIssuer(t)
	f := start(t, api.Options{Auth: i.o})
	admin, limited, none := i.admin(), i.prefix("a."), i.token(func(*auth.Token) {})
	workspace := i.token(func(t *auth.Token) { t.Role, t.Workspaces = "admin", []string{"w", "x-*"} })
	expired := i.token(func(t *auth.Token) { t.Role, t.Expires = "admin", i.now.Add(-time.Hour) })
	for _, c := range []struct {
		name, path, body string
		status           int
		data             string // exact, or its beginning if it ends with *
	}{
		{"no envelope", "/", "junk", 400, `*`},
		{"wrong version", "/", `{"kind":"promise.get","head":{"corrId":"c1","version":"x"},"data":{}}`, 400, `"Unsupported*`},
		{"no token, bad data", "/", withToken("", "promise.get", `{}`), 401, noToken},
		{"no token, unknown kind", "/", withToken("", "promise.eat", `{}`), 401, noToken},
		{"expired", "/", withToken(expired, "promise.get", `{"id":"x"}`), 401, noToken},
		{"admin, unknown kind", "/", withToken(admin, "promise.eat", `{}`), 400, `"Unknown operation*`},
		{"limited, unknown kind", "/", withToken(limited, "promise.eat", `{}`), 403, forbidden},
		{"admin, debug off", "/", withToken(admin, "debug.reset", `{}`), 403, `"Forbidden: debug*`},
		{"limited, debug", "/", withToken(limited, "debug.reset", `{}`), 403, forbidden},
		{"limited, bad data", "/", withToken(limited, "promise.get", `{}`), 400, `"Invalid request*`},
		{"limited, own", "/", withToken(limited, "promise.get", `{"id":"a.1"}`), 200, `{}`},
		{"limited, foreign", "/", withToken(limited, "promise.get", `{"id":"b.1"}`), 403, forbidden},
		{"limited, foreign that is there or not", "/", withToken(limited, "task.get", `{"id":"b.2"}`), 403, forbidden},
		{"without prefix", "/", withToken(none, "promise.get", `{"id":"a.1"}`), 403, forbidden},
		{"other workspace", "/w/w", withToken(admin, "promise.get", `{"id":"x"}`), 403, forbidden},
		{"its workspace", "/w/w", withToken(workspace, "promise.get", `{"id":"x"}`), 200, `{}`},
		{"one of its workspaces", "/w/x-1/", withToken(workspace, "promise.get", `{"id":"x"}`), 200, `{}`},
		{"the default one is not its", "/", withToken(workspace, "promise.get", `{"id":"x"}`), 403, forbidden},
	} {
		got := f.raw(request("POST", c.path, c.body))
		kind, _, _ := strings.Cut(strings.TrimPrefix(c.body, `{"kind":"`), `"`)
		want := response(kind, c.status, c.data)
		beginning, open := strings.CutSuffix(c.data, "*")
		if open && c.data != "*" {
			want = strings.TrimSuffix(response(kind, c.status, beginning), "}")
		}
		if got.status != c.status || (c.data != "*" && got.body != want && !(open && strings.HasPrefix(got.body, want))) {
			t.Errorf("%s: %d %s, want %d %s", c.name, got.status, got.body, c.status, c.data)
		}
		if calls := f.engine.calls(); (len(calls) == 1) != (c.status == 200) {
			t.Errorf("%s: the engine was asked %q", c.name, calls)
		}
	}
	for _, path := range []string{"/health", "/ready"} {
		if got := f.raw(request("GET", path, "")); got.status != 200 {
			t.Errorf("%s without a token: %d", path, got.status)
		}
	}
	if got := f.raw(request("GET", "/promises/x", "")); got.status != 410 {
		t.Errorf("a removed endpoint without a token: %d", got.status)
	}
	counts := f.handler.Refusals()
	if counts[auth.ReasonMissing] != 2 || counts[auth.ReasonExpired] != 1 || counts[auth.ReasonID] != 2 || counts[auth.ReasonWorkspace] != 2 || counts[auth.ReasonNoPrefix] != 1 {
		t.Errorf("counted: %v", counts)
	}
}

// Requests that list are bounded before they are served, and answers trimmed after it.
func TestWhatIsListedIsBounded(t *testing.T) {
	i := newIssuer(t)
	f := start(t, api.Options{Auth: i.o})
	var mu sync.Mutex
	var within []string
	f.engine.reply = func(_ context.Context, req protocol.Request) protocol.Reply {
		mu.Lock()
		defer mu.Unlock()
		switch r := req.(type) {
		case *protocol.PromiseSearch:
			within = append(within, r.Within)
		case *protocol.TaskHeartbeat:
			within = append(within, r.Within)
		case *protocol.TaskAcquire:
			return protocol.OK(protocol.ClaimBody{Preload: []protocol.Promise{{ID: "b.secret"}, {ID: "a.own"}}})
		}
		return protocol.OK(protocol.EmptyBody{})
	}
	for _, token := range []string{i.prefix("a."), i.admin()} {
		f.raw(request("POST", "/", withToken(token, "promise.search", `{}`)))
		f.raw(request("POST", "/", withToken(token, "task.heartbeat", `{"pid":"p","tasks":[]}`)))
	}
	if got := fmt.Sprint(within); got != "[a. a.  ]" {
		t.Errorf("bounded by %q", got)
	}
	acquire := `{"id":"a.1","version":0,"pid":"p","ttl":1}`
	if got := f.raw(request("POST", "/", withToken(i.prefix("a."), "task.acquire", acquire))); strings.Contains(got.body, "b.secret") || !strings.Contains(got.body, "a.own") {
		t.Errorf("a preload shows %s", got.body)
	}
	if got := f.raw(request("POST", "/", withToken(i.admin(), "task.acquire", acquire))); !strings.Contains(got.body, "b.secret") {
		t.Errorf("an admin's preload shows %s", got.body)
	}
}

// The clock of a workspace is everybody's: who may touch some ids only moves it for nobody.
func TestDebugTimeIsForTheUnrestricted(t *testing.T) {
	i := newIssuer(t)
	f := start(t, api.Options{Auth: i.o, Debug: true})
	for token, want := range map[string]string{i.admin(): "default promise.get 77", i.prefix(""): "default promise.get 77", i.prefix("a."): "default promise.get -"} {
		body := strings.Replace(withToken(token, "promise.get", `{"id":"a.1"}`), `"auth"`, `"resonate:debug_time":77,"auth"`, 1)
		f.raw(request("POST", "/", body))
		if got := f.engine.calls(); len(got) != 1 || got[0] != want {
			t.Errorf("the engine was asked %q, want %q", got, want)
		}
	}
}

func TestStreamsNeedAToken(t *testing.T) {
	i := newIssuer(t)
	var got []api.Worker
	f := start(t, api.Options{Auth: i.o, Poll: func(w http.ResponseWriter, _ *http.Request, worker api.Worker) {
		got = append(got, worker)
		w.WriteHeader(200)
	}})
	limited := i.prefix("a.")
	for _, c := range []struct {
		path, token string
		status      int
		want        api.Worker
	}{
		{"/poll/g/1", "", 401, api.Worker{}},
		{"/poll/g/1", "junk", 401, api.Worker{}},
		{"/poll/g/1", i.admin(), 200, api.Worker{Workspace: "default", Group: "g", ID: "1"}},
		{"/poll/g/1", i.prefix(""), 200, api.Worker{Workspace: "default", Group: "g", ID: "1"}},
		{"/poll/g/1", limited, 403, api.Worker{}},
		{"/poll/g/a.1", limited, 403, api.Worker{}},
		{"/poll/a.g/1", limited, 200, api.Worker{Workspace: "default", Group: "a.g", ID: "1", GroupOnly: true}},
		{"/poll/%61.g/1", limited, 200, api.Worker{Workspace: "default", Group: "a.g", ID: "1", GroupOnly: true}},
		{"/poll/a/1", limited, 200, api.Worker{Workspace: "default", Group: "a", ID: "1", GroupOnly: true}},
		{"/poll/shared/1", limited, 200, api.Worker{Workspace: "default", Group: "shared", ID: "1", GroupOnly: true}},
		{"/poll/a/1", i.token(func(*auth.Token) {}), 403, api.Worker{}},
		{"/w/x/poll/a/1", i.admin(), 403, api.Worker{}},
		{"/w/x/poll/a/1", i.token(func(t *auth.Token) { t.Role, t.Workspaces = "admin", []string{"x"} }), 200, api.Worker{Workspace: "x", Group: "a", ID: "1"}},
	} {
		got = nil
		var headers []string
		if c.token != "" {
			headers = []string{"Authorization: Bearer " + c.token}
		}
		answer := f.raw(request("GET", c.path+"?token="+i.admin(), "", headers...))
		if answer.status != c.status || (c.status == 200) != (len(got) == 1) || (len(got) == 1 && got[0] != c.want) {
			t.Errorf("%s: %d, worker %+v", c.path, answer.status, got)
		}
		if want := map[int]string{401: "Unauthorized", 403: "Forbidden", 200: ""}[c.status]; answer.body != want {
			t.Errorf("%s: says %q", c.path, answer.body)
		}
	}
}

// The log tells of each reason once a minute, with how often; never a token, a claim or an id.
func TestRefusalsInTheLog(t *testing.T) {
	i := newIssuer(t)
	f := start(t, api.Options{Auth: i.o, Poll: func(http.ResponseWriter, *http.Request, api.Worker) {}})
	limited := i.prefix("geheim.")
	junk := "ey-not-a-token"
	send := func() {
		for range 3 {
			f.raw(request("POST", "/", withToken(limited, "promise.get", `{"id":"fremd.1"}`)))
			f.raw(request("POST", "/", withToken(junk, "promise.get", `{"id":"fremd.1"}`)))
			f.raw(request("POST", "/", withToken(limited, "seltsam.kind", `{}`)))
			f.raw(request("GET", "/poll/fremd/1", "", "Authorization: Bearer "+limited))
		}
	}
	send()
	log := f.log.String()
	if n := strings.Count(log, "msg=refused"); n != 4 {
		t.Errorf("%d lines:\n%s", n, log)
	}
	i.now = i.now.Add(time.Minute)
	send()
	log = f.log.String()
	if n := strings.Count(log, "msg=refused"); n != 8 || strings.Count(log, "times=3") != 4 {
		t.Errorf("%d lines after a minute:\n%s", n, log)
	}
	for _, secret := range []string{limited, limited[:20], junk, "geheim", "fremd", "seltsam"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q:\n%s", secret, log)
		}
	}
}
