package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestSignalDuringAHungStart: a server that has not come to listen yet, and a command that listens for no signal, end all
// the same.
func TestSignalDuringAHungStart(t *testing.T) {
	for name, args := range map[string][]string{
		"serve":        serveArgs(filepath.Join(t.TempDir(), "x.db")),
		"config check": {"config", "check", "--config", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipe := filepath.Join(t.TempDir(), "key.pem")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], append(args, "--auth-publickey", pipe)...)
			cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			deadline := time.Now().Add(time.Minute)
			for opened := false; !opened; time.Sleep(5 * time.Millisecond) {
				// It fails until there is somebody who reads, and has him wait for more for as long as it is open.
				writer, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
				if opened = err == nil; opened {
					defer writer.Close()
				} else if time.Now().After(deadline) {
					t.Fatalf("nobody reads the key: %v", err)
				}
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != exitSignaled+int(syscall.SIGTERM) {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(time.Until(deadline)):
				t.Error("SIGTERM does not end it")
			}
		})
	}
}
