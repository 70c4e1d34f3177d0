package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"abide/internal/bench"
)

// comparison are the flags of modes that measure two things turn by turn.
type comparison struct {
	Flood     int          `default:"512" placeholder:"N" help:"In flood: clients of the other workspace."`
	FloodMode string       `default:"lifecycle" placeholder:"MODE" help:"In flood: what their operations are."`
	Every     milliseconds `default:"50ms" placeholder:"DURATION" help:"In flood: time from one operation of a gentle client to its next."`
	Rounds    int          `default:"5" placeholder:"N" help:"In flood and polls: how often each side is measured, each time for --for; in start: how often it is started after each kind of end."`
}

// gentleClients is how many clients flood has beside the flood.
const gentleClients = 4

// compares tells whether the mode measures two things turn by turn.
func (c *benchCommand) compares() bool { return bench.Mode(c.Mode) == bench.ModeFlood }

// validateComparison checks the values of a mode that compares.
func (c *benchCommand) validateComparison() error {
	if err := c.validateServer(); err != nil {
		return err
	}
	switch {
	case c.Keys != 0 || c.Preload != 0:
		return fmt.Errorf("%s knows no --keys and no --preload", c.Mode)
	case c.Metrics != "":
		return errors.New("--metrics-url is of no use to " + c.Mode)
	}
	config := c.floodConfig()
	config.Own = bench.OwnServer{Binary: "abide", Folder: devFolder}
	return config.Validate()
}

func (c *benchCommand) floodConfig() bench.FloodConfig {
	return bench.FloodConfig{
		Clients: c.clients(gentleClients), Every: c.Every.duration(), Flood: c.Flood, FloodMode: bench.Mode(c.FloodMode),
		Rounds: c.Rounds, For: c.For.duration(), SizeBytes: c.Size, Seed: c.Seed, URL: c.URL, Token: c.Token,
	}
}

// runComparison measures and prints the report, one JSON object on stdout.
func (c *benchCommand) runComparison(ctx context.Context, in surroundings) error {
	a, err := c.address("")
	if err != nil {
		return err
	}
	config := c.floodConfig()
	if config.Own, err = ownServer(in.environ); err != nil {
		return err
	}
	config.Own.Flags = c.With
	config.Own.Storage = c.storageFlags(a)
	if a.acceptDataLoss {
		config.Own.Flags = append(config.Own.Flags, "--accept-data-loss")
	}
	var clear func()
	config.Progress, clear = benchProgress(in)
	report, err := bench.Flood(ctx, config)
	clear()
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return a.hide(err)
	}
	report.Version = buildVersion()
	return json.NewEncoder(in.stdout).Encode(report)
}
