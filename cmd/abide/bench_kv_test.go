package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"abide/kv/kvbench"
)

func TestBenchOfTheStoreAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, mode := range kvbench.Modes() {
		keys := "500"
		if mode == kvbench.Size {
			keys = "11000"
		}
		r := runWith(nil, "bench", string(mode), "--clients", "4", "--for", "20ms", "--keys", keys)
		var report kvReport
		if err := json.Unmarshal([]byte(r.stdout), &report); r.code != exitOK || err != nil || r.stderr != "" {
			t.Fatalf("%s: exit %d, stdout %q, stderr %q", mode, r.code, r.stdout, r.stderr)
		}
		if report.Mode != mode || report.Clients != 4 || len(report.Figures) < 5 || report.Version != buildVersion() {
			t.Errorf("%+v", report)
		}
	}
	if left, err := filepath.Glob(filepath.Join(devFolder, "bench-*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(devFolder, ".gitignore")); err != nil {
		t.Error(err)
	}
}
