package tuple

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed is the identity of every decoding error: the bytes are not a tuple, or the next element is
// of another type than asked for.
var ErrMalformed = errors.New("malformed tuple")

// Kind is the type of an element.
type Kind int

// The kinds of elements. KindNone is the end of the tuple, KindUnknown a first byte that this package does
// not write.
const (
	KindUnknown Kind = iota
	KindNone
	KindNil
	KindBytes
	KindString
	KindInt
	KindBool
)

// String names the kind for error messages.
func (k Kind) String() string {
	switch k {
	case KindNone:
		return "the end"
	case KindNil:
		return "nil"
	case KindBytes:
		return "bytes"
	case KindString:
		return "a string"
	case KindInt:
		return "an int"
	case KindBool:
		return "a bool"
	}
	return "an unknown element"
}

// Reader takes the elements of an encoded tuple one after another. A failed call consumes nothing. Not safe
// for concurrent use; make as many readers of one slice as you like.
type Reader struct{ rest []byte }

// NewReader reads the tuple in b. The reader keeps b and never changes it.
func NewReader(b []byte) Reader { return Reader{rest: b} }

// Rest is what has not been read yet: a part of the slice given to NewReader.
func (r *Reader) Rest() []byte { return r.rest }

// Done reports whether every element has been read.
func (r *Reader) Done() bool { return len(r.rest) == 0 }

// End returns an error unless every element has been read.
func (r *Reader) End() error {
	if len(r.rest) != 0 {
		return fmt.Errorf("%w: %d bytes after the last element", ErrMalformed, len(r.rest))
	}
	return nil
}

// Kind is the kind of the next element. It does not say that the element is well formed.
func (r *Reader) Kind() Kind {
	if len(r.rest) == 0 {
		return KindNone
	}
	switch c := r.rest[0]; {
	case c == codeNil:
		return KindNil
	case c == codeBytes:
		return KindBytes
	case c == codeString:
		return KindString
	case c >= codeZero-maxIntBytes && c <= codeZero+maxIntBytes:
		return KindInt
	case c == codeFalse, c == codeTrue:
		return KindBool
	}
	return KindUnknown
}

// NextNil takes a nil.
func (r *Reader) NextNil() error {
	if err := r.want(KindNil); err != nil {
		return err
	}
	r.rest = r.rest[1:]
	return nil
}

// NextBytes takes a byte string. The result is never nil; it may be a part of the slice given to NewReader
// (when nothing in it is escaped) and must not be changed.
func (r *Reader) NextBytes() ([]byte, error) {
	if err := r.want(KindBytes); err != nil {
		return nil, err
	}
	return r.content()
}

// NextString takes a string.
func (r *Reader) NextString() (string, error) {
	if err := r.want(KindString); err != nil {
		return "", err
	}
	b, err := r.content()
	return string(b), err
}

// NextInt takes an integer.
func (r *Reader) NextInt() (int64, error) {
	if err := r.want(KindInt); err != nil {
		return 0, err
	}
	n := int(r.rest[0]) - codeZero
	negative := n < 0
	if negative {
		n = -n
	}
	if len(r.rest) < 1+n {
		return 0, fmt.Errorf("%w: an int of %d bytes is cut off", ErrMalformed, n)
	}
	var magnitude uint64
	for _, c := range r.rest[1 : 1+n] {
		if negative {
			c = ^c
		}
		magnitude = magnitude<<8 | uint64(c)
	}
	if magnitudeBytes(magnitude) != n {
		return 0, fmt.Errorf("%w: an int is not in its shortest form", ErrMalformed)
	}
	switch {
	case !negative && magnitude <= math.MaxInt64:
		r.rest = r.rest[1+n:]
		return int64(magnitude), nil
	case negative && magnitude <= math.MaxInt64+1:
		r.rest = r.rest[1+n:]
		return -int64(magnitude-1) - 1, nil
	}
	return 0, fmt.Errorf("%w: an int does not fit 64 bits", ErrMalformed)
}

// NextBool takes a boolean.
func (r *Reader) NextBool() (bool, error) {
	if err := r.want(KindBool); err != nil {
		return false, err
	}
	b := r.rest[0] == codeTrue
	r.rest = r.rest[1:]
	return b, nil
}

func (r *Reader) want(k Kind) error {
	if got := r.Kind(); got != k {
		return fmt.Errorf("%w: want %s, found %s", ErrMalformed, k, got)
	}
	return nil
}

// content takes the content of a byte string or string: up to the first 00 that no escape follows.
func (r *Reader) content() ([]byte, error) {
	body := r.rest[1:]
	end := bytes.IndexByte(body, 0)
	if end < 0 {
		return nil, fmt.Errorf("%w: a string has no end", ErrMalformed)
	}
	if end+1 == len(body) || body[end+1] != escape {
		r.rest = body[end+1:]
		return body[:end:end], nil
	}
	var out []byte
	for {
		out = append(out, body[:end]...)
		body = body[end+1:]
		if len(body) == 0 || body[0] != escape {
			r.rest = body
			return out, nil
		}
		out, body = append(out, 0), body[1:]
		if end = bytes.IndexByte(body, 0); end < 0 {
			return nil, fmt.Errorf("%w: a string has no end", ErrMalformed)
		}
	}
}
