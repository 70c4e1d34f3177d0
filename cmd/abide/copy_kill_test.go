package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/protocol"
)

// TestKilledCopies kills a copy again and again, a little later each time, until one gets through. Whatever a kill
// leaves is refused or complete, and the next copy goes on.
func TestKilledCopies(t *testing.T) {
	t.Parallel()
	from, to := filepath.Join(t.TempDir(), "from.db"), filepath.Join(t.TempDir(), "to.db")
	server := start(t, serveArgs(from)...)
	c := server.client(t)
	var clients sync.WaitGroup
	for worker := range 32 {
		clients.Go(func() {
			for i := range 60 {
				id := fmt.Sprintf("p%d.%d", worker, i)
				if _, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Param: protocol.MakeValue(nil, strings.Repeat("x", 900))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	if code := server.stop(t); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	kills, incomplete := 0, 0
	for delay := 5 * time.Millisecond; ; delay += delay / 2 {
		child := exec.Command(os.Args[0], "copy", from, to)
		child.Env = append(os.Environ(), "BE_THE_PROGRAM=1")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(delay, func() { _ = child.Process.Kill() })
		err := child.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		kills++
		if _, err := os.Stat(to); err != nil {
			continue // it had not begun
		}
		r := runWith(nil, "check", to)
		switch {
		case strings.Contains(r.stderr, "is not complete"):
			incomplete++
		case r.code == exitOK: // killed after its end
			if again := runWith(nil, "copy", from, to); !strings.Contains(again.stderr, "not empty") {
				t.Errorf("%+v", again)
			}
			checkJSON(t, exitOK, to, "--replay")
			return
		case !strings.Contains(r.stderr, "no format record") && !strings.Contains(r.stderr, "is empty"):
			t.Errorf("after %d kills: %+v", kills, r)
		}
		if delay > time.Minute {
			t.Fatal("no copy gets through")
		}
	}
	t.Logf("%d kills, after %d of which the copy was incomplete", kills, incomplete)
	if report := checkJSON(t, exitOK, to, "--replay"); report.Rows["object"] != 32*60 {
		t.Errorf("%+v", report.Rows)
	}
}
