package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"abide/internal/config"
)

// tlsSettings say how the listener is encrypted. Without a certificate it is not.
type tlsSettings struct {
	ServerTLSCert     string `setting:"server.tls.cert_file" name:"server-tls-cert" placeholder:"FILE" help:"Certificate of the server in PEM, with those that lead to its root; turns TLS on. Read again when it changes, and on SIGHUP."`
	ServerTLSKey      string `setting:"server.tls.key_file" name:"server-tls-key" placeholder:"FILE" help:"Private key of the certificate, in PEM."`
	ServerTLSClientCA string `setting:"server.tls.client_ca_file" name:"server-tls-client-ca" placeholder:"FILE" help:"Certificates in PEM, one of which must have signed the certificate that a client comes with. Without, clients need none."`
}

// encrypts reports whether TLS is on.
func (s *tlsSettings) encrypts() bool { return s.ServerTLSCert != "" }

// Validate checks the values.
func (s *tlsSettings) Validate() error {
	switch {
	case (s.ServerTLSCert == "") != (s.ServerTLSKey == ""):
		return errors.New("--server-tls-cert and --server-tls-key go together: give both or none")
	case s.ServerTLSClientCA != "" && s.ServerTLSCert == "":
		return errors.New("--server-tls-client-ca needs --server-tls-cert and --server-tls-key")
	}
	return nil
}

// certificates are the files of TLS, and what is in force of them.
type certificates struct {
	settings tlsSettings
	log      *slog.Logger
	current  atomic.Pointer[tls.Config]

	mu      sync.Mutex // guards what follows
	texts   [3][]byte  // what is in force
	failure string     // what was wrong at the last look
}

// loadCertificates reads the files. The error says which of them is bad and why.
func loadCertificates(settings tlsSettings, now time.Time, log *slog.Logger) (*certificates, error) {
	c := &certificates{settings: settings, log: log}
	return c, c.reload(now)
}

// reload reads the files again and puts them in force if they have changed and are good. Bad ones change nothing, and are
// an error once.
func (c *certificates) reload(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.take(now)
	last := c.failure
	if c.failure = ""; err == nil {
		return nil
	}
	if c.failure = err.Error(); c.failure == last {
		return nil
	}
	return err
}

// forget makes the next reload tell of what is wrong, also if it has been told.
func (c *certificates) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = ""
}

// take reads the files and puts them in force, unless they are the ones that are.
func (c *certificates) take(now time.Time) error {
	var texts [3][]byte
	for i, path := range []string{c.settings.ServerTLSCert, c.settings.ServerTLSKey, c.settings.ServerTLSClientCA} {
		if path == "" {
			continue
		}
		var err error
		if texts[i], err = config.ReadFile(path, maxCertificateBytes); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
	}
	if c.current.Load() != nil && slices.EqualFunc(texts[:], c.texts[:], bytes.Equal) {
		return nil
	}
	config, err := c.configFor(texts, now)
	if err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	c.texts = texts
	c.current.Store(config)
	return nil
}

func (c *certificates) configFor(texts [3][]byte, now time.Time) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", c.settings.ServerTLSCert, c.settings.ServerTLSKey, err)
	}
	leaf := pair.Leaf
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		c.log.Warn("the certificate is not valid now", "file", c.settings.ServerTLSCert, "from", leaf.NotBefore, "to", leaf.NotAfter)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"http/1.1"}, // what the server's deadlines and streams are made for
	}
	if c.settings.ServerTLSClientCA != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(texts[2]) {
			return nil, fmt.Errorf("%s: there is no certificate in it: it must hold PEM blocks CERTIFICATE", c.settings.ServerTLSClientCA)
		}
	}
	c.log.Info("certificate is loaded", "file", c.settings.ServerTLSCert, "to", leaf.NotAfter)
	return config, nil
}

// listener encrypts what l accepts. Every handshake takes the files that are in force then.
func (c *certificates) listener(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	})
}
