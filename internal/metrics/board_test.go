package metrics

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// dashboard is what matters of a Grafana board.
type dashboard struct {
	UID           string
	Title         string
	SchemaVersion int
	Templating    struct{ List []variable }
	Panels        []panel
}

type variable struct {
	Name, Type, Definition string
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               source
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                source
	}
}

type source struct{ Type, UID string }

// TestBoard holds the Grafana board against what a scrape holds, and against what Grafana needs to show it: one data
// source that is chosen on the board, variables that are there, panels that do not overlap.
func TestBoard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/abide.json")
	if err != nil {
		t.Fatal(err)
	}
	var b dashboard
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if b.UID == "" || b.Title == "" || b.SchemaVersion < 36 || strings.Contains(string(text), "__inputs") {
		t.Errorf("uid %q, title %q, schema %d: a board that can be provisioned has all, and no inputs", b.UID, b.Title, b.SchemaVersion)
	}
	s := readServed(t)
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range b.Templating.List {
		variables[v.Name] = true
		if v.Type == "query" && !strings.HasPrefix(v.Definition, "label_values(abide_build_info") {
			t.Errorf("the variable %s asks for %s", v.Name, v.Definition)
		}
	}
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	shown := map[string]bool{}
	for _, p := range b.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: its id %d is another's", p.Title, p.ID)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s: at %+v it is not on the board", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s overlaps %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d: title %q, description %q, %d queries", p.ID, p.Title, p.Description, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" || p.Datasource.UID != "${datasource}" || refs[q.RefID] || q.LegendFormat == "" {
				t.Errorf("%s: query %s on %q with the legend %q", p.Title, q.RefID, q.Datasource.UID, q.LegendFormat)
			}
			refs[q.RefID] = true
			expr := q.Expr
			for name := range variables {
				expr = strings.ReplaceAll(expr, "$"+name, "1m")
			}
			if strings.Contains(expr, "$") {
				t.Errorf("%s: a variable in %s is not there", p.Title, q.Expr)
			}
			s.check(t, p.Title, expr)
			for name := range s.labels {
				shown[name] = shown[name] || strings.Contains(expr, name)
			}
		}
	}
	for _, name := range []string{"resonate_request_total", "abide_ready", "abide_timer_overdue_seconds", "abide_undelivered_oldest_seconds", "abide_workers",
		"abide_commit_duration_seconds_bucket", "abide_database_log_bytes", "abide_journal_lag_seconds", "abide_quarantined_rows", "abide_clock_offset_seconds"} {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}
