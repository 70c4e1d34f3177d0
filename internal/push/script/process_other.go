//go:build !unix

package script

import (
	"os"
	"os/exec"
	"time"
)

// localScripts tells whether scripts run without a container: only where a whole tree of processes can be ended.
const localScripts = false

// maxArgumentBytes is the longest script that is an argument. Windows has a limit of 32,767 characters for all of them.
const maxArgumentBytes = 16 << 10

// ownGroup does nothing: what runs here is the command line of docker, which has no children.
func ownGroup(*exec.Cmd) {}

// askGroup ends a process.
func askGroup(first *os.Process) error { return first.Kill() }

// killGroup has nothing to do: askGroup has ended what there is, as has the end of exec.Cmd's patience.
func killGroup(*os.Process) {}

// endGroup has nothing to do.
func endGroup(*os.Process, time.Duration) {}
