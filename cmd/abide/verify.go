package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"abide/internal/conform"
)

// verifyCommand checks a running server from outside.
//
// Its exit code is 0 if every check that could be made has passed, 1 if one has failed or the server could not be
// asked, 2 for a mistake in the command line.
type verifyCommand struct {
	URL   string       `name:"url" required:"" placeholder:"URL" help:"The server to check, any server of the protocol; with /w/NAME at its end in that workspace, else in one made for the checks, where the server has workspaces."`
	Token string       `placeholder:"TOKEN" help:"A token to send with every request."`
	Wait  milliseconds `default:"10s" placeholder:"DURATION" help:"How long a message or a timer may take."`
	Brief bool         `help:"Leave out the checks that passed."`
	JSON  bool         `name:"json" help:"Print one JSON object."`
}

// Validate checks the values; kong calls it.
func (c *verifyCommand) Validate() error {
	if c.Wait <= 0 {
		return errors.New("--wait must be longer than 0")
	}
	return nil
}

// Run checks and reports.
func (c *verifyCommand) Run(in surroundings, _ *environment) error {
	ctx, stop := in.untilSignal()
	defer stop()
	var unique [5]byte
	_, _ = rand.Read(unique[:]) // never fails
	report, err := conform.Run(ctx, conform.Config{
		URL:    c.URL,
		Token:  c.Token,
		Prefix: "v" + hex.EncodeToString(unique[:]),
		Wait:   c.Wait.duration(),
		NowMs:  func() int64 { return time.Now().UnixMilli() },
	})
	if ctx.Err() != nil {
		err = errors.New("interrupted; not all checks were made")
	}
	if c.JSON {
		if err := json.NewEncoder(in.stdout).Encode(report); err != nil {
			return err
		}
	} else if err == nil || len(report.Results) > 0 {
		c.print(in.stdout, report)
	}
	switch {
	case err != nil:
		return err
	case report.Count(conform.Fail) > 0:
		return errFindings
	}
	return nil
}

// print writes the table for a person: one line a check, and what was expected and got where they differ.
func (c *verifyCommand) print(out io.Writer, report conform.Report) {
	for _, r := range report.Results {
		if r.Outcome == conform.Pass && c.Brief {
			continue
		}
		fmt.Fprintf(out, "%-4s  %-13s  %s\n", r.Outcome, r.Subject, r.Check)
		switch r.Outcome {
		case conform.Fail:
			fmt.Fprintf(out, "      expected: %s\n      got:      %s\n", r.Expected, r.Got)
		case conform.Skip:
			fmt.Fprintf(out, "      %s\n", r.Got)
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", report.Count(conform.Pass), report.Count(conform.Fail), report.Count(conform.Skip))
	if len(report.Left) > 0 {
		where := ""
		if report.Workspace != "" {
			where = " in the workspace " + report.Workspace
		}
		fmt.Fprintf(out, "left%s: %d settled promises, from %s on\n", where, len(report.Left), report.Left[0])
	}
}
