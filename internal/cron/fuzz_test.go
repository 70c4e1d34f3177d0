package cron_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"abide/internal/cron"
)

// maxFaultBytes bounds what is said about an expression of any length: it goes into an answer.
const maxFaultBytes = 1000

// FuzzCron: any text is refused in few words, or matches instants that rise, are whole seconds within the years that
// there are, and are the same wherever between two of them one asks from.
func FuzzCron(f *testing.F) {
	now := time.Date(2026, time.February, 28, 23, 59, 59, 0, time.UTC).UnixMilli()
	for _, expr := range []string{"* * * * *", "*/2 1-3,5 ? JAN mon-fri", "0 0 29 2 *", "0 0 31 4,6 *", "30 * * * * * 2099/1", "@hourly", "@reboot",
		"0 0 0 1 1 ? 1970", "1/999999999 * * * *", "5-1 * * * *", "* * * * sun/2", "\u00a0* * * * *", "60 * * * *", ""} {
		f.Add(expr, now)
	}
	f.Add("* * * * *", int64(-1<<63))
	f.Add("* * * * * * 2100", int64(1<<63-1))
	f.Fuzz(func(t *testing.T, text string, after int64) {
		expr, err := cron.Parse(text)
		if err != nil {
			if utf8.ValidString(text) && (len(err.Error()) > maxFaultBytes || !utf8.ValidString(err.Error())) {
				t.Fatalf("%q is refused with %d bytes: %.2000s", text, len(err.Error()), err)
			}
			return
		}
		if loud := "  " + strings.ToUpper(text) + "\t"; !strings.Contains(text, "@") && isASCII(text) {
			if _, err := cron.Parse(loud); err != nil {
				t.Fatalf("%q is refused in capital letters and between blanks: %v", text, err)
			}
		}
		for range 3 {
			next, ok := expr.Next(after)
			if !ok {
				return
			}
			year := time.UnixMilli(next).UTC().Year()
			if next <= after || next%1000 != 0 || next < 0 || year < cron.FirstYear || year > cron.LastYear {
				t.Fatalf("%q: after %d comes %d", text, after, next)
			}
			for _, between := range []int64{next - 1, max(after, next-1000), after + (next-1-after)/2} {
				if from, ok := expr.Next(between); between >= after && between < next && (!ok || from != next) {
					t.Fatalf("%q: after %d comes %d, but after %d, in between, comes %d, %t", text, after, next, between, from, ok)
				}
			}
			after = next
		}
	})
}

// isASCII tells whether all letters of a text keep their meaning in capitals.
func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}
