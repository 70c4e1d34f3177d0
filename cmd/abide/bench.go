package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"abide/internal/bench"
	"abide/kv/kvbench"
)

// benchCommand measures a server.
type benchCommand struct {
	Mode    string       `arg:"" words:"noop,create,get,lifecycle,dispatch,workflow,push,push-hang,push-unblock,kv-write,kv-read,kv-mixed,kv-size,flood,polls,cost,start" placeholder:"MODE" help:"What one operation is: noop, create, get, lifecycle, dispatch or workflow; push, push-hang or push-unblock; or, of the store alone: kv-write, kv-read, kv-mixed or kv-size; or a comparison: flood, polls or cost; or start."`
	URL     string       `name:"url" placeholder:"URL" help:"The server to measure; without it an own one is started, on a temporary file in .abide/ or the database that the storage flags name."`
	Metrics string       `name:"metrics-url" placeholder:"URL" help:"Where the server of --url shows its metrics."`
	With    []string     `name:"with" placeholder:"FLAG" sep:"none" help:"A further flag of an own server, such as --with=--tasks-retry-timeout=5s; repeatable."`
	Token   string       `setting:"token" placeholder:"TOKEN" help:"Sent with every request. In the variable, other users of this machine do not see it."`
	Clients int          `placeholder:"N" help:"Clients, each with one operation in flight; by default 64, in flood 4, in polls 8."`
	For     milliseconds `default:"10s" placeholder:"DURATION" help:"Measured time."`
	Warmup  milliseconds `default:"2s" placeholder:"DURATION" help:"Time before it that is not measured."`
	Size    int          `default:"200" placeholder:"BYTES" help:"Length of each param's and value's data."`
	Patient bool         `help:"Clients wait as long as a refusal (429, 503) tells them with Retry-After; in flood, those of the flood."`
	Seed    uint64       `default:"1" placeholder:"N" help:"Fixes payloads and random choices."`
	Preload int          `placeholder:"N" help:"Promises to create and settle before the warmup; in start, those of the store, 1000000 by default."`
	Keys    int          `placeholder:"N" help:"Keys in the store, for the modes of the store alone; by default 100000, in kv-size 1000000."`

	comparison
	standing
	storageSettings
}

// defaultClients is how many clients there are unless told otherwise.
const defaultClients = 64

// Validate checks the values; kong calls it.
func (c *benchCommand) Validate() error {
	if c.Mode == "" {
		return nil // kong is about to say that it is missing
	}
	if c.ofStore() {
		return c.validateStore()
	}
	if c.compares() {
		return c.validateComparison()
	}
	if c.stands() {
		return c.validateStanding()
	}
	if !slices.Contains(append(bench.Modes(), bench.PushModes()...), bench.Mode(c.Mode)) {
		return fmt.Errorf("unknown mode %q: use one of %s, %s, %s, %s, %s, %s", c.Mode, bench.ModeNames(), kvbench.ModeNames(), bench.ModeFlood, bench.ModeCost, bench.ModePolls, bench.ModeStart)
	}
	if err := c.validateServer(); err != nil {
		return err
	}
	if c.Keys != 0 {
		return fmt.Errorf("--keys is for the modes of the store alone; %s has --preload", c.Mode)
	}
	config := c.config()
	if c.URL == "" { // where an own server comes from is known only when it is started
		config.Own = bench.OwnServer{Binary: "abide", Folder: devFolder}
	}
	return config.Validate()
}

// validateServer checks what says which server is measured.
func (c *benchCommand) validateServer() error {
	a, err := c.address("x")
	switch {
	case err != nil:
		return err
	case c.URL != "" && a.engine != engineSQLite:
		return errors.New("--url names a server that runs already: leave the storage flags out")
	case c.URL != "" && len(c.With) > 0:
		return errors.New("--url names a server that runs already: leave --with out")
	case c.URL == "" && c.Metrics != "":
		return errors.New("--metrics-url is for the server of --url; an own one's is known")
	}
	return c.storageSettings.Validate()
}

// clients is how many clients there are: otherwise, unless told.
func (c *benchCommand) clients(otherwise int) int {
	if c.Clients == 0 {
		return otherwise
	}
	return c.Clients
}

func (c *benchCommand) config() bench.Config {
	return bench.Config{
		Mode:      bench.Mode(c.Mode),
		Clients:   c.clients(defaultClients),
		For:       c.For.duration(),
		Warmup:    c.Warmup.duration(),
		SizeBytes: c.Size,
		Seed:      c.Seed,
		Patient:   c.Patient,
		Preload:   c.Preload,
		URL:       c.URL,
		Token:     c.Token,

		MetricsURL: c.Metrics,
	}
}

// Run measures and prints the report, one JSON object on stdout.
func (c *benchCommand) Run(in surroundings, _ *environment) error {
	ctx, stop := in.untilSignal()
	defer stop()
	if c.ofStore() {
		return c.runStore(ctx, in)
	}
	if c.compares() {
		return c.runReport(ctx, in, c.measureComparison)
	}
	if c.stands() {
		return c.runReport(ctx, in, c.measureStanding)
	}
	config := c.config()
	if c.URL == "" {
		own, err := ownServer(in.environ)
		if err != nil {
			return err
		}
		own.Flags = c.With
		config.Own = own
		commit, release, err := c.engineCommit(ctx, &config)
		if err != nil {
			return err
		}
		defer release()
		config.EngineCommit = commit
	}
	var clear func()
	config.Progress, clear = benchProgress(in)
	report, err := bench.Run(ctx, config)
	clear()
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	report.Version = buildVersion()
	return json.NewEncoder(in.stdout).Encode(report)
}

// benchProgress says what goes on, where a person looks; clear takes the last word back.
func benchProgress(in surroundings) (say func(text string), clear func()) {
	if !isTerminal(in.stderr) {
		return nil, func() {}
	}
	return func(text string) { fmt.Fprintf(in.stderr, "\r\x1b[K%s", text) }, func() { fmt.Fprint(in.stderr, "\r\x1b[K") }
}

var errInterrupted = errors.New("interrupted; nothing was measured to its end")

// ownServer is this very binary with production's defaults: no settings from the environment reach it. Its
// data goes below the current folder, since a temporary folder may be in memory, where a sync costs nothing.
func ownServer(environ []string) (bench.OwnServer, error) {
	binary, err := os.Executable()
	if err != nil {
		return bench.OwnServer{}, fmt.Errorf("cannot tell where this binary is: %w", err)
	}
	if err := makeDevFolder(devFolder); err != nil {
		return bench.OwnServer{}, err
	}
	own := bench.OwnServer{Binary: binary, Folder: devFolder}
	for _, entry := range environ {
		if !isSetting(entry) {
			own.Environ = append(own.Environ, entry)
		}
	}
	return own, nil
}

func isSetting(entry string) bool {
	for _, prefix := range append([]string{otherPrefix}, environmentPrefixes...) {
		if strings.HasPrefix(strings.ToUpper(entry), prefix) {
			return true
		}
	}
	return false
}

// isTerminal tells whether a person looks at w.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
