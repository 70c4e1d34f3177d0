package metrics

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"abide/internal/deliver"
)

// line is a sample as the text format has it: labels are quoted, with quotes, backslashes and line feeds escaped.
var line = regexp.MustCompile(`^[a-z_]+(\{[a-z_]+="([^"\\\n]|\\["\\n])*"(,[a-z_]+="([^"\\\n]|\\["\\n])*")*\})? \S+$`)

// TestOddNamesDoNotBreakAScrape: names of groups are the users' own. (I11)
func TestOddNamesDoNotBreakAScrape(t *testing.T) {
	names := []string{`a"b`, "a\nb", `a\`, `a\nb`, "ä😀", "{}", "a,b=c", "} 1\nabide_fake_total 7"}
	sources := sample()
	var stats deliver.Stats
	for _, name := range names {
		stats.Groups = append(stats.Groups, deliver.GroupStats{Workspace: "default", Group: name, Connections: 3})
	}
	sources.Delivery = func() deliver.Stats { return stats }
	m := New(sources, silent)
	m.Request("a\"\n} 1\nabide_fake_total 7", 200, 0) // a kind as a client named it
	w := httptest.NewRecorder()
	m.Handler(silent).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	groups := 0
	for _, text := range strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n") {
		if strings.HasPrefix(text, "# ") {
			continue
		}
		if !line.MatchString(text) {
			t.Errorf("not a sample: %q", text)
		}
		if strings.HasPrefix(text, "abide_fake_total") {
			t.Errorf("a name has made a metric: %q", text)
		}
		if strings.HasPrefix(text, "abide_workers{") {
			groups++
		}
	}
	if groups != len(names) {
		t.Errorf("%d groups are shown, want %d", groups, len(names))
	}
}
