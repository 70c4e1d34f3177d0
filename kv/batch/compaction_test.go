package batch_test

import (
	"testing"

	"abide/kv"
	"abide/kv/batch"
)

// On an engine with round trips a step of compaction costs one to look and no more than the begin and the commit of its
// batch: a busy store makes one in nearly every batch, and requests wait in each round trip of a batch.
func TestCompactionReadsWithItsBatch(t *testing.T) {
	s := batch.NewRemote(batch.AsRemote(newFake()), batch.Options{Name: "fake", Incarnation: 1})
	defer s.Close()
	const entries = 2*kv.MaxCompactionEntries + 10
	var last kv.Position
	for range entries {
		at, err := s.Update(t.Context(), kv.Hints{}, func(tx kv.Tx) error { return tx.Append([]byte("p"), []byte("entry")) })
		if err != nil {
			t.Fatal(err)
		}
		last = at
	}
	before := s.Stats()
	steps := uint64(0)
	for more := true; more; steps++ {
		var err error
		if _, more, err = kv.Compact(t.Context(), s, []byte("p"), kv.EntryPosition{Commit: last}); err != nil {
			t.Fatal(err)
		}
	}
	after := s.Stats()
	if steps != 3 || after.Trips-before.Trips != steps || after.ViewTrips-before.ViewTrips != steps || after.Reruns != before.Reruns {
		t.Errorf("%d steps made %d round trips before their commits, %d to look, and %d closures ran again",
			steps, after.Trips-before.Trips, after.ViewTrips-before.ViewTrips, after.Reruns-before.Reruns)
	}
}
