package batch_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// nothing is a driver that does nothing, so that what is measured is the batcher alone.
type nothing struct{ sequence uint64 }

func (n *nothing) Begin() (uint64, error)                            { return n.sequence, nil }
func (n *nothing) Get([]byte) ([]byte, error)                        { return nil, nil }
func (n *nothing) Scan(kv.Range, func(key, value []byte) bool) error { return nil }
func (n *nothing) Apply([]batch.Write) error                         { return nil }
func (n *nothing) Commit(sequence uint64) error                      { n.sequence = sequence; return nil }
func (n *nothing) Rollback()                                         {}
func (n *nothing) Close() error                                      { return nil }
func (n *nothing) Snapshot(context.Context) (batch.DriverSnapshot, error) {
	return nil, kv.ErrUnavailable
}

func (n *nothing) Resolve(context.Context, kv.Token) (kv.Outcome, error) {
	return kv.OutcomeUnknown, nil
}

// closure is a handful of reads and writes like those of a request, under keys of its own.
func closure(n uint32) func(kv.Tx) error {
	key := []byte{1, 'w', byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 0}
	value := make([]byte, 400)
	return func(tx kv.Tx) error {
		for i := range 4 {
			key[6] = byte(i)
			if _, err := tx.Get(key); err != nil {
				return err
			}
		}
		for i := range 4 {
			key[6] = byte(i)
			if err := tx.Put(key, value); err != nil {
				return err
			}
		}
		tx.Signal(kv.Signal{Topic: "t"})
		return tx.Append(key[:1], value[:100])
	}
}

func BenchmarkOverhead(b *testing.B) {
	s := batch.New(&nothing{}, batch.Options{Name: "nothing", Now: time.Now})
	defer s.Close()
	var left, id atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := s.Update(context.Background(), kv.Hints{Lane: "default"}, closure(uint32(id.Add(7919)))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkOverheadSynchronous(b *testing.B) {
	s := batch.New(&nothing{}, batch.Options{Name: "nothing", Synchronous: true})
	defer s.Close()
	n := uint32(0)
	for b.Loop() {
		n += 7919
		if _, err := s.Update(context.Background(), kv.Hints{}, closure(n)); err != nil {
			b.Fatal(err)
		}
	}
}
