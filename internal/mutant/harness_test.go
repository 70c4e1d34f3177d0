package mutant

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

var (
	which  = flag.String("mutants", "", "which mutants to run: all, rotate, or names with commas between them; empty for none")
	turn   = flag.Int64("turn", time.Now().Unix()/3600, "which ones are next in rotation; the default changes every hour")
	by     = flag.String("by", "first", "first: stop at the first failure; both: run the simulation too when a test has failed")
	report = flag.String("report", "", "a file to write the report to, as JSON")
)

// rotated is how many mutants one turn of the rotation has.
const rotated = 5

func TestMutants(t *testing.T) {
	if *which == "" {
		t.Skip("takes minutes: make mutants runs all of them, and .ci/run some in rotation; TestMutantsFit has checked that they fit")
	}
	if *by != "first" && *by != "both" {
		t.Fatalf("-by %s: it must be first or both", *by)
	}
	all, err := mutants()
	if err != nil {
		t.Fatal(err)
	}
	some, err := choose(all, *which, *turn)
	if err != nil {
		t.Fatal(err)
	}
	if *which == "rotate" {
		t.Logf("turn %d of the rotation; again: go test ./internal/mutant -run TestMutants -v -mutants rotate -turn %d", *turn, *turn)
	}
	var results []tried
	for _, m := range some {
		t.Run(m.name, func(t *testing.T) {
			r := m.try(t.Context(), t.TempDir(), *by == "both")
			results = append(results, r)
			switch {
			case r.err != nil:
				t.Errorf("nothing can be said about this mutant: %v", r.err)
			case !r.caught():
				t.Errorf("nobody has noticed that %s is broken; write the test that does. The mutant:\n%s", m.source, m)
			default:
				t.Logf("%.1f s, %s: %s", r.Seconds, r.by(), r.Says)
			}
		})
	}
	t.Logf("\n%s", table(results))
	if *report == "" {
		return
	}
	text, err := json.MarshalIndent(results, "", "\t")
	if err == nil {
		err = os.WriteFile(*report, append(text, '\n'), 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}

// choose picks mutants as -mutants says.
func choose(all []*mutant, which string, turn int64) ([]*mutant, error) {
	switch which {
	case "all":
		return all, nil
	case "rotate":
		var out []*mutant
		n := len(all)
		for i := range min(rotated, n) {
			// Far apart, so that they are about different parts: neighbours by name are often neighbours by subject.
			out = append(out, all[(int(turn%int64(n))+n+i*n/rotated)%n])
		}
		return out, nil
	}
	var out []*mutant
	for _, name := range strings.Split(which, ",") {
		found := false
		for _, m := range all {
			if m.name == name {
				out, found = append(out, m), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no mutant %q in mutants/", name)
		}
	}
	return out, nil
}

// String is the mutant as a diff of sorts.
func (m *mutant) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: against the rule that %s (%s)\n", m.name, m.rule, m.source)
	for _, e := range m.edits {
		fmt.Fprintf(&b, "%s\n-%s\n+%s\n", e.file, strings.ReplaceAll(e.old, "\n", "\n-"), strings.ReplaceAll(e.new, "\n", "\n+"))
	}
	return b.String()
}

// by names what has caught the mutant.
func (r *tried) by() string {
	var parts []string
	if r.CaughtBy != "" {
		parts = append(parts, r.CaughtBy)
	}
	if r.Seed > 0 {
		parts = append(parts, "the simulation")
	}
	return strings.Join(parts, ", ")
}

// table is the report for people.
func table(results []tried) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "mutant\tcaught by\tseeds\tseconds")
	caught := 0
	for _, r := range results {
		who, seeds := r.by(), ""
		switch {
		case r.err != nil:
			who = "ERROR"
		case !r.caught():
			who = "SURVIVED"
		default:
			caught++
		}
		if r.Seeds > 0 {
			seeds = fmt.Sprint(r.Seeds)
			if r.Model {
				seeds += " (model)"
			}
			if r.Seed == 0 {
				seeds += " without a failure"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\n", r.Mutant, who, seeds, r.Seconds)
	}
	w.Flush()
	fmt.Fprintf(&b, "%d of %d caught\n", caught, len(results))
	return b.String()
}
