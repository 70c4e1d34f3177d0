package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key, a.pem = a.sign("authority", true)
	return a
}

func (a *authority) sign(name string, isCA bool) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: isCA, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair is a certificate and its key, in PEM.
func (a *authority) pair(name string) (cert, key []byte) {
	a.t.Helper()
	_, private, cert := a.sign(name, false)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// files writes a pair and an authority and returns the settings that name them.
func files(t *testing.T, cert, key, ca []byte) tlsSettings {
	t.Helper()
	folder := t.TempDir()
	s := tlsSettings{ServerTLSCert: filepath.Join(folder, "cert.pem"), ServerTLSKey: filepath.Join(folder, "key.pem")}
	put(t, s.ServerTLSCert, cert)
	put(t, s.ServerTLSKey, key)
	if ca != nil {
		s.ServerTLSClientCA = filepath.Join(folder, "ca.pem")
		put(t, s.ServerTLSClientCA, ca)
	}
	return s
}

func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// greet makes a handshake and returns the name of the server's certificate.
func greet(address string, config *tls.Config) (name string, err error) {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// A server refuses a client's certificate after the client has finished.
	if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	if _, err := io.ReadAll(conn); err != nil {
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// served runs an encrypted listener.
func served(t *testing.T, c *certificates) string {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go func() { _ = server.Serve(c.listener(plain)) }()
	t.Cleanup(func() { _ = server.Close() })
	return plain.Addr().String()
}

// A certificate that is replaced is used from the next handshake on; one that is bad, half written or gone changes
// nothing, and is told of once.
func TestCertificatesAreReloaded(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.pair("first")
	s := files(t, cert, key, nil)
	c, err := loadCertificates(s, time.Now(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	address := served(t, c)
	expect := func(name string) {
		t.Helper()
		if got, err := greet(address, &tls.Config{RootCAs: a.pool()}); err != nil || got != name {
			t.Errorf("served %q, %v, want %q", got, err, name)
		}
	}
	expect("first")
	cert2, key2 := a.pair("second")
	put(t, s.ServerTLSCert, cert2) // the key is still that of the first
	if err := c.reload(time.Now()); err == nil || !strings.Contains(err.Error(), "cert.pem") {
		t.Errorf("a certificate without its key: %v", err)
	}
	if err := c.reload(time.Now()); err != nil {
		t.Errorf("told again: %v", err)
	}
	c.forget()
	if err := c.reload(time.Now()); err == nil {
		t.Error("not told on request")
	}
	expect("first")
	put(t, s.ServerTLSKey, key2)
	if err := c.reload(time.Now()); err != nil {
		t.Error(err)
	}
	expect("second")
	for _, bad := range [][]byte{nil, []byte("junk"), cert2[:len(cert2)/2]} {
		put(t, s.ServerTLSCert, bad)
		if err := c.reload(time.Now()); err == nil {
			c.forget() // the messages may be the same
		}
		expect("second")
	}
	if err := os.Remove(s.ServerTLSKey); err != nil {
		t.Fatal(err)
	}
	if err := c.reload(time.Now()); err == nil {
		t.Error("a file that is gone is no error")
	}
	expect("second")
	put(t, s.ServerTLSCert, cert)
	put(t, s.ServerTLSKey, key)
	if err := c.reload(time.Now()); err != nil {
		t.Error(err)
	}
	expect("first")
}

func TestCertificatesThatCannotBeLoaded(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.pair("x")
	_, other := a.pair("y")
	for name, s := range map[string]tlsSettings{
		"mismatch": files(t, cert, other, nil), "empty": files(t, nil, nil, nil), "no authority": files(t, cert, key, []byte("junk")), "swapped": files(t, key, cert, nil),
	} {
		if _, err := loadCertificates(s, time.Now(), slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "TLS: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var log bytes.Buffer
	if _, err := loadCertificates(files(t, cert, key, nil), time.Now().Add(24*time.Hour), slog.New(slog.NewTextHandler(&log, nil))); err != nil || !strings.Contains(log.String(), "not valid now") {
		t.Errorf("an expired certificate: %v, %s", err, log.String())
	}
}

func TestVersionsOfTLS(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.pair("x")
	c, err := loadCertificates(files(t, cert, key, nil), time.Now(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	address := served(t, c)
	for version, good := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		_, err := greet(address, &tls.Config{RootCAs: a.pool(), MinVersion: version, MaxVersion: version})
		if (err == nil) != good {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}

// With an authority for clients only those that it knows get in, and from a reload on those of the new one.
func TestClientCertificates(t *testing.T) {
	servers, clients, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	cert, key := servers.pair("x")
	s := files(t, cert, key, clients.pem)
	c, err := loadCertificates(s, time.Now(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	address := served(t, c)
	try := func(a *authority) error {
		config := &tls.Config{RootCAs: servers.pool()}
		if a != nil {
			cert, key := a.pair("client")
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		_, err := greet(address, config)
		return err
	}
	if err := try(clients); err != nil {
		t.Errorf("a known client: %v", err)
	}
	if try(strangers) == nil || try(nil) == nil {
		t.Error("a stranger, or who has no certificate, gets in")
	}
	put(t, s.ServerTLSClientCA, strangers.pem)
	if err := c.reload(time.Now()); err != nil {
		t.Fatal(err)
	}
	if try(strangers) != nil || try(clients) == nil {
		t.Error("the new authority is not the one that counts")
	}
}
