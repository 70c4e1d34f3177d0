package kvtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"abide/kv"
	"abide/kv/tuple"
)

var keyTests = []test{
	{name: "runs of 00 and FF, and the longest keys, are in byte order", run: testByteOrder},
	{name: "keys that differ in their last byte only", run: testNeighbours},
	{name: "tuples come in their order, a prefix with all its extensions", run: testTuples},
}

// testByteOrder stores keys made of the bytes that encodings and page edges treat specially.
func testByteOrder(f *fixture) {
	var keys []string
	for _, first := range []string{"\x00", "\x01", "a", "\x7F", "\x80", "\xFE"} {
		for _, rest := range []string{"", "\x00", "\x00\x00", "\x00\xFF", "\xFF", "\xFF\x00", "\xFF\xFF", "\x00\x00\x00", "\xFF\xFF\xFF", "z"} {
			keys = append(keys, first+rest)
		}
		for _, b := range []string{"\x00", "\xFF", "a"} {
			keys = append(keys, first+strings.Repeat(b, 20), first+strings.Repeat(b, kv.MaxKeyBytes-2), first+strings.Repeat(b, kv.MaxKeyBytes-1))
		}
	}
	shuffled := slices.Clone(keys)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for part := range slices.Chunk(shuffled, 20) {
		f.update(func(tx kv.Tx) error {
			for _, key := range part {
				if err := tx.Put([]byte(key), []byte(key[:1])); err != nil {
					return err
				}
			}
			return nil
		})
	}
	slices.Sort(keys)
	f.read(func(t *testing.T, r kv.Reader) {
		start := []byte{}
		for i := 0; i < len(keys); {
			entries, err := r.Scan(kv.Range{Start: start, End: everything.End}, 7)
			if err != nil || len(entries) == 0 {
				t.Errorf("%d keys of %d, %v", i, len(keys), err)
				return
			}
			for _, e := range entries {
				if string(e.Key) != keys[i] || string(e.Value) != keys[i][:1] {
					t.Errorf("key %d is %q, want %q", i, e.Key, keys[i])
					return
				}
				i++
			}
			start = append(bytes.Clone(entries[len(entries)-1].Key), 0) // may be one byte longer than a key
		}
		for i, key := range keys {
			value, err := r.Get([]byte(key))
			if err != nil || string(value) != key[:1] {
				t.Errorf("key %d is %q, %v", i, value, err)
			}
		}
	})
}

func testNeighbours(f *fixture) {
	f.put("k", "1", "k\x00", "2", "k\x00\x00", "3", "k\xFF", "4", "l", "5")
	f.update(func(tx kv.Tx) error { return tx.Delete([]byte("k\x00")) })
	f.wantContent("k=1", "k\x00\x00=3", "k\xFF=4", "l=5")
	f.put("k\x00\x00", "33")
	f.wantContent("k=1", "k\x00\x00=33", "k\xFF=4", "l=5")
	f.read(func(t *testing.T, r kv.Reader) {
		values, err := r.GetMany([][]byte{[]byte("k"), []byte("k\x00"), []byte("k\x00\x00"), []byte("k\xFF"), []byte("k\xFF\x00"), []byte("l")})
		want := []string{"1", "<none>", "33", "4", "<none>", "5"}
		for i, v := range values {
			if show(v) != want[i] {
				t.Errorf("value %d is %q, want %q", i, show(v), want[i])
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// testTuples stores encoded tuples: the store's order must be that of the elements, and the range up to
// PrefixEnd must hold a tuple and its extensions and nothing else.
func testTuples(f *fixture) {
	type element = func([]byte) []byte
	str := func(s string) element { return func(b []byte) []byte { return tuple.AppendString(b, s) } }
	blob := func(s string) element { return func(b []byte) []byte { return tuple.AppendBytes(b, []byte(s)) } }
	num := func(n int64) element { return func(b []byte) []byte { return tuple.AppendInt(b, n) } }
	tuples := [][]element{ // in order
		{tuple.AppendNil},
		{tuple.AppendNil, str("a")},
		{blob("")},
		{blob("\x00")},
		{blob("\xFF")},
		{str("")},
		{str(""), num(0)},
		{str("a")},
		{str("a"), tuple.AppendNil},
		{str("a"), str("")},
		{str("a"), num(-1 << 63)},
		{str("a"), num(-256)},
		{str("a"), num(-255)},
		{str("a"), num(-1)},
		{str("a"), num(0)},
		{str("a"), num(1)},
		{str("a"), num(255)},
		{str("a"), num(256)},
		{str("a"), num(1<<63 - 1)},
		{str("a\x00")},
		{str("a\x00b")},
		{str("aa")},
		{str("ä")},
		{num(-1)},
		{num(7), str("x")},
	}
	encode := func(elements []element) (b []byte) {
		for _, e := range elements {
			b = e(b)
		}
		return b
	}
	f.update(func(tx kv.Tx) error {
		for i := range tuples {
			i = i * 11 % len(tuples) // in some other order
			if err := tx.Put(encode(tuples[i]), fmt.Append(nil, i)); err != nil {
				return err
			}
		}
		return nil
	})
	f.read(func(t *testing.T, r kv.Reader) {
		entries, err := r.Scan(everything, 100)
		if err != nil || len(entries) != len(tuples) {
			t.Errorf("%d entries, want %d: %v", len(entries), len(tuples), err)
			return
		}
		for i, e := range entries {
			if string(e.Value) != fmt.Sprint(i) {
				t.Errorf("entry %d is tuple %s", i, e.Value)
			}
		}
		prefix := encode(tuples[7]) // "a": itself and what begins with it, not "a\x00" or "aa"
		entries, err = r.Scan(kv.Range{Start: prefix, End: tuple.PrefixEnd(prefix)}, 100)
		if err != nil || len(entries) != 12 || string(entries[0].Value) != "7" || string(entries[11].Value) != "18" {
			t.Errorf("the extensions of a tuple are %q, %v", showEntries(entries), err)
		}
	})
}
