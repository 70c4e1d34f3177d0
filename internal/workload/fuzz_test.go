package workload

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"abide/internal/cron"
)

// manyDigits is a number of more digits than the server reads.
var manyDigits = regexp.MustCompile(`[0-9]{10}`)

// FuzzCron: the server's crons and the model's are the same expressions and match the same instants. The model knows
// no names.
func FuzzCron(f *testing.F) {
	now := time.Date(2026, time.February, 28, 23, 59, 59, 0, time.UTC).UnixMilli()
	for _, expr := range []string{"* * * * *", "*/2 1-3,5 ? 1 2-6", "0 0 29 2 *", "30 * * * * * 2099/1", "@hourly", "0 0 0 1 1 ? 1970", "1/999999999 * * * *",
		"5-1 * * * *", "60 * * * *", "* * ? * ?", "0 0 13 * 6", "1,2,1-3/2 * * * *", "? * * * *", "* * * * 0", "+1 * * * *", "1-1/2 * * * *"} {
		f.Add(expr, now)
	}
	f.Fuzz(func(t *testing.T, text string, after int64) {
		if strings.Trim(text, "0123456789*?/-, ") != "" && cronAliases[text] == "" || len(text) > 256 || manyDigits.MatchString(text) {
			return
		}
		model, good := parseCron(text)
		server, err := cron.Parse(text)
		if good != (err == nil) {
			t.Fatalf("%q: the model accepts it: %t; the server: %v", text, good, err)
		}
		if !good {
			return
		}
		after = max(0, after%(4_200_000_000_000)) // until beyond the last year
		for range 2 {
			want, matches := model.next(after)
			got, ok := server.Next(after)
			if ok != matches || ok && got != want {
				t.Fatalf("%q after %d: the model says %d, %t, the server %d, %t", text, after, want, matches, got, ok)
			}
			if !ok {
				return
			}
			after = got
		}
	})
}
