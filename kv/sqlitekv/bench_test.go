package sqlitekv_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
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
