package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"abide/internal/config"
	"abide/internal/deliver"
	"abide/internal/engine"
	"abide/internal/push"
	"abide/internal/push/webhook"
	"abide/internal/trace"
)

// switched is a setting that is on or off, and whose flag takes true or false, as the reference's do.
type switched bool

// UnmarshalText parses true or false; kong calls it.
func (s *switched) UnmarshalText(text []byte) error {
	on, err := strconv.ParseBool(string(text))
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	*s = switched(on)
	return nil
}

// pushSettings say how messages go to http and https addresses.
type pushSettings struct {
	HTTPPushEnabled        switched     `setting:"transports.http_push.enabled" name:"transports-http-push-enabled" default:"true" placeholder:"true|false" help:"Send messages to http and https addresses. Off, they stay queued."`
	HTTPPushConcurrency    int          `setting:"transports.http_push.concurrency" name:"transports-http-push-concurrency" default:"256" placeholder:"N" help:"Requests that one host is sent at once."`
	HTTPPushMaxOutstanding int          `setting:"transports.http_push.max_outstanding" name:"transports-http-push-max-outstanding" default:"1024" placeholder:"N" help:"Messages that are on their way at once, to all hosts and by all transports together."`
	HTTPPushConnectTimeout milliseconds `setting:"transports.http_push.connect_timeout" name:"transports-http-push-connect-timeout" default:"10s" placeholder:"DURATION" help:"How long the making of a connection may take."`
	HTTPPushRequestTimeout milliseconds `setting:"transports.http_push.request_timeout" name:"transports-http-push-request-timeout" default:"3m" placeholder:"DURATION" help:"How long a request may take, with the answer: a function may run inside it."`
	HTTPPushAllow          []string     `setting:"transports.http_push.allow" name:"transports-http-push-allow" placeholder:"RULE" sep:"," help:"Host, *.suffix, address or CIDR that messages may go to, or * for every public address; repeatable. Without any, public addresses alone; with --debug, or in abide dev, all."`
	HTTPPushDeny           []string     `setting:"transports.http_push.deny" name:"transports-http-push-deny" placeholder:"RULE" sep:"," help:"The same of what they may not go to, whatever is allowed; repeatable."`
	HTTPPushCAFile         string       `setting:"transports.http_push.ca_file" name:"transports-http-push-ca-file" placeholder:"FILE" help:"Certificates in PEM of further authorities that hosts are trusted by, besides the system's."`
	HTTPPushAuthMode       string       `setting:"transports.http_push.auth.mode" name:"transports-http-push-auth-mode" default:"none" words:"none,bearer,gcp,hmac" placeholder:"MODE" help:"How requests show who sends them: none, bearer (a token), gcp (an ID token of Google's) or hmac (a signature as Standard Webhooks describes it)."`
	HTTPPushAuthToken      string       `setting:"transports.http_push.auth.token" secret:"" name:"transports-http-push-auth-token" placeholder:"TOKEN" help:"The token of the mode bearer."`
	HTTPPushAuthAudience   string       `setting:"transports.http_push.auth.audience" name:"transports-http-push-auth-aud" placeholder:"AUDIENCE" help:"Audience of the tokens of the mode gcp; by default the address's URL."`
	HTTPPushAuthHeader     string       `setting:"transports.http_push.auth.header" name:"transports-http-push-auth-header" default:"Authorization" placeholder:"NAME" help:"Header of the token of the modes bearer and gcp."`
	HTTPPushAuthSecret     string       `setting:"transports.http_push.auth.secret" secret:"" name:"transports-http-push-auth-secret" placeholder:"SECRET" help:"Secret of the mode hmac, as whsec_ and base64; several with blanks between them while they are changed."`
}

// headerLetters are what names of headers are made of.
const headerLetters = "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~"

// Limits of settings, checked at start.
const (
	maxPushConcurrency = 10_000
	maxPushOutstanding = 100_000
	maxTokenBytes      = 16 << 10
)

// Validate checks the values.
func (s *pushSettings) Validate() error {
	counts := []struct {
		flag       string
		value, max int
	}{
		{"transports-http-push-concurrency", s.HTTPPushConcurrency, maxPushConcurrency},
		{"transports-http-push-max-outstanding", s.HTTPPushMaxOutstanding, maxPushOutstanding},
	}
	for _, c := range counts {
		if c.value < 1 || c.value > c.max {
			return fmt.Errorf("--%s is %d: it must be from 1 to %d", c.flag, c.value, c.max)
		}
	}
	if s.HTTPPushConnectTimeout < 1 || s.HTTPPushRequestTimeout < 1 {
		return errors.New("--transports-http-push-connect-timeout and --transports-http-push-request-timeout must be at least 1 ms")
	}
	if _, err := webhook.ParseRules(s.HTTPPushAllow, nil); err != nil {
		return fmt.Errorf("--transports-http-push-allow: %w", err)
	}
	if _, err := webhook.ParseRules(nil, s.HTTPPushDeny); err != nil {
		return fmt.Errorf("--transports-http-push-deny: %w", err)
	}
	return s.validateAuth()
}

func (s *pushSettings) validateAuth() error {
	mode := webhook.Mode(s.HTTPPushAuthMode)
	switch mode {
	case webhook.ModeNone, webhook.ModeBearer, webhook.ModeGCP, webhook.ModeHMAC:
	default:
		return fmt.Errorf("--transports-http-push-auth-mode is %q: use none, bearer, gcp or hmac", s.HTTPPushAuthMode)
	}
	token := s.HTTPPushAuthToken
	switch {
	case (mode == webhook.ModeBearer) != (token != ""):
		return errors.New("--transports-http-push-auth-mode bearer and --transports-http-push-auth-token go together: give both or none")
	case len(token) > maxTokenBytes || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("--transports-http-push-auth-token must be printable ASCII without blanks, of at most %d bytes", maxTokenBytes)
	case s.HTTPPushAuthHeader == "" || strings.Trim(strings.ToLower(s.HTTPPushAuthHeader), headerLetters) != "":
		return fmt.Errorf("--transports-http-push-auth-header is %q: it must be the name of a header", s.HTTPPushAuthHeader)
	case s.HTTPPushAuthAudience != "" && mode != webhook.ModeGCP:
		return errors.New("--transports-http-push-auth-aud is for the mode gcp alone")
	case (mode == webhook.ModeHMAC) != (s.HTTPPushAuthSecret != ""):
		return errors.New("--transports-http-push-auth-mode hmac and --transports-http-push-auth-secret go together: give both or none")
	}
	if mode == webhook.ModeHMAC {
		if _, err := webhook.ParseSecrets(s.HTTPPushAuthSecret); err != nil {
			return fmt.Errorf("--transports-http-push-auth-secret: %w", err)
		}
	}
	return nil
}

// everywhere are the rules of a developer's server: its functions run on the same machine.
var everywhere = []string{"*", "0.0.0.0/0", "::/0"}

// httpPush makes the transport of http and https addresses.
func (s *pushSettings) httpPush(logger *slog.Logger, debug bool) (*webhook.Transport, error) {
	allow := s.HTTPPushAllow
	if len(allow) == 0 && debug {
		allow = everywhere
	}
	rules, err := webhook.ParseRules(allow, s.HTTPPushDeny)
	if err != nil {
		return nil, err
	}
	roots, err := s.authorities()
	if err != nil {
		return nil, err
	}
	o := webhook.Options{
		Version:        buildVersion(),
		Concurrency:    s.HTTPPushConcurrency,
		ConnectTimeout: s.HTTPPushConnectTimeout.duration(),
		RequestTimeout: s.HTTPPushRequestTimeout.duration(),
		Rules:          rules,
		RootCAs:        roots,
		Proxy:          http.ProxyFromEnvironment,
		Mode:           webhook.Mode(s.HTTPPushAuthMode),
		Header:         s.HTTPPushAuthHeader,
		Token:          s.HTTPPushAuthToken,
		Audience:       s.HTTPPushAuthAudience,
		Now:            time.Now,
	}
	if o.Mode == webhook.ModeHMAC {
		if o.Secrets, err = webhook.ParseSecrets(s.HTTPPushAuthSecret); err != nil {
			return nil, err
		}
	}
	if (o.Mode == webhook.ModeBearer || o.Mode == webhook.ModeGCP) && len(s.HTTPPushAllow) == 0 {
		logger.Warn("whoever may create promises chooses which hosts are shown the server's token: name the hosts with transports.http_push.allow")
	}
	return webhook.New(o)
}

// authorities are the system's and those of the file; nil for the system's alone.
func (s *pushSettings) authorities() (*x509.CertPool, error) {
	if s.HTTPPushCAFile == "" {
		return nil, nil
	}
	text, err := config.ReadFile(s.HTTPPushCAFile, maxCertificateBytes)
	if err != nil {
		return nil, fmt.Errorf("transports.http_push.ca_file: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("transports.http_push.ca_file: %s holds no certificate in PEM", s.HTTPPushCAFile)
	}
	return roots, nil
}

// newPush starts what sends messages to addresses that are no poll address.
func newPush(logger *slog.Logger, o serverOptions, e *engine.Engine, tracer *trace.Tracer) (*push.Pusher, error) {
	var served []push.Served
	if o.settings.HTTPPushEnabled {
		t, err := o.settings.httpPush(logger, o.debug)
		if err != nil {
			return nil, err
		}
		served = append(served, push.Served{Name: "http", Schemes: []string{"http", "https"}, Transport: t})
	}
	others, err := o.settings.otherTransports(logger, o, e)
	if err != nil {
		return nil, err
	}
	served = append(served, others...)
	base := o.settings.baseURL(portOf(o.listeners[0]))
	started := time.Now()
	return push.New(push.Options{
		Outbox:     e.Addresses(),
		Transports: served,
		ServerURL:  func(workspace string) string { return workspaceURL(base, workspace) },
		NowMs:      func() int64 { return time.Since(started).Milliseconds() },
		Logger:     logger,
		Tracer:     tracer,
		Limits: push.Limits{
			MaxOutstanding: o.settings.HTTPPushMaxOutstanding,
			PollMs:         int64(o.settings.MessagesPollInterval),
		},
	}), nil
}

// pushStopShare is which part of the time that a stop may take is kept for reporting what was accepted, and for the store.
const pushStopShare = 4

// stopPush ends push within timeout, of which ctx is what is left.
func stopPush(ctx context.Context, p *push.Pusher, timeout time.Duration) error {
	sends, cancel := context.WithTimeout(ctx, timeout-timeout/pushStopShare)
	defer cancel()
	return p.Stop(ctx, sends)
}

// hints hands what the engine says of messages to both who send them.
type hints struct {
	delivery *deliver.Deliverer
	push     *push.Pusher
}

// HintExecute implements deliver.Hints.
func (h hints) HintExecute(e deliver.Execute) {
	h.delivery.HintExecute(e)
	h.push.HintExecute(e)
}

// HintClaimed implements deliver.Hints.
func (h hints) HintClaimed(workspace, id string, version int64) {
	h.delivery.HintClaimed(workspace, id, version)
	h.push.HintClaimed(workspace, id, version)
}

// HintUnblock implements deliver.Hints.
func (h hints) HintUnblock(workspace string, ref deliver.UnblockRef) {
	h.delivery.HintUnblock(workspace, ref)
	h.push.HintUnblock(workspace, ref)
}
