package kvtest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"abide/kv"
)

var limitTests = []test{
	{name: "what is out of bounds is refused", run: testOutOfBounds},
	{name: "what is at the bounds works", run: testAtTheBounds},
	{name: "reads out of bounds are refused", run: testReadsOutOfBounds},
	{name: "too many operations", run: testTooManyOps},
	{name: "too many bytes", run: testTooManyBytes},
	{name: "the store's own keys are closed but for compaction's", run: testReservedKeys},
	{name: "too much time", run: testTooLong, needs: needsClock},
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
		"put of an entry's":    func(tx kv.Tx) error { return tx.Put(kv.JournalKey(nil, kv.EntryPosition{}), nil) },
		"delete of a floor":    func(tx kv.Tx) error { return tx.Delete(kv.FloorKey([]byte("p"))) },
		"a signal too long":    func(tx kv.Tx) error { tx.Signal(kv.Signal{Body: string(zeros(kv.MaxSignalBytes + 1))}); return nil },
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
		entries, scanErr := s.Scan(kv.Only(key), kv.MaxScanRows)
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
	for name, op := range map[string]func(kv.Tx) error{
		"gets":    func(tx kv.Tx) error { _, err := tx.Get([]byte("a")); return err },
		"deletes": func(tx kv.Tx) error { return tx.Delete([]byte("x")) },
		"appends": func(tx kv.Tx) error { return tx.Append(nil, nil) },
		"many":    func(tx kv.Tx) error { _, err := tx.GetMany([][]byte{[]byte("a"), []byte("b")}); return err },
		"signals": func(tx kv.Tx) error { tx.Signal(kv.Signal{Topic: "t"}); return nil },
	} {
		done := 0
		f.fails(kv.ErrTooLarge, func(tx kv.Tx) error {
			for done = 0; done <= kv.MaxTxOps; done++ {
				if err := op(tx); err != nil {
					return err
				}
			}
			return nil
		})
		if done < kv.MaxTxOps/2 || (done > kv.MaxTxOps && name != "signals") { // a signal has no error to return
			f.Errorf("%s: refused after %d calls", name, done)
		}
	}
	err := f.Store.View(context.Background(), func(s kv.Snapshot) error {
		for {
			if _, err := s.Get([]byte("a")); err != nil {
				return err
			}
		}
	})
	if !errors.Is(err, kv.ErrTooLarge) {
		f.Errorf("a snapshot that reads for ever: %v", err)
	}
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

// testReservedKeys tries what is close to the keys that compaction may use.
func testReservedKeys(f *fixture) {
	f.update(func(tx kv.Tx) error { return appendAll(tx, "p", "1") })
	entry, floor := kv.JournalKey([]byte("p"), kv.EntryPosition{}), kv.FloorKey([]byte("p"))
	for name, key := range map[string][]byte{
		"an entry's":                  entry,
		"an entry's and a byte":       append(entry[:len(entry):len(entry)], 0),
		"an entry's less a byte":      entry[:len(entry)-1],
		"a floor's and a byte":        append(floor[:len(floor):len(floor)], 0),
		"a floor's less a byte":       floor[:len(floor)-1],
		"the beginning of the floors": kv.AllFloors().Start,
		"one byte":                    {kv.ReservedPrefix},
		"the last":                    {kv.ReservedPrefix, 0xFF},
	} {
		err := f.Store.View(context.Background(), func(s kv.Snapshot) error { _, err := s.Get(key); return err })
		if !errors.Is(err, kv.ErrLimit) {
			f.Errorf("get of %s: %v", name, err)
		}
		f.fails(kv.ErrLimit, func(tx kv.Tx) error { return tx.Put(key, nil) })
	}
	for name, r := range map[string]kv.Range{
		"across the keys' end":    {Start: []byte("k"), End: entry},
		"across the entries' end": {Start: entry, End: floor},
		"across the floors' end":  {Start: floor, End: []byte{kv.ReservedPrefix, 0xFF}},
		"between them":            {Start: []byte{kv.ReservedPrefix, 'k'}, End: []byte{kv.ReservedPrefix, 'l'}},
		"all of it":               {Start: []byte{kv.ReservedPrefix}, End: []byte{kv.ReservedPrefix, 0xFF}},
	} {
		err := f.Store.View(context.Background(), func(s kv.Snapshot) error { _, err := s.Scan(r, 1); return err })
		if !errors.Is(err, kv.ErrLimit) {
			f.Errorf("scan %s: %v", name, err)
		}
	}
}

func testTooLong(f *fixture) {
	beyond := kv.MaxTxSeconds*time.Second + 1
	f.update(func(tx kv.Tx) error {
		f.clock.advance(kv.MaxTxSeconds * time.Second / 2) // twice, if the store runs the closure twice
		return tx.Put([]byte("a"), []byte("1"))
	})
	f.fails(kv.ErrTooLarge, func(tx kv.Tx) error {
		err := tx.Put([]byte("b"), nil)
		f.clock.advance(beyond)
		_ = tx.Put([]byte("c"), nil) // overlooked, and final all the same
		return err
	})
	err := f.Store.View(context.Background(), func(s kv.Snapshot) error {
		f.clock.advance(beyond)
		_, err := s.Get([]byte("a"))
		return err
	})
	if !errors.Is(err, kv.ErrTooLarge) {
		f.Errorf("a snapshot: %v", err)
	}
	f.wantContent("a=1")
}
