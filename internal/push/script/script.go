// Package script runs the scripts of tasks that are addressed to bash://. Here the server itself is the worker: it claims
// the task through the same requests that a worker makes, keeps its lease while the script runs, and settles the promise
// with what came of it. (docs/transports.md)
//
// The files: script.go (the transport), execution.go (one task from its claim to its end), payload.go (the script in a
// param, the outcome in a value), process.go (what runs, and how it is ended), output.go (what is kept of its output).
package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"abide/internal/children"
	"abide/internal/push"
	"abide/protocol"
)

// Limits and defaults of a Transport.
const (
	// DefaultLeaseMs is the lease of a task whose script runs. It is renewed three times in that span.
	DefaultLeaseMs = 15_000
	// DefaultConcurrency is how many scripts run at once, local ones and containers each.
	DefaultConcurrency = 16
	// DefaultMaxOutputBytes is how much is kept of what a script writes, for standard output and error each.
	DefaultMaxOutputBytes = 256 << 10
	// MaxOutputBytes is the most that Options may ask for: what bytes become as text and in base64 must fit into a value.
	MaxOutputBytes = 512 << 10
	// DefaultGraceMs is how long a script has between being asked to end and being killed.
	DefaultGraceMs = 3_000
)

// The lanes: a daemon of docker that does not answer holds up no local script.
const (
	localLane     = "bash"
	containerLane = "docker"
)

// Engine answers requests, as those of workers, and has the clock that deadlines are judged by.
type Engine interface {
	// Do serves one request of a workspace. debugTime is nil.
	Do(ctx context.Context, workspace string, req protocol.Request, debugTime *int64) protocol.Reply
	// Now is the instant, epoch ms.
	Now() int64
}

// Options of a Transport. Zero fields have the defaults stated.
type Options struct {
	// Engine is needed.
	Engine Engine
	// LeaseMs is the lease of a task whose script runs. Default DefaultLeaseMs.
	LeaseMs int64
	// Concurrency is how many scripts run at once, local ones and containers each. Default DefaultConcurrency.
	Concurrency int
	// OutputBytes is how much is kept of standard output and of standard error. Default DefaultMaxOutputBytes, at most
	// MaxOutputBytes.
	OutputBytes int
	// GraceMs is how long a script has between SIGTERM and SIGKILL. Default DefaultGraceMs.
	GraceMs int64
	// Environ is the server's environment as NAME=value. A script is given little of it: see Pass. The command line of
	// docker is given all of it.
	Environ []string
	// Pass names variables of Environ that scripts are given besides those that any program needs.
	Pass []string
	// Children is told which processes are started, so that their status is not taken by whoever reaps orphans. Default:
	// nobody does.
	Children *children.Register
	// Log takes what an operator should know. Default: nothing is logged.
	Log *slog.Logger
}

// Transport runs scripts. It is safe for concurrent use.
type Transport struct {
	opt         Options
	lease       time.Duration
	grace       time.Duration
	local       []string // the environment of local scripts
	passed      []string // what containers are given of the server's, as NAME=value
	stopping    chan struct{}
	interrupted sync.Once
}

var (
	_ push.Transport   = (*Transport)(nil)
	_ push.Interrupter = (*Transport)(nil)
)

// New makes a transport.
func New(o Options) *Transport {
	if o.LeaseMs == 0 {
		o.LeaseMs = DefaultLeaseMs
	}
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.OutputBytes == 0 {
		o.OutputBytes = DefaultMaxOutputBytes
	}
	o.OutputBytes = min(o.OutputBytes, MaxOutputBytes)
	if o.GraceMs == 0 {
		o.GraceMs = DefaultGraceMs
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Transport{
		opt:      o,
		lease:    time.Duration(o.LeaseMs) * time.Millisecond,
		grace:    time.Duration(o.GraceMs) * time.Millisecond,
		local:    pick(o.Environ, slices.Concat(plain, o.Pass)),
		passed:   pick(o.Environ, o.Pass),
		stopping: make(chan struct{}),
	}
}

// Lane is the same for all local scripts, and for all containers.
func (t *Transport) Lane(address protocol.Address, text string) (string, error) {
	switch {
	case address.Scheme != protocol.SchemeBash:
		return "", fmt.Errorf("%.100q is no address of a script, which are bash:// and bash://docker/image", text)
	case address.Group == protocol.BashLocal && !localScripts:
		return "", errors.New("scripts run on this system in containers only: bash://docker/image")
	}
	if address.Group == protocol.BashDocker {
		return containerLane, nil
	}
	return localLane, nil
}

// Concurrency is how many scripts of a lane run at once.
func (t *Transport) Concurrency(string) int { return t.opt.Concurrency }

// Send runs the script of a task, from its claim to its end. That the task is nobody's to run any more is ErrStale;
// what keeps scripts from running here is told before the task is claimed. Once it is claimed the message has done
// its work: a script that fails settles the promise, and one that is ended early leaves the task to its next execute.
// When ctx ends, the script is ended and the task released.
func (t *Transport) Send(ctx context.Context, m push.Message) error {
	if m.Promise != nil {
		return fmt.Errorf("%w: bash:// runs tasks, and nobody listens there", push.ErrRefused)
	}
	address, err := protocol.ParseAddress(m.Address)
	if err == nil {
		_, err = t.Lane(address, m.Address)
	}
	var what program
	if err == nil {
		what, err = t.program(address)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", push.ErrRefused, err)
	}
	select {
	case <-t.stopping:
		return errors.New("the server stops")
	default:
	}
	x, err := t.claim(ctx, m)
	if err != nil {
		return err
	}
	return x.run(ctx, what)
}

// program is what runs scripts of an address; an error if it is not installed.
func (t *Transport) program(a protocol.Address) (program, error) {
	name := map[string]string{protocol.BashLocal: "bash", protocol.BashDocker: "docker"}[a.Group]
	path, err := exec.LookPath(name)
	if err != nil {
		return program{}, fmt.Errorf("%s is not there to run scripts of %s://%s: %w", name, a.Scheme, a.Group, err)
	}
	return program{path: path, image: a.ID, container: a.Group == protocol.BashDocker}, nil
}

// Interrupt ends all scripts, whose tasks are released, and lets no other begin. For a server that stops: whatever runs is
// better begun again by another server than killed at the end of the time that a stop may take.
func (t *Transport) Interrupt() { t.interrupted.Do(func() { close(t.stopping) }) }

// Close does nothing: a Send that has returned holds nothing.
func (t *Transport) Close(context.Context) error { return nil }

// plain are the variables that any program needs and that hold no secrets. One that ends in "_" stands for all that begin
// with it.
var plain = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_", "TZ", "TMPDIR"}

// pick gives the variables of environ that are called as one of names.
func pick(environ, names []string) []string {
	out := []string{} // not nil, which exec takes for the whole environment
	for _, variable := range environ {
		name, _, ok := strings.Cut(variable, "=")
		if ok && slices.ContainsFunc(names, func(n string) bool { return n == name || strings.HasSuffix(n, "_") && strings.HasPrefix(name, n) }) {
			out = append(out, variable)
		}
	}
	return out
}
