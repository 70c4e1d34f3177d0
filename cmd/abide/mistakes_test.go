package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"abide/protocol"
)

// leaves are all commands that do something, by the words that name them.
func leaves(t *testing.T) map[string]*kong.Node {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Name("abide"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*kong.Node{}
	for _, leaf := range parser.Model.Leaves(false) {
		if !leaf.Hidden {
			found[called(leaf)] = leaf
		}
	}
	if len(found) < 30 {
		t.Fatalf("%d commands", len(found))
	}
	return found
}

// TestEveryCommandHasHelp: on the standard output, with nothing beside it.
func TestEveryCommandHasHelp(t *testing.T) {
	for path := range leaves(t) {
		r := runWith(nil, append(strings.Fields(path), "--help")...)
		if r.code != exitOK || r.stderr != "" || !strings.HasPrefix(r.stdout, "Usage: abide ") {
			t.Errorf("%s --help: exit %d, stderr %q, stdout %.40q", path, r.code, r.stderr, r.stdout)
		}
		if again := runWith(nil, append([]string{"help"}, strings.Fields(path)...)...); again != r {
			t.Errorf("help %s is another", path)
		}
	}
}

// TestMistakesPointToTheHelp: a flag that no command has is exit 2, with nothing on the standard output, and the message says
// which help to read.
func TestMistakesPointToTheHelp(t *testing.T) {
	for path := range leaves(t) {
		r := runWith(nil, append(strings.Fields(path), "--no-such-flag")...)
		if want := "abide: unknown flag --no-such-flag\nRun \"abide " + path + " --help\" to see what it takes.\n"; r.code != exitUsage || r.stdout != "" || r.stderr != want {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", path, r.code, r.stdout, r.stderr)
		}
	}
	for args, want := range map[string]string{
		"frobnicate":            "abide: unexpected argument frobnicate\nRun \"abide --help\" for the subcommands.\n",
		"promisess get x":       "abide: unexpected argument promisess, did you mean \"promises\"?\nRun \"abide --help\" for the subcommands.\n",
		"promises get":          "abide: <id> is missing\nRun \"abide promises get --help\" to see what it takes.\n",
		"copy":                  "abide: <from> <to> is missing\nRun \"abide copy --help\" to see what it takes.\n",
		"schedules":             "abide: schedules needs one of get, create, delete, search, preview\nRun \"abide schedules --help\" to see what it takes.\n",
		"tasks claim x --pid p": "abide: missing flags: --ttl=DURATION, --version=N\nRun \"abide tasks claim --help\" to see what it takes.\n",
	} {
		if r := runWith(nil, strings.Fields(args)...); r.code != exitUsage || r.stdout != "" || r.stderr != want {
			t.Errorf("%s: exit %d, stdout %q, stderr\n%swant\n%s", args, r.code, r.stdout, r.stderr, want)
		}
	}
}

// asks are command lines of every command that asks a server.
var asks = []string{
	"promises get p", "promises create p --timeout 1h", "promises resolve p", "promises reject p", "promises cancel p", "promises search",
	"promises register-callback a b", "promises register-listener a poll://any@g", "tasks get t", "tasks explain t",
	"tasks create t --pid p --ttl 1s --timeout 1h", "tasks claim t --pid p --version 1 --ttl 1s", "tasks release t --version 1",
	`tasks fence t --version 1 --action {"kind":"promise.settle","data":{"id":"p","state":"resolved"}}`,
	`tasks complete t --version 1 --action {"kind":"promise.settle","data":{"id":"t","state":"resolved"}}`,
	`tasks suspend t --version 1 --actions [{"kind":"promise.register_callback","data":{"awaited":"a","awaiter":"t"}}]`,
	`tasks heartbeat --pid p --tasks [{"id":"t","version":1}]`, "tasks halt t", "tasks continue t", "tasks search",
	"schedules get s", "schedules delete s", "schedules search", "schedules create s --cron @daily --promise-id p --promise-timeout 1h",
	"invoke i --func f", "wait p", "tree p", "ready", "verify", "bench get --for 10ms --warmup 1ms --clients 1", "cluster",
}

// urlFlag is how a command is told which server to ask.
func urlFlag(line, url string) []string {
	for _, own := range []string{"ready", "verify", "bench", "cluster"} {
		if strings.HasPrefix(line, own) {
			return []string{"--url", url}
		}
	}
	return []string{"--server", url, "--deadline", "5s"}
}

// wantFailure wants that a command fails with one line on standard error, and nothing on the standard output.
func wantFailure(t *testing.T, args []string) {
	t.Helper()
	r := runWith(nil, args...)
	if r.code != exitFailure || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "Error: ") && !strings.HasPrefix(r.stderr, "Fatal: ") {
		t.Errorf("%v: exit %d, stdout %q, stderr %q", args, r.code, r.stdout, r.stderr)
	}
}

// TestNobodyAnswers: a server that is not there, or does not let in, is exit 1 and one line on standard error, whether JSON is asked for
// or not; the standard output, which a program may read, stays empty.
func TestNobodyAnswers(t *testing.T) {
	covered := map[string]bool{}
	const nobody = "http://127.0.0.1:1" // a port that no program is given
	closed := newStub(t, protocol.Fail(401, "Unauthorized"))
	for _, line := range asks {
		words := strings.Fields(line)
		covered[words[0]], covered[strings.Join(words[:min(2, len(words))], " ")] = true, true
		t.Run(words[0], func(t *testing.T) {
			t.Parallel() // most of it is pauses between attempts
			flags := urlFlag(line, nobody)
			wantFailure(t, slices.Concat(words, flags))
			if flags[0] == "--server" { // the others do not show what a server answers
				wantFailure(t, slices.Concat(words, flags, []string{"--json"}))
			}
		})
		if urlFlag(line, "")[0] == "--server" {
			wantFailure(t, slices.Concat(words, urlFlag(line, closed.URL)))
			wantFailure(t, slices.Concat(words, urlFlag(line, closed.URL), []string{"--json", "--token", "x"}))
		}
	}
	for path, leaf := range leaves(t) {
		asksServer := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == "server" || f.Name == "url" })
		if asksServer && !covered[path] && path != "mcp" && !strings.HasPrefix(path, "schedules preview") {
			t.Errorf("no line of this test asks by %s", path)
		}
	}
}
