package kvtest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"abide/kv"
)

var writeTests = []test{
	{name: "put, overwrite and delete", run: testPutOverwriteDelete},
	{name: "a failed closure leaves nothing behind", run: testFailedClosure},
	{name: "a panic fails its closure only", run: testPanic},
	{name: "the caller may reuse its slices at once", run: testMangledInput},
	{name: "values of every size", run: testValueSizes},
}

func testPutOverwriteDelete(f *fixture) {
	f.put("a", "1", "b", "2", "c", "3")
	f.put("b", "22")
	f.update(func(tx kv.Tx) error { return tx.Delete([]byte("a")) })
	f.update(func(tx kv.Tx) error { return tx.Delete([]byte("never there")) })
	f.wantContent("b=22", "c=3")
	f.update(func(tx kv.Tx) error { // the last change of a key in a transaction counts
		return errors.Join(tx.Put([]byte("d"), []byte("x")), tx.Delete([]byte("d")),
			tx.Delete([]byte("c")), tx.Put([]byte("c"), []byte("new")),
			tx.Put([]byte("b"), []byte("p")), tx.Delete([]byte("b")))
	})
	f.wantContent("c=new")
}

var errOwn = errors.New("the closure's own error")

func testFailedClosure(f *fixture) {
	f.put("a", "1", "b", "2")
	err := f.fails(errOwn, func(tx kv.Tx) error {
		return errors.Join(tx.Put([]byte("a"), []byte("x")), tx.Delete([]byte("b")), tx.Put([]byte("c"), nil),
			tx.Append([]byte("p"), []byte("r")), errOwn)
	})
	if !errors.Is(err, errOwn) {
		f.Errorf("the closure's error came back as %v", err)
	}
	f.wantContent("a=1", "b=2")
	f.view(func(s kv.Snapshot) error {
		entries, err := s.Journal([]byte("p"), kv.EntryPosition{}, 10)
		wantStrings(f, "the journal's entries", showJournal(entries), nil)
		return err
	})
	viewErr := f.Store.View(context.Background(), func(kv.Snapshot) error { return errOwn })
	if viewErr != errOwn {
		f.Errorf("the error of a view's closure came back as %v", viewErr)
	}
}

func testPanic(f *fixture) {
	_, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		_ = tx.Put([]byte("a"), []byte("1"))
		panic("for the test")
	})
	if err == nil || !strings.Contains(err.Error(), "for the test") {
		f.Errorf("a panic became %v", err)
	}
	f.wantContent()
	f.put("b", "2")
	f.wantContent("b=2")
}

// Everything given to a store is overwritten as soon as the call has returned.
func testMangledInput(f *fixture) {
	mangle := func(slices ...[]byte) {
		for _, s := range slices {
			for i := range s {
				s[i] = 0xEE
			}
		}
	}
	f.put("gone", "x")
	f.update(func(tx kv.Tx) error {
		key, value := []byte("key"), []byte("value")
		err := tx.Put(key, value)
		mangle(key, value)
		gone := []byte("gone")
		err = errors.Join(err, tx.Delete(gone))
		mangle(gone)
		partition, record := []byte("part"), []byte("record")
		err = errors.Join(err, tx.Append(partition, record))
		mangle(partition, record)
		looked := []byte("looked up")
		_, getErr := tx.Get(looked)
		mangle(looked)
		start, end := []byte("a"), []byte("z")
		_, scanErr := tx.Scan(kv.Range{Start: start, End: end}, 5)
		mangle(start, end)
		return errors.Join(err, getErr, scanErr)
	})
	f.wantContent("key=value")
	f.view(func(s kv.Snapshot) error {
		partition := []byte("part")
		entries, err := s.Journal(partition, kv.EntryPosition{}, 5)
		mangle(partition)
		wantStrings(f, "the journal's entries", showJournal(entries), []string{"record"})
		return err
	})
}

func testValueSizes(f *fixture) {
	sizes := []int{0, 1, 255, 256, 900, 1000, 1024, 1025, 4096, 20_000, kv.MaxValueBytes}
	value := func(n int) string { return strings.Repeat("0123456789abcdef", n/16+1)[:n] }
	for round := range 2 { // the second overwrites each with one of another size
		f.update(func(tx kv.Tx) error {
			for i := range sizes {
				n := sizes[(i+5*round)%len(sizes)]
				if err := tx.Put(fmt.Appendf(nil, "k%02d", i), []byte(value(n))); err != nil {
					return err
				}
			}
			return nil
		})
		f.view(func(s kv.Snapshot) error {
			entries, err := s.Scan(everything, 100)
			if len(entries) != len(sizes) {
				f.Fatalf("%d entries, want %d", len(entries), len(sizes))
			}
			for i, e := range entries {
				got, getErr := s.Get(e.Key)
				err = errors.Join(err, getErr)
				want := value(sizes[(i+5*round)%len(sizes)])
				if string(e.Value) != want || string(got) != want {
					f.Errorf("round %d: a value of %d bytes came back as %d (scan) and %d (get)", round, len(want), len(e.Value), len(got))
				}
			}
			return err
		})
	}
	f.update(func(tx kv.Tx) error { return tx.Delete([]byte("k10")) })
	if got := f.get("k10"); got != "<none>" {
		f.Errorf("a deleted large value is still there: %d bytes", len(got))
	}
}
