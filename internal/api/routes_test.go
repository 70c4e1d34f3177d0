package api

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParseRoute: whatever the path, a stream has a group and an id that are text, and a workspace has a name
// that needs no escape.
func FuzzParseRoute(f *testing.F) {
	for _, path := range []string{"", "/", "//", "/w", "/w/", "/w/x", "/w/x//poll/g/w", "/poll/g/a%2Fb", "/poll/%FF/x", "/poll/g/%", "/promises/x", "/w/%00", "*", "/w/x/w/y"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r, err := parseRoute(path)
		if err != nil {
			return
		}
		if r.workspace == "" || url.PathEscape(r.workspace) != r.workspace || strings.Trim(r.workspace, ".") == "" {
			t.Fatalf("%q: workspace %q", path, r.workspace)
		}
		if named := r.group != "" && r.id != ""; named != (r.endpoint == endpointPoll) || !utf8.ValidString(r.group+r.id) {
			t.Fatalf("%q: %+v", path, r)
		}
	})
}
