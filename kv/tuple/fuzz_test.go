package tuple_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"abide/kv/tuple"
)

// next takes one element of any kind and writes it again.
func next(r *tuple.Reader, dst []byte) ([]byte, error) {
	switch r.Kind() {
	case tuple.KindNil:
		return tuple.AppendNil(dst), r.NextNil()
	case tuple.KindBytes:
		v, err := r.NextBytes()
		return tuple.AppendBytes(dst, v), err
	case tuple.KindString:
		v, err := r.NextString()
		return tuple.AppendString(dst, v), err
	case tuple.KindInt:
		v, err := r.NextInt()
		return tuple.AppendInt(dst, v), err
	case tuple.KindBool:
		v, err := r.NextBool()
		return tuple.AppendBool(dst, v), err
	default: // the end, or a byte that begins nothing
		_, err := r.NextInt()
		return dst, err
	}
}

// FuzzReader: any bytes are a tuple, of which they are the only encoding, or are refused with ErrMalformed where the
// first element begins that is none. A call that fails takes nothing.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x01a\x00\xffb\x00", "\x02\x00\xff", "\x02no end", "\x14", "\x15\x00", "\x0c\x7f\xff\xff\xff\xff\xff\xff\xff",
		"\x1c\xff\xff\xff\xff\xff\xff\xff\xff", "\x13\xfe\x26\x27\x28"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := tuple.NewReader(b)
		var again []byte
		for !r.Done() {
			before := r.Rest()
			out, err := next(&r, slices.Clone(again))
			if err != nil {
				if !errors.Is(err, tuple.ErrMalformed) || !bytes.Equal(r.Rest(), before) {
					t.Fatalf("%x: %v, and %x became %x", b, err, before, r.Rest())
				}
				if r.End() == nil {
					t.Fatalf("%x: a tuple that goes on with %x has ended", b, before)
				}
				return
			}
			again = out
			if read := b[:len(b)-len(r.Rest())]; !bytes.Equal(again, read) {
				t.Fatalf("%x reads as what is written as %x", read, again)
			}
		}
		if err := r.End(); err != nil {
			t.Fatal(err)
		}
		if _, err := next(&r, nil); !errors.Is(err, tuple.ErrMalformed) {
			t.Fatalf("after the end: %v", err)
		}
	})
}

// drawn is an element made of fuzzed bytes.
type drawn struct {
	kind tuple.Kind
	text []byte
	n    int64
}

// draw makes up to eight elements of the bytes it is given: a kind, a length or a number, the content.
func draw(b []byte) (elements []drawn) {
	for len(b) > 0 && len(elements) < 8 {
		e := drawn{kind: tuple.KindNil + tuple.Kind(b[0]%5)}
		b = b[1:]
		switch e.kind {
		case tuple.KindBytes, tuple.KindString:
			n := 0
			if len(b) > 0 {
				n, b = min(int(b[0]%16), len(b)-1), b[1:]
			}
			e.text, b = b[:n], b[n:]
		case tuple.KindInt, tuple.KindBool:
			var raw [8]byte
			n := copy(raw[:], b)
			e.n, b = int64(binary.LittleEndian.Uint64(raw[:])), b[n:]
			if e.kind == tuple.KindBool {
				e.n &= 1
			}
		}
		elements = append(elements, e)
	}
	return elements
}

func compareDrawn(a, b drawn) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), bytes.Compare(a.text, b.text), cmp.Compare(a.n, b.n))
}

func encodeDrawn(elements []drawn) (out []byte) {
	for _, e := range elements {
		switch e.kind {
		case tuple.KindNil:
			out = tuple.AppendNil(out)
		case tuple.KindBytes:
			out = tuple.AppendBytes(out, e.text)
		case tuple.KindString:
			out = tuple.AppendString(out, string(e.text))
		case tuple.KindInt:
			out = tuple.AppendInt(out, e.n)
		case tuple.KindBool:
			out = tuple.AppendBool(out, e.n == 1)
		}
	}
	return out
}

// FuzzOrder: the bytes of two tuples order as the tuples do, and the range of a tuple holds another exactly if that
// one begins with it.
func FuzzOrder(f *testing.F) {
	for _, seed := range [][2]string{
		{"", "\x00"}, {"\x01\x03abc", "\x01\x03abd"}, {"\x02\x01a", "\x02\x03a\x00b"}, {"\x03\xff\xff\xff\xff\xff\xff\xff\xff", "\x03\x00\x00\x00\x00\x00\x00\x00\x80"},
		{"\x02\x01a\x03\x07\x00\x00\x00\x00\x00\x00\x00", "\x02\x01a"}, {"\x04\x00", "\x04\x01"}, {"\x01\x02\x00\xff", "\x01\x01\x00"},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, y := draw(a), draw(b)
		ex, ey := encodeDrawn(x), encodeDrawn(y)
		if got, want := bytes.Compare(ex, ey), slices.CompareFunc(x, y, compareDrawn); got != want {
			t.Fatalf("%+v and %+v compare as %d, their encodings %x and %x as %d", x, y, want, ex, ey, got)
		}
		if len(x) == 0 {
			return
		}
		begins := len(y) >= len(x) && slices.CompareFunc(x, y[:len(x)], compareDrawn) == 0
		if inside := bytes.Compare(ex, ey) <= 0 && bytes.Compare(ey, tuple.PrefixEnd(ex)) < 0; inside != begins {
			t.Fatalf("%+v begins with %+v: %t; %x lies in the range of %x: %t", y, x, begins, ey, ex, inside)
		}
	})
}
