package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
)

// maxReported is how many problems a check reports one by one; the rest is counted.
const maxReported = 1000

// errFindings ends a check that was made and found something. What it found has been printed.
var errFindings = errors.New("the check found something")

// checkCommand looks at a store from end to end.
//
// Its exit code is 0 if nothing is wrong, 1 if something is, or if the check could not be made (then the last line
// says "Fatal:", and the JSON has an error), 2 for a mistake in the command line.
type checkCommand struct {
	Store  string `arg:"" name:"store" placeholder:"STORE" help:"The data file of a server that does not run, or a copy of one; or a postgres:// or mysql:// URL of a store whose servers do not run."`
	Replay bool   `help:"Also fold the journal and compare where it leads with the records."`
	Repair bool   `help:"Rebuild index entries from the records and put back rows that were set aside and are in order; nothing else is changed."`
	JSON   bool   `name:"json" help:"Print one JSON object."`
}

// Run checks and reports.
func (c *checkCommand) Run(in surroundings, _ *environment) error {
	ctx, stop := in.untilSignal()
	defer stop()
	out := &checkOutput{command: c, in: in}
	address, err := parseAddress(c.Store)
	if err != nil {
		return usageError{err}
	}
	address.acceptDataLoss = true // it is only looked at
	r := &checkReport{File: address.String(), Problems: []checkProblem{}, SQLite: []string{}}
	err = c.check(ctx, address, r, out)
	if ctx.Err() != nil {
		err = errors.New("interrupted; the check was not made to its end")
	}
	out.clear()
	r.OK = err == nil && r.findings() == 0
	if err != nil {
		r.Error = err.Error()
	}
	if printed := out.end(r); printed != nil {
		return errors.Join(err, printed)
	}
	switch {
	case err != nil:
		return err
	case !r.OK:
		return errFindings
	}
	return nil
}

// check makes the whole check and fills the report.
func (c *checkCommand) check(ctx context.Context, a storeAddress, r *checkReport, out *checkOutput) error {
	data, err := openExisting(ctx, a, newLogger(out.in.stderr, logLevel(slog.LevelWarn)))
	if err != nil {
		return err
	}
	if c.Repair {
		err = refuseLive(ctx, data, a, func(text string) { out.line("%s", text) })
	}
	if err == nil {
		err = c.checkStore(ctx, data, r, out)
	}
	return errors.Join(a.hide(err), data.Close())
}

// pageChecker is a store that can look at its own pages.
type pageChecker interface {
	CheckFile(ctx context.Context, report func(finding string)) error
}

func (c *checkCommand) checkStore(ctx context.Context, data dataStore, r *checkReport, out *checkOutput) error {
	if file, ok := data.(pageChecker); ok {
		out.progress("pages", 0)
		if err := file.CheckFile(ctx, func(finding string) { r.SQLite = append(r.SQLite, finding); out.finding(finding) }); err != nil {
			return err
		}
	}
	layout, err := layoutOf(ctx, data)
	if err != nil {
		return err
	}
	checker := store.Checker{Store: data, Layout: layout, NowMs: time.Now().UnixMilli(), Progress: out.progress}
	if err := c.checkRows(ctx, checker, r, out); err != nil || !c.Repair {
		return err
	}
	if len(r.SQLite) > 0 {
		return errors.New("not repaired: the file itself is damaged, and writing to it could destroy more; put back a copy")
	}
	done, err := checker.Repair(ctx)
	r.Repaired = &checkRepaired{Added: done.Added, Removed: done.Removed, PutBack: done.PutBack}
	if err != nil || done.Rows() == 0 {
		return err
	}
	out.repaired(done)
	r.Problems, r.ProblemCount = r.Problems[:0], 0
	return c.checkRows(ctx, checker, r, out)
}

// checkRows checks what is in the store.
func (c *checkCommand) checkRows(ctx context.Context, checker store.Checker, r *checkReport, out *checkOutput) (err error) {
	checker.Report = func(p store.Problem) {
		if r.ProblemCount++; r.ProblemCount <= maxReported {
			r.Problems = append(r.Problems, checkProblem(p))
			out.finding(p.String())
		}
	}
	if r.Rows, err = checker.Check(ctx); err != nil {
		return err
	}
	r.Quarantined = r.Rows["quarantine"]
	if c.Replay {
		var entries int64
		entries, err = checker.Replay(ctx)
		r.Replayed = &entries
	}
	return err
}

// layoutOf reads from the store how its keys are laid out.
func layoutOf(ctx context.Context, s kv.Store) (keyspace.Layout, error) {
	var format keyspace.StoreFormat
	err := s.View(ctx, func(v kv.Snapshot) error {
		b, err := v.Get(keyspace.Format())
		if err != nil {
			return err
		}
		if b == nil {
			return errors.New("it has no format record: no server has ever kept data in it, or the record is lost")
		}
		format, err = keyspace.ParseFormat(b)
		return err
	})
	switch {
	case err != nil:
		return keyspace.Layout{}, fmt.Errorf("cannot tell how the store is laid out: %w", err)
	case format.Derivation != keyspace.DerivationVersion:
		return keyspace.Layout{}, fmt.Errorf("the index entries of the store are of version %d, this release checks version %d: use the release that wrote it",
			format.Derivation, keyspace.DerivationVersion)
	}
	return keyspace.Layout{Shards: max(1, format.Shards)}, nil
}
