package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"abide/client"
	"abide/protocol"
)

// asNobodySpecial makes cmd run without the privileges of root, which may write everywhere, but as the owner of
// what this process makes: in a user namespace of its own, where this user is somebody else.
func asNobodySpecial(cmd *exec.Cmd) {
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}},
	}
}

// skipWithoutNamespaces skips where the system lets nobody make a namespace.
func skipWithoutNamespaces(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("this system allows no namespaces, and so no test without root's privileges: %v", err)
	}
}

func TestNoPermission(t *testing.T) {
	folder := t.TempDir()
	good, err := os.ReadFile(dataFile(t))
	if err != nil {
		t.Fatal(err)
	}
	make := func(name string, fileMode, folderMode os.FileMode) string {
		path := filepath.Join(folder, name, "x.db")
		if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, good, 0o600),
			os.Chmod(path, fileMode), os.Chmod(filepath.Dir(path), folderMode)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Dir(path), 0o700) })
		return path
	}
	for _, path := range []string{
		make("read-only folder", 0o600, 0o500),
		filepath.Join(filepath.Dir(make("read-only folder, new file", 0o600, 0o500)), "y.db"),
		make("closed folder", 0o600, 0),
		make("read-only file", 0o400, 0o700),
		make("closed file", 0, 0o700),
	} {
		cmd := exec.Command(os.Args[0], serveArgs(path)...)
		cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1")
		asNobodySpecial(cmd)
		output, err := cmd.CombinedOutput()
		skipWithoutNamespaces(t, err)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitFailure {
			t.Fatalf("%s: %v: %s", path, err, output)
		}
		line := lastLine(string(output))
		if !strings.HasPrefix(line, "Fatal: cannot open the data file") || !strings.Contains(line, "no permission") || !strings.Contains(line, path) {
			t.Errorf("%s: %q", path, line)
		}
	}
}

// smallDisk in the environment makes the test binary a process that may mount a small file system there.
const smallDisk = "ABIDE_TEST_SMALL_DISK"

// TestAFullDisk serves from a real file system that is full for a while.
func TestAFullDisk(t *testing.T) {
	folder := os.Getenv(smallDisk)
	if folder == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), smallDisk+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		output, err := cmd.CombinedOutput()
		skipWithoutNamespaces(t, err)
		if strings.Contains(string(output), "--- SKIP") {
			t.Skipf("in a namespace of its own:\n%s", output)
		}
		if err != nil {
			t.Errorf("%v:\n%s", err, output)
		}
		return
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("this system allows no mount in a namespace: %v", err)
	}
	defer syscall.Unmount(folder, syscall.MNT_DETACH)
	fullDisk(t, folder)
}

// fill takes all the room on the disk of folder; the function that it returns gives it back.
func fill(t *testing.T, folder string) (empty func()) {
	t.Helper()
	filler, err := os.Create(filepath.Join(folder, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = filler.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(filler.Close(), os.Remove(filler.Name())); err != nil {
			t.Error(err)
		}
	}
}

func fullDisk(t *testing.T, folder string) {
	empty := fill(t, folder)
	if r := runWith(nil, serveArgs(filepath.Join(folder, "none.db"))...); r.code != exitFailure || !strings.Contains(lastLine(r.stderr), "no room") {
		t.Errorf("at start: exit %d, stderr %q", r.code, r.stderr)
	}
	empty()
	r := start(t, serveArgs(filepath.Join(folder, "x.db"))...)
	c, err := client.New(client.Options{URL: r.url, Retry: client.Retry{Attempts: 1}}) // refusals are counted
	if err != nil {
		t.Fatal(err)
	}
	payload := protocol.Value(fmt.Sprintf(`{"headers":{},"data":"%050000d"}`, 0))
	create := func(id string) error {
		_, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Param: payload})
		return err
	}
	if err := create("before"); err != nil {
		t.Fatal(err)
	}
	if status, why := ready(t, r.url); status != 200 || why != "{\"ready\":true}\n" {
		t.Errorf("with room: %d %q", status, why)
	}
	empty = fill(t, folder)
	refused := 0
	for n := 0; refused < 3; n++ {
		err := create(fmt.Sprintf("during.%d", n))
		if status := client.Status(err); err != nil && status != protocol.StatusUnavailable {
			t.Fatalf("with a full disk: %v", err)
		}
		if err != nil {
			refused++
		}
		if n == 1000 {
			t.Fatal("nothing was refused")
		}
	}
	if status, why := ready(t, r.url); status != 503 || !strings.Contains(why, "disk is full") {
		t.Errorf("with a full disk: %d %q", status, why)
	}
	// What is read is served for as long as the clock's ceiling that is on disk covers the present, which may be over by now.
	if _, err := c.PromiseGet(t.Context(), "before"); err != nil && client.Status(err) != protocol.StatusUnavailable {
		t.Errorf("reading with a full disk: %v", err)
	}
	empty()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if status, _ := ready(t, r.url); status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("with room again it does not become ready by itself")
		}
	}
	if err := create("after"); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}
