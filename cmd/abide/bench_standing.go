package main

import (
	"context"
	"errors"
	"fmt"

	"abide/internal/bench"
)

// standing are the flags of modes that measure what a server costs before it does anything.
type standing struct {
	Idle    int `default:"10000" placeholder:"N" help:"In polls: streams on which nothing happens."`
	Workers int `default:"1000" placeholder:"N" help:"In polls: streams to which messages are sent."`
}

const (
	pollsClients  = 8         // messages on their way in polls
	startPromises = 1_000_000 // promises in start
)

// stands tells whether the mode measures what a server costs before it does anything.
func (c *benchCommand) stands() bool {
	return bench.Mode(c.Mode) == bench.ModePolls || bench.Mode(c.Mode) == bench.ModeStart
}

// validateStanding checks the values of such a mode.
func (c *benchCommand) validateStanding() error {
	own := bench.OwnServer{Binary: "abide", Folder: devFolder}
	switch {
	case c.URL != "" || c.Metrics != "":
		return fmt.Errorf("%s measures an own server: leave --url and --metrics-url out", c.Mode)
	case c.Token != "":
		return fmt.Errorf("%s starts a server that asks for no token: leave --token out", c.Mode)
	case c.Keys != 0:
		return errors.New("--keys is for the modes of the store alone")
	}
	if err := c.validateServer(); err != nil {
		return err
	}
	if bench.Mode(c.Mode) == bench.ModeStart {
		return c.startConfig(own).Validate()
	}
	if c.Preload != 0 {
		return errors.New("polls knows no --preload")
	}
	return c.pollsConfig(own).Validate()
}

func (c *benchCommand) pollsConfig(own bench.OwnServer) bench.PollsConfig {
	return bench.PollsConfig{Idle: c.Idle, Workers: c.Workers, Clients: c.clients(pollsClients), Rounds: c.Rounds, For: c.For.duration(),
		Warmup: c.Warmup.duration(), SizeBytes: c.Size, Seed: c.Seed, Own: own}
}

func (c *benchCommand) startConfig(own bench.OwnServer) bench.StartConfig {
	promises := c.Preload
	if promises == 0 {
		promises = startPromises
	}
	return bench.StartConfig{Promises: promises, Rounds: c.Rounds, SizeBytes: c.Size, Seed: c.Seed, Own: own}
}

// measureStanding runs a mode that stands.
func (c *benchCommand) measureStanding(ctx context.Context, own bench.OwnServer, say func(string)) (report any, err error) {
	if bench.Mode(c.Mode) == bench.ModePolls {
		config := c.pollsConfig(own)
		config.Progress = say
		polls, err := bench.Polls(ctx, config)
		polls.Version = buildVersion()
		return polls, err
	}
	config := c.startConfig(own)
	config.Progress = say
	start, err := bench.Start(ctx, config)
	start.Version = buildVersion()
	return start, err
}
