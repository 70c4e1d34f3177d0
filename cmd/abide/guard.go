package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"abide/internal/api"
	"abide/internal/auth"
)

const (
	// guardOpenTimeout bounds the first look for keys.
	guardOpenTimeout = 30 * time.Second
	// certificateInterval is how often the files of TLS are read again.
	certificateInterval = 5 * time.Second
)

// guard is what stands in front of a server: tokens and TLS, each if its settings ask for it.
type guard struct {
	log          *slog.Logger
	verifier     *auth.Verifier
	auth         *api.Auth     // nil: nobody needs a token
	certificates *certificates // nil: no TLS
}

// openGuard loads keys and certificates. What cannot be loaded is an error: a server does not begin to serve with less
// protection than it was asked for.
func openGuard(logger *slog.Logger, s *serverSettings, debug bool) (*guard, error) {
	g := &guard{log: logger}
	if s.encrypts() {
		var err error
		if g.certificates, err = loadCertificates(s.tlsSettings, time.Now(), logger); err != nil {
			return nil, err
		}
	}
	if !s.authenticates() {
		return g, nil
	}
	if s.AuthPublicKey == auth.Unsigned {
		if !debug {
			return nil, usageError{errors.New("--auth-publickey none lets in whoever writes a token: it needs --debug, or abide dev")}
		}
		logger.Warn("signatures of tokens are not looked at: whoever writes a token is let in")
	}
	ctx, cancel := context.WithTimeout(context.Background(), guardOpenTimeout)
	defer cancel()
	var err error
	g.verifier, err = auth.Open(ctx, auth.Options{
		PublicKey: s.AuthPublicKey,
		JWKS:      s.AuthJWKS,
		Issuer:    s.AuthIss,
		Audience:  s.AuthAud,
		Leeway:    s.AuthLeeway.duration(),
		Refresh:   s.AuthJWKSRefresh.duration(),
		Now:       time.Now,
		Log:       logger,
	})
	if err != nil {
		return nil, fmt.Errorf("authentication is asked for and there is no key to verify tokens with: %w", err)
	}
	g.auth = &api.Auth{Verifier: g.verifier, Policy: auth.Policy{SharedGroups: s.AuthSharedGroups}, Now: time.Now}
	return g, nil
}

// run keeps keys and certificates up to date until ctx ends. A hang-up has all files read at once.
func (g *guard) run(ctx context.Context, hangUps <-chan os.Signal) {
	if g.verifier != nil {
		go g.verifier.Run(ctx)
	}
	ticks := time.NewTicker(certificateInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangUps:
			if g.verifier == nil && g.certificates == nil {
				g.log.Info("hang-up: there are no keys and no certificates to read again; the server runs on")
				continue
			}
			g.log.Info("hang-up: keys and certificates are read again")
			g.reload(ctx)
		case <-ticks.C:
			g.reloadCertificates()
		}
	}
}

// listener encrypts what l accepts, if TLS is on.
func (g *guard) listener(l net.Listener) net.Listener {
	if g.certificates == nil {
		return l
	}
	return g.certificates.listener(l)
}

func (g *guard) reload(ctx context.Context) {
	if g.certificates != nil {
		g.certificates.forget()
	}
	g.reloadCertificates()
	if g.verifier == nil {
		return
	}
	if err := g.verifier.Reload(ctx); err != nil {
		g.log.Error("keys could not be loaded; the last good ones stay in force", "error", err)
	}
}

func (g *guard) reloadCertificates() {
	if g.certificates == nil {
		return
	}
	if err := g.certificates.reload(time.Now()); err != nil {
		g.log.Error("the certificate could not be loaded; the last good one stays in force", "error", err)
	}
}
