package mysqlkv

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Time limits of every connection. A statement of the writer waits for a lock for lockWaitSeconds at most, and
// then for one sync.
const (
	dialTimeout = 5 * time.Second
	ioTimeout   = 10 * time.Second
)

// address is what a URL says.
type address struct {
	config *mysql.Config
	// shown is the URL without user, password and parameters, for logs and errors.
	shown string
}

// errURL begins the errors of parseURL, none of which shows the URL: it holds a password.
var errURL = errors.New("mysql: the URL must be mysql://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS")

// parseURL reads mysql://user:password@host:port/database?parameters. User, password and database are
// percent-decoded where they are percent-encoded; a password may hold anything but '/', '?' and '#' as it is. The
// port is 3306 unless it is given.
//
// Parameters: socket (the path of a unix socket, instead of host and port), ssl-mode (disabled, preferred, required,
// verify_ca, verify_identity; preferred unless it is given), ssl-ca, ssl-cert, ssl-key (paths of PEM files). For the
// sake of URLs that other programs use too, charset, collation, timezone and statement-cache-capacity are accepted;
// they mean nothing to this engine.
func parseURL(raw string) (address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || (scheme != "mysql" && scheme != "mariadb") {
		return address{}, fmt.Errorf("%w: it does not begin with mysql://", errURL)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, database, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(database+query, "@") && !strings.Contains(authority, "@") {
		return address{}, fmt.Errorf("%w: '/' and '?' in a user or password must be written as %%2F and %%3F", errURL)
	}
	c := mysql.NewConfig()
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		c.User, c.Passwd = unescape(user), unescape(password)
		authority = authority[at+1:]
	}
	c.Net, c.Addr, c.DBName = "tcp", authority, unescape(database)
	if authority == "" {
		c.Addr = "127.0.0.1"
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		c.Addr = net.JoinHostPort(strings.Trim(c.Addr, "[]"), "3306")
	}
	if c.DBName == "" || strings.Contains(c.DBName, "/") {
		return address{}, fmt.Errorf("%w: it names no database, as in mysql://HOST/abide", errURL)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return address{}, fmt.Errorf("%w: its parameters do not decode", errURL)
	}
	if err := setParameters(c, values); err != nil {
		return address{}, err
	}
	c.Timeout, c.ReadTimeout, c.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	// Scripts are split by what the server accepts; see session.packetBytes.
	c.MultiStatements, c.MaxAllowedPacket = true, 1<<30
	c.Logger = &mysql.NopLogger{} // every failure comes as an error too
	return address{config: c, shown: fmt.Sprintf("mysql://%s/%s", c.Addr, c.DBName)}, nil
}

// unescape decodes percent escapes; what is none is left as it is.
func unescape(s string) string {
	if decoded, err := url.PathUnescape(s); err == nil {
		return decoded
	}
	return s
}

func setParameters(c *mysql.Config, values url.Values) error {
	mode := "preferred"
	files := map[string]string{}
	for name := range values {
		value := values.Get(name)
		switch name {
		case "socket":
			c.Net, c.Addr = "unix", value
		case "ssl-mode", "sslmode":
			mode = strings.ReplaceAll(strings.ToLower(value), "-", "_")
		case "ssl-ca", "ssl-cert", "ssl-key":
			files[name] = value
		case "charset", "collation", "timezone", "statement-cache-capacity":
		default:
			return fmt.Errorf("%w: the parameter %q is not one of socket, ssl-mode, ssl-ca, ssl-cert, ssl-key", errURL, name)
		}
	}
	if c.Net == "unix" {
		return nil // what stays on the machine is not encrypted
	}
	return setTLS(c, mode, files)
}

func setTLS(c *mysql.Config, mode string, files map[string]string) error {
	host, _, _ := net.SplitHostPort(c.Addr)
	t := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, CipherSuites: cipherSuites()}
	if path := files["ssl-ca"]; path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("mysql: ssl-ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("mysql: ssl-ca: %s holds no certificate in PEM", path)
		}
	}
	if files["ssl-cert"] != "" || files["ssl-key"] != "" {
		pair, err := tls.LoadX509KeyPair(files["ssl-cert"], files["ssl-key"])
		if err != nil {
			return fmt.Errorf("mysql: ssl-cert and ssl-key: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	switch mode {
	case "disabled":
		return nil
	case "preferred":
		c.AllowFallbackToPlaintext = true
		t.InsecureSkipVerify = true
	case "required":
		t.InsecureSkipVerify = true
	case "verify_ca":
		t.InsecureSkipVerify, t.VerifyConnection = true, verifyChain(t.RootCAs)
	case "verify_identity":
	default:
		return fmt.Errorf("%w: ssl-mode is %q, want disabled, preferred, required, verify_ca or verify_identity", errURL, mode)
	}
	c.TLS = t
	return nil
}

// cipherSuites are Go's own choice, and behind them two that early releases of MySQL 8.0 need: those exchange keys by RSA
// or not at all.
func cipherSuites() []uint16 {
	var suites []uint16
	for _, s := range tls.CipherSuites() {
		suites = append(suites, s.ID)
	}
	return append(suites, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384)
}

// verifyChain checks that a known authority has signed the server's certificate, whatever its name.
func verifyChain(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(c)
		}
		_, err := state.PeerCertificates[0].Verify(options)
		return err
	}
}
