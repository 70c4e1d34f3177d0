package main

import (
	"encoding/json"
	"strings"
	"testing"

	"abide/internal/bench"
)

func TestBenchPollsAndStart(t *testing.T) {
	t.Chdir(t.TempDir())
	program := []string{"BE_THE_PROGRAM=1"}
	r := runWith(program, "bench", "polls", "--idle", "150", "--workers", "5", "--clients", "2", "--rounds", "1", "--for", "100ms", "--warmup", "10ms")
	var polls bench.PollsReport
	if err := json.Unmarshal([]byte(r.stdout), &polls); r.code != exitOK || err != nil {
		t.Fatalf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
	if polls.Mode != bench.ModePolls || polls.Operations == 0 || len(polls.Errors) != 0 || polls.Version != buildVersion() {
		t.Errorf("%s", r.stdout)
	}
	r = runWith(program, "bench", "start", "--preload", "300", "--rounds", "1")
	var start bench.StartReport
	if err := json.Unmarshal([]byte(r.stdout), &start); r.code != exitOK || err != nil {
		t.Fatalf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
	if start.Mode != bench.ModeStart || len(start.AfterStopMs) != 1 || len(start.AfterKillMs) != 1 || start.Version != buildVersion() {
		t.Errorf("%s", r.stdout)
	}
}

func TestBenchPollsAndStartRefuse(t *testing.T) {
	for args, want := range map[string]string{
		"polls --url http://x":   "own server",
		"start --url http://x":   "own server",
		"polls --token t":        "--token",
		"start --keys 7":         "--keys",
		"polls --preload 7":      "--preload",
		"polls --idle 0":         "0 idle streams",
		"start --rounds 0":       "0 rounds",
		"start --preload=-1":     "-1 promises",
		"polls --clients 100000": "100000 clients",
	} {
		r := runWith(nil, append([]string{"bench"}, strings.Fields(args)...)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d, stderr %q, want %q", args, r.code, r.stderr, want)
		}
	}
}
