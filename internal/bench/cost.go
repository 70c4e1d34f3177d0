package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ModeCost is the mode of Cost, as reports name it.
const ModeCost Mode = "cost"

// costWarmup is for how long a server runs warm before each time that it is measured.
const costWarmup = 300 * time.Millisecond

// scrapeInterval is how often the metrics of a loaded server are read.
const scrapeInterval = time.Second

// CostConfig says how to measure what settings of a server cost: two own servers, a plain one and one with those settings,
// are measured turn by turn. The zero value is not valid.
type CostConfig struct {
	// Mode, Clients, For, SizeBytes, Seed and Progress are those of Config; For is of each side in each round.
	Mode      Mode
	Clients   int
	For       time.Duration
	SizeBytes int
	Seed      uint64
	Progress  func(text string)
	// Rounds is how often both are measured, 1 to MaxRounds; every other round the second one goes first.
	Rounds int
	// Own is how both are started, its Flags included. The plain one shows no metrics.
	Own OwnServer
	// Flags are the further ones of the second server, whose metrics are scraped every second, and Token is what it is sent
	// with every request.
	Flags []string
	Token string
}

// Validate says what is wrong with c, nil if nothing is.
func (c CostConfig) Validate() error {
	if c.Rounds < 1 || c.Rounds > MaxRounds {
		return fmt.Errorf("%d rounds: use 1 to %d", c.Rounds, MaxRounds)
	}
	return c.side("", c.Token).Validate()
}

// side is the run of one server in one round.
func (c CostConfig) side(url, token string) Config {
	return Config{Mode: c.Mode, Clients: c.Clients, For: c.For, Warmup: costWarmup, SizeBytes: c.SizeBytes, Seed: c.Seed, URL: url, Token: token, Own: c.Own}
}

// CostReport is what Cost has measured; its JSON is the output of abide bench cost. Members are only ever added.
type CostReport struct {
	Where
	Clients   int  `json:"clients"`
	Operation Mode `json:"operation"`
	Rounds    int  `json:"rounds"`
	// Plain and Loaded are the two servers, over all rounds.
	Plain  Side `json:"plain"`
	Loaded Side `json:"loaded"`
	// Cost is the part of the plain server's throughput that the loaded one lacks; RoundsCost that of each round.
	Cost       float64   `json:"cost"`
	RoundsCost []float64 `json:"roundsCost"`
}

// Side is one of two servers.
type Side struct {
	OperationsPerSecond float64 `json:"operationsPerSecond"`
	// P50 and P99 are means over the rounds, in milliseconds; CPUUsPerOperation the server's CPU time, null where it
	// cannot be measured.
	P50               float64          `json:"p50Ms"`
	P99               float64          `json:"p99Ms"`
	CPUUsPerOperation *float64         `json:"serverCpuUsPerOperation"`
	Errors            map[string]int64 `json:"errors"`

	operations, measuredMs int64
	cpu                    time.Duration
	cpuUnknown             bool
	server                 *ownServer
	token                  string
}

// Cost measures a plain server and a loaded one, turn by turn, so that what else the machine does meets both.
func Cost(ctx context.Context, c CostConfig) (CostReport, error) {
	if err := c.Validate(); err != nil {
		return CostReport{}, err
	}
	report := CostReport{Where: where(ModeCost, "", c.For, c.SizeBytes, c.Seed), Clients: c.Clients, Operation: c.Mode, Rounds: c.Rounds,
		Plain: Side{Errors: map[string]int64{}}, Loaded: Side{Errors: map[string]int64{}, token: c.Token}}
	plain, loaded := c.Own, c.Own
	plain.Flags = append(c.Own.Flags[:len(c.Own.Flags):len(c.Own.Flags)], "--observability-metrics-port", "0")
	loaded.Flags = append(c.Own.Flags[:len(c.Own.Flags):len(c.Own.Flags)], c.Flags...)
	var err error
	if report.Plain.server, err = startServer(ctx, plain, c.Clients); err != nil {
		return report, err
	}
	defer report.Plain.server.kill()
	if report.Loaded.server, err = startServer(ctx, loaded, c.Clients); err != nil {
		return report, err
	}
	defer report.Loaded.server.kill()
	scraping, stop := context.WithCancel(ctx)
	defer stop()
	go scrape(scraping, report.Loaded.server.metrics)
	for n := range c.Rounds {
		sides := []*Side{&report.Plain, &report.Loaded}
		if n%2 == 1 {
			sides[0], sides[1] = sides[1], sides[0]
		}
		rates := map[*Side]float64{}
		for _, side := range sides {
			if c.Progress != nil {
				c.Progress(fmt.Sprintf("round %d of %d", n+1, c.Rounds))
			}
			if rates[side], err = side.measure(ctx, c); err != nil {
				return report, err
			}
		}
		report.RoundsCost = append(report.RoundsCost, lack(rates[&report.Loaded], rates[&report.Plain]))
	}
	report.Plain.sum(c.Rounds)
	report.Loaded.sum(c.Rounds)
	report.Cost = lack(report.Loaded.OperationsPerSecond, report.Plain.OperationsPerSecond)
	return report, nil
}

// lack is the part of whole that some lacks.
func lack(some, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return shown(1 - some/whole)
}

// measure runs one side once, and returns its operations per second.
func (s *Side) measure(ctx context.Context, c CostConfig) (float64, error) {
	pid := s.server.command.Process.Pid
	before, unknown := processCPU(pid)
	report, err := Run(ctx, c.side(s.server.url, s.token))
	if err != nil {
		return 0, err
	}
	if report.Latency == nil {
		return 0, errors.New("no operation ended well: " + fmt.Sprint(report.Errors))
	}
	after, failed := processCPU(pid)
	s.cpuUnknown = s.cpuUnknown || unknown != nil || failed != nil
	s.cpu += after - before
	s.operations += report.Operations
	s.measuredMs += report.MeasuredMs
	s.P50 += report.Latency.P50
	s.P99 += report.Latency.P99
	for name, n := range report.Errors {
		s.Errors[name] += n
	}
	return report.OperationsPerSecond, nil
}

// sum turns what the rounds have added up into the figures of the report. The CPU time is that of warmups too.
func (s *Side) sum(rounds int) {
	s.OperationsPerSecond = perSecond(s.operations, s.measuredMs)
	s.P50, s.P99 = shown(s.P50/float64(rounds)), shown(s.P99/float64(rounds))
	if !s.cpuUnknown && s.operations > 0 {
		each := shown(float64(s.cpu.Microseconds()) / float64(s.operations))
		s.CPUUsPerOperation = &each
	}
}

// scrape reads a server's metrics until ctx ends, as a collector would.
func scrape(ctx context.Context, url string) {
	for pause(ctx, scrapeInterval) == nil {
		_, _ = readFigures(ctx, url) // one that is missed is missed by a collector too
	}
}
