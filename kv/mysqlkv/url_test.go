package mysqlkv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]struct{ user, password, net, address, database string }{
		"mysql://root@127.0.0.1:3307/abide":                  {"root", "", "tcp", "127.0.0.1:3307", "abide"},
		"mysql://root@db.example/abide":                      {"root", "", "tcp", "db.example:3306", "abide"},
		"mariadb://u:p@[::1]:3307/abide":                     {"u", "p", "tcp", "[::1]:3307", "abide"},
		"mysql://u:p@[::1]/abide":                            {"u", "p", "tcp", "[::1]:3306", "abide"},
		"mysql://u:a%2Fb%40c%3A%5B1%5D%25@h/abide":           {"u", "a/b@c:[1]%", "tcp", "h:3306", "abide"},
		"mysql://u:[x]{y}@z:5%@h:1/abide":                    {"u", "[x]{y}@z:5%", "tcp", "h:1", "abide"},
		"mysql://u%40corp:p@h/with%20space":                  {"u@corp", "p", "tcp", "h:3306", "with space"},
		"mysql:///abide":                                     {"", "", "tcp", "127.0.0.1:3306", "abide"},
		"mysql://u@localhost/abide?socket=/run/m.sock":       {"u", "", "unix", "/run/m.sock", "abide"},
		"mysql://u@h/abide?charset=utf8mb4&timezone=%2B1":    {"u", "", "tcp", "h:3306", "abide"},
		"mysql://u@h/abide?ssl-mode=VERIFY_IDENTITY":         {"u", "", "tcp", "h:3306", "abide"},
		"mysql://u@h/abide?statement-cache-capacity=100":     {"u", "", "tcp", "h:3306", "abide"},
		"mysql://u@h/abide?ssl-mode=disabled&collation=what": {"u", "", "tcp", "h:3306", "abide"},
	} {
		a, err := parseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		c := a.config
		if c.User != want.user || c.Passwd != want.password || c.Net != want.net || c.Addr != want.address || c.DBName != want.database {
			t.Errorf("%s: user %q, password %q, %s %s, database %q", raw, c.User, c.Passwd, c.Net, c.Addr, c.DBName)
		}
		if want.password != "" && strings.Contains(a.shown, want.password) && len(want.password) > 1 {
			t.Errorf("%s is shown as %s", raw, a.shown)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noPEM, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		"":                                        "begin with mysql://",
		"postgres://h/abide":                      "begin with mysql://",
		"root:secret@tcp(127.0.0.1:3306)/abide":   "begin with mysql://",
		"mysql://u:secret@h":                      "names no database",
		"mysql://u:secret@h/":                     "names no database",
		"mysql://u:secret@h/a/b":                  "names no database",
		"mysql://u:sec/ret@h/abide":               "%2F",
		"mysql://u:sec?ret@h/abide":               "%3F",
		"mysql://u:secret@h/abide?autocommit=1":   `"autocommit"`,
		"mysql://u:secret@h/abide?ssl-mode=maybe": `"maybe"`,
		"mysql://u:secret@h/abide?a=%zz":          "do not decode",
		"mysql://u@h/abide?ssl-ca=/nowhere.pem":   "ssl-ca",
		"mysql://u@h/abide?ssl-ca=" + noPEM:       "no certificate",
		"mysql://u@h/abide?ssl-cert=/nowhere.pem": "ssl-cert",
	} {
		_, err := parseURL(raw)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s in it", raw, err, want)
		} else if strings.Contains(err.Error(), "ret") && strings.Contains(raw, "secret") && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the password: %v", raw, err)
		}
	}
}
