package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAsPID1 runs the server as the first process of a container: signals that it does not handle itself do not reach it,
// and nobody is behind it.
func TestAsPID1(t *testing.T) {
	var log lockedBuffer
	cmd := exec.Command(os.Args[0], serveArgs(filepath.Join(t.TempDir(), "x.db"))...)
	cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1")
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 65532, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 65532, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("this machine gives processes no namespaces of their own: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	var address string
	for deadline := time.Now().Add(20 * time.Second); address == ""; time.Sleep(5 * time.Millisecond) {
		if _, rest, found := strings.Cut(log.String(), "msg=listening address="); found && strings.Contains(rest, "\n") {
			address = strings.Fields(rest)[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not listen: %s", log.String())
		}
	}
	if got := runWith(nil, "ready", "--url", "http://"+address); got.code != exitOK {
		t.Errorf("%+v", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil || !strings.Contains(log.String(), "msg=stopped") {
			t.Errorf("%v\n%s", err, log.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("SIGTERM does not reach it: %s", log.String())
	}
	inner := fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)
	if _, err := os.Stat(inner); err == nil {
		t.Errorf("%s is still there", inner)
	}
}
