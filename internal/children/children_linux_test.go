package children

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// adopt makes the test's process one that orphans are handed to, as the first process of a container is.
func adopt(t *testing.T) {
	t.Helper()
	const setChildSubreaper = 36
	if _, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); failed != 0 {
		t.Fatal(failed)
	}
	t.Cleanup(func() { _, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 0, 0) })
	if !adopts() {
		t.Fatal("it does not say that it adopts orphans")
	}
}

// leaveOrphan runs a script whose child leaves its group and outlives it, and returns the child's id.
func leaveOrphan(t *testing.T, r *Register) int {
	t.Helper()
	var out bytes.Buffer
	const waits = `setsid sh -c 'while kill -0 $0; do sleep 0.01; done; exit 3' $$ >/dev/null 2>&1 & echo $!`
	cmd := exec.Command("sh", "-c", waits)
	cmd.Stdout = &out
	wait, err := r.Start(cmd)
	if err == nil {
		err = wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func there(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}

// TestOrphansAreReaped: an orphan is taken from the table of processes by the second look that finds it ended.
func TestOrphansAreReaped(t *testing.T) {
	adopt(t)
	var r Register
	pid := leaveOrphan(t, &r)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		n, err := r.Look()
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			break
		}
		if !there(pid) || time.Now().After(deadline) {
			t.Fatalf("orphan %d was not reaped by a look (it is there: %v)", pid, there(pid))
		}
	}
	if there(pid) {
		t.Errorf("orphan %d is still there", pid)
	}
}

// TestOneLookReapsNothing: a child that somebody else has started may be waited for at this moment.
func TestOneLookReapsNothing(t *testing.T) {
	adopt(t)
	cmd := exec.Command("sh", "-c", "exit 4")
	if err := cmd.Start(); err != nil { // not through the register
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		found, err := endedChildren()
		if err != nil {
			t.Fatal(err)
		}
		if found[cmd.Process.Pid] != 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not end")
		}
	}
	if n, err := new(Register).Look(); n != 0 || err != nil {
		t.Errorf("%d reaped, %v", n, err)
	}
	wantExit(t, cmd.Wait(), 4)
}

func wantExit(t *testing.T, err error, code int) {
	t.Helper()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("%v, want exit status %d", err, code)
	}
}

// TestOwnChildrenKeepTheirStatus: looks without a pause, which trust nothing but the register, take nobody's status, also
// of processes that are waited for late.
func TestOwnChildrenKeepTheirStatus(t *testing.T) {
	adopt(t)
	var r Register
	stop := make(chan struct{})
	var looks, work sync.WaitGroup
	looks.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := r.Look(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 4 {
		work.Go(func() {
			for range 15 {
				wait, err := r.Start(exec.Command("sh", "-c", "exit 5"))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(10 * time.Millisecond)
				wantExit(t, wait(), 5)
			}
		})
	}
	work.Wait()
	orphan := leaveOrphan(t, &r)
	for deadline := time.Now().Add(30 * time.Second); there(orphan); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("an orphan is not reaped")
		}
	}
	close(stop)
	looks.Wait()
	if len(r.own) != 0 {
		t.Errorf("%v are left in the register", r.own)
	}
}

// TestWithoutARegister: a nil one starts processes, too.
func TestWithoutARegister(t *testing.T) {
	wait, err := (*Register)(nil).Start(exec.Command("sh", "-c", "exit 6"))
	if err != nil {
		t.Fatal(err)
	}
	wantExit(t, wait(), 6)
	if wait, err = new(Register).Start(exec.Command("/nonexistent/program")); err == nil {
		t.Error("it has started what is not there", wait())
	}
}
