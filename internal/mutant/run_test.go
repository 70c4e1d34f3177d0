package mutant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What a run of go test takes at most: named tests, which are quick; the simulation of maxSeeds on a busy machine; and
// what the building adds to either.
const (
	testTimeout  = 5 * time.Minute
	simTimeout   = 15 * time.Minute
	buildTimeout = 15 * time.Minute
)

// verdict is what came of a run of go test.
type verdict int

const (
	passed verdict = iota
	failed         // a test has failed
	broken         // nothing can be said: it did not compile, did not end, or ran no test
)

// outcome is a verdict with what to show of it.
type outcome struct {
	verdict verdict
	test    string // the first that failed
	detail  string // what it printed, or what is broken
}

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a build
}

// goTest runs tests of a package, with the overlay if there is one.
func goTest(ctx context.Context, timeout time.Duration, overlay, folder string, args ...string) outcome {
	ctx, cancel := context.WithTimeout(ctx, timeout+buildTimeout)
	defer cancel()
	command := []string{"test", "-json", "-vet=off", "-failfast", "-timeout", timeout.String()}
	if overlay != "" {
		command = append(command, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(append(command, folder), args...)...)
	cmd.Dir = root
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return outcome{broken, "", "it was not built and run within " + (timeout + buildTimeout).String()}
	}
	return judge(stdout.Bytes(), stderr.Bytes(), err)
}

// judge reads the events of go test.
func judge(stdout, stderr []byte, exit error) outcome {
	var build, output strings.Builder
	var first string              // the first test that failed; of one and its subtests, the innermost ends first
	texts := map[string]string{}  // what tests printed
	running := map[string]bool{}  // tests without an end
	var last string               // the test that began last
	notBuilt, ran := false, false // a test has run to its end
	for line := range bytes.Lines(stdout) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch e.Action {
		case "build-output":
			build.WriteString(e.Output)
		case "build-fail":
			notBuilt = true
		case "output":
			output.WriteString(e.Output)
			texts[e.Test] += e.Output
		case "run":
			running[e.Test], last = true, e.Test
		case "pass", "fail", "skip":
			delete(running, e.Test)
			ran = ran || (e.Action != "skip" && e.Test != "")
			if e.Action == "fail" && e.Test != "" && first == "" {
				first = e.Test
			}
		}
	}
	switch {
	case notBuilt:
		return outcome{broken, "", "it does not compile: " + build.String()}
	case strings.Contains(output.String(), "panic: test timed out after"):
		return outcome{broken, "", "its tests did not end: " + strings.Join(keysOf(running), ", ")}
	case exit != nil && first != "":
		return outcome{failed, first, texts[first]}
	case exit != nil && running[last]:
		return outcome{failed, last, output.String()} // the process died in it
	case exit != nil:
		return outcome{broken, "", fmt.Sprintf("go test: %v\n%s%s", exit, stderr, output.String())}
	case !ran:
		return outcome{broken, "", "no test ran"}
	}
	return outcome{verdict: passed}
}

func keysOf(m map[string]bool) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// overlay writes the mutant's files and their list for go build into a folder, and returns the list's name.
func (m *mutant) overlay(folder string) (string, error) {
	changed, err := m.apply(readFile)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range changed {
		original, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		copied := filepath.Join(folder, fmt.Sprintf("%d-%s", len(replace), filepath.Base(name)))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[original] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(folder, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// sound are the named tests that have passed without a mutant.
var sound sync.Map

// pass runs the test without any mutant, once for all: one that fails in any case catches nothing.
func (n namedTest) pass(ctx context.Context) error {
	if _, ok := sound.Load(n); ok {
		return nil
	}
	if o := goTest(ctx, testTimeout, "", n.folder, "-run", n.run); o.verdict != passed {
		return fmt.Errorf("%s %s does not pass without the mutant: %s %s", n.folder, n.run, o.test, o.detail)
	}
	sound.Store(n, true)
	return nil
}

// tried is what a mutant has come to.
type tried struct {
	Mutant string `json:"mutant"`
	Rule   string `json:"rule"`
	Source string `json:"source"`
	// CaughtBy is the test that failed, with its package; empty if none did.
	CaughtBy string `json:"caughtBy,omitempty"`
	// Seed is the first seed of the simulation that failed, 0 if none did or it did not run; Model says that it
	// took the reference model in every seed. Seeds is how many were run.
	Seed  int  `json:"seed,omitempty"`
	Seeds int  `json:"seeds,omitempty"`
	Model bool `json:"model,omitempty"`
	// Says is the beginning of what the failure said.
	Says    string  `json:"says,omitempty"`
	Seconds float64 `json:"seconds"`
	err     error
}

// caught reports whether anything has noticed the mutant.
func (r *tried) caught() bool { return r.CaughtBy != "" || r.Seed > 0 }

// try runs the tests that the mutant names, then the simulation. It stops at the first failure, unless both are asked
// for.
func (m *mutant) try(ctx context.Context, folder string, both bool) (r tried) {
	begin := time.Now()
	r = tried{Mutant: m.name, Rule: m.rule, Source: m.source}
	defer func() { r.Seconds = time.Since(begin).Round(100 * time.Millisecond).Seconds() }()
	overlay, err := m.overlay(folder)
	if err != nil {
		r.err = err
		return r
	}
	for _, test := range m.tests {
		if r.err = test.pass(ctx); r.err != nil {
			return r
		}
		o := goTest(ctx, testTimeout, overlay, test.folder, "-count=1", "-run", test.run)
		if o.verdict == broken {
			r.err = fmt.Errorf("%s %s: %s", test.folder, test.run, o.detail)
			return r
		}
		if o.verdict == failed {
			r.CaughtBy, r.Says = strings.TrimPrefix(test.folder, "./")+" "+o.test, said(o.detail)
			break
		}
	}
	if r.caught() && !both {
		return r
	}
	r.err = m.simulate(ctx, overlay, &r)
	return r
}

// simulate runs the simulation as it is by default, with the reference model in one seed of four; then, if nothing
// was found, a quarter of the seeds with the model in each.
func (m *mutant) simulate(ctx context.Context, overlay string, r *tried) error {
	for _, model := range []bool{false, true} {
		seeds := m.seeds
		if model {
			seeds /= 4
		}
		if seeds == 0 {
			return nil
		}
		seed, says, err := simulated(ctx, overlay, 1, seeds, model)
		if err != nil {
			return err
		}
		if seed == 0 {
			r.Seeds += seeds
			continue
		}
		if clean, says, err := simulated(ctx, "", seed, 1, model); err != nil || clean != 0 {
			return fmt.Errorf("seed %d fails without the mutant: %w %s", seed, err, says)
		}
		r.Seed, r.Model = seed, model
		r.Seeds += seed
		if r.Says == "" {
			r.Says = says
		}
		return nil
	}
	return nil
}

var failedSeed = regexp.MustCompile(`seed (\d+): `)

// simulated runs universes until one fails, and returns its seed; 0 if none does.
func simulated(ctx context.Context, overlay string, from, seeds int, model bool) (seed int, says string, err error) {
	o := goTest(ctx, simTimeout, overlay, "./internal/sim", "-count=1", "-run", "^TestSeeds$",
		"-from", strconv.Itoa(from), "-seeds", strconv.Itoa(seeds), "-stop", "-model="+strconv.FormatBool(model))
	switch o.verdict {
	case passed:
		return 0, "", nil
	case broken:
		return 0, "", errors.New("the simulation: " + o.detail)
	}
	found := failedSeed.FindStringSubmatch(o.detail)
	if found == nil {
		return 0, "", errors.New("the simulation names no seed: " + o.detail)
	}
	seed, err = strconv.Atoi(found[1])
	return seed, said(o.detail), err
}

// saidBytes is how much of a failure the report shows.
const saidBytes = 160

// said is the first line of what a failing test printed that says something.
func said(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if len(line) > saidBytes {
			line = strings.ToValidUTF8(line[:saidBytes], "") + "..."
		}
		return line
	}
	return ""
}
