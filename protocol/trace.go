package protocol

import (
	"encoding/hex"
	"strings"
)

// Limits of a trace context. (W3C Trace Context, 3.2 and 3.3)
const (
	// MaxTraceStateBytes is the longest tracestate that is kept: what the recommendation asks everybody to pass on. A
	// longer one is dropped, its traceparent is kept.
	MaxTraceStateBytes = 512
	// maxTraceStateMembers is the largest number of entries in a tracestate.
	maxTraceStateMembers = 32
	// traceParentBytes is the length of a traceparent of version 00.
	traceParentBytes = 55
)

// Bits of Trace.Flags. Others are not passed on.
const (
	TraceSampled = 1 << 0 // whoever made the span records it
	traceRandom  = 1 << 1 // the trace's id is random
	traceFlags   = TraceSampled | traceRandom
)

// Trace is a trace context: the trace that something is part of, and the span in it that caused it. Neither id is all
// zero. It is shared by pointer, and nobody changes one.
type Trace struct {
	ID    [16]byte
	Span  [8]byte
	Flags byte
	// State is what tracing systems want to be passed on besides, at most MaxTraceStateBytes of ASCII; often empty.
	State string
}

// ParseTrace reads the values of a traceparent and a tracestate. What is no traceparent gives nil, as if there were no
// trace; what is no tracestate is dropped. Of a later version it takes what version 00 has. (W3C Trace Context, 3.2.2, 4.3)
func ParseTrace(parent, state string) *Trace {
	if len(parent) < traceParentBytes || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return nil
	}
	var version, flags [1]byte
	var t Trace
	ok := lowerHex(version[:], parent[:2]) && lowerHex(t.ID[:], parent[3:35]) && lowerHex(t.Span[:], parent[36:52]) && lowerHex(flags[:], parent[53:55])
	switch rest := parent[traceParentBytes:]; {
	case !ok, version[0] == 0xff, t.ID == [16]byte{}, t.Span == [8]byte{}:
		return nil
	case rest != "" && (version[0] == 0 || rest[0] != '-'):
		return nil
	}
	t.Flags = flags[0] & traceFlags
	if validTraceState(state) {
		t.State = strings.Clone(state) // it may lie in a header or a body
	}
	return &t
}

// lowerHex decodes digits of which none is a capital, as the recommendation wants them.
func lowerHex(dst []byte, digits string) bool {
	if strings.ContainsAny(digits, "ABCDEF") {
		return false
	}
	_, err := hex.Decode(dst, []byte(digits))
	return err == nil
}

// validTraceState reports whether s is a list of members, each key=value of printable ASCII. Whoever sent it decides what
// is in them; it goes back into JSON and headers as it came.
func validTraceState(s string) bool {
	if len(s) > MaxTraceStateBytes {
		return false
	}
	for i := range len(s) {
		if (s[i] < ' ' || s[i] > '~') && s[i] != '\t' {
			return false
		}
	}
	members := 0
	for member := range strings.SplitSeq(s, ",") {
		member = strings.Trim(member, " \t")
		key, _, found := strings.Cut(member, "=")
		switch {
		case member == "":
		case !found || key == "":
			return false
		default:
			members++
		}
	}
	return members <= maxTraceStateMembers
}

// Sampled reports whether the span that t names is recorded. A nil t is not.
func (t *Trace) Sampled() bool { return t != nil && t.Flags&TraceSampled != 0 }

// AppendParent appends t as a traceparent of version 00.
func (t *Trace) AppendParent(dst []byte) []byte {
	dst = hex.AppendEncode(append(dst, "00-"...), t.ID[:])
	dst = hex.AppendEncode(append(dst, '-'), t.Span[:])
	return hex.AppendEncode(append(dst, '-'), []byte{t.Flags})
}

// appendTrace appends t as members of a head that may have others before; nothing for nil.
func appendTrace(dst []byte, t *Trace) []byte {
	if t == nil {
		return dst
	}
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(t.AppendParent(append(dst, `"traceparent":"`...)), '"')
	if t.State != "" {
		dst = appendStringMember(dst, "tracestate", t.State)
	}
	return dst
}
