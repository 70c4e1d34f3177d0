package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"time"

	"abide/internal/copy"
	"abide/internal/keyspace"
	"abide/internal/store"
)

// copyCommand moves everything from one store into another, empty one.
//
// Its exit code is 0 if everything was copied and checked; 1 if not, then the last line says "Fatal:" and the target
// is marked as incomplete; 2 for a mistake in the command line, then nothing was opened.
type copyCommand struct {
	From string `arg:"" placeholder:"FROM" help:"The store to copy: the path of a data file, a postgres:// or a mysql:// URL. Its servers must not run."`
	To   string `arg:"" placeholder:"TO" help:"The store to fill, which must be empty or hold the beginning of the same copy."`
	JSON bool   `name:"json" help:"Print one JSON object."`
}

// copyReport is the output of abide copy --json; its fields are only ever added to.
type copyReport struct {
	From    string               `json:"from"`
	To      string               `json:"to"`
	OK      bool                 `json:"ok"`
	Error   string               `json:"error,omitempty"`
	Resumed bool                 `json:"resumed"` // an earlier copy that had broken off went on
	Rows    int64                `json:"rows"`
	Kinds   map[string]copy.Kind `json:"kinds"` // what the source holds, and the copy
	// Position is the last commit of the source, in hexadecimal: cursors up to it are expired in the copy.
	Position string `json:"position"`
	Ms       int64  `json:"ms"`
	// Problems are what the check of the copy has found, at most 1,000 of ProblemCount.
	Problems     []string `json:"problems"`
	ProblemCount int64    `json:"problemCount"`
}

// Run copies and reports.
func (c *copyCommand) Run(in surroundings, _ *environment) error {
	from, err := parseAddress(c.From)
	if err != nil {
		return usageError{fmt.Errorf("FROM: %w", err)}
	}
	to, err := parseAddress(c.To)
	if err != nil {
		return usageError{fmt.Errorf("TO: %w", err)}
	}
	// Whether to run on such a database is decided where a server is started.
	from.acceptDataLoss, to.acceptDataLoss = true, true
	ctx, stop := in.untilSignal()
	defer stop()
	run := &copying{
		from: from, to: to, began: time.Now(),
		log:    newLogger(in.stderr, logLevel(slog.LevelWarn)),
		out:    &progressLine{out: in.stderr, shown: isTerminal(in.stderr)},
		report: copyReport{From: from.String(), To: to.String(), Kinds: map[string]copy.Kind{}, Problems: []string{}},
	}
	err = run.copy(ctx)
	run.out.clear()
	if ctx.Err() != nil {
		err = errors.New("interrupted; run it again with the same arguments and it goes on")
	}
	r := &run.report
	r.OK, r.Ms = err == nil, time.Since(run.began).Milliseconds()
	if err != nil {
		r.Error = err.Error()
	}
	if c.JSON {
		return errors.Join(err, json.NewEncoder(in.stdout).Encode(r))
	}
	for i, p := range r.Problems {
		if i == problemsShown {
			fmt.Fprintf(in.stdout, "... and %d more\n", r.ProblemCount-problemsShown)
			break
		}
		fmt.Fprintln(in.stdout, p)
	}
	if err == nil {
		fmt.Fprintf(in.stdout, "%d rows copied and checked in %s\n", r.Rows, time.Since(run.began).Round(time.Millisecond))
	}
	return err
}

// problemsShown is how many problems a person sees; --json has more.
const problemsShown = 20

// copying is a copy under way.
type copying struct {
	from, to storeAddress
	began    time.Time
	log      *slog.Logger
	out      *progressLine
	report   copyReport
}

// copy makes the whole copy and fills the report. The source stays open, and so locked where the engine has locks, until the copy
// is checked.
func (c *copying) copy(ctx context.Context) (err error) {
	if sameFile(c.from, c.to) {
		return errors.New("FROM and TO are the same file")
	}
	from, err := openExisting(ctx, c.from, c.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.from.hide(from.Close())) }()
	if _, err := layoutOf(ctx, from); err != nil {
		return fmt.Errorf("%s: %w", c.from, err)
	}
	if err := refuseLive(ctx, from, c.from, func(text string) { c.log.Warn(text) }); err != nil {
		return err
	}
	content, err := copy.Survey(ctx, from, keyspace.Kind, c.out.of("reading", 0))
	if err != nil {
		return c.from.hide(err)
	}
	c.report.Kinds, c.report.Rows, c.report.Position = content.Kinds, content.Rows(), content.Last.String()
	if err := c.fill(ctx, from, content); err != nil {
		return c.hide(err)
	}
	return c.hide(c.verify(ctx, content))
}

// hide takes the secrets of both addresses out of an error.
func (c *copying) hide(err error) error { return c.from.hide(c.to.hide(err)) }

// fill copies the rows.
func (c *copying) fill(ctx context.Context, from dataStore, content copy.Content) error {
	to, err := openUnfinished(ctx, c.to, c.log)
	if err != nil {
		return err
	}
	c.report.Resumed, err = copy.Fill(ctx, from, to, content, randomBelow, c.out.of("copying", content.Rows()))
	switch {
	case errors.Is(err, copy.ErrNotEmpty):
		err = fmt.Errorf("%s is not empty: copy into an empty store", c.to)
	case errors.Is(err, copy.ErrOther):
		err = fmt.Errorf("%s holds the beginning of another copy, or %s has changed since it began: empty it and copy again", c.to, c.from)
	}
	return errors.Join(err, to.Close())
}

// verify compares what arrived with the source, checks it as abide check does, and only then makes the target complete.
// It opens the target anew, in the incarnation that the copy gave it.
func (c *copying) verify(ctx context.Context, content copy.Content) (err error) {
	to, err := openUnfinished(ctx, c.to, c.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	arrived, err := copy.Survey(ctx, to, keyspace.Kind, c.out.of("comparing", content.Rows()))
	if err != nil {
		return err
	}
	for _, difference := range content.Differences(arrived) {
		c.problem(difference)
	}
	if arrived.Last.Incarnation() <= content.Last.Incarnation() {
		return fmt.Errorf("%s has not taken a new incarnation: this is a fault of its engine", c.to)
	}
	if c.report.ProblemCount > 0 {
		return errors.New("the copy is not what the source is: empty the target and copy again")
	}
	layout, err := layoutOf(ctx, to)
	if err != nil {
		return err
	}
	shown := c.out.of("checking", content.Rows())
	checker := store.Checker{
		Store: to, Layout: layout, NowMs: time.Now().UnixMilli(),
		Report:   func(p store.Problem) { c.problem(p.String()) },
		Progress: func(_ string, rows int64) { shown(rows) },
	}
	if _, err := checker.Check(ctx); err != nil {
		return err
	}
	if c.report.ProblemCount > 0 {
		return fmt.Errorf("the copy is like the source, and something is wrong with both: abide check %s --repair, then empty the target and copy again", c.from)
	}
	return copy.End(ctx, to)
}

func (c *copying) problem(text string) {
	if c.report.ProblemCount++; c.report.ProblemCount <= maxReported {
		c.report.Problems = append(c.report.Problems, text)
	}
}

// sameFile tells whether both addresses are one data file.
func sameFile(a, b storeAddress) bool {
	if a.engine != engineSQLite || b.engine != engineSQLite {
		return a == b
	}
	first, err := os.Stat(a.place)
	if err != nil {
		return false
	}
	second, err := os.Stat(b.place)
	return err == nil && os.SameFile(first, second)
}

// randomBelow is a random number below n.
func randomBelow(n uint32) uint32 {
	r, _ := rand.Int(rand.Reader, big.NewInt(int64(n))) // never fails
	return uint32(r.Int64())
}
