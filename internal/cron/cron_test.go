package cron_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"abide/internal/cron"

	"pgregory.net/rapid"
)

func at(t *testing.T, s string) int64 {
	t.Helper()
	when, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return when.UnixMilli()
}

func TestNext(t *testing.T) {
	const monday = "2026-11-30T14:21:05.5Z"
	for _, c := range []struct{ expr, after, next string }{
		{"* * * * *", monday, "2026-11-30T14:22:00Z"},
		{"* * * * * *", monday, "2026-11-30T14:21:06Z"},
		{"* * * * * * *", monday, "2026-11-30T14:21:06Z"},
		{"*/15 * * * *", monday, "2026-11-30T14:30:00Z"},
		{"7/20 * * * *", monday, "2026-11-30T14:27:00Z"},
		{"*/90 * * * *", monday, "2026-11-30T15:00:00Z"},
		{"05 009 * * *", monday, "2026-12-01T09:05:00Z"},
		{"0 0 * * 1", monday, "2026-12-06T00:00:00Z"},   // 1 is Sunday
		{"0 0 * * 7", monday, "2026-12-05T00:00:00Z"},   // 7 is Saturday
		{"0 9 * * 1-5", monday, "2026-12-01T09:00:00Z"}, // Sunday to Thursday: Tuesday is next
		{"0 9 * * Mon-Fri", monday, "2026-12-01T09:00:00Z"},
		{"0 9 * * TUES,Thurs", monday, "2026-12-01T09:00:00Z"},
		{"0 9 * * mon-fri/2", monday, "2026-12-02T09:00:00Z"},
		{"0 9 * * saturday", monday, "2026-12-05T09:00:00Z"},
		{"0 0 13 * FRI", monday, "2027-08-13T00:00:00Z"}, // both must match
		{"0 0 ? * 1", monday, "2026-12-06T00:00:00Z"},
		{"0 0 1 * ?", monday, "2026-12-01T00:00:00Z"},
		{"0 0 1 JAN,july *", monday, "2027-01-01T00:00:00Z"},
		{"0 0 1 feb-apr *", monday, "2027-02-01T00:00:00Z"},
		{"0 0 29 2 *", monday, "2028-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2096-03-01T00:00:00Z", ""}, // 2100 is no leap year
		{"0 0 31 4,6,9,11 *", monday, ""},
		{"0 0 31 2 *", monday, ""},
		{"0 0 0 1 1 * 2030", monday, "2030-01-01T00:00:00Z"},
		{"0 0 0 1 1 * 2020", monday, ""},
		{"0 0 0 1 1 * 2099-2100/1", monday, "2099-01-01T00:00:00Z"},
		{"59 59 23 31 12 * 2100", monday, "2100-12-31T23:59:59Z"},
		{"* * * * *", "2100-12-31T23:58:00Z", "2100-12-31T23:59:00Z"},
		{"* * * * *", "2100-12-31T23:59:00Z", ""},
		{"@yearly", monday, "2027-01-01T00:00:00Z"},
		{"@monthly", monday, "2026-12-01T00:00:00Z"},
		{"@weekly", monday, "2026-12-06T00:00:00Z"},
		{"@daily", monday, "2026-12-01T00:00:00Z"},
		{" @hourly\t", monday, "2026-11-30T15:00:00Z"},
		// Strictly after the second of the reference, not after the reference.
		{"* * * * * *", "2026-11-30T14:21:05Z", "2026-11-30T14:21:06Z"},
		{"* * * * * *", "2026-11-30T14:21:05.999Z", "2026-11-30T14:21:06Z"},
		{"* * * * *", "1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z"},
		{"* * * * *", "1960-01-01T00:00:00Z", "1970-01-01T00:00:00Z"},
		{"* * * * * *", "1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00Z"},
	} {
		expr, err := cron.Parse(c.expr)
		if err != nil {
			t.Errorf("%s: %v", c.expr, err)
			continue
		}
		ms, ok := expr.Next(at(t, c.after))
		got := ""
		if ok {
			got = time.UnixMilli(ms).UTC().Format(time.RFC3339)
		}
		if got != c.next {
			t.Errorf("%s after %s: got %q, want %q", c.expr, c.after, got, c.next)
		}
	}
}

func TestNextAtTheEndsOfTime(t *testing.T) {
	expr, err := cron.Parse("* * * * *")
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []int64{math.MaxInt64, math.MaxInt64 / 1000, at(t, "2101-01-01T00:00:00Z")} {
		if ms, ok := expr.Next(after); ok {
			t.Errorf("after %d comes %d", after, ms)
		}
	}
	if ms, ok := expr.Next(math.MinInt64); !ok || ms != 0 {
		t.Errorf("the first match ever is %d, %v", ms, ok)
	}
}

func TestParseRefuses(t *testing.T) {
	for expr, part := range map[string]string{
		"":                     "it has 0 fields",
		"* * * *":              "it has 4 fields",
		"* * * * * * * *":      "it has 8 fields",
		"@reboot":              "is none of @yearly",
		"@every 1h":            "it has 2 fields",
		"@annually":            "is none of @yearly",
		"@midnight":            "is none of @yearly",
		"@Daily":               "is none of @yearly",
		"60 * * * *":           "not a number from 0 to 59",
		"* 24 * * *":           "hour \"24\"",
		"* * 0 * *":            "not a number from 1 to 31",
		"* * 32 * *":           "day of month",
		"* * * 13 *":           "nor a name",
		"* * * 0 *":            "month \"0\"",
		"* * * * 0":            "1 (Sunday) to 7 (Saturday)",
		"* * * * 8":            "1 (Sunday) to 7 (Saturday)",
		"* * * * * * 1969":     "1970 to 2100",
		"* * * * * * 2101":     "1970 to 2100",
		"* * * * FRI-MON":      "goes backwards",
		"30-10 * * * *":        "goes backwards; write it as two, 30-59,0-10",
		"* * * * MON-5":        "from a name to a number",
		"* * * * 2-FRI":        "from a name to a number",
		"* * * * MON/2":        "cannot follow a single name",
		"*/0 * * * *":          "from 1 to 999999999",
		"*/1000000000 * * * *": "from 1 to 999999999",
		"*/ * * * *":           "from 1 to 999999999",
		"*/x * * * *":          "from 1 to 999999999",
		"*/1/2 * * * *":        "from 1 to 999999999",
		"*/-1 * * * *":         "from 1 to 999999999",
		"1,,2 * * * *":         "not a number",
		",1 * * * *":           "not a number",
		"1- * * * *":           "not a number",
		"1-2-3 * * * *":        "not a number",
		"*-5 * * * *":          "not a number",
		"+1 * * * *":           "not a number",
		"1.5 * * * *":          "not a number",
		"99999999999 * * * *":  "not a number",
		"? * * * *":            "not a number",
		"* ? * * *":            "not a number",
		"* * * ? *":            "nor a name",
		"* * L * *":            "not a number",
		"* * 15W * *":          "not a number",
		"* * * * 6#3":          "nor the name of a day",
		"H * * * *":            "not a number",
		"* * * jann *":         "nor a name",
		"TZ=UTC * * * * *":     "not a number",
		"\x00 * * * *":         "not a number",
	} {
		_, err := cron.Parse(expr)
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want an error with %q", expr, err, part)
		}
	}
	if _, err := cron.Parse(strings.Repeat("9", 256) + " * * * *"); err == nil || len(err.Error()) > 200 {
		t.Errorf("a long field: %v", err)
	}
}

// drawnExpr is an expression together with what it must match, made independently of the parser.
type drawnExpr struct {
	text string
	sets [7]map[int]bool
}

var (
	lows     = [7]int{0, 0, 0, 1, 1, 1, cron.FirstYear}
	highs    = [7]int{59, 59, 23, 31, 12, 7, cron.LastYear}
	months   = []string{"", "Jan", "february", "MAR", "apr", "may", "june", "Jul", "aug", "sep", "October", "nov", "dec"}
	weekdays = []string{"", "sun", "Monday", "tues", "WED", "thurs", "friday", "sat"}
)

func drawExpr(t *rapid.T) drawnExpr {
	var e drawnExpr
	fields := rapid.IntRange(5, 7).Draw(t, "fields")
	first := max(0, 6-fields)
	for i := range e.sets {
		e.sets[i] = map[int]bool{}
		if i < first {
			e.sets[i][0] = true // no seconds field: second 0
			continue
		}
		if i == 6 && fields < 7 {
			for y := lows[6]; y <= highs[6]; y++ {
				e.sets[6][y] = true
			}
			continue
		}
		var items []string
		for n := rapid.IntRange(1, 3).Draw(t, "items"); n > 0; n-- {
			items = append(items, drawItem(t, i, e.sets[i]))
		}
		e.text += strings.Join(items, ",") + rapid.SampledFrom([]string{" ", "  ", "\t"}).Draw(t, "blank")
	}
	return e
}

// drawItem draws one item of field i and adds what it matches to set.
func drawItem(t *rapid.T, i int, set map[int]bool) string {
	low := rapid.IntRange(lows[i], highs[i]).Draw(t, "low")
	if i == 6 {
		low = rapid.IntRange(2020, 2040).Draw(t, "year")
	}
	high := rapid.IntRange(low, highs[i]).Draw(t, "high")
	step := rapid.IntRange(1, 70).Draw(t, "step")
	name := func(n int) string {
		if i == 4 {
			return months[n]
		}
		return weekdays[n]
	}
	add := func(low, high, step int) {
		for n := low; n <= high; n += step {
			set[n] = true
		}
	}
	form := rapid.IntRange(0, 8).Draw(t, "form")
	named := i == 4 || i == 5
	switch {
	case form == 0:
		add(lows[i], highs[i], 1)
		return "*"
	case form == 1:
		add(lows[i], highs[i], step)
		return fmt.Sprintf("*/%d", step)
	case form == 2:
		add(low, highs[i], step)
		return fmt.Sprintf("%d/%d", low, step)
	case form == 3:
		add(low, high, 1)
		return fmt.Sprintf("%d-%d", low, high)
	case form == 4:
		add(low, high, step)
		return fmt.Sprintf("%d-%d/%d", low, high, step)
	case form == 5 && named:
		add(low, low, 1)
		return name(low)
	case form == 6 && named:
		add(low, high, step)
		return fmt.Sprintf("%s-%s/%d", name(low), name(high), step)
	case form == 7 && (i == 3 || i == 5):
		add(lows[i], highs[i], 1)
		return "?"
	default:
		add(low, low, 1)
		return fmt.Sprint(low)
	}
}

// next walks day by day, hour by hour, minute by minute, second by second.
func (e *drawnExpr) next(after time.Time) (time.Time, bool) {
	start := after.Add(time.Second)
	for day := start.Truncate(24 * time.Hour); day.Year() <= cron.LastYear; day = day.AddDate(0, 0, 1) {
		if !e.sets[6][day.Year()] || !e.sets[4][int(day.Month())] || !e.sets[3][day.Day()] || !e.sets[5][int(day.Weekday())+1] {
			continue
		}
		for h := range 24 {
			for m := range 60 {
				if !e.sets[2][h] || !e.sets[1][m] {
					continue
				}
				for s := range 60 {
					when := day.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second)
					if e.sets[0][s] && !when.Before(start) {
						return when, true
					}
				}
			}
		}
	}
	return time.Time{}, false
}

func TestNextAgreesWithAWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawExpr(t)
		expr, err := cron.Parse(e.text)
		if err != nil {
			t.Fatalf("%q: %v", e.text, err)
		}
		after := time.Unix(rapid.Int64Range(0, time.Date(2100, 12, 31, 23, 59, 59, 0, time.UTC).Unix()).Draw(t, "after"), 0).UTC()
		for range 3 {
			want, exists := e.next(after)
			ms, ok := expr.Next(after.UnixMilli() + rapid.Int64Range(0, 999).Draw(t, "ms"))
			if ok != exists || ok && ms != want.UnixMilli() {
				t.Fatalf("%q after %s: got %d %v, want %s %v", e.text, after, ms, ok, want, exists)
			}
			if !ok {
				return
			}
			after = want
		}
	})
}

func TestNextIncreases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expr, err := cron.Parse(drawExpr(t).text)
		if err != nil {
			t.Fatal(err)
		}
		at := rapid.Int64().Draw(t, "after")
		for range 50 {
			next, ok := expr.Next(at)
			if !ok {
				return
			}
			if next <= at || next%1000 != 0 || next < 0 {
				t.Fatalf("after %d comes %d", at, next)
			}
			at = next
		}
	})
}

func BenchmarkNextNever(b *testing.B) {
	expr, err := cron.Parse("0 0 31 4,6,9,11 *")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, ok := expr.Next(0); ok {
			b.Fatal("matched")
		}
	}
}
