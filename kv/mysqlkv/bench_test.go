package mysqlkv

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
)

// What a small request costs when 64 clients share batches: two reads that are hinted, five puts, an entry.
func BenchmarkUpdate(b *testing.B) {
	for _, kind := range testenv.MySQLKinds {
		b.Run(kind, func(b *testing.B) {
			s := openStore(b, Options{URL: testenv.MySQL(b, kind), Now: time.Now})
			defer s.Close()
			value := make([]byte, 200)
			for i := range value {
				value[i] = byte(i)
			}
			var next atomic.Int64
			before := s.Stats()
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n := next.Add(1)
					key := func(i int) []byte { return fmt.Appendf(nil, "tree/%08d/%d", n, i) }
					read := [][]byte{key(0), key(1)}
					h := kv.Hints{Prefetch: []kv.Range{{Start: read[0], End: append(key(0), 0)}, {Start: read[1], End: append(key(1), 0)}}}
					_, err := s.Update(context.Background(), h, func(tx kv.Tx) error {
						_, err := tx.GetMany(read)
						for i := range 5 {
							err = errors.Join(err, tx.Put(key(i), value))
						}
						return errors.Join(err, tx.Append([]byte("p"), key(0)))
					})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			st := s.Stats()
			b.ReportMetric(float64(st.WriteTrips-before.WriteTrips)/float64(b.N), "trips/op")
			b.ReportMetric(float64(st.Commits-before.Commits)/float64(b.N), "commits/op")
		})
	}
}
