package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"abide/internal/sim"
)

// simulateCommand runs the deterministic simulation.
type simulateCommand struct {
	Seeds   uint64 `default:"1000" placeholder:"N" help:"How many universes to run."`
	From    uint64 `default:"1" placeholder:"SEED" help:"The first seed; the others follow it."`
	Seed    uint64 `placeholder:"SEED" help:"Run this seed alone and print its trace."`
	Faults  []int  `placeholder:"N" help:"With --seed: only these faults of its plan, by their numbers."`
	Servers int    `placeholder:"N" help:"Servers on the store, 1 to 3. Default: what the seed chooses, one in half of them."`
	Push    string `enum:"seed,always,never" default:"seed" placeholder:"WHEN" help:"Whether messages are pushed to simulated targets: always, never, or seed for what the seed chooses, which is in three of ten."`
	Workers int    `placeholder:"N" help:"Universes at a time. Default: one per core."`
	Model   bool   `help:"Also compare every answer with that of the reference model, which takes several times as long."`
	JSON    bool   `name:"json" help:"Print the report as one JSON object."`
}

// Validate checks the values; kong calls it.
func (c *simulateCommand) Validate() error {
	switch {
	case len(c.Faults) > 0 && c.Seed == 0:
		return errors.New("--faults: which faults there are depends on the seed; give --seed as well")
	case c.Seeds < 1:
		return errors.New("--seeds: at least 1")
	case c.Servers < 0 || c.Servers > 3:
		return fmt.Errorf("--servers: %d; it must be 1 to 3", c.Servers)
	case c.Workers < 0 || c.Workers > 1024:
		return fmt.Errorf("--workers: %d; it must be 1 to 1024", c.Workers)
	}
	return nil
}

// simulated is the report.
type simulated struct {
	From       uint64            `json:"from"`
	Seeds      uint64            `json:"seeds"`
	Failed     []simulatedFailed `json:"failed"`
	Seconds    float64           `json:"seconds"`
	SeedsPerS  float64           `json:"seedsPerSecond"`
	PerCore    float64           `json:"seedsPerSecondAndWorker"`
	Totals     sim.Stats         `json:"totals"`
	VirtualDay float64           `json:"virtualDays"`
}

type simulatedFailed struct {
	Seed   uint64 `json:"seed"`
	Error  string `json:"error"`
	Replay string `json:"replay"`
}

// simulateMemory is how much garbage may pile up, in percent of what is in use: universes are small and short.
const simulateMemory = 1000

// Run runs the seeds and prints what came of them.
func (c *simulateCommand) Run(in surroundings, _ *environment) error {
	if c.Seed != 0 {
		return c.one(in)
	}
	ctx, stop := in.untilSignal()
	defer stop()
	defer debug.SetGCPercent(debug.SetGCPercent(simulateMemory))
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	report := c.run(ctx, in)
	if err := report.print(in, c.JSON); err != nil {
		return err
	}
	switch {
	case len(report.Failed) > 0:
		return fmt.Errorf("%d of %d seeds failed", len(report.Failed), report.Seeds)
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted after %d seeds", report.Seeds)
	}
	return nil
}

// config is the universe of a seed.
func (c *simulateCommand) config(seed uint64) sim.Config {
	choice := map[string]sim.Choice{"always": sim.Always, "never": sim.Never}[c.Push]
	return sim.Config{Seed: seed, Servers: c.Servers, Push: choice, Model: c.Model}
}

// one runs one seed with its trace. If it fails, the few faults that it takes are looked for.
func (c *simulateCommand) one(in surroundings) error {
	config := c.config(c.Seed)
	config.Trace = in.stdout
	plan := config.SeedPlan()
	if len(c.Faults) > 0 {
		config.Plan = plan.Only(c.Faults)
		return sim.Run(config).Err
	}
	fmt.Fprintf(in.stdout, "faults of seed %d:\n%s", c.Seed, plan)
	failure := sim.Run(config).Err
	if failure == nil {
		return nil
	}
	few, r := sim.Shrink(config)
	fmt.Fprintln(in.stdout, "\nIt takes these faults alone:")
	for _, n := range few {
		fmt.Fprintf(in.stdout, "%3d %s\n", n, plan.Faults[n])
	}
	fmt.Fprintf(in.stdout, "replay: abide simulate --seed %d --servers %d --push %s --faults %s\n%v\n",
		c.Seed, max(c.Servers, 0), c.Push, strings.Trim(strings.ReplaceAll(fmt.Sprint(few), " ", ","), "[]"), r.Err)
	return failure
}

func (c *simulateCommand) run(ctx context.Context, in surroundings) simulated {
	report := simulated{From: c.From, Failed: []simulatedFailed{}}
	begin := time.Now()
	shown, progress := begin, isTerminal(in.stderr)
	sim.Many(ctx, c.From, c.Seeds, c.Workers, c.config, func(r sim.Result) {
		report.Seeds++
		report.Totals.Add(r.Stats)
		if r.Err != nil {
			replay := fmt.Sprintf("abide simulate --seed %d", r.Seed)
			if c.Model {
				replay += " --model"
			}
			if c.Servers != 0 {
				replay += fmt.Sprintf(" --servers %d", c.Servers)
			}
			if c.Push != "seed" {
				replay += " --push " + c.Push
			}
			report.Failed = append(report.Failed, simulatedFailed{r.Seed, r.Err.Error(), replay})
		}
		if now := time.Now(); progress && now.Sub(shown) > 200*time.Millisecond {
			shown = now
			fmt.Fprintf(in.stderr, "\r\x1b[K%d of %d seeds, %d failed, %.0f a second",
				report.Seeds, c.Seeds, len(report.Failed), float64(report.Seeds)/now.Sub(begin).Seconds())
		}
	})
	if progress {
		fmt.Fprint(in.stderr, "\r\x1b[K")
	}
	report.Seconds = time.Since(begin).Seconds()
	report.SeedsPerS = float64(report.Seeds) / report.Seconds
	report.PerCore = report.SeedsPerS / float64(c.Workers)
	report.VirtualDay = float64(report.Totals.VirtualMs) / (24 * time.Hour).Seconds() / 1000
	return report
}

func (s *simulated) print(in surroundings, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(in.stdout).Encode(s)
	}
	for _, f := range s.Failed {
		fmt.Fprintf(in.stdout, "seed %d: %s\nreplay: %s\n\n", f.Seed, f.Error, f.Replay)
	}
	t := s.Totals
	fmt.Fprintf(in.stdout, "%d seeds from %d, %d failed; %.1f s, %.0f seeds a second, %.0f a second and worker\n",
		s.Seeds, s.From, len(s.Failed), s.Seconds, s.SeedsPerS, s.PerCore)
	fmt.Fprintf(in.stdout, "%.1f virtual days: %d requests, %d commits, %d faults, %d crashes, %d messages lost, %d doubled, %d late,\n",
		s.VirtualDay, t.Requests, t.Commits, t.Faults, t.Crashes, t.Lost, t.Duplicated, t.Delayed)
	fmt.Fprintf(in.stdout, "%d messages pushed, %d of them not accepted, %d servers dead between claim and answer,\n", t.Pushes, t.PushesFailed, t.PushKills)
	_, err := fmt.Fprintf(in.stdout, "%d conflicts, %d unknown outcomes, %d slow calls, %d hints dropped; the checker ran %d times\n",
		t.Conflicts, t.Unknown, t.Slow, t.HintsDropped, t.Inspections)
	return err
}
