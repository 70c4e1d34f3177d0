package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ModeStart is the mode of Start, as reports name it.
const ModeStart Mode = "start"

// StartConfig says how to measure how long a server takes from its start until it is ready. The zero value is not valid.
// There is always an own server.
type StartConfig struct {
	// Promises is how many the store holds, 1 to MaxPreload: a quarter of them have a task whose message waits for a
	// worker, a quarter are pending without one, and half are settled.
	Promises int
	// Rounds is how often it is started after a stop, and as often after it was killed.
	Rounds int
	// SizeBytes, Seed, Own and Progress are those of Config.
	SizeBytes int
	Seed      uint64
	Own       OwnServer
	Progress  func(text string)
}

// Validate says what is wrong with c, nil if nothing is.
func (c StartConfig) Validate() error {
	switch {
	case c.Promises < 1 || c.Promises > MaxPreload:
		return fmt.Errorf("%d promises: use 1 to %d", c.Promises, MaxPreload)
	case c.Rounds < 1 || c.Rounds > MaxRounds:
		return fmt.Errorf("%d rounds: use 1 to %d", c.Rounds, MaxRounds)
	case c.Own.Binary == "" || c.Own.Folder == "":
		return errors.New("no own server to start")
	case c.SizeBytes < 0 || c.SizeBytes > MaxSizeBytes:
		return fmt.Errorf("a payload of %d bytes: use 0 to %d", c.SizeBytes, MaxSizeBytes)
	}
	return nil
}

// StartReport is what Start has measured; its JSON is the output of abide bench start. Members are only ever added.
type StartReport struct {
	Where
	Promises int   `json:"promises"`
	Rounds   int   `json:"rounds"`
	FillMs   int64 `json:"fillMs"` // that making the promises took
	// DatabaseBytes is the size of the data file; null where the data are a database's.
	DatabaseBytes *int64 `json:"databaseBytes"`
	// The times from the start of the process to the answer 200 of /ready, in milliseconds, in ascending order.
	AfterStopMs []float64 `json:"afterStopMs"`
	AfterKillMs []float64 `json:"afterKillMs"`
}

// Start fills a store, and starts a server on it again and again.
func Start(ctx context.Context, c StartConfig) (StartReport, error) {
	if err := c.Validate(); err != nil {
		return StartReport{}, err
	}
	s := &starts{config: c, report: StartReport{Where: where(ModeStart, "", 0, c.SizeBytes, c.Seed), Promises: c.Promises, Rounds: c.Rounds}}
	server, err := startServer(ctx, c.Own, preloaders)
	if err != nil {
		return StartReport{}, err
	}
	s.server = server
	defer func() { s.server.kill() }()
	if err := s.fill(ctx); err != nil {
		return StartReport{}, fmt.Errorf("the promises could not be made: %w", err)
	}
	err = s.run(ctx)
	return s.report, err
}

// starts is one run of Start.
type starts struct {
	config StartConfig
	report StartReport
	server *ownServer // the one of now
}

func (s *starts) progress(format string, args ...any) {
	if s.config.Progress != nil {
		s.config.Progress(fmt.Sprintf(format, args...))
	}
}

// fill makes the promises.
func (s *starts) fill(ctx context.Context) error {
	t, err := parseTarget(s.server.url)
	if err != nil {
		return err
	}
	if err := waitReady(ctx, t); err != nil {
		return err
	}
	shared := &plan{target: t, run: s.report.Run, sizeBytes: s.config.SizeBytes, seed: s.config.Seed, timeoutAt: inADay()}
	begin := time.Now()
	err = fill(ctx, shared, s.config.Promises, mixed, func(done int64) { s.progress("filling, %d of %d", done, s.config.Promises) })
	s.report.FillMs = time.Since(begin).Milliseconds()
	return err
}

// mixed makes the client's next promise: with a task, pending, or settled.
func mixed(c *client) error {
	switch c.made % 4 {
	case 0:
		return c.createAs(c.newID(), true)
	case 1:
		_, err := c.create()
		return err
	}
	return c.lifecycle()
}

func (s *starts) run(ctx context.Context) error {
	for n := range s.config.Rounds {
		s.progress("start %d of %d after a stop", n+1, s.config.Rounds)
		bytes, err := s.server.stop()
		if err != nil {
			return err
		}
		if len(s.config.Own.Storage) == 0 {
			s.report.DatabaseBytes = &bytes
		}
		if err := s.start(ctx, &s.report.AfterStopMs); err != nil {
			return err
		}
		s.progress("start %d of %d after a kill", n+1, s.config.Rounds)
		s.server.end()
		if err := s.start(ctx, &s.report.AfterKillMs); err != nil {
			return err
		}
	}
	slices.Sort(s.report.AfterStopMs)
	slices.Sort(s.report.AfterKillMs)
	return nil
}

// start starts the server on the data that the one before has left, and notes how long it took.
func (s *starts) start(ctx context.Context, took *[]float64) error {
	begin := time.Now()
	server, err := launchServer(ctx, s.config.Own, s.server.folder, preloaders)
	if err != nil {
		return err
	}
	s.server = server
	t, err := parseTarget(server.url)
	if err == nil {
		err = waitReady(ctx, t)
	}
	*took = append(*took, shown(float64(time.Since(begin).Microseconds())/1000))
	return err
}
