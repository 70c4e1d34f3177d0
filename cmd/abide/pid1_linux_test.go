package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"abide/internal/children"
	"abide/protocol"
)

// asFirst has cmd be the first process of a system of processes, as in a container, as the given user of it.
func asFirst(cmd *exec.Cmd, user int) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
}

// withProc has cmd see its own system in /proc. It must be the root of it.
func withProc(cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", `mount -t proc proc /proc && exec "$@"`, "sh"}, cmd.Args...)
	cmd.Path = "/bin/sh"
	asFirst(cmd, 0)
}

// TestAsPID1 runs the server as the first process of a container: signals that it does not handle itself do not reach it,
// and nobody is behind it.
func TestAsPID1(t *testing.T) {
	const user = 65532 // that of the image
	probe := exec.Command("/bin/true")
	if asFirst(probe, user); probe.Run() != nil {
		t.Skip("this machine gives processes no namespaces of their own")
	}
	p := startProcess(t, func(cmd *exec.Cmd) { asFirst(cmd, user) }, serveArgs(filepath.Join(t.TempDir(), "x.db"))...)
	p.wantReady(t)
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.wantStop(t)
	if !strings.Contains(p.log.String(), "msg=stopped") {
		t.Errorf("it has not stopped by itself: %s", p.log.String())
	}
}

// TestOrphansAsPID1: what scripts leave behind as the first process's to wait for does not stay in the table of processes,
// while scripts that run at the same time end as they do.
func TestOrphansAsPID1(t *testing.T) {
	t.Parallel() // it waits for two looks
	probe := exec.Command("/bin/true")
	if withProc(probe); probe.Run() != nil {
		t.Skip("this machine gives processes no namespaces and no /proc of their own")
	}
	p := startProcess(t, withProc, serveArgs(filepath.Join(t.TempDir(), "x.db"), "--transports-bash-exec-enabled", "true")...)
	c := p.client(t)
	const orphans = 3
	for i := range orphans { // each leaves its script's group, and outlives it
		createScript(t, c, fmt.Sprintf("parent-%d", i), "setsid sleep 0.2 >/dev/null 2>&1 & echo $!")
	}
	ids := map[string]bool{}
	for i := range orphans {
		state, text := outcomeOf(t, c, fmt.Sprintf("parent-%d", i))
		if state != protocol.Resolved {
			t.Fatalf("the script ended %s: %s", state, text)
		}
		ids[text] = true
	}
	if len(ids) != orphans {
		t.Fatalf("%d orphans: %v", len(ids), ids)
	}
	begun := time.Now()
	for n := 0; ; n++ {
		id := fmt.Sprintf("beside-%d", n)
		createScript(t, c, id, "exit 3")
		if state, text := outcomeOf(t, c, id); state != protocol.Rejected || !strings.Contains(text, "3") {
			t.Fatalf("a script beside ended %s: %s", state, text)
		}
		if len(childrenOf(p.cmd.Process.Pid)) == 0 && n > 0 {
			break
		}
		if time.Since(begun) > 60*time.Second+2*children.Interval {
			t.Fatalf("it still has the children %v", childrenOf(p.cmd.Process.Pid))
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.wantStop(t)
}

// childrenOf are the processes whose parent is pid, as this system has them, with their states.
func childrenOf(pid int) (found []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if string(fields[1]) == strconv.Itoa(pid) {
			found = append(found, path+" "+string(fields[0]))
		}
	}
	return found
}
