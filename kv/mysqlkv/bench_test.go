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

// What a small request costs when 64 clients share batches, through one store or three on one database: two reads that
// are hinted, five puts, an entry.
func BenchmarkUpdate(b *testing.B) {
	for _, kind := range testenv.MySQLKinds {
		for _, stores := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/%d", kind, stores), func(b *testing.B) { benchmarkUpdate(b, kind, stores) })
		}
	}
}

func benchmarkUpdate(b *testing.B, kind string, stores int) {
	url := testenv.MySQL(b, kind)
	var all []*Store
	for range stores {
		s := openStore(b, Options{URL: url, Now: time.Now})
		defer s.Close()
		all = append(all, s)
	}
	counts := func() (trips, commits float64) {
		for _, s := range all {
			st := s.Stats()
			trips += float64(st.WriteTrips)
			commits += float64(st.Commits)
		}
		return trips, commits
	}
	value := make([]byte, 200)
	for i := range value {
		value[i] = byte(i)
	}
	var next, client atomic.Int64
	trips, commits := counts()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		s := all[client.Add(1)%int64(stores)]
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
	b.StopTimer()
	allTrips, allCommits := counts()
	b.ReportMetric((allTrips-trips)/float64(b.N), "trips/op")
	b.ReportMetric((allCommits-commits)/float64(b.N), "commits/op")
}
