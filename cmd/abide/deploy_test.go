package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"abide/internal/testenv"
)

// The files of deploy/ name flags, variables, ports and paths of this program. Nobody would see that one of them is no
// longer there, before somebody deploys it.

// wouldServe holds a command line that begins with serve, and its environment, against the program.
func wouldServe(t *testing.T, where string, environ, args []string) {
	t.Helper()
	if len(args) == 0 || args[0] != "serve" {
		t.Fatalf("%s: the arguments %q do not begin with serve", where, args)
	}
	got := runWith(environ, append([]string{"config", "check"}, args[1:]...)...)
	if got.code != exitOK || strings.Contains(got.stdout, "is not a setting") || strings.Contains(got.stdout, "no effect") {
		t.Errorf("%s: abide %q with %q: exit %d\n%s%s", where, args, environ, got.code, got.stdout, got.stderr)
	}
}

// setting is what a setting comes to with these arguments and this environment.
func setting(t *testing.T, key string, environ, args []string) string {
	t.Helper()
	got := runWith(environ, append([]string{"config", "show", "--json"}, args[1:]...)...)
	var shown struct{ Settings []shownSetting }
	if err := json.Unmarshal([]byte(got.stdout), &shown); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	for _, s := range shown.Settings {
		if s.Key == key {
			return fmt.Sprint(s.Value)
		}
	}
	t.Fatalf("there is no setting %s", key)
	return ""
}

// shutdownTimeout is how long a stop may take with these arguments and this environment.
func shutdownTimeout(t *testing.T, environ, args []string) time.Duration {
	t.Helper()
	ms, err := parseMilliseconds(setting(t, "server.shutdown_timeout", environ, args))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// dockerfile is what the last stage of the Dockerfile says.
type dockerfile struct {
	from, user, volume     string
	environ, expose        []string
	entrypoint, cmd, check []string
	shell                  bool // an instruction that needs a shell
}

func readDockerfile(t *testing.T) (d dockerfile) {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	list := func(s string) (words []string) {
		if err := json.Unmarshal([]byte(s), &words); err != nil {
			t.Errorf("%s is not in exec form: a shell would stand between the signals and the server", s)
		}
		return words
	}
	for line := range strings.Lines(string(text)) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "FROM":
			d = dockerfile{from: rest}
		case "USER":
			d.user = rest
		case "VOLUME":
			d.volume = rest
		case "ENV":
			d.environ = append(d.environ, rest)
		case "EXPOSE":
			d.expose = strings.Fields(rest)
		case "ENTRYPOINT":
			d.entrypoint = list(rest)
		case "CMD":
			d.cmd = list(rest)
		case "HEALTHCHECK":
			_, command, _ := strings.Cut(rest, "CMD ")
			d.check = list(command)
		case "RUN", "SHELL":
			d.shell = true
		}
	}
	return d
}

func TestDockerfile(t *testing.T) {
	d := readDockerfile(t)
	if d.from != "scratch" || d.shell {
		t.Errorf("the image is made from %s, with a shell: %v", d.from, d.shell)
	}
	if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(d.user) {
		t.Errorf("the user is %q: Kubernetes wants a number that is not root's", d.user)
	}
	if !slices.Equal(d.entrypoint, []string{"/abide"}) {
		t.Errorf("entrypoint %q", d.entrypoint)
	}
	wouldServe(t, "Dockerfile", d.environ, d.cmd)
	if file := setting(t, "storage.sqlite.path", d.environ, d.cmd); path.Dir(file) != d.volume {
		t.Errorf("the data file %s is not on the volume %s", file, d.volume)
	}
	ports := []string{setting(t, "server.port", d.environ, d.cmd), setting(t, "observability.metrics_port", d.environ, d.cmd)}
	if !slices.Equal(d.expose, ports) {
		t.Errorf("ports %v are exposed, the server listens on %v", d.expose, ports)
	}
	if len(d.check) < 2 || d.check[0] != "/abide" {
		t.Fatalf("health check %q", d.check)
	}
	// Nothing listens there, so it fails; were there no such command, it would be a mistake in the command line.
	if got := runWith([]string{fmt.Sprint("ABIDE_SERVER__PORT=", testenv.FreePort(t))}, d.check[1:]...); got.code != exitFailure {
		t.Errorf("the health check %q: %+v", d.check, got)
	}
}

func TestCompose(t *testing.T) {
	text, err := os.ReadFile("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image           string
			Command         []string
			Environment     map[string]string
			Ports           []string
			StopGracePeriod string                                `yaml:"stop_grace_period"`
			DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
			Healthcheck     struct{ Test []string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	s := file.Services["abide"]
	var environ []string
	for name, value := range s.Environment {
		environ = append(environ, name+"="+regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllString(value, "x"))
	}
	wouldServe(t, "compose.yaml", environ, s.Command)
	grace, err := time.ParseDuration(s.StopGracePeriod)
	if err != nil || grace <= shutdownTimeout(t, environ, s.Command) {
		t.Errorf("the grace is %s: %v", s.StopGracePeriod, err)
	}
	for _, port := range s.Ports {
		if inside := port[strings.LastIndex(port, ":")+1:]; !slices.Contains(readDockerfile(t).expose, inside) {
			t.Errorf("port %s is not one of the image's", port)
		}
	}
	for name := range s.DependsOn {
		if file.Services[name].Healthcheck.Test == nil {
			t.Errorf("it waits for %s to be healthy, which has no health check", name)
		}
	}
}

func TestSystemdUnit(t *testing.T) {
	text, err := os.ReadFile("../../deploy/systemd/abide.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			unit[key] = value
		}
	}
	for key, want := range map[string]string{
		"Type": "notify", "Restart": "on-failure", "StartLimitIntervalSec": "0", "DynamicUser": "yes", "ProtectSystem": "strict", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "",
	} {
		if got, there := unit[key]; !there || got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
	args := strings.Fields(unit["ExecStart"])[1:]
	if i := slices.Index(args, "--config"); i > 0 {
		if args[i+1] != "/etc/"+unit["ConfigurationDirectory"]+"/abide.toml" {
			t.Errorf("the configuration is %s", args[i+1])
		}
		args[i+1] = "" // it is not on this machine
	}
	wouldServe(t, "abide.service", nil, args)
	if file := setting(t, "storage.sqlite.path", nil, args); path.Dir(file) != "/var/lib/"+unit["StateDirectory"] {
		t.Errorf("the data file is %s: the server may write nowhere but in its state directory", file)
	}
	if stop, err := strconv.Atoi(unit["TimeoutStopSec"]); err != nil || time.Duration(stop)*time.Second <= shutdownTimeout(t, nil, args) {
		t.Errorf("TimeoutStopSec=%s", unit["TimeoutStopSec"])
	}
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze, which would verify the unit, is not installed")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	local := filepath.Join(t.TempDir(), "abide.service")
	text = bytes.ReplaceAll(text, []byte("/usr/local/bin/abide"), []byte(self))
	if err := os.WriteFile(local, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "verify", "--man=no", local).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// readObjects decodes the objects of a Kubernetes file.
func readObjects(t *testing.T, file string) (objects []object) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, o)
	}
}
