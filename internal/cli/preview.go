package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"abide/internal/cron"
)

// MaxPreview is the largest number of runs that a Preview lists.
const MaxPreview = 1000

// Preview is when a schedule would run.
type Preview struct {
	Cron  string   `json:"cron"`
	Next  []int64  `json:"next"`  // epoch milliseconds
	Every string   `json:"every"` // the distance between them; empty if they differ
	Notes []string `json:"notes"` // what surprises people about this expression
}

// NewPreview lists the first n runs after now, up to MaxPreview. The error says what is wrong with the expression.
func NewPreview(expr string, n int, nowMs int64) (Preview, error) {
	e, err := cron.Parse(expr)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Cron: expr, Next: []int64{}, Notes: notes(expr)}
	for at, ok := e.Next(nowMs); ok && len(p.Next) < min(n, MaxPreview); at, ok = e.Next(at) {
		p.Next = append(p.Next, at)
	}
	p.Every = every(p.Next)
	return p, nil
}

// every is the distance of equally spaced instants.
func every(at []int64) string {
	if len(at) < 3 {
		return ""
	}
	for i := 2; i < len(at); i++ {
		if at[i]-at[i-1] != at[1]-at[0] {
			return ""
		}
	}
	return Span(at[1] - at[0])
}

// notes are warnings about what other programs read differently.
func notes(expr string) []string {
	all := []string{}
	f := strings.Fields(expr)
	if len(f) < 5 || strings.HasPrefix(f[0], "@") {
		return all
	}
	if len(f) > 5 {
		f = f[1:]
	}
	day, weekday := f[2], f[4]
	if strings.ContainsAny(strings.Split(weekday, "/")[0], "1234567") {
		all = append(all, "Days of the week count from 1 = Sunday to 7 = Saturday here. Names (MON, TUE) cannot be mistaken.")
	}
	free := func(field string) bool { return field == "*" || field == "?" }
	if !free(day) && !free(weekday) {
		all = append(all, "Both must match, the day of the month and the day of the week.")
	}
	return all
}

// Preview is the same for a person.
func (s Screen) Preview(p Preview) string {
	var b strings.Builder
	b.WriteString(s.paint(bold, Printable(p.Cron)) + "  (read in UTC)\n\n")
	rows := make([][]cell, len(p.Next))
	for i, at := range p.Next {
		rows[i] = []cell{{s.distance(at), plain}, {time.UnixMilli(at).In(s.Zone).Format("Monday"), plain}, {s.date(at), dim}}
	}
	switch {
	case len(p.Next) == 0:
		b.WriteString(fmt.Sprintf("It never runs: nothing matches up to the end of %d.\n", cron.LastYear))
	default:
		_, list, _ := strings.Cut(s.table([]string{"", "", ""}, rows), "\n")
		b.WriteString(list)
	}
	if p.Every != "" {
		b.WriteString("\nThese are " + p.Every + " apart.\n")
	}
	for _, note := range p.Notes {
		b.WriteString("\nNote: " + note + "\n")
	}
	return b.String()
}

// JSON is the preview for a program.
func (p Preview) JSON() []byte {
	text, _ := json.Marshal(p) // strings and numbers only
	return text
}
