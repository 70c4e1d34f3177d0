package sqlitekv_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/sqlitekv"
	"abide/kv/tuple"
)

func openBench(b *testing.B) *sqlitekv.Store {
	b.Helper()
	s, err := sqlitekv.Open(sqlitekv.Options{Path: filepath.Join(b.TempDir(), "bench.db"), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// transaction is 1 get and 2 puts of 500 bytes under adjacent keys at a random place of the key space.
func transaction(b *testing.B, s kv.Store, r *rand.Rand, value []byte) {
	prefix := tuple.AppendString(tuple.AppendInt(nil, 1), "default")
	id := tuple.AppendInt(prefix, r.Int64())
	first := tuple.AppendInt(id[:len(id):len(id)], 1)
	second := tuple.AppendInt(id[:len(id):len(id)], 2)
	_, err := s.Update(context.Background(), kv.Hints{Lane: "default"}, func(tx kv.Tx) error {
		if _, err := tx.Get(first); err != nil {
			return err
		}
		if err := tx.Put(first, value); err != nil {
			return err
		}
		return tx.Put(second, value)
	})
	if err != nil {
		b.Error(err)
	}
}

func newValue(r *rand.Rand) []byte {
	value := make([]byte, 500)
	for i := range value {
		value[i] = byte(r.Uint32())
	}
	return value
}

func BenchmarkUpdateOneCaller(b *testing.B) {
	s := openBench(b)
	r := rand.New(rand.NewPCG(1, 1))
	value := newValue(r)
	for b.Loop() {
		transaction(b, s, r, value)
	}
}

func BenchmarkUpdate64Callers(b *testing.B) {
	s := openBench(b)
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	before := s.Stats().Commits
	cpu := cpuTime()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range 64 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			value := newValue(r)
			for left.Add(-1) >= 0 {
				transaction(b, s, r, value)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/float64(s.Stats().Commits-before), "tx/commit")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-us/tx")
}

func BenchmarkView(b *testing.B) {
	s := openBench(b)
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		transaction(b, s, r, newValue(r))
	}
	key := []byte("absent")
	for b.Loop() {
		err := s.View(context.Background(), func(snap kv.Snapshot) error {
			_, err := snap.Get(key)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// What single operations cost inside a transaction that has already written, in a store of 20,000 entries.
func BenchmarkOperations(b *testing.B) {
	s := openBench(b)
	r := rand.New(rand.NewPCG(1, 1))
	value := newValue(r)
	key := func(n int) []byte { return tuple.AppendInt(tuple.AppendString([]byte{2}, "default"), int64(n)*2) }
	for i := range 10 {
		_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
			for j := range 2000 {
				if err := tx.Put(key(i*2000+j), value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, op := range []struct {
		name string
		fn   func(tx kv.Tx, k []byte) error
	}{
		{"GetPresent", func(tx kv.Tx, k []byte) error { _, err := tx.Get(k); return err }},
		{"GetAbsent", func(tx kv.Tx, k []byte) error { _, err := tx.Get(append(k, 1)); return err }},
		{"ScanNothing", func(tx kv.Tx, k []byte) error {
			_, err := tx.Scan(kv.Range{Start: append(slices.Clip(k), 1), End: append(slices.Clip(k), 2)}, 10)
			return err
		}},
		{"ScanOne", func(tx kv.Tx, k []byte) error {
			_, err := tx.Scan(kv.Range{Start: k, End: append(slices.Clip(k), 2)}, 10)
			return err
		}},
		{"Scan100", func(tx kv.Tx, k []byte) error {
			_, err := tx.Scan(kv.Range{Start: k, End: []byte{3}}, 100)
			return err
		}},
	} {
		b.Run(op.name, func(b *testing.B) {
			for n := b.N; n > 0; {
				batch := min(n, 90)
				n -= batch
				_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
					if err := tx.Put([]byte{1, byte(n)}, value); err != nil {
						return err
					}
					for range batch {
						k := append(make([]byte, 0, 40), key(r.IntN(19_000))...)
						if err := op.fn(tx, k); err != nil {
							return err
						}
					}
					return errTakeBack
				})
				if err != errTakeBack {
					b.Fatal(err)
				}
			}
		})
	}
}

var errTakeBack = errors.New("take everything back")
