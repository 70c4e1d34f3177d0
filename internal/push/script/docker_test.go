//go:build unix

package script_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"abide/internal/push"
	"abide/internal/push/script"
	"abide/protocol"
)

// fakeDocker stands in for the command line of docker: it notes how it is called, runs the bash that it is asked for in a
// group of processes of its own, as a container would be, and ends that when it is told to stop it or remove it.
const fakeDocker = `#!/bin/bash
folder=%s
printf '%%s\n' "$@" > "$folder/call.$1.$$"
case $1 in
run)
	shift
	while [[ $1 == --* ]]; do
		case $1 in
		--name) echo $$ > "$folder/name.$2"; shift 2;;
		--env) printf '%%s=%%s\n' "$2" "${!2}" >> "$folder/environment"; shift 2;;
		--entrypoint) entry=$2; shift 2;;
		*) shift;;
		esac
	done
	image=$1; shift
	case $image in
	killed) exit 137;;
	absent) echo "no such image" >&2; exit 125;;
	esac
	exec "$entry" "$@";;
version) [ ! -e "$folder/down" ];;
stop|rm)
	group=$(cat "$folder/name.${!#}") && kill -9 -- -$group;;
esac
`

// docker puts the fake on the path of everything in this test.
func docker(t *testing.T, r *rig) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, "docker"), fmt.Appendf(nil, fakeDocker, r.folder), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", r.folder+":"+os.Getenv("PATH"))
}

// calls are the arguments of each call of a command of docker, the names of containers written NAME.
func (r *rig) calls(command string) [][]string {
	r.t.Helper()
	files, err := filepath.Glob(r.file("call." + command + ".*"))
	if err != nil {
		r.t.Fatal(err)
	}
	var calls [][]string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			r.t.Fatal(err)
		}
		args := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		for i, a := range args {
			if strings.HasPrefix(a, "abide-") {
				args[i] = "NAME"
			}
		}
		calls = append(calls, args)
	}
	return calls
}

func (r *rig) container(id, image, text string) push.Message {
	r.t.Helper()
	return r.create(id, "bash://docker/"+image, scriptParam(text), 60_000)
}

func TestContainer(t *testing.T) {
	r := newRig(t, script.Options{Environ: append(os.Environ(), "DOCKER_HOST=unix:///d", "TOKEN=t"), Pass: []string{"TOKEN"}})
	docker(t, r)
	r.send(r.container("p", "library/ubuntu:24.04", "echo hi"))
	r.want("p", protocol.Resolved, "hi")
	want := []string{
		"run", "--rm", "--name", "NAME", "--env", "TOKEN", "--env", "RESONATE_PROMISE_ID", "--env", "RESONATE_PROMISE_CREATED_AT",
		"--env", "RESONATE_PROMISE_TIMEOUT_AT", "--entrypoint", "bash", "library/ubuntu:24.04", "-c", "echo hi",
	}
	if calls := r.calls("run"); len(calls) != 1 || !slices.Equal(calls[0], want) {
		t.Errorf("docker was called with %q, want %q", calls, want)
	}
	p := r.promise("p")
	variables := fmt.Sprintf("TOKEN=t\nRESONATE_PROMISE_ID=p\nRESONATE_PROMISE_CREATED_AT=%d\nRESONATE_PROMISE_TIMEOUT_AT=%d\n", p.CreatedAt, p.TimeoutAt)
	if text, err := os.ReadFile(r.file("environment")); string(text) != variables {
		t.Errorf("the container was given %q, %v, want %q", text, err, variables)
	}
	if n := len(r.calls("rm")) + len(r.calls("stop")); n != 0 {
		t.Errorf("%d more calls for a container that ended by itself", n)
	}
}

func TestContainersThatFail(t *testing.T) {
	r := newRig(t, script.Options{})
	docker(t, r)
	r.send(r.container("absent", "absent", "echo hi"))
	r.want("absent", protocol.Rejected, "no such image")
	down := r.file("down")
	if err := os.WriteFile(down, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := r.container("later", "absent", "echo hi")
	if err := r.Send(context.Background(), m); err == nil || errors.Is(err, push.ErrRefused) || errors.Is(err, push.ErrStale) {
		t.Errorf("a daemon that does not answer: %v", err)
	}
	if task := r.task("later"); task.State != protocol.TaskPending || r.times(protocol.KindTaskRelease) != 1 {
		t.Errorf("a daemon that does not answer: the task is %s", task.State)
	}
	if err := os.Remove(down); err != nil {
		t.Fatal(err)
	}
	released := r.times(protocol.KindTaskRelease)
	r.send(r.container("fails", "image", "echo no >&2; exit 4"))
	r.want("fails", protocol.Rejected, "no")
	r.send(r.container("killed", "killed", "echo hi"))
	if p := r.promise("killed"); p.State != protocol.Pending || r.times(protocol.KindTaskRelease) != released {
		t.Errorf("the promise of a container that was killed is %s", p.State)
	}
}

func TestLongScriptInAContainer(t *testing.T) {
	r := newRig(t, script.Options{})
	docker(t, r)
	r.send(r.container("p", "image", long()))
	r.want("p", protocol.Resolved, `bash 0 unset 1 \`)
	calls := r.calls("run")
	if len(calls) != 1 || !slices.Contains(calls[0], "--interactive") || len(strings.Join(calls[0], " ")) > 2000 {
		t.Errorf("the call: %.3000q", calls)
	}
}

func TestContainerIsEndedWithItsTask(t *testing.T) {
	r := newRig(t, script.Options{GraceMs: 1000})
	docker(t, r)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := r.begin(ctx, r.container("p", "image", "trap '' TERM\n"+r.tree("tree")))
	ids := r.processes("tree")
	stop()
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
	r.wantEnded(ids)
	if calls := r.calls("stop"); len(calls) != 1 || !slices.Equal(calls[0], []string{"stop", "-t", "1", "NAME"}) {
		t.Errorf("docker stop was called with %q", calls)
	}
	if calls := r.calls("rm"); len(calls) != 1 || !slices.Equal(calls[0], []string{"rm", "--force", "NAME"}) {
		t.Errorf("docker rm was called with %q", calls)
	}
	if task := r.task("p"); task.State != protocol.TaskPending {
		t.Errorf("the task is %s, want it released", task.State)
	}
}
