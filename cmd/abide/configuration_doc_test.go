package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestConfigurationListsEverySetting: docs/configuration.md has a row for each setting of serve.
func TestConfigurationListsEverySetting(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown struct{ Settings []struct{ Key string } }
	r := runWith(nil, "config", "show", "--json", "--config", "")
	if err := json.Unmarshal([]byte(r.stdout), &shown); err != nil || len(shown.Settings) < 50 {
		t.Fatalf("%v: %d settings: %s", err, len(shown.Settings), r.stderr)
	}
	for _, s := range shown.Settings {
		if !strings.Contains(string(text), "\n| `"+s.Key+"` | `--") {
			t.Errorf("docs/configuration.md has no row for %s", s.Key)
		}
	}
}
