package script

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// program is what runs a script, and where.
type program struct {
	path        string // of bash, or of docker
	container   bool
	image       string
	environment []string // what the script is told, besides what it inherits
}

// loader is what bash is given in place of a script that is too long for an argument, and comes on its standard input
// instead. MARK stands behind the script, so that half of one never runs. The script runs as if it were the argument, but
// for the numbers of lines in what bash says of it.
const loader = `__script=$(cat); case $__script in (*MARK) ;; (*) echo "the script did not arrive whole" >&2; exit 125 ;; esac; ` +
	`eval "unset __script; ${__script%MARK}" </dev/null`

// containerKilled are the exit codes that the command line of docker has for a container that was killed.
var containerKilled = []int{128 + 9, 128 + 15}

// containerFailed is the one for what docker itself could not do. A script may have it as well.
const containerFailed = 125

const (
	// containerTimeout bounds a call of docker that ends a container, besides the grace that it has.
	containerTimeout = 2 * time.Second
	// groupPoll is how often is looked whether a group of processes has ended.
	groupPoll = 20 * time.Millisecond
	// killWait is how long is waited for processes that were killed: less than a moment, but for those that a full disk or
	// a debugger holds.
	killWait = 500 * time.Millisecond
	// drainWait is how long output is read whose writers have ended, as far as they can be ended. Only one that has left its
	// group keeps it open that long.
	drainWait = 5 * time.Second
)

// ending is how a script has ended.
type ending struct {
	byItself       bool // nobody here asked it to
	killed         bool // by a signal, of whoever
	exitCode       int
	stdout, stderr output
}

// execute runs a script until it has ended, or ctx has and it was ended for that. An error: it could not be run, for reasons
// that are not its own. When execute returns, nothing of what it has started in the script's group of processes, or container, is left.
func (x *execution) execute(ctx context.Context, what program, text string) (*ending, error) {
	e := &ending{stdout: output{limit: x.opt.OutputBytes}, stderr: output{limit: x.opt.OutputBytes}}
	name := "abide-" + random()
	argument, input := text, io.Reader(nil) // no input is /dev/null
	if len(text) > maxArgumentBytes {
		mark := ":end-of-script:" + random()
		argument, input = strings.ReplaceAll(loader, "MARK", mark), strings.NewReader(text+mark)
	}
	cmd := exec.CommandContext(ctx, what.path, what.arguments(name, argument, input != nil)...)
	cmd.Args[0] = filepath.Base(what.path) // bash puts it before what it complains of
	cmd.Stdin = input
	cmd.Env = slices.Concat(x.local, what.environment)
	if what.container { // docker's own, of which the container is given what the arguments name
		cmd.Env = slices.Concat(x.opt.Environ, what.environment)
	}
	ownGroup(cmd)
	asked := false
	var late *time.Timer // ends the grace of all that the script has started at once; WaitDelay is of its first process alone
	cmd.Cancel = func() error {
		asked = true
		if what.container {
			x.docker(what.path, "stop", "-t", strconv.Itoa(int(x.grace.Seconds()+0.5)), name)
			return nil
		}
		late = time.AfterFunc(x.grace, func() { killGroup(cmd.Process) })
		return askGroup(cmd.Process)
	}
	cmd.WaitDelay = x.grace // between that and its end
	read, err := x.start(cmd, e)
	if err != nil {
		return e, err
	}
	err = read.wait()
	if asked {
		endGroup(cmd.Process, x.grace)
		if late != nil {
			late.Stop()
		}
	} else {
		read.await(x.grace) // of what it has left in the background
		endGroup(cmd.Process, 0)
	}
	read.await(drainWait)
	read.end()
	if what.container && asked {
		x.docker(what.path, "rm", "--force", name)
	}
	if cmd.ProcessState == nil {
		return e, err
	}
	e.byItself = !asked
	e.exitCode = cmd.ProcessState.ExitCode()
	e.killed = e.exitCode < 0 || what.container && slices.Contains(containerKilled, e.exitCode)
	if what.container && e.byItself && e.exitCode == containerFailed && !x.docker(what.path, "version") {
		return e, errors.New("docker has no daemon that answers")
	}
	return e, nil
}

// arguments are those of bash, or of docker.
func (p program) arguments(name, script string, hasInput bool) []string {
	if !p.container {
		return []string{"-c", script}
	}
	args := []string{"run", "--rm", "--name", name}
	if hasInput {
		args = append(args, "--interactive")
	}
	for _, variable := range p.environment {
		variable, _, _ = strings.Cut(variable, "=") // its value comes from docker's own environment: nobody sees it there
		args = append(args, "--env", variable)
	}
	return append(args, "--entrypoint", "bash", p.image, "-c", script)
}

// docker runs a short command, and reports whether it went well.
func (x *execution) docker(path string, args ...string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), x.grace+containerTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = x.opt.Environ
	cmd.WaitDelay = time.Second
	wait, err := x.opt.Children.Start(cmd)
	if err == nil {
		err = wait()
	}
	if err != nil {
		x.opt.Log.Debug("docker", "command", args[0], "error", err)
	}
	return err == nil
}

func random() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
