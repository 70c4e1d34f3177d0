package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSimulate(t *testing.T) {
	r := runWith(nil, "simulate", "--seeds", "3", "--from", "7", "--workers", "2", "--json")
	if r.code != exitOK || r.stderr != "" {
		t.Fatalf("exit %d, stderr %q", r.code, r.stderr)
	}
	var report simulated
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if report.Seeds != 3 || report.From != 7 || len(report.Failed) != 0 || report.Totals.Requests < 600 || report.Totals.Faults < 30 {
		t.Errorf("the report is %s", r.stdout)
	}
	r = runWith(nil, "simulate", "--seeds", "3", "--push", "always", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || report.Totals.Pushes < 30 {
		t.Errorf("%v, the report is %s", err, r.stdout)
	}
	r = runWith(nil, "simulate", "--seeds", "2", "--push", "sometimes")
	if r.code != exitUsage || !strings.Contains(r.stderr, "--push") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	r = runWith(nil, "simulate", "--seeds", "2", "--model")
	if r.code != exitOK || !strings.Contains(r.stdout, "2 seeds from 1, 0 failed") {
		t.Errorf("exit %d: %s", r.code, r.stdout)
	}
}

func TestSimulateOneSeedPrintsItsTrace(t *testing.T) {
	first := runWith(nil, "simulate", "--seed", "7")
	if first.code != exitOK || strings.Count(first.stdout, "\n") < 300 || !strings.Contains(first.stdout, "fault: ") {
		t.Fatalf("exit %d, a trace of %d bytes", first.code, len(first.stdout))
	}
	if second := runWith(nil, "simulate", "--seed", "7"); second.stdout != first.stdout {
		t.Error("the same seed gave another trace")
	}
}
