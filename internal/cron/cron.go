// Package cron understands the cron dialect of schedules: five fields (minute hour day-of-month month
// day-of-week), six (a second before them) or seven (a year after them), always in UTC.
//
// The dialect is that of the reference server: days of the week count from 1 = Sunday to
// 7 = Saturday, ranges do not wrap around, and a day matches only if both the day of the month and the day
// of the week match. No library reads exactly this, so the fields are read here; finding the next match is
// left to one.
package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	library "github.com/netresearch/go-cron"
)

// The years in which a schedule can run.
const (
	FirstYear = 1970
	LastYear  = 2100
)

// Expr is a cron expression. It is immutable and safe for concurrent use.
type Expr struct{ spec *library.SpecSchedule }

// unit is one field of an expression.
type unit struct {
	name      string
	low, high int
	words     map[string]int
	question  bool // ? stands for *
}

var (
	second     = unit{name: "second", low: 0, high: 59}
	minute     = unit{name: "minute", low: 0, high: 59}
	hour       = unit{name: "hour", low: 0, high: 23}
	dayOfMonth = unit{name: "day of month", low: 1, high: 31, question: true}
	month      = unit{name: "month", low: 1, high: 12, words: monthWords}
	dayOfWeek  = unit{name: "day of week", low: 1, high: 7, words: dayWords, question: true}
	year       = unit{name: "year", low: FirstYear, high: LastYear}
)

var units = [...]unit{second, minute, hour, dayOfMonth, month, dayOfWeek, year}

var monthWords = words(1, "january", "february", "march", "april", "may", "june", "july", "august",
	"september", "october", "november", "december")

var dayWords = func() map[string]int {
	w := words(1, "sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
	w["tues"], w["thurs"] = w["tue"], w["thu"]
	return w
}()

// words numbers names from first on, each also by its first three letters.
func words(first int, names ...string) map[string]int {
	w := make(map[string]int, 2*len(names))
	for i, name := range names {
		w[name], w[name[:3]] = first+i, first+i
	}
	return w
}

var aliases = map[string]string{
	"@yearly":  "0 0 0 1 1 *",
	"@monthly": "0 0 0 1 * *",
	"@weekly":  "0 0 0 * * 1",
	"@daily":   "0 0 0 * * *",
	"@hourly":  "0 0 * * * *",
}

// Parse reads an expression. The error says which field is wrong and what it may hold.
func Parse(expr string) (Expr, error) {
	fields := strings.Fields(expr)
	if len(fields) == 1 && strings.HasPrefix(fields[0], "@") {
		full, ok := aliases[fields[0]]
		if !ok {
			return Expr{}, fmt.Errorf("%.40q is none of @yearly, @monthly, @weekly, @daily, @hourly", fields[0])
		}
		fields = strings.Fields(full)
	}
	switch len(fields) {
	case 5:
		fields = append(append([]string{"0"}, fields...), "*")
	case 6:
		fields = append(fields, "*")
	case 7:
	default:
		return Expr{}, fmt.Errorf("it has %d fields; write 5 (minute hour day-of-month month day-of-week), 6 (with a second before them) or 7 (with a year after them)", len(fields))
	}
	var sets [len(units)]set
	for i, field := range fields {
		if err := units[i].parse(field, &sets[i]); err != nil {
			return Expr{}, fmt.Errorf("%s %.40q: %w", units[i].name, field, err)
		}
	}
	return Expr{spec: specOf(&sets)}, nil
}

func specOf(sets *[len(units)]set) *library.SpecSchedule {
	spec := &library.SpecSchedule{
		Second:         sets[0].bits(0),
		Minute:         sets[1].bits(0),
		Hour:           sets[2].bits(0),
		Dom:            sets[3].bits(0),
		Month:          sets[4].bits(0),
		Dow:            sets[5].bits(1), // the library counts from 0 = Sunday
		Year:           make(map[int]struct{}),
		Location:       time.UTC,
		MaxSearchYears: LastYear - FirstYear + 1,
	}
	for y := FirstYear; y <= LastYear; y++ {
		if sets[6].has(y) {
			spec.Year[y] = struct{}{}
		}
	}
	return spec
}

// Next returns the first instant that the expression matches strictly after the second in which afterMs
// lies, in epoch milliseconds. Not ok if there is none up to the end of LastYear. The time it takes is
// bounded: an expression that never matches costs a walk over the days of the years.
func (e Expr) Next(afterMs int64) (ms int64, ok bool) {
	after := afterMs / 1000
	if afterMs%1000 < 0 {
		after--
	}
	if after < -1 {
		after = -1 // nothing matches before FirstYear
	}
	if after >= endSecond {
		return 0, false
	}
	next := e.spec.Next(time.Unix(after, 0).UTC())
	if next.IsZero() || next.Year() > LastYear {
		return 0, false
	}
	return next.UnixMilli(), true
}

// endSecond is the first second after LastYear.
var endSecond = time.Date(LastYear+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()

// set holds the numbers that a field matches.
type set [LastYear/64 + 1]uint64

func (s *set) add(n int)      { s[n/64] |= 1 << (n % 64) }
func (s *set) has(n int) bool { return s[n/64]&(1<<(n%64)) != 0 }

// bits returns the numbers below 64, each lowered by shift.
func (s *set) bits(shift int) uint64 { return s[0] >> shift }

// parse adds to s what a field matches: a comma list of *, n, a-b, name, name-name, where all but a single
// name may be followed by /step.
func (u unit) parse(field string, s *set) error {
	for _, item := range strings.Split(field, ",") {
		low, high, step, err := u.item(item)
		if err != nil {
			return err
		}
		for n := low; n <= high; n += step {
			s.add(n)
		}
	}
	return nil
}

// item reads one item of a field's list.
func (u unit) item(item string) (low, high, step int, err error) {
	base, stepText, stepped := strings.Cut(item, "/")
	low, high, named, err := u.span(base)
	if err != nil {
		return 0, 0, 0, err
	}
	if !stepped {
		return low, high, 1, nil
	}
	if named {
		return 0, 0, 0, errors.New("a step cannot follow a single name")
	}
	if step, err = number(stepText); err != nil || step < 1 {
		return 0, 0, 0, errors.New("the step after / must be a number from 1 to 999999999")
	}
	if low == high && !strings.Contains(base, "-") {
		high = u.high // n/step means from n on
	}
	return low, high, step, nil
}

// span reads what stands before a step; named if it is a single name.
func (u unit) span(s string) (low, high int, named bool, err error) {
	if s == "*" || s == "?" && u.question {
		return u.low, u.high, false, nil
	}
	from, to, ranged := strings.Cut(s, "-")
	low, named, err = u.point(from)
	if err != nil || !ranged {
		return low, low, named, err
	}
	high, namedToo, err := u.point(to)
	switch {
	case err != nil:
	case named != namedToo:
		err = errors.New("a range cannot go from a name to a number or back")
	case low > high:
		err = fmt.Errorf("the range goes backwards; write it as two, %s-%d,%d-%s", from, u.high, u.low, to)
	}
	return low, high, false, err
}

// point reads a number or a name.
func (u unit) point(s string) (n int, named bool, err error) {
	if n, ok := u.words[strings.ToLower(s)]; ok {
		return n, true, nil
	}
	n, err = number(s)
	if err != nil || n < u.low || n > u.high {
		return 0, false, u.expects(s)
	}
	return n, false, nil
}

func (u unit) expects(s string) error {
	if u.words == nil {
		return fmt.Errorf("%.40q is not a number from %d to %d", s, u.low, u.high)
	}
	if u.high == 7 {
		return fmt.Errorf("%.40q is neither a number from 1 (Sunday) to 7 (Saturday) nor the name of a day", s)
	}
	return fmt.Errorf("%.40q is neither a number from %d to %d nor a name", s, u.low, u.high)
}

// number reads up to nine digits and nothing else.
func number(s string) (int, error) {
	if s == "" || len(s) > 9 || strings.Trim(s, "0123456789") != "" {
		return 0, errors.New("not a number")
	}
	return strconv.Atoi(s)
}
