package pgkv_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv/pgkv"
)

// certificate makes a self-signed certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// A server that speaks TLS and nothing else is reached over it, and one with another certificate is not.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, oldest)
	cert, key := certificate(t)
	for name, text := range map[string][]byte{"server.crt": cert, "server.key": key} {
		mustExec(t, server.URL, fmt.Sprintf("COPY (SELECT unnest(string_to_array('%s', '|'))) TO PROGRAM 'umask 077; cat > %s'",
			strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "|"), name))
	}
	mustExec(t, server.URL, "ALTER SYSTEM SET ssl = on")
	mustExec(t, server.URL, "COPY (SELECT 'hostssl all all all trust') TO PROGRAM 'cat > pg_hba.conf'")
	mustExec(t, server.URL, "SELECT pg_reload_conf()")
	root, other := filepath.Join(t.TempDir(), "root.crt"), filepath.Join(t.TempDir(), "other.crt")
	if err := os.WriteFile(root, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign, _ := certificate(t)
	if err := os.WriteFile(other, foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	verified := strings.Replace(server.URL, "sslmode=disable", "sslmode=verify-full&sslrootcert=", 1)
	var s *pgkv.Store
	if err := testenv.Eventually(time.Minute, func() (err error) {
		s, err = pgkv.Open(context.Background(), pgkv.Options{URL: verified + root, Now: time.Now})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var l ledger
	if err := l.run(s); err != nil {
		t.Error(err)
	}
	for what, url := range map[string]string{"another authority": verified + other, "no TLS": server.URL} {
		if _, err := pgkv.Open(context.Background(), pgkv.Options{URL: url, Now: time.Now}); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	l.check(t, s, s)
}
