package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"abide/client"
	"abide/protocol"
)

// withBash skips where scripts run in containers only.
func withBash(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("local scripts are not run on Windows")
	}
}

func createScript(t *testing.T, c *client.Client, id, script string) {
	t.Helper()
	_, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{
		ID: id, TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, "bash://"),
		Param: protocol.MakeValue(nil, base64.StdEncoding.EncodeToString([]byte(script))),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// outcomeOf waits for a promise and gives its state and the text of its value.
func outcomeOf(t *testing.T, c *client.Client, id string) (protocol.PromiseState, string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		p, err := c.PromiseGet(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if p.State != protocol.Pending {
			data, _ := p.Value.Data()
			text, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				t.Fatal(err)
			}
			return p.State, string(text)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not settled", id)
		}
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not there", path)
		}
	}
}

func TestScriptsAreRun(t *testing.T) {
	withBash(t)
	s := start(t, "dev", "--ephemeral", "--server-port", "0", "--observability-metrics-port", "0", "--transports-bash-exec-enabled", "true")
	c := s.client(t)
	createScript(t, c, "good", "echo hello; echo $RESONATE_PROMISE_ID")
	createScript(t, c, "bad", "echo no >&2; exit 3")
	for n := range 30 { // more than run at once
		createScript(t, c, fmt.Sprint("n", n), fmt.Sprintf("echo %d", n))
	}
	if state, text := outcomeOf(t, c, "good"); state != protocol.Resolved || text != "hello\ngood" {
		t.Errorf("good: %s %q", state, text)
	}
	if state, text := outcomeOf(t, c, "bad"); state != protocol.Rejected || text != "no" {
		t.Errorf("bad: %s %q", state, text)
	}
	for n := range 30 {
		if state, text := outcomeOf(t, c, fmt.Sprint("n", n)); state != protocol.Resolved || text != fmt.Sprint(n) {
			t.Errorf("n%d: %s %q", n, state, text)
		}
	}
	if !strings.Contains(s.stderr.String(), "anybody may run anything") {
		t.Error("nobody was warned")
	}
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// TestScriptsAreLeftToTheNextServer: a stop does not wait for a script; its task is there for whoever serves the store next,
// long before its lease would have ended.
func TestScriptsAreLeftToTheNextServer(t *testing.T) {
	withBash(t)
	folder := t.TempDir()
	args := serveArgs(filepath.Join(folder, "x.db"), "--transports-bash-exec-enabled", "true", "--tasks-lease-timeout", "1h")
	first := start(t, args...)
	began := filepath.Join(folder, "began")
	createScript(t, first.client(t), "p", fmt.Sprintf(`if [ -e %[1]s ]; then echo again; exit; fi; touch %[1]s; sleep 1000; echo never`, began))
	awaitFile(t, began)
	if code := first.stop(t); code != exitOK || !strings.Contains(first.stderr.String(), "msg=stopped") || strings.Contains(first.stderr.String(), "on their way") {
		t.Errorf("exit %d: %s", code, first.stderr.String())
	}
	second := start(t, args...)
	if state, text := outcomeOf(t, second.client(t), "p"); state != protocol.Resolved || text != "again" {
		t.Errorf("%s %q", state, text)
	}
}

// TestScriptsWaitWhileTheyAreOff: the task stays as it was made.
func TestScriptsWaitWhileTheyAreOff(t *testing.T) {
	withBash(t)
	file := filepath.Join(t.TempDir(), "x.db")
	first := start(t, serveArgs(file)...)
	createScript(t, first.client(t), "p", "echo on")
	time.Sleep(200 * time.Millisecond) // longer than an execute takes
	task, err := first.client(t).TaskGet(t.Context(), "p")
	if err != nil || task.State != protocol.TaskPending || task.Version != 0 {
		t.Errorf("%+v, %v", task, err)
	}
	first.stop(t)
	second := start(t, serveArgs(file, "--transports-bash-exec-enabled", "true")...)
	if state, text := outcomeOf(t, second.client(t), "p"); state != protocol.Resolved || text != "on" {
		t.Errorf("%s %q", state, text)
	}
}

func TestTopicsArePublishedTo(t *testing.T) {
	service := pstest.NewServer()
	t.Cleanup(func() { _ = service.Close() })
	connection, err := grpc.NewClient(service.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if _, err := pubsubpb.NewPublisherClient(connection).CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/orders/topics/work"}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PUBSUB_EMULATOR_HOST", service.Addr)
	s := start(t, "dev", "--ephemeral", "--server-port", "0", "--observability-metrics-port", "0", "--transports-gcps-enabled", "true", "--transports-gcps-project", "orders")
	c := s.client(t)
	for id, target := range map[string]string{"there": "gcps://orders/work", "elsewhere": "gcps://others/work", "nowhere": "gcps://orders/absent"} {
		if _, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, target)}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); len(service.Messages()) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was published")
		}
	}
	var m struct {
		Kind string
		Head struct{ ServerURL string }
		Data struct{ Task struct{ ID string } }
	}
	got := service.Messages()
	if err := json.Unmarshal(got[0].Data, &m); err != nil || len(got) != 1 || m.Kind != "execute" || m.Data.Task.ID != "there" || m.Head.ServerURL == "" {
		t.Errorf("%d messages, the first is %s, %v", len(got), got[0].Data, err)
	}
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func TestTransportSettings(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--transports-gcps-enabled maybe", "neither true nor false"},
		{"--transports-gcps-concurrency 0", "from 1 to"},
		{"--transports-gcps-timeout 0", "at least 1 ms"},
		{"--transports-gcps-project gcps://p/t", "the id of a project"},
		{"--transports-bash-exec-concurrency 1001", "from 1 to 1000"},
		{"--transports-bash-exec-max-output 600000", "from 1024 to 524288"},
		{"--transports-bash-exec-env A=b", "the name of an environment variable"},
		{"--transports-bash-exec-enabled true --tasks-lease-timeout 999", "at least 1000 ms"},
	} {
		r := runWith(nil, append([]string{"config", "check"}, strings.Fields(c.args)...)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%s: exit %d, %s", c.args, r.code, r.stderr)
		}
	}
	file := writeIn(t, "resonate.toml", "[tasks]\nlease_timeout = 500\n[transports.gcps]\nenabled = true\nproject = \"orders\"\nconcurrency = 9\ntimeout = 500\n"+
		"[transports.bash_exec]\nenabled = false\nenv = [\"TOKEN\"]\n")
	r := runWith(nil, "config", "show", "--config", file)
	if r.code != exitOK {
		t.Fatalf("exit %d, %s", r.code, r.stderr)
	}
	for _, setting := range []string{"transports.gcps.project", "transports.gcps.concurrency", "transports.gcps.timeout", "transports.bash_exec.env"} {
		line := r.stdout[max(0, strings.Index(r.stdout, setting)):]
		line, _, _ = strings.Cut(line, "\n")
		if !strings.Contains(line, setting) || !strings.Contains(line, "resonate.toml") {
			t.Errorf("%s does not come from the file: %q", setting, line)
		}
	}
}

// TestScriptsWithoutAnythingToRunThem: the start says so.
func TestScriptsWithoutAnythingToRunThem(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := runWith(nil, "dev", "--ephemeral", "--server-port", "0", "--observability-metrics-port", "0", "--transports-bash-exec-enabled", "true")
	if r.code != exitFailure || !strings.Contains(r.stderr, "neither bash nor docker") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
}
