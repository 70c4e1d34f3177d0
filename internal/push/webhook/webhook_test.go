package webhook

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"abide/internal/push"
	"abide/protocol"
)

func itoa(n int) string { return strconv.Itoa(n) }

// local is a transport that may send to this machine.
func local(t *testing.T, change func(*Options)) *Transport {
	t.Helper()
	o := options()
	o.Rules = rules(t, "127.0.0.0/8 ::1", "")
	if change != nil {
		change(&o)
	}
	return newTransport(t, o)
}

func message(address string) push.Message {
	return push.Message{Workspace: "w", Address: address, Task: protocol.TaskRef{ID: "t é", Version: 3}, Body: []byte(`{"kind":"execute"}`), Attempt: 2}
}

// What a receiver sees.
func TestRequest(t *testing.T) {
	var got *http.Request
	var body string
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
		w.WriteHeader(http.StatusAccepted)
	})
	tr := local(t, nil)
	if err := tr.Send(t.Context(), message(s.URL+"/run/%zz?a=b#fragment")); err != nil {
		t.Fatal(err)
	}
	if got.Method != "POST" || got.URL.RequestURI() != "/run/%25zz?a=b" || body != `{"kind":"execute"}` || got.ContentLength != int64(len(body)) {
		t.Errorf("%s %s %q", got.Method, got.URL.RequestURI(), body)
	}
	id := got.Header.Get("Abide-Delivery")
	for name, want := range map[string]string{"Content-Type": "application/json", "User-Agent": "abide/1.2.3", "Abide-Attempt": "2", "Authorization": "", "Webhook-Signature": ""} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
	// The id is the same for every send of a message, and another one for every other message.
	ids := map[string]bool{id: true}
	again := message("http://other/")
	again.Attempt = 3
	if again.DeliveryID() != id {
		t.Errorf("%s and %s", again.DeliveryID(), id)
	}
	for _, change := range []func(m *push.Message){
		func(m *push.Message) { m.Task.Version++ }, func(m *push.Message) { m.Task.ID = "u" }, func(m *push.Message) { m.Workspace = "x" },
		func(m *push.Message) { m.Promise = &protocol.Promise{ID: "t é"} }, func(m *push.Message) { m.Promise = &protocol.Promise{ID: "t é"}; m.Address = "http://b/" },
	} {
		m := message("http://a/")
		change(&m)
		if ids[m.DeliveryID()] || !strings.HasPrefix(m.DeliveryID(), "msg_") {
			t.Errorf("%+v has the id of another message", m)
		}
		ids[m.DeliveryID()] = true
	}
}

// What the target answers, and what comes of it.
func TestAnswers(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	// The clock stands, so that a slow machine does not change how long "later" is.
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later := func(want int64) func(error) bool {
		return func(err error) bool {
			var l *push.LaterError
			return errors.As(err, &l) && l.AfterMs == want
		}
	}
	status := func(code int, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(code)
		}
	}
	says := func(text string) func(error) bool {
		return func(err error) bool {
			var l *push.LaterError
			return err != nil && strings.Contains(err.Error(), text) && !errors.As(err, &l) && !errors.Is(err, push.ErrRefused)
		}
	}
	fine := func(err error) bool { return err == nil }
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   func(error) bool
	}{
		"200":              {status(200), fine},
		"204":              {status(204), fine},
		"500":              {status(500), says("answered 500")},
		"404":              {status(404), says("answered 404")},
		"410":              {status(410), says("answered 410")},
		"503":              {status(503), says("answered 503")},
		"503 later":        {status(503, "Retry-After", "7"), later(7000)},
		"429 at a time":    {status(429, "Retry-After", now.Add(time.Hour).Format(http.TimeFormat)), later(3_600_000)},
		"429 in the past":  {status(429, "Retry-After", "Mon, 02 Jan 2006 15:04:05 GMT"), later(0)},
		"503 nonsense":     {status(503, "Retry-After", "soon"), says("answered 503")},
		"500 later":        {status(500, "Retry-After", "7"), says("answered 500")},
		"301":              {status(301, "Location", "/x"), says("307 or 308")},
		"303":              {status(303, "Location", "/x"), says("307 or 308")},
		"307 nowhere":      {status(307), says("redirects to what is no")},
		"307 elsewhere":    {status(307, "Location", "ftp://h/"), says("redirects to what is no")},
		"redirects always": {status(308, "Location", "/again"), says("more than 3 times")},
		"slow":             {func(w http.ResponseWriter, _ *http.Request) { time.Sleep(200 * time.Millisecond) }, fine},
		"hangs":            {func(_ http.ResponseWriter, r *http.Request) { <-hang }, says("did not answer in time")},
		"resets": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}, says("")},
		"no HTTP": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			_, _ = conn.Write([]byte("hello\r\n\r\n"))
			conn.Close()
		}, says("")},
		"breaks off in the body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, fine},
		"endless body": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}, fine},
		"body that never comes": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, fine},
		"endless header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, says("")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(c.answer)
			s.Config.ErrorLog = nil
			defer s.CloseClientConnections()
			tr := local(t, func(o *Options) {
				o.RequestTimeout, o.Now = time.Minute, func() time.Time { return now }
				if name == "hangs" {
					o.RequestTimeout = 500 * time.Millisecond
				}
			})
			var err error
			if name != "body that never comes" {
				err = tr.Send(t.Context(), message(s.URL))
			} else { // its head must come in time, however busy the machine is
				for timeout := 500 * time.Millisecond; timeout < 20*time.Second; timeout *= 2 {
					tr := local(t, func(o *Options) { o.RequestTimeout = timeout })
					if err = tr.Send(t.Context(), message(s.URL)); err == nil {
						break
					}
				}
			}
			if !c.want(err) {
				t.Errorf("%v", err)
			} else if err != nil && strings.Contains(err.Error(), s.URL) {
				t.Errorf("the error shows the URL: %v", err)
			}
		})
	}
	if err := local(t, nil).Send(t.Context(), message("http://127.0.0.1:1/")); err == nil || errors.Is(err, push.ErrRefused) {
		t.Errorf("nobody listens: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := local(t, nil).Send(ctx, message("http://127.0.0.1:1/")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A redirect keeps the message, is judged as its address, and is shown no credential that belongs to another host.
func TestRedirects(t *testing.T) {
	var auth, custom, body string
	end, reached := counted(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		auth, custom, body = r.Header.Get("Authorization"), r.Header.Get("X-Key"), r.Method+string(b)
	})
	to := ""
	first, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			auth, custom = r.Header.Get("Authorization"), r.Header.Get("X-Key")
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	withToken := func(header string) *Transport {
		return local(t, func(o *Options) { o.Mode, o.Token, o.Header = ModeBearer, "secret", header })
	}
	user := strings.Replace(first.URL, "http://", "http://me:pw@", 1)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:pw"))
	for _, c := range []struct {
		name         string
		tr           *Transport
		from, to     string
		auth, custom string
	}{
		{"same host", withToken(""), first.URL, "/end", "Bearer secret", ""},
		{"same host, own header", withToken("X-Key"), first.URL, "/end", "", "Bearer secret"},
		{"another port", withToken(""), first.URL, end.URL, "", ""},
		{"another port, own header", withToken("X-Key"), first.URL, end.URL, "", ""},
		{"user, same host", local(t, nil), user, "/end", basic, ""},
		{"user, another port", local(t, nil), user, end.URL, "", ""},
		{"user and token", withToken(""), user, "/end", "Bearer secret", ""},
		{"user in the redirect", local(t, nil), first.URL, strings.Replace(end.URL, "http://", "http://x:y@", 1), "", ""},
	} {
		auth, custom, body, to = "none", "none", "", c.to
		if err := c.tr.Send(t.Context(), message(c.from)); err != nil || auth != c.auth || custom != c.custom {
			t.Errorf("%s: %v, Authorization %q, X-Key %q", c.name, err, auth, custom)
		}
		if c.to != "/end" && body != `POST{"kind":"execute"}` {
			t.Errorf("%s: arrives as %q", c.name, body)
		}
	}
	before := reached.Load()
	to = strings.Replace(end.URL, "127.0.0.1", "127.0.0.2", 1)
	tr := local(t, func(o *Options) { o.Rules = rules(t, "127.0.0.1", "") })
	if err := tr.Send(t.Context(), message(first.URL)); !errors.Is(err, push.ErrRefused) || reached.Load() != before {
		t.Errorf("a redirect to a denied address: %v", err)
	}
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", end.URL)
		w.WriteHeader(http.StatusPermanentRedirect)
	}))
	defer secure.Close()
	pool := x509.NewCertPool()
	pool.AddCert(secure.Certificate())
	tr = local(t, func(o *Options) { o.RootCAs = pool })
	if err := tr.Send(t.Context(), message(secure.URL)); err == nil || !strings.Contains(err.Error(), "from https to http") || reached.Load() != before {
		t.Errorf("a redirect to http: %v", err)
	}
	if err := local(t, nil).Send(t.Context(), message(secure.URL)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that is not known: %v", err)
	}
}

// No request leaves without the credential that was asked for (scenario J8).
func TestCredentials(t *testing.T) {
	var auth string
	s, reached := counted(t, func(_ http.ResponseWriter, r *http.Request) { auth = r.Header.Get("Authorization") })
	audience := ""
	mint := func(token string, err error) func(context.Context, string) (string, error) {
		return func(_ context.Context, a string) (string, error) { audience = a; return token, err }
	}
	tr := local(t, func(o *Options) { o.Mode, o.IDToken = ModeGCP, mint("id", nil) })
	if err := tr.Send(t.Context(), message(strings.Replace(s.URL, "//", "//u:p@", 1)+"/f/x?secret=1")); err != nil || auth != "Bearer id" || audience != s.URL+"/f/x" {
		t.Errorf("%v, %q, audience %q", err, auth, audience)
	}
	tr = local(t, func(o *Options) { o.Mode, o.IDToken, o.Audience = ModeGCP, mint("id", nil), "them" })
	if err := tr.Send(t.Context(), message(s.URL)); err != nil || audience != "them" {
		t.Errorf("%v, audience %q", err, audience)
	}
	before := reached.Load()
	for _, m := range []func(context.Context, string) (string, error){mint("", errors.New("metadata is away")), mint("", nil)} {
		tr = local(t, func(o *Options) { o.Mode, o.IDToken = ModeGCP, m })
		if err := tr.Send(t.Context(), message(s.URL)); !errors.Is(err, push.ErrRefused) || reached.Load() != before {
			t.Errorf("%v, %d requests", err, reached.Load()-before)
		}
	}
	for _, o := range []Options{{Mode: ModeBearer}, {Mode: ModeHMAC}, {Mode: "other"}} {
		if _, err := New(o); err == nil {
			t.Errorf("mode %s without what it needs is accepted", o.Mode)
		}
	}
}

// The signature is the one that Standard Webhooks describes, worked out here once more from its text.
func TestSignatures(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	keys, err := ParseSecrets(secret + "\n, bm90aGluZyBidXQgYW4gZXhhbXBsZSBrZXk=")
	if err != nil || len(keys) != 2 {
		t.Fatal(err)
	}
	// The example of the specification's own libraries.
	if got := signature(keys[:1], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, []byte(`{"test": 2432232314}`)); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("signature %s", got)
	}
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		at, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
		if age := time.Since(time.Unix(at, 0)); err != nil || age < -time.Minute || age > time.Minute {
			t.Errorf("timestamp %s", r.Header.Get("webhook-timestamp"))
		}
		if r.Header.Get("webhook-id") != r.Header.Get("Abide-Delivery") {
			t.Errorf("two ids: %v", r.Header)
		}
		signed := strings.Fields(r.Header.Get("webhook-signature"))
		for i, encoded := range []string{strings.TrimPrefix(secret, "whsec_"), "bm90aGluZyBidXQgYW4gZXhhbXBsZSBrZXk="} {
			key, _ := base64.StdEncoding.DecodeString(encoded)
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(r.Header.Get("webhook-id") + "." + r.Header.Get("webhook-timestamp") + "." + string(body)))
			if len(signed) != 2 || signed[i] != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}
	})
	tr := local(t, func(o *Options) { o.Mode, o.Secrets = ModeHMAC, keys })
	if err := tr.Send(t.Context(), message(s.URL)); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", " , ", "whsec_", "whsec_!!!", "c2hvcnQ=", strings.Repeat("A", 4000), strings.Repeat(secret+" ", 9)} {
		if _, err := ParseSecrets(bad); err == nil {
			t.Errorf("%.20q is accepted", bad)
		} else if strings.Contains(err.Error(), "c2hvcnQ") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// What an error says to clients names no address: not of what a name stands for, not of a name server.
func TestErrorsTellNoAddresses(t *testing.T) {
	s, _ := counted(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	})
	_, reset, _ := net.SplitHostPort(s.Listener.Addr().String())
	const gone = "1" // a port that somebody had might be another test's by now
	resolver, _ := nameServer(t, "127.0.0.1")
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, c := range []struct {
		what, allow, port string
		change            func(*Options)
		want              string
	}{
		{"a private address", "", "80", nil, "refused: internal.example is not on the public Internet"},
		{"a port that nobody listens at", "internal.example", gone, nil, "connection refused"},
		{"a connection that is cut off", "internal.example", reset, nil, "reset"},
		{"a name server that is silent", "internal.example", "80", func(o *Options) {
			o.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return net.Dial("udp4", silent.LocalAddr().String())
			}}
			o.ConnectTimeout = 200 * time.Millisecond
		}, "time"},
		{"a proxy that is away", "internal.example", "80", func(o *Options) {
			o.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://user:secret@127.0.0.1:" + gone) }
		}, "connection refused"},
	} {
		o := options()
		o.Rules, o.Resolver = rules(t, c.allow, ""), resolver
		if c.change != nil {
			c.change(&o)
		}
		err := newTransport(t, o).Send(t.Context(), message("http://internal.example:"+c.port+"/?token=secret"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want that it says %q", c.what, err, c.want)
		} else if strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q tells too much", c.what, err)
		}
		if refused := errors.Is(err, push.ErrRefused); refused != (c.allow == "") {
			t.Errorf("%s: refused is %v", c.what, refused)
		}
	}
}

// A target that switches protocols, which nobody has asked for, has not taken the message, and its connection, which no
// deadline of a request ends any more, is not waited for.
func TestSwitchingProtocols(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed := make(chan struct{})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		close(closed)
	}()
	sent := make(chan error, 1)
	tr := local(t, nil)
	go func() { sent <- tr.Send(context.Background(), message("http://"+l.Addr().String())) }()
	select {
	case err := <-sent:
		if err == nil || !strings.Contains(err.Error(), "answered 101") {
			t.Error(err)
		}
		<-closed
	case <-time.After(2 * time.Minute): // twice what a send may take
		t.Error("the send does not end")
	}
}

func TestLanes(t *testing.T) {
	tr := local(t, nil)
	for address, want := range map[string]string{
		"http://h":                           "http://h:80",
		"HTTPS://U:P@Host/x?y":               "https://host:443",
		"http://h:8080/a":                    "http://h:8080",
		" http:\\\\h\\x ":                    "http://h:80",
		"http:h/x":                           "http://h:80",
		"http:///h/x":                        "http://h:80",
		"http://[::1]:9/":                    "http://[::1]:9",
		"ht\ntp://h/":                        "http://h:80",
		"http://h/%":                         "http://h:80",
		"http://0x7f.1":                      "http://127.0.0.1:80",
		"http://%48:81/a":                    "http://h:81",
		"http://É.example":                   "http://xn--9ca.example:80",
		"http://h%2fx/":                      "",
		"http://a..b/":                       "",
		"http://":                            "",
		"ftp://h":                            "",
		"http://" + strings.Repeat("x", 254): "",
	} {
		got, err := tr.Lane(protocol.Address{}, address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", address, got, err)
		}
	}
	// Whatever the protocol takes for an http address has a lane or is refused with a reason, and never panics.
	for _, address := range []string{"http://%41/", "http://é.example/", "http://h:/", "http://h?x", "http://0x7f.1/", "https://a_b/", "http://u@h"} {
		if a, err := protocol.ParseAddress(address); err != nil {
			t.Errorf("%q: %v", address, err)
		} else if lane, err := tr.Lane(a, address); lane == "" && err == nil || len(lane) > 255 {
			t.Errorf("%q: %q, %v", address, lane, err)
		}
	}
}
