package kv_test

import (
	"context"
	"testing"

	"abide/kv"
	"abide/kv/memkv"
)

// counting counts the transactions that committed something.
type counting struct {
	kv.Store
	commits int
}

func (s *counting) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	at, err := s.Store.Update(ctx, h, fn)
	if !at.IsZero() {
		s.commits++
	}
	return at, err
}

// A step of compaction removes entries and raises the floor in one transaction: between two, a reader would meet a gap
// without being told, or a crash would leave entries behind that nobody removes.
func TestCompactIsOneTransaction(t *testing.T) {
	inner := memkv.Open(memkv.Options{})
	defer inner.Close()
	s := &counting{Store: inner}
	var last kv.Position
	for range kv.MaxCompactionEntries + 10 {
		at, err := inner.Update(t.Context(), kv.Hints{}, func(tx kv.Tx) error { return tx.Append([]byte("p"), []byte("entry")) })
		if err != nil {
			t.Fatal(err)
		}
		last = at
	}
	for step := 1; step <= 2; step++ {
		floor, more, err := kv.Compact(t.Context(), s, []byte("p"), kv.EntryPosition{Commit: last})
		if err != nil || more != (step == 1) {
			t.Fatalf("step %d: more %t, %v", step, more, err)
		}
		if s.commits != step {
			t.Errorf("%d commits for %d steps", s.commits, step)
		}
		err = inner.View(t.Context(), func(v kv.Snapshot) error {
			stands, err := kv.Floor(v, []byte("p"))
			if stands != floor {
				t.Errorf("step %d: the floor stands at %v, the answer was %v", step, stands, floor)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
