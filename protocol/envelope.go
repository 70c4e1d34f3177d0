package protocol

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// What an answer echoes when the request does not say.
const (
	unknownKind   = "unknown"
	unknownCorrID = "0"
)

// Envelope is a request before its data is looked at. The strings are copies; Data aliases the body.
type Envelope struct {
	Kind    string
	CorrID  string
	Version string
	// Auth is the token in head.auth, empty if there is none.
	Auth string
	// Origin is head["resonate:origin"], a client's hint at the call tree: untrusted, often absent.
	Origin string
	// DebugTime is head["resonate:debug_time"], in epoch milliseconds; nil if absent. It counts only
	// while debug is on.
	DebugTime *int64
	// Trace is the trace that head.traceparent and head.tracestate say; nil if they say none that is valid.
	Trace *Trace
	Data  Data

	traceParent, traceState string
}

var envelopeFields = []field[Envelope]{
	{"kind", required, func(d *decode, v value, e *Envelope) { e.Kind, _ = d.text(v) }},
	{"head", required, func(d *decode, v value, e *Envelope) { object(d, v, headFields, e) }},
	{"data", required, func(_ *decode, v value, e *Envelope) { e.Data = Data(v) }},
}

var headFields = []field[Envelope]{
	{"corrId", required, func(d *decode, v value, e *Envelope) { e.CorrID, _ = d.text(v) }},
	{"version", required, func(d *decode, v value, e *Envelope) { e.Version, _ = d.text(v) }},
	{"auth", nullable, func(d *decode, v value, e *Envelope) { e.Auth, _ = d.text(v) }},
	{"resonate:origin", nullable, func(_ *decode, v value, e *Envelope) { e.Origin, _ = v.text() }},
	{"resonate:debug_time", nullable, func(d *decode, v value, e *Envelope) {
		n := d.integer(v, math.MinInt64)
		e.DebugTime = &n
	}},
	{"traceparent", nullable, func(_ *decode, v value, e *Envelope) { e.traceParent, _ = v.text() }},
	{"tracestate", nullable, func(_ *decode, v value, e *Envelope) { e.traceState, _ = v.text() }},
}

// DecodeEnvelope reads the body of a request. Whether there is an operation of that kind, and whether it
// accepts the data, is not yet decided.
//
// The error is a *RequestError. Then Kind and CorrID are what the answer has to echo (what the body says
// where it says a string, else "unknown" and "0") and nothing else of the envelope may be used.
// The body must not change while Data is in use. (docs/protocol.md, Requests and answers)
func DecodeEnvelope(body []byte) (Envelope, error) {
	if err := checkJSON(body); err != nil {
		return refused(body, &RequestError{Malformed, "Invalid request envelope: " + err.Error()})
	}
	var env Envelope
	var d decode
	object(&d, whole(body), envelopeFields, &env)
	if err := d.err("Invalid request envelope: "); err != nil {
		return refused(body, err)
	}
	switch {
	case env.Kind == "":
		return env, &RequestError{Malformed, "kind must not be empty"}
	case !value(env.Data).isObject():
		return env, &RequestError{Malformed, "data must be an object, not " + value(env.Data).typeName()}
	case env.Version != Version:
		return env, &RequestError{Invalid, "Unsupported protocol version " + quote(env.Version) + "; supported is " + Version}
	}
	env.Trace = ParseTrace(env.traceParent, env.traceState)
	return env, nil
}

// refused returns what an envelope that could not be read still says of its kind and corrId.
func refused(body []byte, err error) (Envelope, error) {
	env := Envelope{Kind: unknownKind, CorrID: unknownCorrID}
	if !utf8.Valid(body) || !jsontext.Value(body).IsValid(loose...) {
		return env, err
	}
	top := whole(body)
	if kind, ok := stringMember(top, "kind"); ok {
		env.Kind = kind
	}
	if corrID, ok := stringMember(anyMember(top, "head"), "corrId"); ok {
		env.CorrID = corrID
	}
	return env, err
}

// CheckDebugTime reports why the debug time of env cannot be used for req: nil, or a *RequestError. It
// applies only where debug is on. (docs/protocol.md, Debugging and tests)
func CheckDebugTime(env Envelope, req Request) error {
	if env.DebugTime == nil {
		return nil
	}
	if *env.DebugTime < 0 {
		return &RequestError{Invalid, "head[\"resonate:debug_time\"] must be at least 0, not " + strconv.FormatInt(*env.DebugTime, 10)}
	}
	if tick, ok := req.(*DebugTick); ok && tick.Time != *env.DebugTime {
		return &RequestError{Invalid, "data.time must equal head[\"resonate:debug_time\"] where both are given"}
	}
	return nil
}

func stringMember(v value, name string) (string, bool) { return anyMember(v, name).text() }

// anyMember returns the last member of that name; nil if v is not an object or has none.
func anyMember(v value, name string) (found value) {
	if !v.isObject() {
		return nil
	}
	w := v.walk()
	for n, val, ok := w.member(); ok; n, val, ok = w.member() {
		if n.spells(name) {
			found = val
		}
	}
	return found
}
