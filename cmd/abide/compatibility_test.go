package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"abide/protocol"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const compatibilityFile = "../../docs/compatibility.md"

// compatibilityRows are the rows of the first table below a heading, each as its cells without back quotes.
func compatibilityRows(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(compatibilityFile)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, _ := strings.Cut(section, "\n|---")
	for _, line := range strings.Split(table, "\n")[1:] {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "`", ""))
		}
		rows = append(rows, cells)
	}
	if len(rows) == 0 {
		t.Fatalf("no table below %q", heading)
	}
	return rows
}

// referenceValues are values of the reference's settings as its file may have them.
func referenceValues(key string) map[string]string {
	return map[string]string{
		"level": `"debug"`, "debug": "true", "server.host": `"example.org"`, "server.port": "9001", "server.bind": `"127.0.0.1"`,
		"server.shutdown_timeout": "10000", "server.url": `"http://example.org:9001"`, "server.cors.allow_origins": `["https://a.example"]`,
		"storage.type": `"postgres"`, "storage.sqlite.path": `"resonate.db"`, "storage.postgres.url": `"postgres://resonate@localhost:5432/resonate"`,
		"storage.postgres.pool_size": "20", "storage.mysql.url": `"mysql://resonate@localhost:3306/resonate"`, "storage.mysql.pool_size": "20",
		"auth.publickey": strconv.Quote(key), "auth.iss": `"https://issuer.example/"`, "auth.aud": `"resonate"`,
		"tasks.lease_timeout": "15000", "tasks.retry_timeout": "30000", "timeouts.poll_interval": "1000",
		"messages.poll_interval": "100", "messages.batch_size": "100",
		"transports.http_push.enabled": "true", "transports.http_push.concurrency": "256", "transports.http_push.connect_timeout": "10000",
		"transports.http_push.request_timeout": "180000", "transports.http_push.auth.mode": `"bearer"`, "transports.http_push.auth.token": `"secret"`,
		"transports.http_push.auth.audience": `"https://a.example"`, "transports.http_push.auth.header": `"X-Token"`,
		"transports.http_poll.enabled": "true", "transports.http_poll.max_connections": "1000", "transports.http_poll.buffer_size": "100",
		"transports.gcps.enabled": "true", "transports.gcps.project": `"project-1"`, "transports.gcps.concurrency": "256", "transports.gcps.timeout": "10000",
		"transports.bash_exec.enabled": "true", "observability.metrics_port": "9090", "observability.otlp_endpoint": `"localhost:4317"`,
	}
}

// settingsBeside are those that a setting of the reference does not stand without.
var settingsBeside = map[string][]string{
	"auth.iss": {"auth.publickey"}, "auth.aud": {"auth.publickey"}, "storage.type": {"storage.postgres.url"},
	"transports.http_push.auth.mode":   {"transports.http_push.auth.token"},
	"transports.http_push.auth.token":  {"transports.http_push.auth.mode"},
	"transports.http_push.auth.header": {"transports.http_push.auth.mode", "transports.http_push.auth.token"},
}

func TestCompatibilityOfSettings(t *testing.T) {
	folder := t.TempDir()
	if r := runWith(nil, "token", "keygen", "--out", folder); r.code != exitOK {
		t.Fatal(r.stderr)
	}
	values := referenceValues(filepath.Join(folder, "public.pem"))
	help := runWith(nil, "serve", "--help").stdout
	seen := map[string]bool{}
	for _, row := range compatibilityRows(t, "Settings") {
		key, flag, verdict := row[0], row[1], row[3]
		value, known := values[key]
		if !known {
			t.Errorf("%s is no setting of the reference", key)
			continue
		}
		file := fmt.Sprintf("%s = %s\n", key, value)
		for _, other := range settingsBeside[key] {
			file += fmt.Sprintf("%s = %s\n", other, values[other])
		}
		if key == "transports.http_push.auth.audience" {
			file += "transports.http_push.auth.mode = \"gcp\"\n"
		}
		path := filepath.Join(folder, "resonate.toml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		r := runWith(nil, "config", "check", "--config", path)
		if r.code != exitOK {
			t.Errorf("%s: %s", strings.TrimSpace(file), r.stderr)
		}
		if flag != "none" && !regexp.MustCompile(regexp.QuoteMeta(flag)+`[\s=]`).MatchString(help) {
			t.Errorf("serve has no %s", flag)
		}
		if ignored := strings.Contains(r.stdout+r.stderr, "no effect"); ignored != (flag == "none") {
			t.Errorf("%s: flag %s, and check says %q", key, flag, r.stdout+r.stderr)
		}
		checkVerdict(t, key, verdict)
		seen[key] = true
	}
	for key := range values {
		if !seen[key] {
			t.Errorf("%s is missing", key)
		}
	}
}

func checkVerdict(t *testing.T, what, verdict string) {
	t.Helper()
	if !slices.Contains([]string{"same", "wider", "different"}, verdict) {
		t.Errorf("%s is %q", what, verdict)
	}
}

func TestCompatibilityOfCommands(t *testing.T) {
	rows := compatibilityRows(t, "Commands")
	if len(rows) != 28 {
		t.Errorf("%d commands; the reference has 28", len(rows))
	}
	for _, row := range rows {
		words := append(strings.Fields(row[0]), "--help")
		r := runWith(nil, words...)
		if r.code != exitOK {
			t.Errorf("%s: exit %d, %s", row[0], r.code, r.stderr)
		}
		flags := strings.Fields(row[1])
		if row[0] != "serve" && row[0] != "dev" {
			flags = append(flags, "--server", "--token")
		}
		for _, flag := range flags {
			if !regexp.MustCompile(flag + `[\s=]`).MatchString(r.stdout) {
				t.Errorf("%s has no %s", row[0], flag)
			}
		}
		checkVerdict(t, row[0], row[2])
	}
}

func TestCompatibilityOfAddresses(t *testing.T) {
	for _, row := range compatibilityRows(t, "Addresses") {
		_, err := protocol.ParseAddress(row[0])
		if ours := map[bool]string{true: "accepted", false: "rejected"}[err == nil]; ours != row[2] {
			t.Errorf("%s is %s: %v", row[0], ours, err)
		}
		if row[1] != row[2] && row[3] == "" {
			t.Errorf("%s differs without a reason", row[0])
		}
	}
}

func TestCompatibilityOfMetrics(t *testing.T) {
	names, err := os.ReadFile("../../internal/metrics/testdata/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := compatibilityRows(t, "Metrics")
	for _, row := range rows {
		if !strings.Contains("\n"+string(names), "\n"+row[0]+" ") {
			t.Errorf("there is no metric %s", row[0])
		}
		checkVerdict(t, row[0], row[1])
	}
	if ours := strings.Count("\n"+string(names), "\nresonate_"); ours != len(rows) {
		t.Errorf("%d rows for %d metrics with names of the reference", len(rows), ours)
	}
}

func TestCompatibilityOfTools(t *testing.T) {
	_, url := live(t)
	command := exec.Command(os.Args[0], "mcp")
	command.Env = append(os.Environ(), "BE_THE_PROGRAM=1", "ABIDE_URL="+url)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	listed, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range compatibilityRows(t, "Assistants (MCP)") {
		if !slices.ContainsFunc(listed.Tools, func(tool *sdk.Tool) bool { return tool.Name == row[0] }) {
			t.Errorf("there is no tool %s", row[0])
		}
		checkVerdict(t, row[0], row[1])
	}
}

// Every weakness has its row, and whatever the document points to is there.
func TestCompatibilityOfWeaknesses(t *testing.T) {
	rows := compatibilityRows(t, "What its users suffer from")
	for i, row := range rows {
		if row[0] != strconv.Itoa(i+1) || len(row) != 3 || row[2] == "" {
			t.Errorf("row %d: %q", i+1, row)
		}
	}
	if len(rows) != 53 {
		t.Errorf("%d rows for 53 weaknesses", len(rows))
	}
	text, err := os.ReadFile(compatibilityFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(compatibilityFile), link[1])); err != nil {
			t.Errorf("%s: %v", link[1], err)
		}
	}
}
