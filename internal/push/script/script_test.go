//go:build unix

package script_test

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"abide/internal/push"
	"abide/internal/push/script"
	"abide/protocol"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{})
	for n, c := range []struct {
		script string
		state  protocol.PromiseState
		value  string
	}{
		{"echo hello", protocol.Resolved, "hello"},
		{"printf ' \\n a  b\\n\\n'", protocol.Resolved, "a  b"},
		{"true", protocol.Resolved, ""},
		{"echo out; echo err >&2", protocol.Resolved, "out"},
		{"echo out; echo ' err ' >&2; exit 3", protocol.Rejected, "err"},
		{"echo out; exit 3", protocol.Rejected, "exit code 3"},
		{"echo a\nnowhere-to-be-found\nexit 9", protocol.Rejected, "bash: line 2: nowhere-to-be-found: command not found"},
		{"set -e\nfalse\necho no", protocol.Rejected, "exit code 1"},
		{"printf '\\xff\\xc3a'", protocol.Resolved, "\uFFFDa"},
		{"echo é😀", protocol.Resolved, "é😀"},
		{"cat; echo none", protocol.Resolved, "none"}, // nothing on standard input
		{"#!/bin/bash\necho \"$0 $#\"", protocol.Resolved, "bash 0"},
		{"trap 'echo bye' EXIT; exit 0", protocol.Resolved, "bye"},
		{"(kill -9 $BASHPID); echo $?", protocol.Resolved, "137"}, // a child of it was killed, and it went on
		{"sleep 1000 & disown; exit 7", protocol.Rejected, "exit code 7"},
	} {
		id := "p" + strconv.Itoa(n)
		r.send(r.script(id, c.script))
		r.want(id, c.state, c.value)
		if task := r.task(id); task.State != protocol.TaskFulfilled {
			t.Errorf("the task of %q is %s", c.script, task.State)
		}
	}
}

// long is a script of about a megabyte, which ends in a heredoc and in text that a shell would join or cut.
func long() string {
	var b strings.Builder
	b.WriteString("n=0\n")
	for b.Len() < 1<<20 {
		b.WriteString(": 'é é é é é é é é é é é é é é é é é é é é é é é é é é é é é é é é é'\n")
	}
	b.WriteString("n=$((n+1))\ncat\necho \"$0 $# ${__script-unset} $n\" \\")
	return b.String()
}

func TestLongScript(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{})
	r.send(r.script("long", long()))
	r.want("long", protocol.Resolved, `bash 0 unset 1 \`) // as bash -c would have it
	r.send(r.script("fails", strings.Repeat("#", 200_000)+"\nif then"))
	if state, text := r.outcome("fails"); state != protocol.Rejected || !strings.Contains(text, "syntax error") {
		t.Errorf("a long script that is none: %s %q", state, text)
	}
}

func TestParamsThatHoldNoScript(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{})
	base := func(s string) protocol.Value {
		return protocol.MakeValue(nil, base64.StdEncoding.EncodeToString([]byte(s)))
	}
	for n, c := range []struct {
		param protocol.Value
		says  string
	}{
		{nil, "must be the script in base64"},
		{protocol.Value(`{"headers":{"a":"b"}}`), "must be the script in base64"},
		{protocol.MakeValue(nil, ""), "must be the script in base64"},
		{protocol.MakeValue(nil, "echo hi"), "not base64"},
		{base("\xff\xfe"), "not UTF-8"},
		{base("echo a\x00b"), "NUL"},
	} {
		id := "p" + strconv.Itoa(n)
		r.send(r.create(id, "bash://", c.param, 60_000))
		if state, text := r.outcome(id); state != protocol.Rejected || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s %q, want it rejected with %q", c.param, state, text, c.says)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{
		Environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=/h", "LC_ALL=C", "ABIDE_STORAGE__POSTGRES__URL=secret", "TOKEN=t", "OTHER=o", "RESONATE_PROMISE_ID=x"},
		Pass:    []string{"TOKEN", "ABSENT", "RESONATE_PROMISE_ID"},
	})
	r.send(r.script("a b;$(id)", "env | grep -v -e ^_= -e ^PWD= -e ^SHLVL= -e ^PATH= | sort"))
	p := r.promise("a b;$(id)")
	r.want("a b;$(id)", protocol.Resolved, strings.Join([]string{
		"HOME=/h", "LC_ALL=C", "RESONATE_PROMISE_CREATED_AT=" + strconv.FormatInt(p.CreatedAt, 10), "RESONATE_PROMISE_ID=a b;$(id)",
		"RESONATE_PROMISE_TIMEOUT_AT=" + strconv.FormatInt(p.TimeoutAt, 10), "TOKEN=t",
	}, "\n"))
}

func TestTraceIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, state := range []string{"", "vendor=x"} {
		m := r.script("p"+state, "echo \"$TRACEPARENT ${TRACESTATE-none}\"")
		m.Trace = protocol.ParseTrace(parent, state)
		r.send(m)
		r.want("p"+state, protocol.Resolved, parent+" "+map[string]string{"": "none", "vendor=x": "vendor=x"}[state])
	}
}

func TestMuchOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{OutputBytes: 1000})
	r.send(r.script("p", "echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end"))
	state, text := r.outcome("p")
	headers, _ := r.promise("p").Value.Headers()
	left := int64(len("begin\n") + 3_000_000 + len("\nend\n") - 1000)
	if state != protocol.Resolved || !strings.HasPrefix(text, "begin\nxx") || !strings.HasSuffix(text, "xx\nend") ||
		!strings.Contains(text, "\n[... "+strconv.FormatInt(left, 10)+" bytes left out ...]\n") || len(text) > 1100 {
		t.Errorf("%s with %.200q", state, text)
	}
	if got := headers[script.HeaderLeftOut]; got != strconv.FormatInt(left, 10) {
		t.Errorf("the header says %q bytes are left out, want %d", got, left)
	}
	r.send(r.script("q", "head -c 1000 /dev/zero | tr '\\0' x"))
	if headers, _ := r.promise("q").Value.Headers(); headers != nil {
		t.Errorf("nothing is left out, and the headers are %v", headers)
	}
}

func TestOutputOfWhatOutlivesItsScript(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{GraceMs: 20_000})
	r.send(r.script("late", "exec > >(read -r line; sleep 0.1; echo \"late $line\"); echo hi"))
	r.want("late", protocol.Resolved, "late hi")

	r = newRig(t, script.Options{GraceMs: 100})
	r.send(r.script("left", "sleep 1000 & echo $!; echo $! > "+r.file("left")))
	ids := r.processes("left")
	r.want("left", protocol.Resolved, strconv.Itoa(ids[0]))
	r.wantEnded(ids)
}

func TestWhatCannotBeSent(t *testing.T) {
	r := newRig(t, script.Options{})
	promise := &protocol.Promise{ID: "p", State: protocol.Resolved}
	for _, m := range []push.Message{
		{Workspace: "w", Address: "bash://", Promise: promise},
		{Workspace: "w", Address: "bash://nope", Task: protocol.TaskRef{ID: "p"}},
		{Workspace: "w", Address: "http://a", Task: protocol.TaskRef{ID: "p"}},
	} {
		if err := r.Send(context.Background(), m); !errors.Is(err, push.ErrRefused) {
			t.Errorf("%s: %v", m.Address, err)
		}
	}
	m := r.script("p", "true")
	t.Setenv("PATH", r.folder)
	if err := r.Send(context.Background(), m); !errors.Is(err, push.ErrRefused) || !strings.Contains(err.Error(), "bash is not there") {
		t.Errorf("without bash: %v", err)
	}
	m.Address = "bash://docker/image"
	if err := r.Send(context.Background(), m); !errors.Is(err, push.ErrRefused) || !strings.Contains(err.Error(), "docker is not there") {
		t.Errorf("without docker: %v", err)
	}
	if n := len(r.asked); n != 0 {
		t.Errorf("%d requests were made for what cannot run", n)
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{Concurrency: 3})
	for text, want := range map[string]string{"bash://": "bash", "bash://docker/a": "docker", "bash://docker/b": "docker"} {
		address, err := protocol.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		if lane, err := r.Lane(address, text); lane != want || err != nil {
			t.Errorf("%s: %q, %v", text, lane, err)
		}
	}
	if _, err := r.Lane(protocol.Address{Scheme: "http"}, "http://a"); err == nil {
		t.Error("a lane for http")
	}
	if n := r.Concurrency("bash"); n != 3 {
		t.Errorf("%d at once", n)
	}
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestStaleMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{})
	m := r.script("p", "echo ran >> "+r.file("ran"))
	for _, stale := range []protocol.TaskRef{{ID: "absent"}, {ID: "p", Version: m.Task.Version + 1}} {
		m := m
		m.Task = stale
		if err := r.Send(context.Background(), m); !errors.Is(err, push.ErrStale) {
			t.Errorf("%v: %v", stale, err)
		}
	}
	r.send(m)
	if err := r.Send(context.Background(), m); !errors.Is(err, push.ErrStale) {
		t.Errorf("a task that is done: %v", err)
	}
	if ran, err := os.ReadFile(r.file("ran")); string(ran) != "ran\n" {
		t.Errorf("it ran: %q, %v", ran, err)
	}
}

func TestScriptThatIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, script.Options{LeaseMs: 600})
	m := r.script("p", "echo out; kill -9 $$; echo no")
	r.send(m)
	if p := r.promise("p"); p.State != protocol.Pending {
		t.Errorf("the promise of a script that was killed is %s", p.State)
	}
	// Nobody gives the task back: the end of its lease does.
	if r.times(protocol.KindTaskRelease) != 0 {
		t.Error("the task was released")
	}
	within(t, "the task is dispatched again", func() bool { return r.task("p").State == protocol.TaskPending })
}

// TestStartThatFails: the file is called bash, may be run, and is no program.
func TestStartThatFails(t *testing.T) {
	r := newRig(t, script.Options{})
	m := r.script("p", "true")
	if err := os.WriteFile(filepath.Join(r.folder, "bash"), []byte("\x00\x01"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", r.folder)
	if err := r.Send(context.Background(), m); err == nil || errors.Is(err, push.ErrRefused) || errors.Is(err, push.ErrStale) {
		t.Errorf("a start that fails: %v", err)
	}
	if task := r.task("p"); task.State != protocol.TaskPending {
		t.Errorf("its task is %s, want it released", task.State)
	}
}
