package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// ModePolls is the mode of Polls, as reports name it.
const ModePolls Mode = "polls"

// Limits of a PollsConfig.
const (
	// MaxIdle bounds PollsConfig.Idle and PollsConfig.Workers: a server has an address, and so at most 64,511 ports to
	// be reached from.
	MaxIdle = 20_000
	// MaxPollsFor bounds PollsConfig.For: a server ends each stream after 216 s, and what is idle is not opened again.
	MaxPollsFor = 3 * time.Minute
)

const (
	idlePerGroup = 100              // idle streams in one worker group
	openers      = 64               // idle streams that are opened at once
	openTimeout  = 30 * time.Second // of one
	idleSettle   = time.Second      // from the last stream to the look at the memory
)

// PollsConfig says how to measure what streams on which nothing happens cost: memory, and time of messages on other
// streams. The zero value is not valid. There is always an own server.
type PollsConfig struct {
	Idle    int // streams on which nothing happens, 1 to MaxIdle
	Workers int // streams to which messages are sent, 1 to MaxIdle
	Clients int // how many messages are on their way at a time, each to another worker in turn; 1 to Workers
	// Rounds is how often it is measured without the idle streams and with them, each time for For, at most MaxPollsFor;
	// before the first one messages are sent for Warmup.
	Rounds int
	For    time.Duration
	Warmup time.Duration
	// SizeBytes, Seed, Own and Progress are those of Config.
	SizeBytes int
	Seed      uint64
	Own       OwnServer
	Progress  func(text string)
}

// Validate says what is wrong with c, nil if nothing is.
func (c PollsConfig) Validate() error {
	switch {
	case c.Idle < 1 || c.Idle > MaxIdle:
		return fmt.Errorf("%d idle streams: use 1 to %d", c.Idle, MaxIdle)
	case c.Workers < 1 || c.Workers > MaxIdle:
		return fmt.Errorf("%d workers: use 1 to %d", c.Workers, MaxIdle)
	case c.Clients < 1 || c.Clients > c.Workers:
		return fmt.Errorf("%d clients for %d workers: use 1 to as many as workers", c.Clients, c.Workers)
	case c.Rounds < 1 || c.Rounds > MaxRounds:
		return fmt.Errorf("%d rounds: use 1 to %d", c.Rounds, MaxRounds)
	case c.For > MaxPollsFor:
		return fmt.Errorf("%s of measured time each: use at most %s", c.For, MaxPollsFor)
	}
	return Config{Mode: Dispatch, Clients: 1, For: c.For, Warmup: c.Warmup, SizeBytes: c.SizeBytes, Own: c.Own}.Validate()
}

// PollsReport is what Polls has measured; its JSON is the output of abide bench polls. Members are only ever added. What
// could not be measured is null.
type PollsReport struct {
	Where
	Idle    int `json:"idle"`
	Workers int `json:"workers"`
	Clients int `json:"clients"`
	Rounds  int `json:"rounds"`

	// What the server had resident, the most of all rounds: with the workers' streams only, at the end of a measured
	// time; with the idle streams, before a message was sent, and at the end of a measured time; and at any moment.
	AloneMemoryBytes *int64 `json:"aloneMemoryBytes"`
	IdleMemoryBytes  *int64 `json:"idleMemoryBytes"`
	BusyMemoryBytes  *int64 `json:"busyMemoryBytes"`
	PeakMemoryBytes  *int64 `json:"peakMemoryBytes"`

	// Alone and Beside are the times from the request that creates a task to its message, over all rounds.
	Alone    *Latency `json:"aloneLatencyMs"`
	Beside   *Latency `json:"besideLatencyMs"`
	RatioP50 *float64 `json:"ratioP50"`
	RatioP99 *float64 `json:"ratioP99"`
	// Operations is how many tasks were dispatched in all, Errors what did not end well.
	Operations int64            `json:"operations"`
	Errors     map[string]int64 `json:"errors"`
}

// Polls measures dispatches without idle streams and beside them, turn by turn.
func Polls(ctx context.Context, c PollsConfig) (PollsReport, error) {
	if err := c.Validate(); err != nil {
		return PollsReport{}, err
	}
	p := &polls{config: c, report: PollsReport{Where: where(ModePolls, "", c.For, c.SizeBytes, c.Seed),
		Idle: c.Idle, Workers: c.Workers, Clients: c.Clients, Rounds: c.Rounds, Errors: map[string]int64{}}}
	server, err := startServer(ctx, c.Own, c.Idle+c.Workers)
	if err != nil {
		return PollsReport{}, err
	}
	defer server.kill()
	p.server = server
	p.report.URL = server.url
	err = p.run(ctx)
	return p.report, err
}

// polls is one run of Polls.
type polls struct {
	config  PollsConfig
	report  PollsReport
	server  *ownServer
	target  target
	workers chan *client // those that wait for work
}

func (p *polls) run(ctx context.Context) error {
	t, err := parseTarget(p.server.url)
	if err != nil {
		return err
	}
	if err := waitReady(ctx, t); err != nil {
		return err
	}
	p.target = t
	all, err := p.connect()
	defer closeAll(all)
	if err != nil {
		return err
	}
	p.progress("warming up for %s", p.config.Warmup)
	if err := p.dispatch(ctx, newLatencies(), p.config.Warmup); err != nil {
		return err
	}
	alone, beside := newLatencies(), newLatencies()
	for n := range p.config.Rounds {
		if err := p.round(ctx, n, alone, beside); err != nil {
			return err
		}
	}
	for _, c := range all {
		for name, count := range c.tally.errors {
			p.report.Errors[name] += count
		}
	}
	if peak, err := processPeakMemory(p.server.command.Process.Pid); err == nil {
		// The system keeps the peak by counters that lag: what has been seen may be above it.
		for _, seen := range []*int64{p.report.AloneMemoryBytes, p.report.IdleMemoryBytes, p.report.BusyMemoryBytes} {
			if seen != nil {
				peak = max(peak, *seen)
			}
		}
		p.report.PeakMemoryBytes = &peak
	}
	p.report.Alone, p.report.Beside = summarize(alone.histogram), summarize(beside.histogram)
	p.report.Operations = alone.histogram.TotalCount() + beside.histogram.TotalCount()
	p.report.RatioP50 = ratioAt(beside.histogram, alone.histogram, 50)
	p.report.RatioP99 = ratioAt(beside.histogram, alone.histogram, 99)
	return nil
}

// connect opens the streams of the workers. The caller closes what is returned, with an error too.
func (p *polls) connect() ([]*client, error) {
	shared := &plan{target: p.target, run: p.report.Run, mode: Dispatch, sizeBytes: p.config.SizeBytes, seed: p.config.Seed,
		timeoutAt: inADay(), endBy: time.Now().Add(24 * time.Hour)}
	p.workers = make(chan *client, p.config.Workers)
	all := make([]*client, 0, p.config.Workers)
	for i := range p.config.Workers {
		c := newClient(shared, fmt.Sprintf("%05d", i), func() bool { return true }, nil)
		all = append(all, c)
		if err := c.connect(); err != nil {
			return all, fmt.Errorf("worker %d of %d cannot connect: %w", i+1, p.config.Workers, err)
		}
		p.workers <- c
	}
	return all, nil
}

// round measures once without the idle streams and once with them.
func (p *polls) round(ctx context.Context, n int, alone, beside *latencies) error {
	p.progress("round %d of %d, alone", n+1, p.config.Rounds)
	if err := p.dispatch(ctx, alone, p.config.For); err != nil {
		return err
	}
	p.look(&p.report.AloneMemoryBytes)
	p.progress("round %d of %d, opening %d idle streams", n+1, p.config.Rounds, p.config.Idle)
	idle, err := p.openIdle(ctx)
	defer idle.close()
	if err != nil {
		return err
	}
	if err := pause(ctx, idleSettle); err != nil {
		return err
	}
	p.look(&p.report.IdleMemoryBytes)
	p.progress("round %d of %d, beside %d idle streams", n+1, p.config.Rounds, p.config.Idle)
	if err := p.dispatch(ctx, beside, p.config.For); err != nil {
		return err
	}
	p.look(&p.report.BusyMemoryBytes)
	idle.close()
	return pause(ctx, idleSettle)
}

// dispatch sends messages to the workers in turn for a time.
func (p *polls) dispatch(ctx context.Context, into *latencies, d time.Duration) error {
	var over atomic.Bool
	var running sync.WaitGroup
	for range p.config.Clients {
		running.Go(func() {
			for !over.Load() {
				c := <-p.workers
				c.tally.latencies = into
				c.operate()
				p.workers <- c
			}
		})
	}
	err := pause(ctx, d)
	over.Store(true)
	running.Wait()
	return err
}

// look keeps the largest of what the server has resident.
func (p *polls) look(most **int64) {
	now, err := processMemory(p.server.command.Process.Pid)
	if err == nil && (*most == nil || **most < now) {
		*most = &now
	}
}

func (p *polls) progress(format string, args ...any) {
	if p.config.Progress != nil {
		p.config.Progress(fmt.Sprintf(format, args...))
	}
}

// idleStreams are open, and nobody reads them: the few comments on them stay in the sockets.
type idleStreams []net.Conn

// close resets the connections: ended in the usual way, each would keep its port for a minute.
func (s idleStreams) close() {
	for _, conn := range s {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// openIdle opens the idle streams. The caller closes them, with an error too.
func (p *polls) openIdle(ctx context.Context) (idleStreams, error) {
	streams := make(idleStreams, p.config.Idle)
	errs := make([]error, openers)
	var running sync.WaitGroup
	for o := range openers {
		running.Go(func() {
			for i := o; i < len(streams) && errs[o] == nil && ctx.Err() == nil; i += openers {
				streams[i], errs[o] = openIdleStream(p.target, fmt.Sprintf("idle-%d", i/idlePerGroup), fmt.Sprintf("worker-%d", i))
			}
		})
	}
	running.Wait()
	opened := streams[:0]
	for _, conn := range streams {
		if conn != nil {
			opened = append(opened, conn)
		}
	}
	return opened, errors.Join(firstError(errs...), ctx.Err())
}

// openIdleStream opens a stream with less memory than openStream takes, and waits for the beginning of the answer.
func openIdleStream(t target, group, pid string) (net.Conn, error) {
	conn, err := dial(t)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(openTimeout))
	path := t.path + "/poll/" + url.PathEscape(group) + "/" + url.PathEscape(pid)
	const ok = "HTTP/1.1 200 "
	answer := make([]byte, len(ok))
	if _, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: "+t.host+t.authorization()+"\r\n\r\n"); err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err == nil && string(answer) != ok {
		err = fmt.Errorf("the server refused the stream %s: %s", path, answer)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}
