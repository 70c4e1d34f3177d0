package kvtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"abide/kv"
)

var scanTests = []test{
	{name: "own puts and deletes at every page edge", run: testOwnWritesAtPageEdges},
	{name: "a put and then a delete of a key that did and did not exist", run: testPutThenDelete},
	{name: "writing behind and ahead of one's own scan", run: testWriteWhileScanning},
	{name: "an own write of a failed closure is not seen", run: testFailedWritesUnseen},
}

// testOwnWritesAtPageEdges tries every start, end and limit over a mix of stored entries and every kind of own
// change.
func testOwnWritesAtPageEdges(f *fixture) {
	f.put("b", "1", "d", "1", "f", "1", "h", "1", "j", "1")
	merged := map[string]string{"a": "2", "b": "1", "c": "2", "f": "2", "h": "3", "j": "1", "k": "2"}
	keys := slices.Sorted(maps.Keys(merged))
	want := func(start, end string, limit int) (out []string) {
		for _, key := range keys {
			if key >= start && key < end && len(out) < limit {
				out = append(out, key+"="+merged[key])
			}
		}
		return out
	}
	edges := []string{"", "a", "b", "b\x00", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	f.update(func(tx kv.Tx) error {
		err := errors.Join(
			tx.Put([]byte("a"), []byte("2")), // before the first
			tx.Put([]byte("c"), []byte("2")), // between two
			tx.Delete([]byte("d")),           // one that is there
			tx.Put([]byte("f"), []byte("2")), // over one
			tx.Delete([]byte("h")), tx.Put([]byte("h"), []byte("3")),
			tx.Put([]byte("i"), []byte("2")), tx.Delete([]byte("i")),
			tx.Delete([]byte("e")),           // one that is not there
			tx.Put([]byte("k"), []byte("2")), // after the last
		)
		for _, start := range edges {
			for _, end := range edges[1:] {
				for limit := 1; limit <= 8; limit++ {
					entries, scanErr := tx.Scan(span(start, end), limit)
					if got := showEntries(entries); scanErr != nil || !slices.Equal(got, want(start, end, limit)) {
						return errors.Join(err, scanErr, fmt.Errorf("from %q to %q, limit %d: %q, want %q", start, end, limit, got, want(start, end, limit)))
					}
				}
			}
		}
		return err
	})
	f.wantContent(want("", "z", 100)...)
}

func testPutThenDelete(f *fixture) {
	f.put("did", "1", "last", "1")
	sees := func(tx kv.Tx, want ...string) error {
		entries, err := tx.Scan(everything, 10)
		if got := showEntries(entries); !slices.Equal(got, want) {
			err = errors.Join(err, fmt.Errorf("a scan gives %q, want %q", got, want))
		}
		return err
	}
	f.update(func(tx kv.Tx) error {
		return errors.Join(
			tx.Put([]byte("did"), []byte("2")), tx.Put([]byte("did not"), []byte("2")),
			sees(tx, "did=2", "did not=2", "last=1"),
			tx.Delete([]byte("did")), tx.Delete([]byte("did not")),
			sees(tx, "last=1"),
		)
	})
	f.wantContent("last=1")
	f.update(func(tx kv.Tx) error { // the other order, after a look at what is there
		_, err := tx.Get([]byte("did not"))
		return errors.Join(err,
			tx.Delete([]byte("last")), tx.Delete([]byte("did not")),
			sees(tx),
			tx.Put([]byte("last"), nil), tx.Put([]byte("did not"), []byte("3")),
			sees(tx, "did not=3", "last="),
			tx.Delete([]byte("did not")),
		)
	})
	f.wantContent("last=")
	f.update(func(tx kv.Tx) error { // deleting what a neighbour or the past has deleted already
		return errors.Join(tx.Delete([]byte("did")), tx.Delete([]byte("did")), sees(tx, "last="))
	})
	f.wantContent("last=")
}

// testWriteWhileScanning pages through a range and changes it on the way: what is written ahead is met, what is
// written behind is not.
func testWriteWhileScanning(f *fixture) {
	f.put("b", "1", "d", "1", "f", "1")
	var seen []string
	f.update(func(tx kv.Tx) error {
		seen = nil
		start := []byte("a")
		for {
			entries, err := tx.Scan(kv.Range{Start: start, End: []byte("z")}, 1)
			if err != nil {
				return err
			}
			if len(entries) == 0 {
				return nil
			}
			key := string(entries[0].Key)
			seen = append(seen, key)
			start = []byte(key + "\x00")
			switch key {
			case "b":
				err = errors.Join(tx.Put([]byte("a"), nil), tx.Put([]byte("c"), nil), tx.Delete([]byte("d")))
			case "c":
				err = errors.Join(tx.Put([]byte("c\x00"), nil), tx.Delete([]byte("c")))
			}
			if err != nil {
				return err
			}
		}
	})
	wantStrings(f, "the keys met", seen, []string{"b", "c", "c\x00", "f"})
	f.wantContent("a=", "b=1", "c\x00=", "f=1")
}

func testFailedWritesUnseen(f *fixture) {
	f.put("b", "1")
	for range 3 {
		f.fails(errOwn, func(tx kv.Tx) error {
			return errors.Join(tx.Put([]byte("a"), nil), tx.Put([]byte("b"), []byte("2")), tx.Delete([]byte("b")), errOwn)
		})
		f.read(func(t *testing.T, r kv.Reader) {
			entries, err := r.Scan(everything, 10)
			if got := showEntries(entries); err != nil || !slices.Equal(got, []string{"b=1"}) {
				t.Errorf("a scan gives %q, %v", got, err)
			}
		})
	}
}
