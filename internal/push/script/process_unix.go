//go:build unix

package script

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// localScripts tells whether scripts run without a container: only where a whole tree of processes can be ended.
const localScripts = true

// maxArgumentBytes is the longest script that is an argument. Linux has a limit of 128 KiB for one.
const maxArgumentBytes = 120 << 10

// ownGroup makes what cmd starts the first of a group of processes, which its children belong to.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// askGroup asks all of a group to end.
func askGroup(first *os.Process) error {
	if syscall.Kill(-first.Pid, syscall.SIGTERM) != nil {
		return os.ErrProcessDone
	}
	return nil
}

// endGroup waits for the rest of a group, whose first process has ended, and kills what is left after grace.
func endGroup(first *os.Process, grace time.Duration) {
	if awaitGroup(first.Pid, grace) {
		return
	}
	killGroup(first)
	awaitGroup(first.Pid, killWait)
}

// killGroup ends all of a group that is left.
func killGroup(first *os.Process) { _ = syscall.Kill(-first.Pid, syscall.SIGKILL) }

// awaitGroup waits until a group has no processes, and reports whether that came about within limit.
func awaitGroup(group int, limit time.Duration) bool {
	for waited := time.Duration(0); groupLives(group); waited += groupPoll {
		if waited >= limit {
			return false
		}
		time.Sleep(groupPoll)
	}
	return true
}

// groupLives reports whether a group has processes. Where this process is the first of its system, as in containers,
// the orphans of a script are its own children: those that have ended are taken from the system's table.
func groupLives(group int) bool {
	for {
		if pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			break
		}
	}
	return syscall.Kill(-group, 0) != syscall.ESRCH
}
