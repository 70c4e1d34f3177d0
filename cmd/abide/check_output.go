package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"abide/internal/store"
)

// checkReport is the output of abide check --json; its fields are only ever added to.
type checkReport struct {
	File         string           `json:"file"`
	OK           bool             `json:"ok"`
	Error        string           `json:"error,omitempty"` // why the check was not made to its end
	SQLite       []string         `json:"sqlite"`          // what SQLite's own check and its tables show, at most about 100
	Problems     []checkProblem   `json:"problems"`        // what is wrong with the rows, after a repair what still is; at most 1,000
	ProblemCount int64            `json:"problemCount"`    // all of them
	Rows         map[string]int64 `json:"rows"`            // how many there are of each kind
	Quarantined  int64            `json:"quarantined"`     // rows that a server has set aside; no problem by themselves
	Replayed     *int64           `json:"replayed"`        // journal entries folded; null without --replay
	Repaired     *checkRepaired   `json:"repaired"`        // null if nothing was to be repaired
}

// checkProblem is one problem of a row.
type checkProblem struct {
	Workspace string `json:"workspace"`
	Kind      string `json:"kind"`
	ID        string `json:"id"`
	Detail    string `json:"detail"`
}

// checkRepaired counts the rows that a repair has changed, by their kinds.
type checkRepaired struct {
	Added   map[string]int64 `json:"added"`
	Removed map[string]int64 `json:"removed"`
	PutBack map[string]int64 `json:"putBack"`
}

func (r *checkReport) findings() int64 { return r.ProblemCount + int64(len(r.SQLite)) }

// progressInterval is how often a person sees that the check goes on.
const progressInterval = 100 * time.Millisecond

// checkOutput prints for a person while the check runs, or one JSON object at its end.
type checkOutput struct {
	command *checkCommand
	in      surroundings
	shown   time.Time
}

// progress shows on a terminal how far a step has come.
func (o *checkOutput) progress(step string, rows int64) {
	if now := time.Now(); isTerminal(o.in.stderr) && now.Sub(o.shown) >= progressInterval {
		o.shown = now
		fmt.Fprintf(o.in.stderr, "\r\x1b[K%s: %d", step, rows)
	}
}

// clear takes the progress off the terminal.
func (o *checkOutput) clear() {
	if isTerminal(o.in.stderr) {
		fmt.Fprint(o.in.stderr, "\r\x1b[K")
	}
}

func (o *checkOutput) line(format string, args ...any) {
	if !o.command.JSON {
		o.clear()
		fmt.Fprintf(o.in.stdout, format+"\n", args...)
	}
}

func (o *checkOutput) finding(text string) { o.line("%s", text) }

func (o *checkOutput) repaired(done store.Repaired) {
	o.line("repaired: index entries added: %s; removed: %s; rows put back: %s; checking again",
		byKind(done.Added), byKind(done.Removed), byKind(done.PutBack))
}

func byKind(t store.Tally) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%d %s", t[kind], kind))
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// end prints the report, or its summary.
func (o *checkOutput) end(r *checkReport) error {
	if o.command.JSON {
		return json.NewEncoder(o.in.stdout).Encode(r)
	}
	if r.Error != "" {
		return nil // the last line of the program says it
	}
	if more := r.ProblemCount - int64(len(r.Problems)); more > 0 {
		o.line("... and %d more", more)
	}
	o.line("rows: %s", byKind(r.Rows))
	if r.Replayed != nil {
		o.line("journal: %d entries replayed", *r.Replayed)
	}
	if r.Quarantined > 0 {
		o.line("set aside by a server because they did not decode: %d rows", r.Quarantined)
	}
	if n := r.findings(); n > 0 {
		o.line("%d problems", n)
		return nil
	}
	o.line("nothing is wrong with %s", r.File)
	return nil
}
