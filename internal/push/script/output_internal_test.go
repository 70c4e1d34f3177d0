package script

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestOutput compares what is kept with all that was written.
func TestOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &output{limit: rapid.IntRange(0, 20).Draw(t, "limit")}
		var all []byte
		for _, piece := range rapid.SliceOf(rapid.StringMatching(`[a-zé😀\n]{0,12}`)).Draw(t, "pieces") {
			if n, err := o.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatalf("Write took %d of %d, %v", n, len(piece), err)
			}
			all = append(all, piece...)
		}
		left := max(0, len(all)-o.limit)
		if o.leftOut() != int64(left) || len(o.head)+len(o.tail) > o.limit {
			t.Fatalf("%d left out of %d, limit %d, and %d + %d kept", o.leftOut(), len(all), o.limit, len(o.head), len(o.tail))
		}
		got := o.text()
		if left == 0 {
			if got != string(all) {
				t.Fatalf("kept %q of %q", got, all)
			}
			return
		}
		head, tail, ok := strings.Cut(got, fmt.Sprintf("\n[... %d bytes left out ...]\n", left))
		first, last := o.limit-o.limit/2, o.limit/2
		if !ok || !utf8.ValidString(got) || strings.ContainsRune(got, utf8.RuneError) ||
			!strings.HasPrefix(string(all), head) || !strings.HasSuffix(string(all), tail) || len(head) <= first-utf8.UTFMax || len(tail) <= last-utf8.UTFMax {
			t.Fatalf("kept %q of %q, limit %d", got, all, o.limit)
		}
	})
}
