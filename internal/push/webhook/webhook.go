// Package webhook pushes messages to HTTP endpoints: to functions that run a task inside the request, and to whoever
// listens for a promise. One message is one POST; an answer 2xx takes it. (docs/push.md)
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"abide/internal/push"
	"abide/protocol"
)

// Mode is how the server shows who it is.
type Mode string

// The modes.
const (
	ModeNone   Mode = "none"
	ModeBearer Mode = "bearer" // a fixed token
	ModeGCP    Mode = "gcp"    // an ID token of Google's
	ModeHMAC   Mode = "hmac"   // a signature as Standard Webhooks describes it
)

const (
	// maxRedirects is how many redirects of one send are followed.
	maxRedirects = 3
	// maxAnswerBytes is how much of an answer is read, so that its connection can be used again.
	maxAnswerBytes = 64 << 10
	// answerTimeout is how long the rest of an answer is waited for, once its status has decided.
	answerTimeout = time.Second
	// idleTimeout is how long an unused connection is kept.
	idleTimeout = time.Minute
	// maxIdle is how many of them are kept.
	maxIdle = 1024

	headerDelivery  = "Abide-Delivery"
	headerAttempt   = "Abide-Attempt"
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Options are what a Transport is made from.
type Options struct {
	Version string // of the binary, for User-Agent
	// Concurrency is how many requests one host is sent at once, at least 1.
	Concurrency int
	// ConnectTimeout bounds the making of a connection, RequestTimeout a send with all its redirects.
	ConnectTimeout, RequestTimeout time.Duration
	Rules                          Rules
	// RootCAs are who signs the certificates of hosts; nil for the system's.
	RootCAs *x509.CertPool
	// Proxy says which proxy a request goes through, as http.ProxyFromEnvironment does; nil for none.
	Proxy func(*http.Request) (*url.URL, error)

	Mode Mode
	// Header is where ModeBearer and ModeGCP put their token; "" is Authorization.
	Header string
	// Token is that of ModeBearer.
	Token string
	// Audience is what ModeGCP asks tokens for; "" is the address's URL, without user, query and fragment.
	Audience string
	// IDToken mints the tokens of ModeGCP; nil takes the application default credentials.
	IDToken func(ctx context.Context, audience string) (string, error)
	// Secrets are the keys of ModeHMAC.
	Secrets [][]byte

	// Now is the wall clock, for signatures and for what Retry-After says.
	Now func() time.Time
	// Resolver looks up names; nil is the system's.
	Resolver *net.Resolver
}

// Transport sends messages to http and https addresses. It implements push.Transport.
type Transport struct {
	options Options
	guard   *guard
	direct  *http.Transport
	proxied *http.Transport // its connections go to proxies, which the rules do not cover
}

var _ push.Transport = (*Transport)(nil)

// New makes a transport. The error says what is missing for the mode.
func New(o Options) (*Transport, error) {
	switch {
	case o.Mode == ModeBearer && o.Token == "":
		return nil, errNoToken
	case o.Mode == ModeHMAC && len(o.Secrets) == 0:
		return nil, errors.New("the mode hmac needs a secret")
	case o.Mode != ModeNone && o.Mode != ModeBearer && o.Mode != ModeGCP && o.Mode != ModeHMAC:
		return nil, fmt.Errorf("%q is no mode: use none, bearer, gcp or hmac", o.Mode)
	}
	if o.Header == "" {
		o.Header = "Authorization"
	}
	if o.IDToken == nil {
		o.IDToken = (&idTokens{}).token
	}
	g := &guard{rules: o.Rules, timeout: o.ConnectTimeout, resolver: o.Resolver}
	t := &Transport{options: o, guard: g}
	t.direct, t.proxied = t.newHTTP(g.dial), t.newHTTP((&net.Dialer{Timeout: o.ConnectTimeout, Resolver: o.Resolver}).DialContext)
	t.proxied.Proxy = o.Proxy
	return t, nil
}

func (t *Transport) newHTTP(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{RootCAs: t.options.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    t.options.ConnectTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    max(1, t.options.Concurrency),
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxAnswerBytes,
	}
}

// Lane implements push.Transport: the scheme, host and port.
func (t *Transport) Lane(_ protocol.Address, text string) (string, error) {
	u, err := parseTarget(text)
	if err != nil {
		return "", err
	}
	lane := origin(u)
	if len(lane) > 255 {
		return "", errors.New("its host is too long")
	}
	return lane, nil
}

// Concurrency implements push.Transport.
func (t *Transport) Concurrency(string) int { return max(1, t.options.Concurrency) }

// Close implements push.Transport.
func (t *Transport) Close(context.Context) error {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
	return nil
}

// Send implements push.Transport.
func (t *Transport) Send(ctx context.Context, m push.Message) error {
	target, err := parseTarget(m.Address)
	if err != nil {
		return fmt.Errorf("%w: %w", push.ErrRefused, err)
	}
	ctx, cancel := context.WithTimeout(ctx, t.options.RequestTimeout)
	defer cancel()
	first := target
	for range maxRedirects + 1 {
		next, err := t.post(ctx, target, m, origin(first) == origin(target))
		if err != nil {
			return bare(err)
		}
		if next == nil {
			return nil
		}
		target = next
	}
	return fmt.Errorf("the target has redirected more than %d times", maxRedirects)
}

// bare is an error without the URL, whose query may be a secret, and without the addresses of what was connected to or
// asked: clients may see it, and how the networks around the server are laid out is none of their business.
func bare(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		what := "its name could not be looked up"
		switch {
		case lookup.IsNotFound:
			what = "there is no such host"
		case lookup.IsTimeout:
			what = "its name could not be looked up in time"
		}
		return errors.New(what)
	}
	var op *net.OpError
	for errors.As(err, &op) {
		if err = op.Err; !errors.As(err, new(*net.OpError)) && !errors.Is(err, push.ErrRefused) {
			err = fmt.Errorf("%s: %w", op.Op, err)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the target did not answer in time: %w", err)
	}
	return err
}

// post makes one request. It returns where the target sends the message instead, or nil if it has taken it. own says that
// the request goes to the host that the address names, which alone is shown credentials.
func (t *Transport) post(ctx context.Context, target *url.URL, m push.Message, own bool) (next *url.URL, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(m.Body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", push.ErrRefused, bare(err))
	}
	if err := t.fill(ctx, request, m, own); err != nil {
		return nil, err
	}
	answer, err := t.round(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	// What the answer says does not matter, only that its connection can be used again. After a 101 there is no answer, but
	// a connection that no deadline ends any more.
	if answer.StatusCode != http.StatusSwitchingProtocols {
		defer time.AfterFunc(answerTimeout, cancel).Stop()
		_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswerBytes))
	}
	switch status := answer.StatusCode; {
	case status >= 200 && status < 300:
		return nil, nil
	case status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect:
		return redirected(target, answer.Header.Get("Location"))
	case status >= 300 && status < 400:
		return nil, fmt.Errorf("the target answered %d; a redirect that keeps the message is 307 or 308", status)
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		err := fmt.Errorf("the target answered %d", status)
		if afterMs, ok := retryAfter(answer.Header.Get("Retry-After"), t.options.Now); ok {
			return nil, &push.LaterError{Err: err, AfterMs: afterMs}
		}
		return nil, err
	default:
		return nil, fmt.Errorf("the target answered %d", status)
	}
}

// fill adds the headers.
func (t *Transport) fill(ctx context.Context, request *http.Request, m push.Message, own bool) error {
	h, id := request.Header, m.DeliveryID()
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "abide/"+t.options.Version)
	h.Set(headerDelivery, id)
	h.Set(headerAttempt, strconv.Itoa(m.Attempt))
	if m.Trace != nil {
		h.Set("Traceparent", string(m.Trace.AppendParent(nil)))
		if m.Trace.State != "" {
			h.Set("Tracestate", m.Trace.State)
		}
	}
	if t.options.Mode == ModeHMAC {
		at := t.options.Now().Unix()
		h.Set(headerID, id)
		h.Set(headerTimestamp, strconv.FormatInt(at, 10))
		h.Set(headerSignature, signature(t.options.Secrets, id, at, m.Body))
	}
	if !own {
		request.URL.User = nil
		return nil
	}
	token := t.options.Token
	switch t.options.Mode {
	case ModeGCP:
		var err error
		if token, err = t.mint(ctx, request.URL); err != nil {
			return err
		}
	case ModeBearer:
	default:
		return nil
	}
	h.Set(t.options.Header, "Bearer "+token)
	return nil
}

// round makes the request, through a proxy if there is one for it.
func (t *Transport) round(request *http.Request) (*http.Response, error) {
	if t.options.Proxy != nil {
		proxy, err := t.options.Proxy(request)
		if err != nil {
			return nil, fmt.Errorf("the proxy's address is wrong: %w", err)
		}
		if proxy != nil {
			if err := t.guard.checkProxied(request.Context(), request.URL); err != nil {
				return nil, err
			}
			return t.through(t.proxied, request)
		}
	}
	return t.through(t.direct, request)
}

// through makes the request by one of the transports, with the address's user as basic authentication unless a token stands
// in its place. http.Client is not used: it follows redirects by other rules than ours.
func (t *Transport) through(by *http.Transport, request *http.Request) (*http.Response, error) {
	if user := request.URL.User; user != nil {
		if request.Header.Get("Authorization") == "" {
			password, _ := user.Password()
			request.SetBasicAuth(user.Username(), password)
		}
		request.URL.User = nil
	}
	return by.RoundTrip(request)
}

// redirected is where a redirect leads. It is read as an address is, so that the rules judge the one spelling of its host that a
// proxy is then asked for.
func redirected(from *url.URL, location string) (*url.URL, error) {
	to, err := from.Parse(location)
	if err == nil && location != "" {
		to, err = parseTarget(to.String())
	}
	switch {
	case err != nil || location == "":
		return nil, errors.New("the target redirects to what is no http or https URL")
	case from.Scheme == "https" && to.Scheme == "http":
		return nil, errors.New("the target redirects from https to http")
	}
	to.User = nil
	if origin(to) == origin(from) {
		to.User = from.User
	}
	return to, nil
}

// retryAfter reads a Retry-After header: seconds, or a date.
func retryAfter(text string, now func() time.Time) (ms int64, ok bool) {
	const most = 1 << 31 // seconds; more means never, and is bounded by push
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds >= 0 {
		return min(seconds, most) * 1000, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now()).Milliseconds()), true
	}
	return 0, false
}
