package protocol

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Reason says what kind of fault a refused request has. Every one of them is a 400.
type Reason int

// The reasons for refusing a request.
const (
	// Malformed: not JSON, not an envelope, a member missing or of the wrong type.
	Malformed Reason = iota + 1
	// UnknownKind: no request has this kind.
	UnknownKind
	// Invalid: the right shape, but a value breaks a rule or a limit.
	Invalid
)

// RequestError is why a request was refused, with a message for a person. Nothing was changed.
type RequestError struct {
	Reason  Reason
	Message string
}

func (e *RequestError) Error() string { return e.Message }

// maxViolations bounds the message of a request that breaks many rules.
const maxViolations = 8

// decode gathers what is wrong with one object and its parts.
type decode struct {
	path       []step
	violations []string
	more       int
	malformed  bool
}

// step is one part of the way to a value: a member's name or an element's index.
type step struct {
	name  string
	index int
}

func (d *decode) push(name string) { d.path = append(d.path, step{name: name}) }
func (d *decode) pushIndex(i int)  { d.path = append(d.path, step{index: i}) }
func (d *decode) pop()             { d.path = d.path[:len(d.path)-1] }
func (d *decode) ok() bool         { return len(d.violations) == 0 }

// where names the place that is being read.
func (d *decode) where() string {
	if len(d.path) == 0 {
		return "it" // the whole text
	}
	return formatPath(d.path)
}

func (d *decode) message() string {
	text := strings.Join(d.violations, "; ")
	if d.more > 0 {
		text += fmt.Sprintf("; and %d more", d.more)
	}
	return text
}

func formatPath(path []step) string {
	var b strings.Builder
	for _, s := range path {
		switch {
		case s.name == "":
			fmt.Fprintf(&b, "[%d]", s.index)
		case b.Len() > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// invalid notes that the value at the current path breaks a rule.
func (d *decode) invalid(format string, args ...any) {
	if len(d.violations) == maxViolations {
		d.more++
		return
	}
	d.rule("%s "+format, append([]any{d.where()}, args...)...)
}

// rule notes that a rule is broken that the message names fully.
func (d *decode) rule(format string, args ...any) {
	if len(d.violations) == maxViolations {
		d.more++
		return
	}
	d.violations = append(d.violations, fmt.Sprintf(format, args...))
}

// mistyped notes that the value at the current path is not what it must be.
func (d *decode) mistyped(want string, v value) {
	d.malformed = true
	d.invalid("must be %s, not %s", want, v.typeName())
}

// err returns nil if nothing was noted.
func (d *decode) err(prefix string) error {
	if d.ok() {
		return nil
	}
	reason := Invalid
	if d.malformed {
		reason = Malformed
	}
	return &RequestError{Reason: reason, Message: prefix + d.message()}
}

// presence says whether a member may be missing or null.
type presence int

const (
	required presence = iota
	optional          // may be missing, not null
	nullable          // may be missing or null, which means the same
)

// field describes one member of the object that becomes a T.
type field[T any] struct {
	name     string
	presence presence
	read     func(d *decode, v value, into *T)
}

// object reads the members of v that fields describe into a T; members that no field describes are
// ignored. A missing required member is noted in the order of fields.
func object[T any](d *decode, v value, fields []field[T], into *T) {
	if !v.isObject() {
		d.mistyped("an object", v)
		return
	}
	var seen uint32
	w := v.walk()
	for name, val, ok := w.member(); ok; name, val, ok = w.member() {
		i := indexOf(fields, name)
		if i < 0 {
			continue
		}
		seen |= 1 << i
		if fields[i].presence == nullable && val.isNull() {
			continue
		}
		d.push(fields[i].name)
		fields[i].read(d, val, into)
		d.pop()
	}
	for i := range fields {
		if fields[i].presence == required && seen&(1<<i) == 0 {
			d.malformed = true
			d.push(fields[i].name)
			d.invalid("is missing")
			d.pop()
		}
	}
}

func indexOf[T any](fields []field[T], name value) int {
	for i := range fields {
		if name.spells(fields[i].name) {
			return i
		}
	}
	return -1
}

// list calls read for each element of an array, with the element's index on the path. It stops after
// limit elements with a violation.
func (d *decode) list(v value, limit int, limitName string, read func(v value)) {
	if !v.isArray() {
		d.mistyped("an array", v)
		return
	}
	w := v.walk()
	for n := 0; ; n++ {
		element, ok := w.element()
		if !ok {
			return
		}
		if n == limit {
			d.invalid("has more than %d elements, the limit (%s)", limit, limitName)
			return
		}
		d.pushIndex(n)
		read(element)
		d.pop()
	}
}

// text reads a string.
func (d *decode) text(v value) (string, bool) {
	if !v.isString() {
		d.mistyped("a string", v)
		return "", false
	}
	s, ok := v.text()
	if !ok {
		d.invalid("holds half of a surrogate pair, which no text can")
	}
	return s, ok
}

// name reads a string that is not empty, not longer than limit bytes and free of NUL.
func (d *decode) name(v value, limit int, limitName string) string {
	s, ok := d.text(v)
	switch {
	case !ok:
	case s == "":
		d.invalid("must not be empty")
	case len(s) > limit:
		d.invalid("is %d bytes long, the limit is %d (%s)", len(s), limit, limitName)
	case strings.IndexByte(s, 0) >= 0:
		d.invalid("must not contain a NUL character")
	}
	return s
}

// id reads the id of a promise, task or schedule.
func (d *decode) id(v value) string { return d.name(v, MaxIDBytes, "MaxIDBytes") }

// pid reads the process id of a worker.
func (d *decode) pid(v value) string { return d.name(v, MaxPIDBytes, "MaxPIDBytes") }

// integer reads an integer of at least least.
func (d *decode) integer(v value, least int64) int64 {
	n, ok := v.integer()
	switch {
	case !ok && v.typeName() != "a number":
		d.mistyped("an integer", v)
	case !ok:
		d.malformed = true
		d.invalid("must be an integer between -2^63 and 2^63-1, written in digits, not %s", clip(string(v), 40))
	case n < least:
		d.invalid("must be at least %d, not %d", least, n)
	}
	return n
}

// version reads the version of a task.
func (d *decode) version(v value) int64 { return d.integer(v, 0) }

// instant reads a time or a duration in milliseconds.
func (d *decode) instant(v value) int64 { return d.integer(v, 0) }

// ttl reads the length of a lease in milliseconds.
func (d *decode) ttl(v value) int64 { return d.integer(v, 1) }

// limit reads the size of a page.
func (d *decode) limit(v value) int {
	n := d.integer(v, 1)
	if n > MaxSearchLimit {
		d.invalid("must be at most %d (MaxSearchLimit), not %d", MaxSearchLimit, n)
	}
	return int(min(n, MaxSearchLimit))
}

// address reads an address to which messages can be sent.
func (d *decode) address(v value) string {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	if _, err := ParseAddress(s); err != nil {
		d.rule("Invalid listener address: %s", err)
	}
	return s
}

// state reads one of the given words.
func state[S ~string](d *decode, v value, words ...S) S {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	list := make([]string, len(words))
	for i, w := range words {
		if S(s) == w {
			return w
		}
		list[i] = string(w)
	}
	d.invalid("must be one of %s, not %q", strings.Join(list, ", "), clip(s, 40))
	return ""
}

// tags reads tags, sorted by name.
func (d *decode) tags(v value) Tags {
	if !v.isObject() {
		d.mistyped("an object of strings", v)
		return nil
	}
	var out Tags
	size := 0
	w := v.walk()
	for name, val, ok := w.member(); ok; name, val, ok = w.member() {
		tag, good := d.tag(name, val)
		if !good {
			continue
		}
		if out == nil {
			out = make(Tags, 0, 8)
		}
		out = append(out, tag)
		size += len(tag.Name) + len(tag.Value)
	}
	if size > MaxTagsBytes {
		d.invalid("take %d bytes in names and values, the limit is %d (MaxTagsBytes)", size, MaxTagsBytes)
	}
	sortTags(out)
	return out
}

func sortTags(tags Tags) {
	slices.SortFunc(tags, func(a, b Tag) int { return strings.Compare(a.Name, b.Name) })
}

func (d *decode) tag(rawName, rawValue value) (Tag, bool) {
	name, ok := tagName(rawName)
	if !ok {
		d.invalid("have a name that holds half of a surrogate pair, which no text can")
		return Tag{}, false
	}
	val, ok := rawValue.text()
	switch {
	case !rawValue.isString():
		d.malformed = true
		d.invalid("must be an object of strings, but %q is %s", clip(name, 40), rawValue.typeName())
	case !ok:
		d.invalid("hold half of a surrogate pair under %q, which no text can", clip(name, 40))
	case strings.IndexByte(name, 0) >= 0 || strings.IndexByte(val, 0) >= 0:
		d.invalid("must not contain a NUL character, as %q does", clip(name, 40))
	default:
		return Tag{Name: name, Value: val}, true
	}
	return Tag{}, false
}

// knownTags saves a copy of names that nearly every promise carries.
var knownTags = [...]string{
	TagTarget, TagTimer, TagExternal, TagDelay, TagOrigin, TagBranch, TagParent, TagPrefix, TagScope, TagSchedule,
}

func tagName(name value) (string, bool) {
	for _, known := range knownTags {
		if len(name) == len(known)+2 && string(name[1:len(name)-1]) == known {
			return known, true
		}
	}
	return name.text()
}

// payload reads a param or a value. What the two members hold is copied as it is written: the server
// keeps payloads, it does not read them.
func (d *decode) payload(v value) Value {
	if !v.isObject() {
		d.mistyped("an object with the members headers and data", v)
		return nil
	}
	var headers, data value
	w := v.walk()
	for name, val, ok := w.member(); ok; name, val, ok = w.member() {
		switch {
		case val.isNull():
		case name.spells("headers"):
			headers = val
		case name.spells("data"):
			data = val
		}
	}
	if headers == nil && data == nil {
		return nil
	}
	out := make(Value, 0, len(headers)+len(data)+len(`{"headers":,"data":}`))
	out = append(out, '{')
	if headers != nil {
		out = append(out, `"headers":`...)
		out = d.headers(out, headers)
	}
	if data != nil {
		if !data.isString() {
			d.push("data")
			d.mistyped("a string", data)
			d.pop()
		}
		if headers != nil {
			out = append(out, ',')
		}
		out = append(append(out, `"data":`...), data...)
	}
	return append(out, '}')
}

// headers appends the headers of a payload without the white space between them.
func (d *decode) headers(out []byte, v value) []byte {
	if !v.isObject() {
		d.push("headers")
		d.mistyped("an object of strings", v)
		d.pop()
		return out
	}
	out = append(out, '{')
	w := v.walk()
	for name, val, ok := w.member(); ok; name, val, ok = w.member() {
		if !val.isString() {
			d.malformed = true
			d.push("headers")
			d.invalid("must be an object of strings, but %s is %s", clip(string(name), 40), val.typeName())
			d.pop()
			return out
		}
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), val...)
	}
	return append(out, '}')
}

// delay parses a resonate:delay tag: an instant in decimal milliseconds.
func delay(s string) (int64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
