package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"abide/protocol"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the difference before committing it")

// result is what a run of the program leaves behind.
type result struct {
	code           int
	stdout, stderr string
}

func runWith(environ []string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(args, surroundings{environ: environ, stdout: &stdout, stderr: &stderr, signals: make(chan os.Signal), abort: func() {}})
	return result{code, stdout.String(), stderr.String()}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (rewrite with -update):\n%s", path, got)
	}
}

func TestHelp(t *testing.T) {
	for _, command := range []string{"", "serve", "dev", "check", "copy", "migrate", "bench", "simulate", "version"} {
		args := append(strings.Fields(command), "--help")
		r := runWith(nil, args...)
		if r.code != exitOK || r.stderr != "" {
			t.Errorf("%v: exit %d, stderr %q", args, r.code, r.stderr)
		}
		golden(t, "help_"+command+".txt", r.stdout)
	}
}

func TestNoSubcommandShowsHelpAsAMistake(t *testing.T) {
	r := runWith(nil)
	if r.code != exitUsage || r.stdout != "" || !strings.Contains(r.stderr, "Commands:") {
		t.Errorf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args, environ string // separated by blanks
		says          string
	}{
		{"serv", "", "serv"},
		{"promise-get x", "", "promise-get"},
		{"serve now", "", "now"},
		{"serve --port 1", "", "--port"},
		{"serve --server-port", "", "--server-port"},
		{"serve --server-port eight", "", "eight"},
		{"serve --server-port 65536", "", "from 0 to 65535"},
		{"serve --server-port -1", "", "-1"},
		{"serve --server-bind 127.0.0.1:80", "", "--server-port"},
		{"serve --server-bind=", "", "--server-bind"},
		{"serve --server-host http://x/", "", "--server-url"},
		{"serve --server-url localhost:8001", "", "http://"},
		{"serve --server-url http://x/?a=b", "", "no query"},
		{"serve --server-cors-allow-origin https://x/app", "", "scheme://host"},
		{"serve --server-cors-allow-origin example.com", "", "scheme://host"},
		{"serve --storage-type oracle", "", "use one of"},
		{"serve --storage-mysql-pool-size 0", "", "from 1 to"},
		{"serve --storage-mysql-url postgres://h/d", "", "must begin with mysql://"},
		{"serve", "RESONATE_STORAGE__POSTGRES__URL=mysql://h/d", "must begin with postgres://"},
		{"serve --storage-sqlite-path :memory:", "", "--ephemeral"},
		{"serve --storage-sqlite-path file:x?mode=memory", "", "path of a file"},
		{"serve --level loud", "", "debug, info, warn, error or off"},
		{"serve --tasks-retry-timeout 0", "", "at least 1 ms"},
		{"serve --observability-metrics-port 65536", "", "from 0 to 65535"},
		{"serve --observability-admin-port=-1", "", "from 0 to 65535"},
		{"serve --observability-metrics-bind 127.0.0.1:9090", "", "--observability-metrics-port"},
		{"serve --tasks-retry-timeout 42m30", "", "units"},
		{"serve --timeouts-poll-interval 0s", "", "at least 1 ms"},
		{"serve --messages-poll-interval=-5s", "", "-5s"},
		{"serve --messages-batch-size 0", "", "from 1 to"},
		{"serve --journal-retention-age 0", "", "at least 1 ms"},
		{"serve --journal-retention-entries 0", "", "from 1 to"},
		{"serve --transports-http-poll-max-connections 0", "", "from 1 to"},
		{"serve --transports-http-poll-buffer-size 0", "", "from 1 to"},
		{"dev --ephemeral --storage-sqlite-path x.db", "", "can't be used together"},
		{"dev --server-port 65536", "", "from 0 to 65535"},
		{"check", "", "<store>"},
		{"check a b", "", "b"},
		{"check redis://h", "", "redis:// is no store"},
		{"copy a", "", "<to>"},
		{"backup a", "", "the file to make"},
		{"copy a redis://h", "", "TO: redis:// is no store"},
		{"copy :memory: b", "", "FROM:"},
		{"migrate --storage-sqlite-path :memory:", "", "path of a file"},
		{"check a --mend", "", "--mend"},
		{"bench", "", "<mode>"},
		{"simulate --seeds 0", "", "--seeds"},
		{"simulate --faults 1,2", "", "--seed"},
		{"simulate --workers 5000", "", "--workers"},
		{"bench creation", "", "noop, create, get, lifecycle, dispatch, workflow"},
		{"bench creation", "", "kv-write, kv-read, kv-mixed, kv-size"},
		{"bench kv-write --url http://x", "", "--url"},
		{"bench kv-write --preload 5", "", "--keys"},
		{"bench kv-write --size 1", "", "1 bytes"},
		{"bench create --keys 5", "", "--preload"},
		{"bench create --clients=-1", "", "-1 clients"},
		{"bench create --url localhost", "", "http://"},
		{"serve", "ABIDE_SERVER__PORT=eight", "abide: environment variable ABIDE_SERVER__PORT: expected"},
		{"promises create p", "", "--timeout is missing"},
		{"serve", "RESONATE_SERVER__PORT=65536", "from 0 to 65535"},
		{"serve", "RESONATE_DEBUG=maybe", "environment variable RESONATE_DEBUG"},
		{"serve", "ABIDE_TASKS__RETRY_TIMEOUT=1h2", "environment variable ABIDE_TASKS__RETRY_TIMEOUT"},
		{"serve", `ABIDE_SERVER__CORS__ALLOW_ORIGINS=["https://a`, "is not a list"},
		{"serve", "RESONATE_AUTH__PUBLIKEY=/key.pem", "did you mean auth.publickey"},
		{"dev", "abide_auth__publik_key=/key.pem", "did you mean auth.publickey"},
	} {
		r := runWith(strings.Fields(c.environ), strings.Fields(c.args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, c.says) || r.stdout != "" {
			t.Errorf("%s %s: exit %d, stdout %q, stderr %q, want exit 2 and %q", c.environ, c.args, r.code, r.stdout, r.stderr, c.says)
		}
		if strings.Contains(r.stderr, "Fatal") {
			t.Errorf("%s %s: a usage error is no failure: %s", c.environ, c.args, r.stderr)
		}
	}
}

// parsed gives the settings of serve that args and environ lead to.
func parsed(t *testing.T, environ []string, args ...string) (*serveCommand, *environment) {
	t.Helper()
	var cli commands
	env := readEnvironment(environ)
	parser, err := kong.New(&cli, kong.Resolvers(env), kong.Bind(env), kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	env.learn(parser.Model)
	if _, err := parser.Parse(append([]string{"serve"}, args...)); err != nil {
		t.Fatalf("%v %v: %v", environ, args, err)
	}
	return &cli.Serve, env
}

func TestSourcesOfSettings(t *testing.T) {
	for _, c := range []struct {
		environ, args []string
		port          int
	}{
		{nil, nil, 8001},
		{[]string{"RESONATE_SERVER__PORT=1"}, nil, 1},
		{[]string{"RESONATE_SERVER__PORT=1", "ABIDE_SERVER__PORT=2"}, nil, 2},
		{[]string{"ABIDE_SERVER__PORT=2", "RESONATE_SERVER__PORT=1"}, nil, 2},
		{[]string{"ABIDE_SERVER__PORT=2"}, []string{"--server-port", "3"}, 3},
		{[]string{"ABIDE_SERVER__PORT=junk"}, []string{"--server-port", "3"}, 3},
		{[]string{"ABIDE_SERVER__PORT=", "RESONATE_SERVER__PORT=1"}, nil, 1},
		{[]string{"ABIDE_SERVER__PORT="}, nil, 8001},
		{[]string{"abide_server__port=4"}, nil, 4},
		{[]string{`RESONATE_SERVER__PORT="5"`}, nil, 5},
		{[]string{"ABIDE_SERVER_PORT=6", "SERVER__PORT=7", "RESONATE_PORT=8"}, nil, 8001},
	} {
		s, _ := parsed(t, c.environ, c.args...)
		if s.ServerPort != c.port {
			t.Errorf("%v %v: port %d, want %d", c.environ, c.args, s.ServerPort, c.port)
		}
	}
}

func TestSettingsOfEveryType(t *testing.T) {
	s, _ := parsed(t, []string{
		"RESONATE_DEBUG=true", "RESONATE_LEVEL=WARN", "RESONATE_TASKS__RETRY_TIMEOUT=500", "ABIDE_SERVER__SHUTDOWN_TIMEOUT=1m30s",
		`RESONATE_SERVER__CORS__ALLOW_ORIGINS=["https://a","http://b:1"]`, "ABIDE_STORAGE__SQLITE__PATH=/d/x.db", "RESONATE_SERVER__BIND=[::1]",
	})
	if !s.Debug || s.TasksRetryTimeout != 500 || s.ServerShutdownTimeout != 90_000 || s.StorageSQLitePath != "/d/x.db" || s.ServerBind != "[::1]" {
		t.Errorf("%+v", s)
	}
	if got := strings.Join(s.ServerCORSAllowOrigin, " "); got != "https://a http://b:1" {
		t.Errorf("origins %q", got)
	}
	s, _ = parsed(t, []string{"ABIDE_SERVER__CORS__ALLOW_ORIGINS=https://a,https://b"})
	if len(s.ServerCORSAllowOrigin) != 2 {
		t.Errorf("origins %q", s.ServerCORSAllowOrigin)
	}
	s, _ = parsed(t, []string{"ABIDE_SERVER__CORS__ALLOW_ORIGINS=https://a"}, "--server-cors-allow-origin", "https://b", "--server-cors-allow-origin", "*")
	if got := strings.Join(s.ServerCORSAllowOrigin, " "); got != "https://b *" {
		t.Errorf("flags do not replace the variable's list: %q", got)
	}
}

func TestBaseURL(t *testing.T) {
	for _, c := range []struct{ args, url string }{
		{"", "http://localhost:9000"},
		{"--server-host example.org", "http://example.org:9000"},
		{"--server-host ::1", "http://[::1]:9000"},
		{"--server-host example.org --server-url https://x/base/", "https://x/base"},
	} {
		s, _ := parsed(t, nil, strings.Fields(c.args)...)
		if got := s.baseURL(9000); got != c.url {
			t.Errorf("%s: %s, want %s", c.args, got, c.url)
		}
	}
}

func TestUnknownVariablesAreNamed(t *testing.T) {
	_, env := parsed(t, []string{
		"ABIDE_SERVER_PORT=1", "RESONATE_TRANSPORTS__SMTP__ENABLED=true", // not settings
		"RESONATE_URL=x", "RESONATE_TOKEN=x", "RESONATE_PREFIX=x", "RESONATE_SCHEME=x", "ABIDE_URL=x", "PATH=x", // other programs'
		"RESONATE_SERVER__PORT=1", "ABIDE_STORAGE__SQLITE__PATH=x", // settings
	})
	if got := strings.Join(env.unknown(), " "); got != "ABIDE_SERVER_PORT RESONATE_TRANSPORTS__SMTP__ENABLED" {
		t.Errorf("unknown: %s", got)
	}
}

func TestMilliseconds(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "5": 5, "30000": 30_000, "30s": 30_000, "1m30s": 90_000, "42m30s": 2_550_000, "1h2m3s4ms": 3_723_004,
		"1d": 86_400_000, "2ms": 2, "0s": 0, "9223372036854": 9_223_372_036_854,
	} {
		if got, err := parseMilliseconds(text); err != nil || got != want {
			t.Errorf("%q: %d %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", " ", "s", "1h2", "-5s", "+5s", "-5", "1.5s", "5 s", " 5s", "5s ", "5S", "5min", "1e3", "5µs", "5w", "1h-2m", "0x5",
		"9223372036855", "106751991168d", "99999999999999999999", "106751991167d86400s1000000000000m",
	} {
		if got, err := parseMilliseconds(text); err == nil {
			t.Errorf("%q is read as %d ms", text, got)
		}
	}
}

func TestVersion(t *testing.T) {
	r := runWith(nil, "version", "--json")
	var report versionReport
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != exitOK {
		t.Fatalf("exit %d: %v: %s", r.code, err, r.stdout)
	}
	if report.Version != release || report.Protocol != protocol.Version || !strings.HasPrefix(report.Go, "go") {
		t.Errorf("%+v", report)
	}
	if r := runWith(nil, "version"); !strings.HasPrefix(r.stdout, "abide "+release+"\nprotocol "+protocol.Version+"\n") {
		t.Errorf("stdout %q", r.stdout)
	}
	if r := runWith(nil, "--version"); r.code != exitOK || r.stdout != "abide "+release+"\n" {
		t.Errorf("exit %d, stdout %q", r.code, r.stdout)
	}
}

func TestDevFolderIgnoresItself(t *testing.T) {
	folder := filepath.Join(t.TempDir(), devFolder)
	for range 2 {
		if err := makeDevFolder(folder); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(folder, ".gitignore")); err != nil || string(text) != "*\n" {
		t.Errorf("%q %v", text, err)
	}
}

func TestListen(t *testing.T) {
	both, err := listenLoopback(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range both {
		defer l.Close()
		if !l.Addr().(*net.TCPAddr).IP.IsLoopback() || portOf(l) != portOf(both[0]) {
			t.Errorf("listening on %s", l.Addr())
		}
	}
	if _, err := listen("127.0.0.1", portOf(both[0])); err == nil || !strings.Contains(err.Error(), "--server-port") {
		t.Errorf("error %v", err)
	}
	if _, err := listen("203.0.113.1", 0); err == nil {
		t.Error("listening on somebody else's address")
	}
}
