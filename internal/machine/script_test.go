package machine_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/protocol"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata answer now into them; understand the difference before committing it")

// TestScripts runs the stories in testdata. A story is a list of blocks: comments, one command, a line of four
// dashes and all that the command did: the answer and every row that came (+) or went (-). Commands are
//
//	at MS                   the clock stands there from now on
//	let NAME TEXT           $NAME stands for TEXT in what follows
//	KIND JSON               a request, through validation
//	timeout ID, drain ID, dispatch ID, lease ID, schedule ID
//	                        one internal step, due or not
//	pass                    all internal steps that are due
//	delivered ID VERSION    the execute of the task has been delivered
//	state                   everything there is
//
// After every command the whole store is checked. A changed story is rewritten with -rewrite; read the
// difference before you commit it: each line is a rule.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{world: newWorld(t), vars: map[string]string{}}
			got := s.run(string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("%s: the story goes otherwise now (see -rewrite):\n%s", file, firstDifference(string(text), got))
			}
		})
	}
}

// firstDifference shows the first line that differs, with the lines around it.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant:\n%s\ngot:\n%s", i+1,
				strings.Join(w[min(max(i-6, 0), len(w)):min(i+4, len(w))], "\n"), strings.Join(g[min(max(i-6, 0), len(g)):min(i+4, len(g))], "\n"))
		}
	}
	return ""
}

type script struct {
	*world
	vars map[string]string
}

// run performs every block of a story and returns the story with the outputs as they are.
func (s *script) run(text string) string {
	var out strings.Builder
	skipping := false // the old output of the block before
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case line == "":
			skipping = false
			out.WriteString("\n")
		case skipping:
		case strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		case line == "----":
			skipping = true
		default:
			out.WriteString(line + "\n")
			if result, ok := s.command(line); ok {
				out.WriteString("----\n" + result)
			}
		}
	}
	return out.String()
}

// command performs one command; ok is false for those that have no output.
func (s *script) command(line string) (output string, ok bool) {
	s.t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "at":
		s.now = s.number(rest)
		return "", false
	case "let":
		name, value, _ := strings.Cut(rest, " ")
		s.vars["$"+name] = s.expand(value)
		return "", false
	case "state":
		return strings.Join(s.dump(), "\n") + "\n", true
	}
	before := s.dump()
	var answer string
	if protocol.Known(verb) {
		answer = s.request(verb, s.expand(rest))
	} else {
		answer = s.internal(verb, rest)
	}
	s.check()
	return answer + difference(before, s.dump()), true
}

func (s *script) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// expand replaces variables, longest names first.
func (s *script) expand(text string) string {
	names := make([]string, 0, len(s.vars))
	for name := range s.vars {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	for _, name := range names {
		text = strings.ReplaceAll(text, name, s.vars[name])
	}
	return text
}

// request decodes a request as the door does and performs it.
func (s *script) request(kind, data string) string {
	s.t.Helper()
	if !json.Valid([]byte(data)) {
		s.t.Fatalf("%s: not JSON: %s", kind, data)
	}
	req, err := protocol.DecodeRequest(kind, protocol.Data(data))
	if err != nil {
		return "400 at the door\n" // how it says so is the protocol package's to test
	}
	reply := s.apply(req)
	if reply.Body == nil {
		return fmt.Sprintf("%d %s\n", reply.Status, reply.Message)
	}
	body := reply.Body.AppendJSON(nil)
	if !json.Valid(body) {
		s.t.Fatalf("%s: the answer is not JSON: %s", kind, body)
	}
	return fmt.Sprintf("%d %s\n", reply.Status, bytes.ReplaceAll(body, []byte(`"resonate:`), []byte(`"r:`)))
}

var stepKinds = map[string]keyspace.TimerKind{
	"timeout": keyspace.TimerPromise, "drain": keyspace.TimerDrain, "dispatch": keyspace.TimerRetry,
	"lease": keyspace.TimerLease, "schedule": keyspace.TimerSchedule,
}

func (s *script) internal(verb, rest string) string {
	s.t.Helper()
	if kind, ok := stepKinds[verb]; ok {
		did, more := s.fire(timer{kind: kind, id: rest})
		if kind == keyspace.TimerDrain || kind == keyspace.TimerSchedule {
			return fmt.Sprintf("more=%t\n", more)
		}
		return fmt.Sprintf("did=%t\n", did)
	}
	switch verb {
	case "pass":
		s.pass()
		return ""
	case "delivered":
		id, version, _ := strings.Cut(rest, " ")
		did := false
		s.step(func(op *machine.Op) (err error) {
			did, err = op.Delivered(id, s.number(version))
			return err
		})
		return fmt.Sprintf("did=%t\n", did)
	}
	s.t.Fatalf("unknown command %q", verb)
	return ""
}

// difference lists what went and what came, both sorted.
func difference(before, after []string) string {
	var out strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			out.WriteString("- " + line + "\n")
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			out.WriteString("+ " + line + "\n")
		}
	}
	return out.String()
}
