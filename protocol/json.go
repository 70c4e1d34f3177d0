package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Data is JSON that has been checked: it came from DecodeEnvelope or DecodeResponse, or is part of such.
// It aliases the text that was decoded.
type Data []byte

// Reading happens in two steps. The whole text is checked once, by jsontext: syntax, duplicate names,
// nesting depth. After that the functions below only find their way through text that is known to be
// JSON, which takes a fraction of the time of a second tokenizer and needs no memory. They still look
// before each step, so that text that was never checked yields nonsense but no panic.

// syntax is how JSON is read. Raw bytes are checked as UTF-8 beforehand, so what AllowInvalidUTF8 lets
// through is an escape such as \ud800 without its other half: payloads may hold those (they are kept as
// written), names may not (text refuses them).
var syntax = []jsontext.Options{jsontext.AllowInvalidUTF8(true)}

// loose also accepts duplicate names; it serves the echo of a refused envelope.
var loose = []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)}

var errUTF8 = errors.New("the body is not valid UTF-8")

// checkJSON reports whether text is one JSON value, without duplicate names, in valid UTF-8.
func checkJSON(text []byte) error {
	if !utf8.Valid(text) {
		return errUTF8
	}
	if n := members(text); n > MaxBodyMembers {
		return fmt.Errorf("the body has %d members in its objects, the limit is %d (MaxBodyMembers)", n, MaxBodyMembers)
	}
	if jsontext.Value(text).IsValid(syntax...) {
		return nil
	}
	return explain(text)
}

// members counts the members of all objects of a text, which need not be JSON, by their colons outside strings.
// Duplicate names are found by remembering all of an object's names, so they are counted before that.
func members(text []byte) int {
	if len(text) < 5*MaxBodyMembers {
		return 0 // a member takes five bytes
	}
	n, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inString = !inString
		case c == '\\' && inString:
			i++
		case c == ':' && !inString:
			n++
		}
	}
	return n
}

// explain finds the reason why text was refused.
func explain(text []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(text), syntax...)
	if _, err := dec.ReadValue(); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("unexpected end of JSON")
		}
		return errors.New(clip(strings.TrimPrefix(err.Error(), "jsontext: "), 200))
	}
	return errors.New("text after the end of the JSON value")
}

// value is one JSON value: no white space around it.
type value []byte

// whole returns the value that fills text.
func whole(text []byte) value { return value(bytes.Trim(text, " \t\r\n")) }

func (v value) first() byte {
	if len(v) == 0 {
		return 0
	}
	return v[0]
}

func (v value) isObject() bool { return v.first() == '{' }
func (v value) isArray() bool  { return v.first() == '[' }
func (v value) isString() bool { return v.first() == '"' && len(v) >= 2 }
func (v value) isNull() bool   { return v.first() == 'n' }

// typeName says what v is, for messages.
func (v value) typeName() string {
	switch v.first() {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// text returns the string that v spells. It fails if v is not a string or escapes half of a surrogate
// pair, for which there is no UTF-8.
func (v value) text() (string, bool) {
	if !v.isString() {
		return "", false
	}
	if inner := v[1 : len(v)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err == nil
}

// spells reports whether v is a string that spells name.
func (v value) spells(name string) bool {
	if !v.isString() {
		return false
	}
	inner := v[1 : len(v)-1]
	if len(inner) == len(name) {
		return string(inner) == name
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return false
	}
	s, ok := v.text()
	return ok && s == name
}

// maxIntDigits is the length of the longest int64.
const maxIntDigits = len("-9223372036854775808")

// integer returns the int64 that v writes in digits. Fractions and exponents are refused, also those
// whose value is a whole number: the protocol knows integers only.
func (v value) integer() (int64, bool) {
	if len(v) == 0 || len(v) > maxIntDigits {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// walk steps through the members of an object or the elements of an array.
type walk struct {
	text value
	pos  int
}

func (v value) walk() walk { return walk{text: v, pos: 1} }

// member returns the next member of an object.
func (w *walk) member() (name, val value, ok bool) {
	if name, ok = w.element(); !ok || !name.isString() {
		return nil, nil, false
	}
	w.pos = skipSpace(w.text, w.pos)
	if w.pos >= len(w.text) || w.text[w.pos] != ':' {
		return nil, nil, false
	}
	w.pos++
	val, ok = w.take()
	return name, val, ok
}

// element returns the next element of an array, or the next name of an object.
func (w *walk) element() (value, bool) {
	w.pos = skipSpace(w.text, w.pos)
	if w.pos < len(w.text) && w.text[w.pos] == ',' {
		w.pos++
	}
	return w.take()
}

func (w *walk) take() (value, bool) {
	start := skipSpace(w.text, w.pos)
	end := valueEnd(w.text, start)
	if end <= start {
		return nil, false
	}
	w.pos = end
	return w.text[start:end], true
}

func skipSpace(text []byte, pos int) int {
	for pos < len(text) && (text[pos] == ' ' || text[pos] == '\n' || text[pos] == '\t' || text[pos] == '\r') {
		pos++
	}
	return pos
}

// valueEnd returns where the value that starts at start ends; start itself if there is none.
func valueEnd(text []byte, start int) int {
	if start >= len(text) {
		return start
	}
	switch text[start] {
	case '"':
		return stringEnd(text, start)
	case '{', '[':
		return nestedEnd(text, start)
	}
	for i := start; i < len(text); i++ {
		switch text[i] {
		case ',', '}', ']', ':', ' ', '\n', '\t', '\r':
			return i
		}
	}
	return len(text)
}

// stringEnd returns the position after the string that starts at start. It looks for the closing quote,
// not at each character, because a payload is one long string.
func stringEnd(text []byte, start int) int {
	for i := start + 1; i < len(text); {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			break
		}
		i += n
		slashes := 0
		for i-1-slashes > start && text[i-1-slashes] == '\\' {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			return i
		}
	}
	return len(text)
}

func nestedEnd(text []byte, start int) int {
	depth := 0
	for i := start; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = stringEnd(text, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// clip shortens s to at most limit bytes, at the border of a character, for use in a message.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "..."
}

// quote clips s and quotes it, for use in a message.
func quote(s string) string { return strconv.Quote(clip(s, 64)) }
