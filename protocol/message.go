package protocol

import (
	"unicode/utf16"
	"unicode/utf8"
)

// The kinds of messages to workers.
const (
	MessageExecute = "execute"
	MessageUnblock = "unblock"
)

// AppendExecute appends the message that asks a worker to claim a task. It is one line of ASCII: several
// SDKs decode a stream chunk by chunk and lose one that ends inside a character. serverURL is where the
// worker finds this server and workspace. (docs/protocol.md, Messages to workers)
func AppendExecute(dst []byte, serverURL string, task TaskRef) []byte {
	return AppendTracedExecute(dst, serverURL, task, nil)
}

// AppendTracedExecute is AppendExecute with the trace that the task is part of in the message's head; nil for none.
func AppendTracedExecute(dst []byte, serverURL string, task TaskRef, trace *Trace) []byte {
	start := len(dst)
	return escapeFrom(appendExecute(dst, serverURL, task, trace), start)
}

// AppendUnblock appends the message that tells a listener of a settled promise, as one line of ASCII. The
// promise must not be pending: a released SDK ends its process on such a message.
func AppendUnblock(dst []byte, promise Promise) []byte {
	start := len(dst)
	return escapeFrom(appendUnblock(dst, promise), start)
}

func appendExecute(dst []byte, serverURL string, task TaskRef, trace *Trace) []byte {
	dst = append(dst, `{"kind":"execute","head":{`...)
	if serverURL != "" {
		dst = appendString(append(dst, `"serverUrl":`...), serverURL)
	}
	dst = appendTrace(dst, trace)
	dst = task.AppendJSON(append(dst, `},"data":{"task":`...))
	return append(dst, `}}`...)
}

func appendUnblock(dst []byte, promise Promise) []byte {
	dst = promise.AppendJSON(append(dst, `{"kind":"unblock","head":{},"data":{"promise":`...))
	return append(dst, `}}`...)
}

// escapeFrom rewrites the JSON in dst[start:] so that it is ASCII. Outside strings JSON is.
func escapeFrom(dst []byte, start int) []byte {
	for start < len(dst) && dst[start] < utf8.RuneSelf {
		start++
	}
	if start == len(dst) {
		return dst
	}
	rest := append([]byte(nil), dst[start:]...)
	dst = dst[:start]
	for len(rest) > 0 {
		r, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		switch {
		case r < utf8.RuneSelf:
			dst = append(dst, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			dst = appendEscape(appendEscape(dst, high), low)
		default:
			dst = appendEscape(dst, r)
		}
	}
	return dst
}

func appendEscape(dst []byte, unit rune) []byte {
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', digits[unit>>12&15], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
}
