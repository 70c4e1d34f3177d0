package tuple_test

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"abide/kv/tuple"
)

// An element is nil, []byte, string, int64 or bool.
type element any

func encode(elements []element) []byte {
	var out []byte
	for _, e := range elements {
		switch v := e.(type) {
		case nil:
			out = tuple.AppendNil(out)
		case []byte:
			out = tuple.AppendBytes(out, v)
		case string:
			out = tuple.AppendString(out, v)
		case int64:
			out = tuple.AppendInt(out, v)
		case bool:
			out = tuple.AppendBool(out, v)
		}
	}
	return out
}

func decode(b []byte) ([]element, error) {
	var out []element
	r := tuple.NewReader(b)
	for !r.Done() {
		var e element
		var err error
		switch r.Kind() {
		case tuple.KindNil:
			err = r.NextNil()
		case tuple.KindBytes:
			e, err = r.NextBytes()
		case tuple.KindString:
			e, err = r.NextString()
		case tuple.KindInt:
			e, err = r.NextInt()
		default:
			e, err = r.NextBool()
		}
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, r.End()
}

func parseElement(t *testing.T, s string) element {
	t.Helper()
	switch {
	case s == "nil":
		return nil
	case s == "true" || s == "false":
		return s == "true"
	case strings.HasPrefix(s, `b"`), strings.HasPrefix(s, `"`):
		text, err := strconv.Unquote(strings.TrimPrefix(s, "b"))
		if err != nil {
			t.Fatalf("fixture %s: %v", s, err)
		}
		if s[0] == 'b' {
			return []byte(text)
		}
		return text
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("fixture %s: %v", s, err)
	}
	return n
}

func TestFixtures(t *testing.T) {
	file, err := os.ReadFile("testdata/fixtures.txt")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		left, right, ok := strings.Cut(line, " = ")
		want, err := hex.DecodeString(right)
		if !ok || err != nil {
			t.Fatalf("fixture line %q: %v", line, err)
		}
		var elements []element
		for field := range strings.FieldsSeq(left) {
			elements = append(elements, parseElement(t, field))
		}
		if got := encode(elements); !bytes.Equal(got, want) {
			t.Errorf("%s encodes to %x, want %x", left, got, want)
		}
		back, err := decode(want)
		if err != nil || compareTuples(back, elements) != 0 {
			t.Errorf("%x decodes to %v, %v, want %s", want, back, err, left)
		}
		checked++
	}
	if checked < 20 {
		t.Errorf("only %d fixtures", checked)
	}
}

// compareTuples is the order that the encodings must have, written from the definition.
func compareTuples(a, b []element) int {
	for i := range min(len(a), len(b)) {
		if c := compareElements(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareElements(a, b element) int {
	rank := func(e element) int {
		switch e.(type) {
		case nil:
			return 0
		case []byte:
			return 1
		case string:
			return 2
		case int64:
			return 3
		}
		return 4
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch v := a.(type) {
	case []byte:
		return bytes.Compare(v, b.([]byte))
	case string:
		return cmp.Compare(v, b.(string))
	case int64:
		return cmp.Compare(v, b.(int64))
	case bool:
		switch {
		case v == b.(bool):
			return 0
		case v:
			return 1
		}
		return -1
	}
	return 0
}

// content draws strings that share beginnings and hold the bytes that the encoding treats specially.
func content() *rapid.Generator[[]byte] {
	return rapid.SliceOfN(rapid.SampledFrom([]byte{0x00, 0x01, 0x61, 0xFF}), 0, 4)
}

func elements() *rapid.Generator[[]element] {
	one := rapid.OneOf(
		rapid.Just[element](nil),
		rapid.Map(content(), func(b []byte) element { return b }),
		rapid.Map(content(), func(b []byte) element { return string(b) }),
		rapid.Map(rapid.Int64(), func(n int64) element { return n }),
		rapid.Map(rapid.Int64Range(-70000, 70000), func(n int64) element { return n }),
		rapid.Map(rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, -256, -255, 255, 256, -65536, 65535}),
			func(n int64) element { return n }),
		rapid.Map(rapid.Bool(), func(b bool) element { return b }),
	)
	return rapid.SliceOfN(one, 0, 4)
}

func TestByteOrderIsTupleOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := elements().Draw(t, "a"), elements().Draw(t, "b")
		if got, want := bytes.Compare(encode(a), encode(b)), compareTuples(a, b); got != want {
			t.Fatalf("bytes compare %d, tuples %d: %v (%x) against %v (%x)", got, want, a, encode(a), b, encode(b))
		}
	})
}

func TestDecodeGivesBackTheTuple(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := elements().Draw(t, "a")
		got, err := decode(encode(a))
		if err != nil || compareTuples(got, a) != 0 {
			t.Fatalf("%v became %v, %v", a, got, err)
		}
	})
}

// A tuple lies in the prefix range of another exactly if that one's elements begin it.
func TestPrefixRangeHoldsExactlyTheExtensions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := elements().Filter(func(e []element) bool { return len(e) > 0 }).Draw(t, "prefix")
		other := elements().Draw(t, "other")
		switch rapid.IntRange(0, 2).Draw(t, "relation") {
		case 0:
			other = append(append([]element{}, prefix...), other...)
		case 1: // the last element goes on
			last := slices.Clone(prefix)
			switch v := last[len(last)-1].(type) {
			case string:
				last[len(last)-1] = v + string(content().Draw(t, "more"))
			case []byte:
				last[len(last)-1] = append(slices.Clone(v), content().Draw(t, "more")...)
			}
			other = append(last, other...)
		}
		extends := len(other) >= len(prefix) && compareTuples(other[:len(prefix)], prefix) == 0
		start := encode(prefix)
		end := tuple.PrefixEnd(start)
		key := encode(other)
		inside := bytes.Compare(key, start) >= 0 && bytes.Compare(key, end) < 0
		if inside != extends {
			t.Fatalf("%v (%x) inside the range of %v (%x..%x): %v, want %v", other, key, prefix, start, end, inside, extends)
		}
	})
}

func TestDecodeIsStrictAndNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte{0, 1, 2, 0x0C, 0x13, 0x14, 0x15, 0x1C, 0xFF})),
			0, 12).Draw(t, "bytes")
		got, err := decode(b)
		if err != nil {
			if !errors.Is(err, tuple.ErrMalformed) {
				t.Fatalf("%x: %v has not the identity ErrMalformed", b, err)
			}
			return
		}
		if again := encode(got); !bytes.Equal(again, b) {
			t.Fatalf("%x was accepted as %v, which encodes to %x", b, got, again)
		}
	})
}

func TestMalformed(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes string
		read  func(*tuple.Reader) error
	}{
		"bytes without end":            {"016162", func(r *tuple.Reader) error { _, err := r.NextBytes(); return err }},
		"string that ends escaped":     {"026100ff", func(r *tuple.Reader) error { _, err := r.NextString(); return err }},
		"int cut off":                  {"16ff", func(r *tuple.Reader) error { _, err := r.NextInt(); return err }},
		"int not shortest":             {"160001", func(r *tuple.Reader) error { _, err := r.NextInt(); return err }},
		"negative int not shortest":    {"12fffe", func(r *tuple.Reader) error { _, err := r.NextInt(); return err }},
		"int above the largest":        {"1c8000000000000000", func(r *tuple.Reader) error { _, err := r.NextInt(); return err }},
		"int below the smallest":       {"0c7ffffffffffffffe", func(r *tuple.Reader) error { _, err := r.NextInt(); return err }},
		"another type":                 {"27", func(r *tuple.Reader) error { return r.NextNil() }},
		"a type that is not ours":      {"2142", func(r *tuple.Reader) error { _, err := r.NextBool(); return err }},
		"nothing left":                 {"", func(r *tuple.Reader) error { return r.NextNil() }},
		"something left at the end":    {"00", func(r *tuple.Reader) error { return r.End() }},
		"nested tuple is not accepted": {"0500", func(r *tuple.Reader) error { return r.NextNil() }},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := hex.DecodeString(tc.bytes)
			r := tuple.NewReader(b)
			if err := tc.read(&r); !errors.Is(err, tuple.ErrMalformed) {
				t.Errorf("error %v, want ErrMalformed", err)
			}
			if !bytes.Equal(r.Rest(), b) {
				t.Errorf("a failed read left %x of %x", r.Rest(), b)
			}
		})
	}
}

func TestPrefixEndLeavesOutLongerStrings(t *testing.T) {
	for _, tc := range []struct {
		prefix, other []element
		inside        bool
	}{
		{[]element{"a"}, []element{"a"}, true},
		{[]element{"a"}, []element{"a", nil}, true},
		{[]element{"a"}, []element{"a", true}, true},
		{[]element{"a"}, []element{"a\x00"}, false},
		{[]element{"a"}, []element{"a\x00b", "c"}, false},
		{[]element{"a"}, []element{"a\xff"}, false},
		{[]element{"a"}, []element{"b"}, false},
		{[]element{[]byte{}}, []element{[]byte{0}}, false},
		{[]element{[]byte{0xFF}}, []element{[]byte{0xFF}, []byte{0xFF}}, true},
		{[]element{nil}, []element{nil, nil}, true},
		{[]element{int64(1)}, []element{int64(256)}, false},
	} {
		start, key := encode(tc.prefix), encode(tc.other)
		end := tuple.PrefixEnd(start)
		if inside := bytes.Compare(key, start) >= 0 && bytes.Compare(key, end) < 0; inside != tc.inside {
			t.Errorf("%q in the range of %q: %v, want %v", tc.other, tc.prefix, inside, tc.inside)
		}
	}
	prefix := make([]byte, 2, 8)
	tuple.PrefixEnd(prefix)[0] = 9
	if prefix[0] != 0 || prefix[:3][2] != 0 {
		t.Error("the end shares memory with the prefix")
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	dst := make([]byte, 0, 128)
	key := []byte("a\x00b")
	if n := testing.AllocsPerRun(100, func() {
		b := tuple.AppendString(dst, "promise.with.an.id")
		b = tuple.AppendBytes(b, key)
		b = tuple.AppendInt(b, -1_700_000_000_000)
		b = tuple.AppendBool(tuple.AppendNil(b), true)
		r := tuple.NewReader(b)
		_ = r.Kind()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
