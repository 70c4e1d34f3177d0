package batch_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// TestStatsOfOutcomes commits, conflicts and fails a scripted number of times.
func TestStatsOfOutcomes(t *testing.T) {
	now := time.Unix(1000, 0)
	d := newFake()
	took := time.Duration(0)
	s := batch.New(slow{d, func() { now = now.Add(took) }}, batch.Options{Name: "fake", Synchronous: true, Now: func() time.Time { return now }})
	defer s.Close()
	put := func() error {
		_, err := s.Update(t.Context(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte("k"), nil) })
		return err
	}
	for _, took = range []time.Duration{50 * time.Microsecond, 100 * time.Microsecond, 101 * time.Microsecond, time.Minute} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	own := errors.New("a closure's own")
	for _, err := range []error{kv.ErrConflict, kv.ErrConflict, kv.ErrUnavailable, kv.ErrCommitUnknown, kv.ErrCorrupt, own} {
		_, _ = s.Update(t.Context(), kv.Hints{}, func(kv.Tx) error { return err })
	}
	got := s.Stats()
	want := [batch.CommitClasses]uint64{0: 2, 1: 1, batch.CommitClasses - 1: 1}
	if got.CommitTimes != want || got.CommitTime != time.Minute+251*time.Microsecond {
		t.Errorf("times %v, together %v", got.CommitTimes, got.CommitTime)
	}
	if got.Conflicts != 2 || got.Unavailable != 1 || got.Unknown != 1 || got.Corrupt != 1 || got.Closures != 10 {
		t.Errorf("%+v", got)
	}
	if b := batch.CommitBounds(); len(b) != batch.CommitClasses-1 || !slices.IsSorted(b) {
		t.Errorf("bounds %v", b)
	}
}

// slow is a driver whose commits take time.
type slow struct {
	batch.Driver
	pass func()
}

func (s slow) Commit(sequence uint64) error {
	s.pass()
	return s.Driver.Commit(sequence)
}
