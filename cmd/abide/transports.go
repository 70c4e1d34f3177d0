package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"

	"abide/internal/engine"
	"abide/internal/push"
	"abide/internal/push/pubsub"
	"abide/internal/push/script"
	"abide/protocol"
)

// transportSettings say how messages go to topics of Google Cloud Pub/Sub, and whether the server runs scripts itself.
// Both are off unless somebody turns them on. (docs/transports.md)
type transportSettings struct {
	GCPSEnabled     switched     `setting:"transports.gcps.enabled" name:"transports-gcps-enabled" default:"false" placeholder:"true|false" help:"Send messages to gcps:// addresses, topics of Google Cloud Pub/Sub. Off, they stay queued."`
	GCPSProject     string       `setting:"transports.gcps.project" name:"transports-gcps-project" placeholder:"PROJECT" help:"The only project whose topics are published to; by default any that the credentials may publish to."`
	GCPSConcurrency int          `setting:"transports.gcps.concurrency" name:"transports-gcps-concurrency" default:"256" placeholder:"N" help:"Messages that are published to one topic at once."`
	GCPSTimeout     milliseconds `setting:"transports.gcps.timeout" name:"transports-gcps-timeout" default:"10s" placeholder:"DURATION" help:"How long the publishing of a message may take."`

	BashExecEnabled     switched `setting:"transports.bash_exec.enabled" name:"transports-bash-exec-enabled" default:"false" placeholder:"true|false" help:"Run the scripts of promises that are addressed to bash://, on this machine and as this server's user. Whoever may create a promise may then run anything. Off, they stay queued."`
	BashExecConcurrency int      `setting:"transports.bash_exec.concurrency" name:"transports-bash-exec-concurrency" default:"16" placeholder:"N" help:"Scripts that run at once."`
	BashExecMaxOutput   int      `setting:"transports.bash_exec.max_output" name:"transports-bash-exec-max-output" default:"262144" placeholder:"BYTES" help:"How much of a script's output is kept, its beginning and its end; at most 524288."`
	BashExecEnv         []string `setting:"transports.bash_exec.env" name:"transports-bash-exec-env" placeholder:"NAME" sep:"," help:"Environment variable of the server that scripts are given too, or NAME_ for all that begin so; repeatable."`
}

// Limits of settings, checked at start.
const (
	maxScriptConcurrency = 1000
	minScriptOutput      = 1 << 10
	// minScriptLease keeps a lease that is renewed three times in its span from being lost to a slow moment.
	minScriptLease = milliseconds(1000)
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// validate checks the values. lease is tasks.lease_timeout, which nothing but scripts uses.
func (s *transportSettings) validate(lease milliseconds) error {
	counts := []struct {
		flag            string
		value, min, max int
	}{
		{"transports-gcps-concurrency", s.GCPSConcurrency, 1, maxPushConcurrency},
		{"transports-bash-exec-concurrency", s.BashExecConcurrency, 1, maxScriptConcurrency},
		{"transports-bash-exec-max-output", s.BashExecMaxOutput, minScriptOutput, script.MaxOutputBytes},
	}
	for _, c := range counts {
		if c.value < c.min || c.value > c.max {
			return fmt.Errorf("--%s is %d: it must be from %d to %d", c.flag, c.value, c.min, c.max)
		}
	}
	switch {
	case s.GCPSTimeout < 1:
		return errors.New("--transports-gcps-timeout is 0: it must be at least 1 ms")
	case s.GCPSProject != "" && !pubsub.ValidProject(s.GCPSProject):
		return fmt.Errorf("--transports-gcps-project is %.100q: it must be the id of a project", s.GCPSProject)
	case bool(s.BashExecEnabled) && lease < minScriptLease:
		return fmt.Errorf("--tasks-lease-timeout is %d ms: with transports.bash_exec.enabled it must be at least %d ms", lease, minScriptLease)
	}
	for _, name := range s.BashExecEnv {
		if !variableName.MatchString(name) {
			return fmt.Errorf("--transports-bash-exec-env is %.100q: it must be the name of an environment variable; its value is the server's own", name)
		}
	}
	return nil
}

// otherTransports makes those that are on.
func (s *transportSettings) otherTransports(logger *slog.Logger, o serverOptions, e *engine.Engine) ([]push.Served, error) {
	var served []push.Served
	if s.GCPSEnabled {
		served = append(served, push.Served{Name: "gcps", Schemes: []string{protocol.SchemeGCPS}, Transport: pubsub.New(pubsub.Options{
			Project:      s.GCPSProject,
			Timeout:      s.GCPSTimeout.duration(),
			Concurrency:  s.GCPSConcurrency,
			EmulatorHost: os.Getenv("PUBSUB_EMULATOR_HOST"), // the variable that all of the service's clients know
			UserAgent:    "abide/" + buildVersion(),
		})})
	}
	if s.BashExecEnabled {
		_, err := exec.LookPath("bash")
		if _, noDocker := exec.LookPath("docker"); err != nil && noDocker != nil {
			return nil, errors.New("transports.bash_exec.enabled: neither bash nor docker is on the PATH of this server")
		}
		if o.guard.auth == nil {
			logger.Warn("scripts are run for everybody who reaches this server, since there is no authentication: anybody may run anything as its user")
		}
		served = append(served, push.Served{Name: "bash", Schemes: []string{protocol.SchemeBash}, Transport: script.New(script.Options{
			Engine:      e,
			LeaseMs:     int64(o.settings.TasksLeaseTimeout),
			Concurrency: s.BashExecConcurrency,
			OutputBytes: s.BashExecMaxOutput,
			Environ:     os.Environ(),
			Pass:        s.BashExecEnv,
			Children:    o.children,
			Log:         logger,
		})})
	}
	return served, nil
}
