package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fakeSystemd is a socket as systemd has it; told gives what comes.
func fakeSystemd(t *testing.T) (address string, told <-chan string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no datagram sockets in the file system, and no systemd")
	}
	folder, err := os.MkdirTemp("", "n") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	address = filepath.Join(folder, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	all := make(chan string, 1000)
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := l.Read(b)
			if err != nil {
				return
			}
			all <- string(b[:n])
		}
	}()
	return address, all
}

// next is the next datagram.
func next(t *testing.T, told <-chan string) string {
	t.Helper()
	select {
	case text := <-told:
		return text
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
		return ""
	}
}

// TestSystemdIsTold starts and stops a server as a unit of Type=notify with a watchdog.
func TestSystemdIsTold(t *testing.T) {
	address, told := fakeSystemd(t)
	environ := []string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=20000", fmt.Sprint("WATCHDOG_PID=", os.Getpid())}
	r := startIn(t, environ, serveArgs(filepath.Join(t.TempDir(), "x.db"))...)
	if text := next(t, told); text != "READY=1\nSTATUS=Listening on "+strings.TrimPrefix(r.url, "http://") {
		t.Errorf("first came %q", text)
	}
	for range 3 {
		if text := next(t, told); text != "WATCHDOG=1" {
			t.Errorf("a sign of life is %q", text)
		}
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	for text := ""; !strings.HasPrefix(text, "STOPPING=1\n"); {
		if text = next(t, told); text != "WATCHDOG=1" && !strings.HasPrefix(text, "STOPPING=1\n") {
			t.Fatalf("%q", text)
		}
	}
}

// TestNobodyToTell serves where there is no supervisor, where it is gone, and where the watchdog watches another process.
func TestNobodyToTell(t *testing.T) {
	address, told := fakeSystemd(t)
	for _, c := range []struct {
		environ []string
		warns   bool
	}{
		{nil, false},
		{[]string{"NOTIFY_SOCKET="}, false},
		{[]string{"NOTIFY_SOCKET=" + address + ".gone"}, true},
		{[]string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=1000", "WATCHDOG_PID=1"}, false},
		{[]string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=soon"}, false},
	} {
		r := startIn(t, c.environ, serveArgs(filepath.Join(t.TempDir(), "x.db"))...)
		if code := r.stop(t); code != exitOK {
			t.Errorf("%v: exit %d", c.environ, code)
		}
		if warned := strings.Contains(r.stderr.String(), "NOTIFY_SOCKET"); warned != c.warns {
			t.Errorf("%v: %s", c.environ, r.stderr.String())
		}
	}
	var kinds []string
	for range 4 {
		kind, _, _ := strings.Cut(next(t, told), "\n")
		kinds = append(kinds, kind)
	}
	if want := []string{"READY=1", "STOPPING=1", "READY=1", "STOPPING=1"}; !slices.Equal(kinds, want) {
		t.Errorf("told %v, want %v", kinds, want)
	}
}

// TestNoSignOfLifeFromWhatHangs stops the signs of life, says why, and gives them again when it moves again.
func TestNoSignOfLifeFromWhatHangs(t *testing.T) {
	address, told := fakeSystemd(t)
	var log lockedBuffer
	s := openSupervisor(surroundings{environ: []string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=2000"}}, slog.New(slog.NewTextHandler(&log, nil)))
	defer s.close()
	var hangs atomic.Bool
	go s.watch(t.Context(), func() error {
		if hangs.Load() {
			return errors.New("the sweep loop\nhangs")
		}
		return nil
	})
	until := func(want string) {
		for text := ""; text != want; {
			if text = next(t, told); text != "WATCHDOG=1" && !strings.HasPrefix(text, "STATUS=Hangs: ") {
				t.Fatalf("%q", text)
			}
		}
	}
	until("WATCHDOG=1")
	hangs.Store(true)
	until("STATUS=Hangs: the sweep loop hangs")
	if text := next(t, told); text == "WATCHDOG=1" {
		t.Error("a sign of life of a server that hangs")
	}
	hangs.Store(false)
	until("WATCHDOG=1")
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "no sign of life") {
		t.Errorf("log: %s", log.String())
	}
}
