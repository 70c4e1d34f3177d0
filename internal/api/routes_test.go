package api

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"abide/protocol"
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
		if len(r.workspace) > protocol.MaxWorkspaceBytes || len(r.group) > protocol.MaxAddressBytes || len(r.id) > protocol.MaxAddressBytes {
			t.Fatalf("%q: names of %d, %d and %d bytes", path, len(r.workspace), len(r.group), len(r.id))
		}
		if again, err := parseRoute("/w/" + r.workspace + "/poll/" + url.PathEscape(r.group) + "/" + url.PathEscape(r.id)); r.endpoint == endpointPoll && (err != nil || again != r) {
			t.Fatalf("%q: %+v, which is reached as %+v, %v", path, r, again, err)
		}
		if named := r.group != "" && r.id != ""; named != (r.endpoint == endpointPoll) || !utf8.ValidString(r.group+r.id) {
			t.Fatalf("%q: %+v", path, r)
		}
	})
}
