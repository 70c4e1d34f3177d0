package keyspace

import (
	"google.golang.org/protobuf/encoding/protowire"

	"abide/protocol"
)

// traceFixed is the part of a stored trace that has always the same length: the trace's id, the span's, the flags. The
// state is what comes after it.
const traceFixed = 16 + 8 + 1

// putTrace appends a trace. A record without one has no field for it.
func putTrace(b []byte, t *protocol.Trace) []byte {
	if t == nil {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, objTrace, protowire.BytesType), uint64(traceFixed+len(t.State)))
	b = append(append(b, t.ID[:]...), t.Span[:]...)
	return append(append(b, t.Flags), t.State...)
}

// getTrace decodes a trace. It decides nothing, so one that is too short is none at all and damages no record.
func getTrace(b []byte) *protocol.Trace {
	if len(b) < traceFixed {
		return nil
	}
	t := &protocol.Trace{Flags: b[traceFixed-1], State: string(b[traceFixed:])}
	copy(t.ID[:], b)
	copy(t.Span[:], b[len(t.ID):])
	return t
}
