package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestWithoutKeysNothingOpens(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	empty := writeFile(t, "empty", nil)
	large := writeFile(t, "large", make([]byte, maxKeyFileBytes+1))
	notThere := httptest.NewServer(http.NotFoundHandler())
	defer notThere.Close()
	for name, x := range map[string]struct {
		o    Options
		says string
	}{
		"nothing":          {Options{}, "set auth.publickey or auth.jwks"},
		"no file":          {Options{PublicKey: filepath.Join(dir, "none.pem")}, "none.pem: there is no such file"},
		"a folder":         {Options{PublicKey: dir}, "auth.publickey"},
		"an empty file":    {Options{PublicKey: empty}, "no public key"},
		"a large file":     {Options{JWKS: large}, "larger than"},
		"one of two":       {Options{PublicKey: writeFile(t, "p", pairs()[EdDSA].Public), JWKS: empty}, "auth.jwks"},
		"both ways":        {Options{PublicKey: Unsigned, JWKS: empty}, "either signatures are checked"},
		"http":             {Options{JWKS: "http://keys.example.com/jwks"}, "https://"},
		"ftp":              {Options{JWKS: "ftp://localhost/jwks"}, "https://"},
		"a user in it":     {Options{JWKS: "https://u:geheim@localhost/jwks"}, "without a user"},
		"404":              {Options{JWKS: notThere.URL}, "404"},
		"negative leeway":  {Options{PublicKey: Unsigned, Leeway: -1}, "auth.leeway"},
		"unbounded leeway": {Options{PublicKey: Unsigned, Leeway: 2 * MaxLeeway}, "auth.leeway"},
	} {
		x.o.Now = c.now
		_, err := Open(context.Background(), x.o)
		if err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v does not say %q", name, err, x.says)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: the message holds a password: %v", name, err)
		}
	}
}

// provider serves a key set.
type provider struct {
	*httptest.Server
	mu      sync.Mutex
	text    []byte
	status  int
	fetches atomic.Int64
}

func newProvider(t *testing.T, text []byte) *provider {
	p := &provider{text: text, status: 200}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.fetches.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		w.WriteHeader(p.status)
		_, _ = w.Write(p.text)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) set(status int, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.text = status, text
}

// running opens a verifier and runs it until the test ends.
func running(t *testing.T, o Options) *Verifier {
	t.Helper()
	v, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); v.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return v
}

// A token with a new key is good at once: its name makes the keys be fetched again. Tokens with invented names fetch
// nothing more for a while, however many come, and so do those that come at the same time.
func TestUnknownKeysAreFetchedOnce(t *testing.T) {
	c := newClock()
	first, second := pairs()[EdDSA], pairs()[EdDSA+"2"]
	p := newProvider(t, first.JWKS)
	v := running(t, Options{JWKS: p.URL, Now: c.now, Refresh: time.Hour})
	claims := map[string]any{"exp": c.in(time.Hour)}
	token := signed(t, second, EdDSA, map[string]any{"kid": second.ID}, claims)

	if got := verdict(v, token); got != ReasonUnknownKey || p.fetches.Load() != 1 {
		t.Errorf("just after a fetch: %q, %d fetches", got, p.fetches.Load())
	}
	c.advance(minRound)
	p.set(200, setOf(t, members(t, first), members(t, second)))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got := verdict(v, token); got != "" {
				t.Errorf("with the new key published: %q", got)
			}
		})
	}
	wg.Wait()
	if n := p.fetches.Load(); n > 3 { // one that had begun may be followed by another
		t.Errorf("50 tokens made %d fetches", n)
	}
	before := p.fetches.Load()
	for i := range 200 {
		if got := verdict(v, signed(t, second, EdDSA, map[string]any{"kid": fmt.Sprint("invented ", i)}, claims)); got != ReasonUnknownKey {
			t.Fatalf("an invented key: %q", got)
		}
	}
	if n := p.fetches.Load() - before; n > 1 {
		t.Errorf("200 invented names made %d fetches", n)
	}
}

// What cannot be fetched, or is damaged, leaves the last good keys in force, and the log says so without end of lines.
func TestLastGoodKeysStay(t *testing.T) {
	c := newClock()
	pair := pairs()[EdDSA]
	p := newProvider(t, pair.JWKS)
	var log bytes.Buffer
	v, err := Open(context.Background(), Options{JWKS: p.URL, Now: c.now, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	token := signed(t, pair, EdDSA, map[string]any{"kid": pair.ID}, map[string]any{"exp": c.in(time.Hour)})
	for _, bad := range []struct {
		status int
		text   []byte
	}{{500, pair.JWKS}, {404, nil}, {200, nil}, {200, []byte(`{"keys":[]}`)}, {200, []byte("<html>")}, {200, make([]byte, MaxJWKSBytes+1)}, {302, nil}} {
		p.set(bad.status, bad.text)
		if err := v.Reload(context.Background()); err == nil || !strings.Contains(err.Error(), "auth.jwks") {
			t.Errorf("status %d, %d bytes: %v", bad.status, len(bad.text), err)
		}
		if got := verdict(v, token); got != "" {
			t.Errorf("status %d, %d bytes: %q", bad.status, len(bad.text), got)
		}
	}
	if got := v.failures(true); got != 7 {
		t.Errorf("%d failures in a row", got)
	}
	if d := v.pause(); d > v.o.Refresh || d < firstRetry {
		t.Errorf("pause %s", d)
	}
	p.set(200, pairs()[EdDSA+"2"].JWKS)
	if err := v.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := verdict(v, token); got != ReasonUnknownKey || v.failures(true) != 0 {
		t.Errorf("after its key is gone: %q, %d failures", got, v.failures(true))
	}
}

func TestFetchesKeepToTLS(t *testing.T) {
	target := newProvider(t, pairs()[EdDSA].JWKS)
	outside := "http://keys.example.com/jwks"
	for name, x := range map[string]struct {
		to   string
		good bool
	}{"to loopback": {target.URL, true}, "to plain http elsewhere": {outside, false}, "for ever": {"", false}} {
		var from *httptest.Server
		from = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to := x.to
			if to == "" {
				to = from.URL
			}
			http.Redirect(w, r, to, http.StatusFound)
		}))
		_, err := Open(context.Background(), Options{JWKS: from.URL, Now: newClock().now})
		if (err == nil) != x.good {
			t.Errorf("a redirect %s: %v", name, err)
		}
		from.Close()
	}
}

// A file that is replaced is read again, without anybody being told.
func TestFilesAreReadAgain(t *testing.T) {
	c := newClock()
	path := writeFile(t, "keys", pairs()[EdDSA].Public)
	v := open(t, c, Options{PublicKey: path}, nil)
	token := signed(t, pairs()[ES256], ES256, nil, map[string]any{"exp": c.in(time.Hour)})
	if got := verdict(v, token); got != ReasonUnknownKey {
		t.Fatal(got)
	}
	if err := os.WriteFile(path, []byte("half a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := v.load(context.Background(), false); err == nil || verdict(v, signed(t, pairs()[EdDSA], EdDSA, nil, map[string]any{"exp": c.in(time.Hour)})) != "" {
		t.Errorf("half a file: %v", err)
	}
	if err := os.WriteFile(path, pairs()[ES256].JWKS, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := v.load(context.Background(), false); err != nil || verdict(v, token) != "" {
		t.Errorf("a new file: %v, %q", err, verdict(v, token))
	}
	before := v.keys.Load()
	if err := v.load(context.Background(), false); err != nil || v.keys.Load() != before {
		t.Error("the same file made other keys")
	}
}

// A request that is given up does not wait for keys.
func TestWaitingEndsWithTheRequest(t *testing.T) {
	c := newClock()
	v := open(t, c, Options{JWKS: writeFile(t, "keys", pairs()[EdDSA].JWKS)}, nil) // nobody runs it
	c.advance(minRound)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("gone"))
	token := signed(t, pairs()[EdDSA+"2"], EdDSA, map[string]any{"kid": "x"}, map[string]any{"exp": c.in(time.Hour)})
	if _, refusal := v.Verify(ctx, token); refusal == nil || refusal.Reason != ReasonUnknownKey {
		t.Errorf("%v", refusal)
	}
	if v.waiting != 0 {
		t.Errorf("%d still wait", v.waiting)
	}
}
