package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeIn writes a file into a new folder and returns its path.
func writeIn(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A configuration of the reference server is taken as it is.
const referenceFile = `
level = "debug"

[server]
host = "example.org"
port = 9001
bind = "127.0.0.1"
shutdown_timeout = 5000
cors = { allow_origins = ["https://a.example", "https://b.example"] }

[storage]
type = "sqlite"
[storage.sqlite]
path = "x.db"

[tasks]
lease_timeout = 15000
retry_timeout = 500

[transports.http_push]
enabled = true
concurrency = 16
[transports.http_push.auth]
mode = "none"
[transports.http_poll]
enabled = true
max_connections = 50
buffer_size = 10

[observability]
otlp_endpoint = "localhost:4317"
`

func TestReferenceFileIsAccepted(t *testing.T) {
	path := writeIn(t, "resonate.toml", referenceFile)
	s, env := parsed(t, nil, "--config", path)
	if s.ServerPort != 9001 || s.ServerHost != "example.org" || s.ServerShutdownTimeout != 5000 || s.StorageSQLitePath != "x.db" || s.TasksRetryTimeout != 500 ||
		s.TransportsHTTPPollMaxConnections != 50 || s.Level.String() != "debug" || strings.Join(s.ServerCORSAllowOrigin, " ") != "https://a.example https://b.example" {
		t.Errorf("%+v", s)
	}
	if env.file.path != path {
		t.Errorf("file %q", env.file.path)
	}
	for _, s := range env.file.ignored {
		if s.Key != "transports.http_poll.enabled" {
			t.Errorf("%s is ignored", s.Key)
		}
	}
}

func TestPrecedence(t *testing.T) {
	path := writeIn(t, "abide.toml", "server.port = 1\n[server.cors]\nallow_origins = [\"https://file\"]\n")
	for _, c := range []struct {
		environ, args []string
		port          int
		origin        string
	}{
		{nil, nil, 1, "https://file"},
		{[]string{"RESONATE_SERVER__PORT=2"}, nil, 2, "https://file"},
		{[]string{"RESONATE_SERVER__PORT=2", "ABIDE_SERVER__CORS__ALLOW_ORIGINS=https://variable"}, []string{"--server-port", "3"}, 3, "https://variable"},
		{nil, []string{"--server-cors-allow-origin", "https://flag"}, 1, "https://flag"},
	} {
		for _, how := range []string{"flag", "variable"} {
			environ, args := c.environ, c.args
			if how == "flag" {
				args = append([]string{"--config", path}, args...)
			} else {
				environ = append([]string{"ABIDE_CONFIG=" + path}, environ...)
			}
			s, _ := parsed(t, environ, args...)
			if s.ServerPort != c.port || strings.Join(s.ServerCORSAllowOrigin, " ") != c.origin {
				t.Errorf("%v %v: port %d, origins %q", environ, args, s.ServerPort, s.ServerCORSAllowOrigin)
			}
		}
	}
	if s, _ := parsed(t, []string{"ABIDE_CONFIG=" + path}, "--config", ""); s.ServerPort != 8001 {
		t.Errorf("a file that was not wanted: port %d", s.ServerPort)
	}
}

// The file is searched for in the current folder and above it.
func TestFileIsFound(t *testing.T) {
	path := writeIn(t, "resonate.toml", "server.port = 1")
	deep := filepath.Join(filepath.Dir(path), "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(deep)
	if s, _ := parsed(t, nil); s.ServerPort != 1 {
		t.Errorf("port %d", s.ServerPort)
	}
	if err := os.WriteFile("abide.toml", []byte("server.port = 2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, _ := parsed(t, nil); s.ServerPort != 2 {
		t.Errorf("port %d", s.ServerPort)
	}
}

// What is wrong with a file is said with its line, and an unknown name with the one that was probably meant.
func TestFileErrors(t *testing.T) {
	for text, says := range map[string]string{
		"a = 1\nb =":                                       ":2: ",
		"\n[server]\nprot = 1":                             ":3: server.prot is not a setting; did you mean server.port?",
		"server = 1":                                       ":1: server is not a setting",
		"zzzzzzzz.yyyyyyyy = 1":                            ":1: zzzzzzzz.yyyyyyyy is not a setting; abide config show lists",
		"[nonsense]":                                       ":1: nonsense is not a setting",
		"server.port = \"eight\"":                          ":1: server.port: ",
		"server.port = 1.5":                                "this setting is no fraction",
		"server.port = 65536":                              "from 0 to 65535",
		"server.port = [1]":                                ":1: server.port: it is one value, not a list",
		"server.cors.allow_origins = [1]":                  "1 is not a string",
		"server.cors.allow_origins = [\"x/y\"]":            "scheme://host",
		"tasks.retry_timeout = \"1h2\"":                    ":1: tasks.retry_timeout: ",
		"tasks.retry_timeout = -1":                         ":1: tasks.retry_timeout: ",
		"tasks.retry_timeout = 0":                          "at least 1 ms",
		"level = \"loud\"":                                 "debug, info, warn, error or off",
		"debug = \"perhaps\"":                              ":1: debug: ",
		"auth = \"key.pem\"":                               ":1: auth is not a setting",
		"\n[auth]":                                         ":2: auth asks for authentication, and no key is named",
		"[auth]\niss = \"me\"":                             "need a key",
		"[auth]\nleeway = \"5s\"":                          ":2: auth.leeway asks for authentication, and no key is named",
		"[auth]\npublickey = \"\"":                         ":2: auth.publickey asks for authentication, and no key is named",
		"[auth]\npublic_key = \"x\"":                       ":2: auth.public_key is not a setting; did you mean auth.publickey?",
		"server.tls.cert_file = \"x\"":                     "go together",
		"[server]\ntls = true":                             ":2: server.tls is not a setting",
		"storage.postgres.url_file = 1":                    "must be the path of a file",
		"storage.postgres.url_file = \"none\"":             ":1: storage.postgres.url_file: ",
		"server.port_file = \"x\"":                         ":1: server.port_file is not a setting; did you mean server.port?",
		"[[server]]\nport = 1":                             ":1: server: ",
		"observability.otlp_endpoint.x = \"\"":             "is not a setting",
		"observability.otlp_endpoint = \"h\\nx\"":          "abide.toml:1: observability.otlp_endpoint: ",
		"observability.otlp_endpoint = \"http://u:p@h:1\"": "OTEL_EXPORTER_OTLP_HEADERS",
		"observability.trace_sample = 1.5":                 "must be from 0 to 1",
		"observability.trace_sample = \"many\"":            "must be from 0 to 1",
		"observability.log_format = \"xml\"":               "must be one of",
		"url = \"http://localhost:8001\"":                  ":1: url is not a setting",
		"storage.postgres.url = \"mysql://u@h\"":           "must begin with postgres://",
	} {
		path := writeIn(t, "abide.toml", text)
		command := []string{"serve", "config check", "config show"}[len(text)%3] // they read it alike
		r := runWith(nil, append(strings.Fields(command), "--config", path)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, says) || r.stdout != "" {
			t.Errorf("%s with %q: exit %d, stdout %q, stderr %q, want exit 2 and %q", command, text, r.code, r.stdout, r.stderr, says)
		}
	}
	if r := runWith(nil, "serve", "--config", filepath.Join(t.TempDir(), "none.toml")); r.code != exitUsage || !strings.Contains(r.stderr, "none.toml") {
		t.Errorf("no file: exit %d, %s", r.code, r.stderr)
	}
	both := writeIn(t, "abide.toml", "server.prot = 1\nserver.hots = 2")
	if r := runWith(nil, "config", "check", "--config", both); !strings.Contains(r.stderr, ":1: ") || !strings.Contains(r.stderr, ":2: ") {
		t.Errorf("of two mistakes it names %s", r.stderr)
	}
}

// Protection that was asked for and is not understood, or has no value, ends the start.
func TestAskedForProtectionIsNotLeftOut(t *testing.T) {
	for environ, says := range map[string]string{
		"ABIDE_AUTH__PUBLICKEY=":        "set and empty",
		"RESONATE_AUTH__JWKS=":          "set and empty",
		"RESONATE_AUTH__ISS=me":         "need a key",
		"RESONATE_AUTH__LEEWAY=5s":      "RESONATE_AUTH__LEEWAY asks for authentication, and no key is named",
		"RESONATE_AUTH__PUBLICKEYS=x":   "did you mean auth.publickey?",
		"ABIDE_SERVER__TLS__CERT=x":     "did you mean server.tls.cert_file?",
		"ABIDE_SERVER__TLS__KEY_FILE=x": "go together",
	} {
		command := []string{"serve", "dev --ephemeral", "config check"}[len(environ)%3]
		if r := runWith([]string{environ}, strings.Fields(command)...); r.code != exitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("%s %s: exit %d, %s", environ, command, r.code, r.stderr)
		}
	}
	for _, args := range []string{
		"--auth-publickey none.pem", "--auth-jwks none.json", "--server-tls-cert none.pem --server-tls-key none.pem",
	} {
		for _, command := range []string{"serve --server-port 0", "config check"} {
			r := runWith(nil, append(strings.Fields(command), strings.Fields(args)...)...)
			if r.code != exitFailure || !strings.Contains(r.stderr, "none.") {
				t.Errorf("%s %s: exit %d, %s", command, args, r.code, r.stderr)
			}
		}
	}
	if r := runWith(nil, "serve", "--server-port", "0", "--auth-publickey", "none"); r.code != exitUsage || !strings.Contains(r.stderr, "--debug") {
		t.Errorf("unsigned tokens in production: exit %d, %s", r.code, r.stderr)
	}
	if r := runWith(nil, "config", "check", "--debug", "--auth-publickey", "none"); r.code != exitOK {
		t.Errorf("unsigned tokens with --debug: exit %d, %s", r.code, r.stderr)
	}
	if r := runWith(nil, "config", "check", "--auth-jwks", "https://127.0.0.1:1/jwks"); r.code != exitOK { // nothing is fetched
		t.Errorf("an address: exit %d, %s", r.code, r.stderr)
	}
	for _, address := range []string{"http://keys.example/jwks", "https://u:pass@keys.example/jwks", "ftp://127.0.0.1/jwks", "https://"} {
		for _, command := range []string{"serve --server-port 0", "config check"} { // what serve refuses, check does not call good
			r := runWith(nil, append(strings.Fields(command), "--auth-jwks", address)...)
			if r.code != exitUsage || !strings.Contains(r.stderr, "--auth-jwks: it must be") || strings.Contains(r.stderr, "pass") {
				t.Errorf("%s, keys at %s: exit %d, %s", command, address, r.code, r.stderr)
			}
		}
	}
}

func TestConfigCheck(t *testing.T) {
	path := writeIn(t, "resonate.toml", referenceFile)
	r := runWith([]string{"ABIDE_SERVER__PROT=1"}, "config", "check", "--config", path)
	if r.code != exitOK || !strings.Contains(r.stdout, "the settings are good (configuration file "+path+")") || !strings.Contains(r.stdout, "did you mean server.port?") ||
		!strings.Contains(r.stdout, "transports.http_poll.enabled has no effect") {
		t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := runWith(nil, "config", "check", "--config", ""); r.code != exitOK || !strings.Contains(r.stdout, "no configuration file") {
		t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

func TestConfigShow(t *testing.T) {
	secret := writeIn(t, "url", "mysql://u:geheim@h/db\n")
	path := writeIn(t, "abide.toml", "tasks.retry_timeout = 500\nstorage.mysql.url_file = "+quoteTOML(secret)+"\n")
	environ := []string{"RESONATE_SERVER__BIND=127.0.0.1"}
	args := []string{"config", "show", "--config", path, "--server-port", "9", "--storage-type", "mysql", "--server-cors-allow-origin", "https://a"}
	r := runWith(environ, args...)
	if r.code != exitOK || r.stderr != "" {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	for _, line := range []string{
		"SETTING | VALUE | FROM", "server.port | 9 | --server-port", "server.bind | 127.0.0.1 | RESONATE_SERVER__BIND", "tasks.retry_timeout | 500ms | " + path + ":1: tasks.retry_timeout",
		"journal.retention_age | 7d | default", "level | info | default", "auth.publickey | - | default", "server.cors.allow_origins | https://a | --server-cors-allow-origin",
		"storage.mysql.url | mysql://u:***@h/db | " + path + ":2: storage.mysql.url_file",
	} {
		found := false
		for _, have := range strings.Split(r.stdout, "\n") {
			columns := strings.FieldsFunc(strings.ReplaceAll(have, "  ", "\t"), func(r rune) bool { return r == '\t' })
			for i := range columns {
				columns[i] = strings.TrimSpace(columns[i])
			}
			found = found || strings.Join(columns, " | ") == line
		}
		if !found {
			t.Errorf("no line %q in\n%s", line, r.stdout)
		}
	}
	r = runWith(environ, append(args, "--json")...)
	var shown struct {
		File     string
		Settings []shownSetting
	}
	if err := json.Unmarshal([]byte(r.stdout), &shown); err != nil || shown.File != path {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	got := map[string]shownSetting{}
	for _, s := range shown.Settings {
		got[s.Key] = s
	}
	for key, want := range map[string]shownSetting{
		"server.port": {Value: 9.0, Source: "flag"}, "server.bind": {Value: "127.0.0.1", Source: "environment"}, "tasks.retry_timeout": {Value: 500.0, Source: "file"},
		"debug": {Value: false, Source: "default"}, "auth.publickey": {Value: nil, Source: "default"},
	} {
		if got[key].Value != want.Value || got[key].Source != want.Source {
			t.Errorf("%s: %+v, want %+v", key, got[key], want)
		}
	}
	if strings.Contains(r.stdout, "geheim") {
		t.Errorf("a password is shown:\n%s", r.stdout)
	}
}

func quoteTOML(text string) string { return "'" + text + "'" }

func TestSecretsFromFiles(t *testing.T) {
	secret := writeIn(t, "url", "postgres://u:p@h/db\r\n")
	s, _ := parsed(t, []string{"ABIDE_STORAGE__POSTGRES__URL_FILE=" + secret})
	if s.StoragePostgresURL != "postgres://u:p@h/db" {
		t.Errorf("URL %q", s.StoragePostgresURL)
	}
	for environ, says := range map[string]string{
		"ABIDE_STORAGE__POSTGRES__URL_FILE=" + secret + " ABIDE_STORAGE__POSTGRES__URL=postgres://h/db":   "use one of them",
		"ABIDE_STORAGE__POSTGRES__URL_FILE=" + secret + ".none":                                           "url.none",
		"ABIDE_STORAGE__POSTGRES__URL_FILE=" + writeIn(t, "empty", "\n"):                                  "is empty",
		"ABIDE_STORAGE__POSTGRES__URL_FILE=" + writeIn(t, "large", strings.Repeat("x", maxSecretBytes+1)): "is larger than",
	} {
		if r := runWith(strings.Fields(environ), "config", "check"); r.code != exitUsage || !strings.Contains(r.stderr, says) || strings.Contains(r.stderr, "u:p") {
			t.Errorf("%s: exit %d, %s", environ, r.code, r.stderr)
		}
	}
}

// dev takes its data and its address from flags alone, whatever a file says.
func TestDevTakesNoDataFromAFile(t *testing.T) {
	path := writeIn(t, "abide.toml", "server.bind = \"192.0.2.1\"\nstorage.sqlite.path = \"/nonexistent/production.db\"\nserver.shutdown_timeout = 1234")
	r := start(t, "dev", "--ephemeral", "--config", path, "--server-port", "0", "--observability-metrics-port", "0")
	if code := r.stop(t); code != exitOK || !strings.Contains(r.stderr.String(), "timeout=1.234s") || strings.Contains(r.stderr.String(), "production") {
		t.Errorf("exit %d: %s", code, r.stderr.String())
	}
}

func TestSpansAreShownAsTheyAreWritten(t *testing.T) {
	for _, text := range []string{"0ms", "1ms", "1500ms", "1s", "90s", "1m", "61m", "1h", "25h", "1d", "7d"} {
		value, err := parseMilliseconds(text)
		if got := milliseconds(value).String(); err != nil || got != text {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
