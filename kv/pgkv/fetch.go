package pgkv

import (
	"bytes"
	"fmt"
	"slices"

	"abide/kv"
	"abide/kv/batch"
)

// fetchCalls are the calls that answer f.
func (c *conn) fetchCalls(calls []call, f *batch.Fetch) []call {
	if len(f.Gets) > 0 {
		n := 0
		for _, key := range f.Gets {
			n += len(key)
		}
		f.Values = make([][]byte, len(f.Gets))
		calls = append(calls, call{statement: &c.stmts.get, args: [][]byte{list(f.Gets, n)}, row: gotten(f)})
	}
	if len(f.Scans) > 0 {
		n := 0
		for i := range f.Scans {
			n += len(f.Scans[i].Start) + len(f.Scans[i].End)
			f.Scans[i].Entries = nil
		}
		calls = append(calls, call{statement: &c.stmts.scan, row: scanned(f), args: [][]byte{
			byteaArray(len(f.Scans), n, func(i int) []byte { return f.Scans[i].Start }),
			byteaArray(len(f.Scans), n, func(i int) []byte { return f.Scans[i].End }),
			int4Array(len(f.Scans), func(i int) int { return f.Scans[i].Limit }),
		}})
	}
	return calls
}

// gotten takes the rows of a get.
func gotten(f *batch.Fetch) func([][]byte) error {
	return func(values [][]byte) error {
		i, found := slices.BinarySearchFunc(f.Gets, values[0], bytes.Compare)
		if !found {
			return errUnasked
		}
		f.Values[i] = copied(values[1])
		return nil
	}
}

// scanned takes the rows of a scan. They come range by range, each in order: that is how the only plan that the
// settings allow makes them. It is checked all the same, because nothing in SQL says so.
func scanned(f *batch.Fetch) func([][]byte) error {
	return func(values [][]byte) error {
		i, err := int8Value(values[0])
		if err != nil {
			return err
		}
		if i < 1 || int(i) > len(f.Scans) {
			return errUnasked
		}
		s := &f.Scans[i-1]
		if n := len(s.Entries); n >= s.Limit || (n > 0 && bytes.Compare(s.Entries[n-1].Key, values[1]) >= 0) {
			return fmt.Errorf("postgres: the server answers a scan out of order")
		}
		s.Entries = append(s.Entries, kv.Entry{Key: copied(values[1]), Value: copied(values[2])})
		return nil
	}
}

var errUnasked = fmt.Errorf("postgres: the server sent a row that nobody asked for")

// copied is a copy of bytes that are the connection's. It is not nil.
func copied(b []byte) []byte { return append([]byte{}, b...) }
