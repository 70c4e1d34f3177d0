package kvtest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"abide/kv"
)

var limitTests = []test{
	{"what is out of bounds is refused", testOutOfBounds},
	{"what is at the bounds works", testAtTheBounds},
	{"reads out of bounds are refused", testReadsOutOfBounds},
	{"too many operations", testTooManyOps},
	{"too many bytes", testTooManyBytes},
	{"an error of the transaction is final", testErrorIsFinal},
	{"a transaction that is over says so", testTxDone},
}

func zeros(n int) []byte { return bytes.Repeat([]byte{'k'}, n) }

func testOutOfBounds(f *fixture) {
	for name, fn := range map[string]func(kv.Tx) error{
		"put of no key":        func(tx kv.Tx) error { return tx.Put(nil, nil) },
		"put of a long key":    func(tx kv.Tx) error { return tx.Put(zeros(kv.MaxKeyBytes+1), nil) },
		"put of a reserved":    func(tx kv.Tx) error { return tx.Put([]byte{kv.ReservedPrefix}, nil) },
		"put of a large value": func(tx kv.Tx) error { return tx.Put([]byte("k"), zeros(kv.MaxValueBytes+1)) },
		"delete of no key":     func(tx kv.Tx) error { return tx.Delete(nil) },
		"delete of a long key": func(tx kv.Tx) error { return tx.Delete(zeros(kv.MaxKeyBytes + 1)) },
		"delete of a reserved": func(tx kv.Tx) error { return tx.Delete([]byte{kv.ReservedPrefix, 'j'}) },
		"a large record":       func(tx kv.Tx) error { return tx.Append([]byte("p"), zeros(kv.MaxValueBytes+1)) },
		"a long partition":     func(tx kv.Tx) error { return tx.Append(zeros(kv.MaxPartitionBytes+1), nil) },
	} {
		f.Run(name, func(t *testing.T) {
			_, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
				return errors.Join(tx.Put([]byte("with it"), nil), fn(tx))
			})
			if !errors.Is(err, kv.ErrLimit) {
				t.Errorf("error %v, want ErrLimit", err)
			}
		})
	}
	f.wantContent()
}

func testAtTheBounds(f *fixture) {
	key := bytes.Repeat([]byte{0xFE}, kv.MaxKeyBytes)
	partition := zeros(kv.MaxPartitionBytes)
	f.update(func(tx kv.Tx) error {
		return errors.Join(
			tx.Put(key, zeros(kv.MaxValueBytes)),
			tx.Put([]byte{0}, nil),
			tx.Append(partition, zeros(kv.MaxValueBytes)),
			tx.Append(nil, nil),
		)
	})
	f.view(func(s kv.Snapshot) error {
		value, err := s.Get(key)
		if len(value) != kv.MaxValueBytes {
			f.Errorf("the largest value came back with %d bytes", len(value))
		}
		entries, scanErr := s.Scan(kv.Range{Start: key, End: append(key[:len(key):len(key)], 0)}, kv.MaxScanRows)
		if len(entries) != 1 {
			f.Errorf("the range of the longest key holds %d entries", len(entries))
		}
		long, journalErr := s.Journal(partition, kv.EntryPosition{}, kv.MaxScanRows)
		none, noneErr := s.Journal(nil, kv.EntryPosition{}, 1)
		if len(long) != 1 || len(none) != 1 {
			f.Errorf("%d and %d journal entries, want 1 and 1", len(long), len(none))
		}
		return errors.Join(err, scanErr, journalErr, noneErr)
	})
}

func testReadsOutOfBounds(f *fixture) {
	f.put("a", "1")
	for name, fn := range map[string]func(kv.Reader) error{
		"get of no key":     func(r kv.Reader) error { _, err := r.Get(nil); return err },
		"get of a long key": func(r kv.Reader) error { _, err := r.Get(zeros(kv.MaxKeyBytes + 1)); return err },
		"get of a reserved": func(r kv.Reader) error { _, err := r.Get([]byte{kv.ReservedPrefix}); return err },
		"get of many":       func(r kv.Reader) error { _, err := r.GetMany([][]byte{[]byte("a"), nil}); return err },
		"no limit":          func(r kv.Reader) error { _, err := r.Scan(everything, 0); return err },
		"negative limit":    func(r kv.Reader) error { _, err := r.Scan(everything, -1); return err },
		"large limit":       func(r kv.Reader) error { _, err := r.Scan(everything, kv.MaxScanRows+1); return err },
		"no end":            func(r kv.Reader) error { _, err := r.Scan(kv.Range{Start: []byte("a")}, 1); return err },
		"long end": func(r kv.Reader) error {
			_, err := r.Scan(kv.Range{End: zeros(kv.MaxKeyBytes + 2)}, 1)
			return err
		},
		"reserved range": func(r kv.Reader) error {
			_, err := r.Scan(kv.Range{End: []byte{kv.ReservedPrefix, 'z'}}, 1)
			return err
		},
	} {
		f.Run(name, func(t *testing.T) {
			if err := f.Store.View(context.Background(), func(s kv.Snapshot) error { return fn(s) }); !errors.Is(err, kv.ErrLimit) {
				t.Errorf("in a snapshot: %v, want ErrLimit", err)
			}
			_, err := f.Store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return fn(tx) })
			if !errors.Is(err, kv.ErrLimit) {
				t.Errorf("in a transaction: %v, want ErrLimit", err)
			}
		})
	}
	for name, fn := range map[string]func(kv.Snapshot) error{
		"journal without limit": func(s kv.Snapshot) error { _, err := s.Journal(nil, kv.EntryPosition{}, 0); return err },
		"journal with a large limit": func(s kv.Snapshot) error {
			_, err := s.Journal(nil, kv.EntryPosition{}, kv.MaxScanRows+1)
			return err
		},
		"journal of a long partition": func(s kv.Snapshot) error {
			_, err := s.Journal(zeros(kv.MaxPartitionBytes+1), kv.EntryPosition{}, 1)
			return err
		},
	} {
		f.Run(name, func(t *testing.T) {
			if err := f.Store.View(context.Background(), fn); !errors.Is(err, kv.ErrLimit) {
				t.Errorf("%v, want ErrLimit", err)
			}
		})
	}
}

func testTooManyOps(f *fixture) {
	f.put("a", "1", "b", "2")
	f.fails(kv.ErrTooLarge, func(tx kv.Tx) error {
		for range kv.MaxTxOps {
			if err := tx.Put([]byte("k"), nil); err != nil {
				return err
			}
		}
		return tx.Put([]byte("k"), nil)
	})
	f.fails(kv.ErrTooLarge, func(tx kv.Tx) error { // a row that a scan returns counts
		for {
			if _, err := tx.Scan(everything, 10); err != nil {
				return err
			}
		}
	})
	f.wantContent("a=1", "b=2")
	f.update(func(tx kv.Tx) error {
		for range kv.MaxTxOps {
			if err := tx.Put([]byte("k"), nil); err != nil {
				return err
			}
		}
		return nil
	})
	f.wantContent("a=1", "b=2", "k=")
}

func testTooManyBytes(f *fixture) {
	big := zeros(kv.MaxValueBytes - 1)
	fill := func(tx kv.Tx) error {
		for i := range kv.MaxTxBytes / kv.MaxValueBytes {
			if err := tx.Put([]byte{byte(i)}, big); err != nil {
				return err
			}
		}
		return nil
	}
	f.update(fill)
	f.fails(kv.ErrTooLarge, func(tx kv.Tx) error { return errors.Join(fill(tx), tx.Put([]byte("k"), nil)) })
	f.fails(kv.ErrTooLarge, func(tx kv.Tx) error { return errors.Join(fill(tx), tx.Delete([]byte("k"))) })
	f.fails(kv.ErrTooLarge, func(tx kv.Tx) error { return errors.Join(fill(tx), tx.Append([]byte("p"), nil)) })
}

// A closure that overlooks an error must not commit the half that worked.
func testErrorIsFinal(f *fixture) {
	f.fails(kv.ErrLimit, func(tx kv.Tx) error {
		_ = tx.Put([]byte("a"), nil)
		_ = tx.Put(nil, nil)
		return tx.Put([]byte("b"), nil)
	})
	f.fails(kv.ErrLimit, func(tx kv.Tx) error {
		_ = tx.Put([]byte("a"), nil)
		_, _ = tx.Get(nil)
		return nil
	})
	f.wantContent()
}

func testTxDone(f *fixture) {
	var tx kv.Tx
	f.update(func(t kv.Tx) error { tx = t; return t.Put([]byte("a"), []byte("1")) })
	var snapshot kv.Snapshot
	f.view(func(s kv.Snapshot) error { snapshot = s; return nil })
	for name, call := range map[string]func() error{
		"Get":              func() error { _, err := tx.Get([]byte("a")); return err },
		"GetMany":          func() error { _, err := tx.GetMany([][]byte{[]byte("a")}); return err },
		"Scan":             func() error { _, err := tx.Scan(everything, 1); return err },
		"Put":              func() error { return tx.Put([]byte("a"), nil) },
		"Delete":           func() error { return tx.Delete([]byte("a")) },
		"Append":           func() error { return tx.Append(nil, nil) },
		"snapshot Get":     func() error { _, err := snapshot.Get([]byte("a")); return err },
		"snapshot GetMany": func() error { _, err := snapshot.GetMany([][]byte{[]byte("a")}); return err },
		"snapshot Scan":    func() error { _, err := snapshot.Scan(everything, 1); return err },
		"snapshot Journal": func() error { _, err := snapshot.Journal(nil, kv.EntryPosition{}, 1); return err },
	} {
		if err := call(); !errors.Is(err, kv.ErrTxDone) {
			f.Errorf("%s: %v, want ErrTxDone", name, err)
		}
	}
	tx.Signal(kv.Signal{Topic: "late"})
	f.wantContent("a=1")
}
