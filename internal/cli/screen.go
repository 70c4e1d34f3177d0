// Package cli makes the texts that the client commands print: records and lists for people, JSON for programs, trees,
// and answers to why something does not happen. It is pure: it is given records, an instant and a zone, and returns
// text; it speaks to no server and prints nothing.
package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"abide/protocol"
)

// Screen is what texts are made for.
type Screen struct {
	Colour bool           // escape sequences of colour are understood
	Zone   *time.Location // the reader's
	NowMs  int64          // epoch milliseconds, for "3 minutes ago"
}

// colour is a style of ECMA-48.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

// paint is text in a colour, where there are colours.
func (s Screen) paint(c colour, text string) string {
	if !s.Colour || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// stateColour is the colour of a state of a promise or a task.
func stateColour(state string) colour {
	switch state {
	case string(protocol.Pending), string(protocol.TaskSuspended):
		return yellow
	case string(protocol.Resolved), string(protocol.TaskFulfilled):
		return green
	case string(protocol.TaskAcquired):
		return cyan
	default:
		return red
	}
}

// Printable is text from anybody made safe for a terminal and for one line: what controls a terminal, or hides in
// the line, is written as an escape. Ids, tags and payloads are others' to choose.
func Printable(text string) string {
	clean := true
	for _, r := range text {
		clean = clean && r != utf8.RuneError && unicode.IsPrint(r)
	}
	if clean {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

const (
	dayMs    = 24 * hourMs
	hourMs   = 60 * minuteMs
	minuteMs = 60 * secondMs
	secondMs = 1000
)

// lastShownMs is the latest instant that is written as a date, the end of the year 9999. SDKs write "never" as 2^63-1.
var lastShownMs = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMilli()

// Instant is an instant in the reader's zone and in UTC, and how far away it is.
func (s Screen) Instant(ms int64) string {
	if ms > lastShownMs {
		return "never"
	}
	return s.date(ms) + ", " + s.distance(ms)
}

// date is an instant in the reader's zone and in UTC.
func (s Screen) date(ms int64) string {
	t := time.UnixMilli(ms)
	utc := t.UTC().Format("2006-01-02 15:04:05") + fraction(ms) + " UTC"
	here := t.In(s.Zone)
	name, offset := here.Zone()
	if offset == 0 {
		return utc
	}
	if strings.Trim(name, "+-0123456789") == "" { // a zone without a name is its offset
		name = here.Format("-07:00")
	}
	return here.Format("2006-01-02 15:04:05") + fraction(ms) + " " + name + " (" + utc + ")"
}

func fraction(ms int64) string {
	if part := (ms%secondMs + secondMs) % secondMs; part != 0 {
		return fmt.Sprintf(".%03d", part)
	}
	return ""
}

// short is an instant for a column of a table, with the offset of the reader's zone.
func (s Screen) short(ms int64) string {
	if ms > lastShownMs {
		return "never"
	}
	return time.UnixMilli(ms).In(s.Zone).Format("2006-01-02 15:04:05Z07:00")
}

// distance says how far an instant is away.
func (s Screen) distance(ms int64) string {
	switch {
	case ms > s.NowMs && s.NowMs < ms-math.MaxInt64/2:
		return "never"
	case ms > s.NowMs:
		return "in " + Span(ms-s.NowMs)
	case ms == s.NowMs:
		return "now"
	}
	return Span(s.NowMs-ms) + " ago"
}

// Span is a length of time in its two largest units, such as 3h 20m. A length of 10 s or more is given to the second.
func Span(ms int64) string {
	if ms < secondMs {
		return strconv.FormatInt(ms, 10) + "ms"
	}
	if ms < 10*secondMs {
		return strings.TrimSuffix(strconv.FormatFloat(float64(ms/100)/10, 'f', 1, 64), ".0") + "s"
	}
	units := []struct {
		name   string
		length int64
	}{{"d", dayMs}, {"h", hourMs}, {"m", minuteMs}, {"s", secondMs}}
	for i, u := range units {
		n := ms / u.length
		if n == 0 {
			continue
		}
		text := strconv.FormatInt(n, 10) + u.name
		if i+1 < len(units) {
			if rest := ms % u.length / units[i+1].length; rest > 0 {
				text += " " + strconv.FormatInt(rest, 10) + units[i+1].name
			}
		}
		return text
	}
	return ""
}
