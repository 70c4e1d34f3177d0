package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"abide/internal/auth"
	"abide/internal/bench"
	"abide/kv/pgkv"
)

// comparison are the flags of modes that measure two things turn by turn.
type comparison struct {
	Flood     int          `default:"512" placeholder:"N" help:"In flood: clients of the other workspace."`
	FloodMode string       `default:"lifecycle" placeholder:"MODE" help:"In flood: what their operations are."`
	Every     milliseconds `default:"50ms" placeholder:"DURATION" help:"In flood: time from one operation of a gentle client to its next."`
	Rounds    int          `default:"5" placeholder:"N" help:"In flood and cost: how often each side is measured, each time for --for."`
	Elsewhere string       `placeholder:"STORE" help:"In flood on a database: the store of the second server; by default, on PostgreSQL, another schema of the same database."`
	Loaded    []string     `name:"loaded" placeholder:"FLAG" sep:"none" help:"In cost: a further flag of the second server; repeatable. Without any it has authentication, metrics that are scraped, and traces of one request in a hundred."`
}

// gentleClients is how many clients flood has beside the flood.
const gentleClients = 4

// compares tells whether the mode measures two things turn by turn.
func (c *benchCommand) compares() bool {
	return slices.Contains([]bench.Mode{bench.ModeFlood, bench.ModeCost}, bench.Mode(c.Mode))
}

// elsewhereSuffix names the schema of the second server of flood after that of the first one.
const elsewhereSuffix = "_elsewhere"

// elsewhere is the store of the second server of flood: of the same engine as the first one, and another. A file has no
// address: each own server makes one.
func (c *benchCommand) elsewhere() (storeAddress, error) {
	first, err := c.address("")
	switch {
	case err != nil:
		return first, err
	case c.Elsewhere == "" && first.engine == enginePostgres:
		second := first
		if second.schema == "" {
			second.schema = pgkv.DefaultSchema
		}
		second.schema += elsewhereSuffix
		return second, nil
	case c.Elsewhere == "" && first.engine == engineSQLite:
		return first, nil
	case c.Elsewhere == "":
		return first, errors.New("flood compares two servers: name the database of the second one with --elsewhere")
	}
	second, err := parseAddress(c.Elsewhere)
	switch {
	case err != nil:
		return first, err
	case second.engine != first.engine || second.engine == engineSQLite:
		return first, fmt.Errorf("--elsewhere is for a second database of the engine of the first one, %s; own servers on files have one each", first.engine)
	case second.place == first.place && second.schema == first.schema:
		return first, errors.New("--elsewhere is the store of the first server: the flood would be there as well")
	}
	second.poolSize, second.acceptDataLoss = first.poolSize, first.acceptDataLoss
	return second, nil
}

// validateComparison checks the values of a mode that compares.
func (c *benchCommand) validateComparison() error {
	if err := c.validateServer(); err != nil {
		return err
	}
	own := bench.OwnServer{Binary: "abide", Folder: devFolder}
	switch {
	case c.Keys != 0 || c.Preload != 0:
		return fmt.Errorf("%s knows no --keys and no --preload", c.Mode)
	case c.Metrics != "":
		return errors.New("--metrics-url is of no use to " + c.Mode)
	case bench.Mode(c.Mode) == bench.ModeFlood:
		config := c.floodConfig()
		config.Own = own
		_, err := c.elsewhere()
		return errors.Join(err, config.Validate())
	case c.Elsewhere != "" || c.Patient:
		return fmt.Errorf("%s knows no --elsewhere and no --patient", c.Mode)
	case c.URL != "":
		return errors.New("cost starts two servers of its own: leave --url out")
	}
	config := c.costConfig()
	config.Own = own
	return config.Validate()
}

func (c *benchCommand) floodConfig() bench.FloodConfig {
	return bench.FloodConfig{
		Clients: c.clients(gentleClients), Every: c.Every.duration(), Flood: c.Flood, FloodMode: bench.Mode(c.FloodMode), Patient: c.Patient,
		Rounds: c.Rounds, For: c.For.duration(), SizeBytes: c.Size, Seed: c.Seed, URL: c.URL, Token: c.Token,
	}
}

func (c *benchCommand) costConfig() bench.CostConfig {
	return bench.CostConfig{
		Mode: bench.Lifecycle, Clients: c.clients(defaultClients), Rounds: c.Rounds, For: c.For.duration(), SizeBytes: c.Size, Seed: c.Seed,
		Flags: c.Loaded, Token: c.Token,
	}
}

// runReport measures with an own server and prints the report, one JSON object on stdout.
func (c *benchCommand) runReport(ctx context.Context, in surroundings, measure func(ctx context.Context, own bench.OwnServer, say func(string)) (any, error)) error {
	a, err := c.address("")
	if err != nil {
		return err
	}
	own, err := ownServer(in.environ)
	if err != nil {
		return err
	}
	own.Flags = c.With
	own.Storage = c.storageFlags(a)
	if a.acceptDataLoss {
		own.Flags = append(own.Flags, "--accept-data-loss")
	}
	say, clear := benchProgress(in)
	report, err := measure(ctx, own, say)
	clear()
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return a.hide(err)
	}
	return json.NewEncoder(in.stdout).Encode(report)
}

// measureComparison runs a mode that compares.
func (c *benchCommand) measureComparison(ctx context.Context, own bench.OwnServer, say func(string)) (any, error) {
	if bench.Mode(c.Mode) == bench.ModeFlood {
		return c.runFlood(ctx, own, say)
	}
	return c.runCost(ctx, own, say)
}

func (c *benchCommand) runFlood(ctx context.Context, own bench.OwnServer, say func(string)) (bench.FloodReport, error) {
	second, err := c.elsewhere()
	if err != nil {
		return bench.FloodReport{}, err
	}
	config := c.floodConfig()
	config.Own, config.Progress, config.Elsewhere = own, say, c.storageFlags(second)
	report, err := bench.Flood(ctx, config)
	report.Version = buildVersion()
	return report, second.hide(err)
}

func (c *benchCommand) runCost(ctx context.Context, own bench.OwnServer, say func(string)) (report bench.CostReport, err error) {
	config := c.costConfig()
	config.Own, config.Progress = own, say
	if len(config.Flags) == 0 {
		if config.Token != "" {
			return report, errors.New("--token is for the second server, which has a key of its own unless --loaded says what it has")
		}
		flags, token, release, err := everythingOn(own.Folder)
		if err != nil {
			return report, err
		}
		defer release()
		config.Flags, config.Token = flags, token
	}
	report, err = bench.Cost(ctx, config)
	report.Version = buildVersion()
	return report, err
}

// benchTokenLife is how long the token of a run is good: longer than any run.
const benchTokenLife = 24 * time.Hour

// everythingOn is what a server is given that has authentication and traces, of one request in a hundred, and a token that
// it takes. Its collector is here, and throws away what it gets. release ends that, and removes the key.
func everythingOn(folder string) (flags []string, token string, release func(), err error) {
	pair, err := auth.GenerateKey("EdDSA")
	if err != nil {
		return nil, "", nil, err
	}
	now := time.Now()
	if token, err = auth.Sign(pair.Private, auth.Token{Role: "admin", IssuedAt: now, Expires: now.Add(benchTokenLife)}); err != nil {
		return nil, "", nil, err
	}
	folder, err = os.MkdirTemp(folder, "bench-key-")
	if err != nil {
		return nil, "", nil, fmt.Errorf("cannot make a folder for the key: %w", err)
	}
	key := filepath.Join(folder, "public.pem")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = os.WriteFile(key, pair.Public, 0o600)
	}
	if err != nil {
		_ = os.RemoveAll(folder)
		return nil, "", nil, err
	}
	collector := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})}
	go func() { _ = collector.Serve(l) }()
	flags = []string{"--auth-publickey", key, "--observability-otlp-endpoint", "http://" + l.Addr().String(),
		"--observability-otlp-protocol", "http/protobuf", "--observability-trace-sample", "0.01"}
	return flags, token, func() { _ = collector.Close(); _ = os.RemoveAll(folder) }, nil
}
