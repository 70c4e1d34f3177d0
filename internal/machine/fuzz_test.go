package machine

import (
	"strings"
	"testing"

	"abide/protocol"
)

// FuzzCursor: a cursor that was made for a filter leads to where it was made, and with another filter it is refused.
// Any text is refused, or leads to an id that a walk can come to: one that a key has room for.
func FuzzCursor(f *testing.F) {
	own := filterDigest(protocol.KindPromiseSearch, "", nil)
	for _, after := range []string{"a", "r.1", "r\x00", strings.Repeat("x", protocol.MaxIDBytes), strings.Repeat("x", protocol.MaxIDBytes+2), "\xff"} {
		f.Add(after, cursorFor(after, own))
	}
	for _, cursor := range []string{"AQ", "AQAAAAAAAAAA", "=", "\n", "Ag"} {
		f.Add("a", cursor)
	}
	f.Fuzz(func(t *testing.T, id, cursor string) {
		if id != "" && len(id) <= protocol.MaxIDBytes && !strings.Contains(id, "\x00") {
			after, ok := parseCursor(cursorFor(id, own), own)
			if !ok || after != id {
				t.Fatalf("the cursor after %q leads to %q, %t", id, after, ok)
			}
			if _, ok := parseCursor(cursorFor(id, own), filterDigest(protocol.KindPromiseSearch, "pending", nil)); ok {
				t.Fatal("a cursor is accepted for another filter")
			}
		}
		after, ok := parseCursor(cursor, own)
		if ok && cursor != "" && (after == "" || len(after) > protocol.MaxIDBytes+1 || strings.Contains(after[:len(after)-1], "\x00")) {
			t.Fatalf("%q leads to an id of %d bytes", cursor, len(after))
		}
		if !ok && after != "" {
			t.Fatalf("%q is refused and leads to %q", cursor, after)
		}
	})
}
