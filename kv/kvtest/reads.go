package kvtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"abide/kv"
)

var readTests = []test{
	{name: "an absent key is nil and an empty value is not", run: testAbsentAndEmpty},
	{name: "GetMany keeps the order of its keys", run: testGetMany},
	{name: "Scan is ordered, half open and limited", run: testScan},
	{name: "Scan of many entries", run: testScanMany},
	{name: "a transaction reads its own writes", run: testReadYourWrites},
	{name: "a scan merges the transaction's writes with what is stored", run: testMergingScan},
	{name: "returned slices stay as they are", run: testReturnedSlicesStay},
	{name: "what hints name changes nothing", run: testHints},
}

func testAbsentAndEmpty(f *fixture) {
	f.put("empty", "", "zero", "\x00")
	f.read(func(t *testing.T, r kv.Reader) {
		for key, want := range map[string]string{"absent": "<none>", "empty": "", "zero": "\x00", "empt": "<none>", "empty\x00": "<none>"} {
			value, err := r.Get([]byte(key))
			if err != nil || show(value) != want {
				t.Errorf("%q is %q, %v, want %q", key, show(value), err, want)
			}
		}
	})
}

func testGetMany(f *fixture) {
	f.put("a", "1", "b", "", "c", "3")
	f.read(func(t *testing.T, r kv.Reader) {
		values, err := r.GetMany([][]byte{[]byte("c"), []byte("x"), []byte("b"), []byte("c"), []byte("a")})
		if err != nil {
			t.Error(err)
			return
		}
		var got []string
		for _, v := range values {
			got = append(got, show(v))
		}
		if want := []string{"3", "<none>", "", "3", "1"}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("values %q, want %q", got, want)
		}
		if values, err := r.GetMany(nil); err != nil || len(values) != 0 {
			t.Errorf("no keys give %q, %v", values, err)
		}
	})
}

func testScan(f *fixture) {
	f.put("a", "1", "b", "2", "b\x00", "3", "ba", "4", "c", "5", "\xfe\xff", "6")
	f.read(func(t *testing.T, r kv.Reader) {
		for _, tc := range []struct {
			r     kv.Range
			limit int
			want  []string
		}{
			{everything, 100, []string{"a=1", "b=2", "b\x00=3", "ba=4", "c=5", "\xfe\xff=6"}},
			{everything, 2, []string{"a=1", "b=2"}},
			{span("b", "c"), 100, []string{"b=2", "b\x00=3", "ba=4"}},
			{span("b", "b\x00"), 100, []string{"b=2"}},
			{span("b\x00", "ba"), 100, []string{"b\x00=3"}},
			{span("aa", "b"), 100, nil},
			{span("c", "b"), 100, nil},
			{span("b", "b"), 100, nil},
			{span("", "b"), 1, []string{"a=1"}},
			{span("\xfe", "\xff"), 10, []string{"\xfe\xff=6"}},
		} {
			entries, err := r.Scan(tc.r, tc.limit)
			if got := showEntries(entries); err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("scan of %q to %q, limit %d: %q, %v, want %q", tc.r.Start, tc.r.End, tc.limit, got, err, tc.want)
			}
		}
	})
}

func testScanMany(f *fixture) {
	const n = 1000
	f.update(func(tx kv.Tx) error {
		for i := range n {
			if err := tx.Put(fmt.Appendf(nil, "k%04d", (i*7)%n), fmt.Appendf(nil, "%d", (i*7)%n)); err != nil {
				return err
			}
		}
		return nil
	})
	f.read(func(t *testing.T, r kv.Reader) {
		start := []byte("k")
		for seen := 0; ; {
			entries, err := r.Scan(kv.Range{Start: start, End: []byte("l")}, 64)
			if err != nil {
				t.Error(err)
				return
			}
			for _, e := range entries {
				if want := fmt.Sprintf("k%04d", seen); string(e.Key) != want {
					t.Errorf("entry %d is %q, want %q", seen, e.Key, want)
					return
				}
				seen++
			}
			if len(entries) < 64 {
				if seen != n {
					t.Errorf("%d entries, want %d", seen, n)
				}
				return
			}
			start = append(entries[63].Key[:len(entries[63].Key):len(entries[63].Key)], 0)
		}
	})
}

func testReadYourWrites(f *fixture) {
	f.put("a", "1", "b", "2")
	var got []string
	f.update(func(tx kv.Tx) error {
		got = nil
		look := func(key string) error {
			value, err := tx.Get([]byte(key))
			got = append(got, key+"="+show(value))
			return err
		}
		for _, step := range []func() error{
			func() error { return look("a") },
			func() error { return tx.Put([]byte("a"), []byte("10")) },
			func() error { return look("a") },
			func() error { return tx.Delete([]byte("a")) },
			func() error { return look("a") },
			func() error { return tx.Put([]byte("a"), nil) },
			func() error { return look("a") },
			func() error { return look("new") },
			func() error { return tx.Put([]byte("new"), []byte("n")) },
			func() error { return look("new") },
			func() error { return tx.Delete([]byte("new")) },
			func() error { return look("new") },
			func() error { return tx.Delete([]byte("b")) },
			func() error { return look("b") },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	wantStrings(f, "the values seen", got, []string{"a=1", "a=10", "a=<none>", "a=", "new=<none>", "new=n", "new=<none>", "b=<none>"})
	f.wantContent("a=")
}

func testMergingScan(f *fixture) {
	f.put("a", "1", "c", "3", "e", "5", "g", "7")
	var got [][]string
	f.update(func(tx kv.Tx) error {
		got = nil
		for _, step := range []error{
			tx.Put([]byte("b"), []byte("2")), // between
			tx.Put([]byte("c"), []byte("33")),
			tx.Delete([]byte("e")),
			tx.Delete([]byte("absent")),
			tx.Put([]byte("h"), []byte("8")), // after the last
			tx.Put([]byte("A"), []byte("0")), // before the first
			tx.Put([]byte("x"), []byte("9")),
			tx.Delete([]byte("x")),
		} {
			if step != nil {
				return step
			}
		}
		for _, q := range []struct {
			r     kv.Range
			limit int
		}{{everything, 100}, {everything, 3}, {span("b", "e"), 100}, {span("d", "g"), 100}, {span("d", "h"), 1}, {span("h", "z"), 100}, {span("b", "c"), 1}} {
			entries, err := tx.Scan(q.r, q.limit)
			if err != nil {
				return err
			}
			got = append(got, showEntries(entries))
		}
		return nil
	})
	want := [][]string{
		{"A=0", "a=1", "b=2", "c=33", "g=7", "h=8"},
		{"A=0", "a=1", "b=2"},
		{"b=2", "c=33"},
		nil,
		{"g=7"},
		{"h=8"},
		{"b=2"},
	}
	for i := range want {
		wantStrings(f, fmt.Sprintf("the entries of scan %d", i), got[i], want[i])
	}
	f.wantContent("A=0", "a=1", "b=2", "c=33", "g=7", "h=8")
}

// What a store returned may be kept: later transactions must not show through.
func testReturnedSlicesStay(f *fixture) {
	f.put("a", "before", "b", "before")
	var kept [][]byte
	keep := func(r kv.Reader) error {
		value, err := r.Get([]byte("a"))
		if err != nil {
			return err
		}
		entries, err := r.Scan(span("a", "c"), 2)
		if err != nil {
			return err
		}
		kept = append(kept, value, entries[0].Value, entries[1].Value)
		return nil
	}
	f.view(func(s kv.Snapshot) error { return keep(s) })
	f.update(func(tx kv.Tx) error { return keep(tx) })
	for range 3 {
		f.put("a", "after!", "b", "after!")
		f.get("a")
	}
	for i, value := range kept {
		if string(value) != "before" {
			f.Errorf("slice %d became %q", i, value)
		}
	}
}

// testHints names what is read, what is not, and what nobody could read, and reads it among the closure's own writes
// and its neighbours'.
func testHints(f *fixture) {
	const stored = 300
	var all []string
	for i := range stored {
		all = append(all, fmt.Sprintf("k%03d", i), "old")
	}
	f.put(all...)
	for name, prefetch := range map[string][]kv.Range{
		"nothing":          nil,
		"everything":       {everything},
		"all that is read": {span("k", "l"), span("k000", "k000\x00"), span("n", "n\x00"), span("k", "l")},
		"parts of it":      {span("k010", "k020"), span("k015", "k030"), span("k299", "z"), span("k005", "k005\x00")},
		"what is no range": {{}, span("b", "a"), span("a", "a"), {Start: []byte("a")}, {End: []byte("k100")}},
		"the store's own":  {kv.AllEntries(), kv.AllFloors(), span("\xff", "\xff\xff")},
	} {
		f.put("k000", "old", "k007", "old", "n", "0")
		var fns []func(kv.Tx) error
		for range 5 {
			fns = append(fns, func(tx kv.Tx) error {
				value, err := tx.Get([]byte("n"))
				if err != nil {
					return err
				}
				if err := errors.Join(tx.Delete([]byte("k000")), tx.Put([]byte("k001a"), value), tx.Delete([]byte("k007"))); err != nil {
					return err
				}
				first, err := tx.Scan(span("k", "l"), 4)
				if err != nil {
					return err
				}
				whole, err := tx.Scan(span("k", "l"), kv.MaxScanRows)
				if err != nil {
					return err
				}
				absent, err := tx.Get([]byte("k007"))
				if err == nil && (len(whole) != stored-1 || absent != nil || fmt.Sprint(showEntries(first)) != fmt.Sprint([]string{"k001=old", "k001a=" + string(value), "k002=old", "k003=old"})) {
					err = fmt.Errorf("%d entries, at first %q; k007 is %s", len(whole), showEntries(first), show(absent))
				}
				return errors.Join(err, tx.Put([]byte("n"), []byte{value[0] + 1}))
			})
		}
		_, errs := f.togetherHinted(kv.Hints{Prefetch: prefetch}, nothing, fns...)
		for _, err := range errs {
			if err != nil {
				f.Errorf("with %s hinted: %v", name, err)
			}
		}
		if got := f.get("n"); got != "5" {
			f.Errorf("with %s hinted: five closures counted to %s", name, got)
		}
		if _, err := f.Store.Update(context.Background(), kv.Hints{Prefetch: prefetch}, func(kv.Tx) error { return errOwn }); !errors.Is(err, errOwn) {
			f.Errorf("with %s hinted: a closure that reads nothing gets %v", name, err)
		}
	}
}
