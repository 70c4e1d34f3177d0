package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// milliseconds is a span of time on the command line and in the environment: a bare integer is
// milliseconds, as the reference's settings are; with units it is a sum such as 1m30s. Nothing of the text
// may be left over: half a duration that is silently read as another is worse than an error.
type milliseconds int64

// maxMilliseconds is the longest span that a time.Duration can hold, about 292 years.
const maxMilliseconds = math.MaxInt64 / int64(time.Millisecond)

// millisecondsPer gives the length of each unit. Longer names come first where one begins with another.
var millisecondsPer = []struct {
	unit   string
	length int64
}{
	{"ms", 1},
	{"s", 1000},
	{"m", 60 * 1000},
	{"h", 60 * 60 * 1000},
	{"d", 24 * 60 * 60 * 1000},
}

// duration is d as Go's own type.
func (d milliseconds) duration() time.Duration { return time.Duration(d) * time.Millisecond }

// UnmarshalText parses a span; kong calls it.
func (d *milliseconds) UnmarshalText(text []byte) error {
	value, err := parseMilliseconds(string(text))
	if err != nil {
		return err
	}
	*d = milliseconds(value)
	return nil
}

func parseMilliseconds(text string) (int64, error) {
	rest, total := text, int64(0)
	for first := true; first || rest != ""; first = false {
		number, digits, err := leadingInteger(rest)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", text, err)
		}
		if digits == 0 {
			return 0, fmt.Errorf("%q is not a span of time: write milliseconds (30000), or whole numbers with the units ms, s, m, h, d (1m30s)", text)
		}
		rest = rest[digits:]
		length := int64(1)
		if !(first && rest == "") {
			var unit string
			if unit, length = leadingUnit(rest); unit == "" {
				return 0, fmt.Errorf("%q: %q is not followed by one of the units ms, s, m, h, d", text, fmt.Sprint(number))
			}
			rest = rest[len(unit):]
		}
		if number > (maxMilliseconds-total)/length {
			return 0, fmt.Errorf("%q is longer than %d ms", text, maxMilliseconds)
		}
		total += number * length
	}
	return total, nil
}

// leadingInteger reads the decimal digits at the start of text; no sign, no fraction.
func leadingInteger(text string) (value int64, digits int, err error) {
	for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
		digit := int64(text[digits] - '0')
		if value > (maxMilliseconds-digit)/10 {
			return 0, digits, fmt.Errorf("longer than %d ms", maxMilliseconds)
		}
		value = value*10 + digit
		digits++
	}
	return value, digits, nil
}

func leadingUnit(text string) (unit string, length int64) {
	for _, u := range millisecondsPer {
		if strings.HasPrefix(text, u.unit) {
			return u.unit, u.length
		}
	}
	return "", 0
}
