package batch

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"abide/kv"
)

// CommitClasses is how many classes of duration Stats.CommitTimes has.
const CommitClasses = 15

// commitBounds are the upper bounds of all classes but the last, which has none.
var commitBounds = [CommitClasses - 1]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second,
}

// CommitBounds are the upper bounds of the classes of Stats.CommitTimes, ascending; the last class has none.
func CommitBounds() []time.Duration { return slices.Clone(commitBounds[:]) }

// outcomes counts how batches ended. Written by whoever holds Store.turn, read by anybody.
type outcomes struct {
	times  [CommitClasses]atomic.Uint64
	total  atomic.Int64 // ns
	failed [4]atomic.Uint64
}

// committed counts a commit that took so long.
func (o *outcomes) committed(took time.Duration) {
	class, _ := slices.BinarySearch(commitBounds[:], took)
	o.times[class].Add(1)
	o.total.Add(int64(took))
}

// outcomeErrors are the identities that Stats tell apart, in the order of outcomes.failed.
var outcomeErrors = [...]error{kv.ErrConflict, kv.ErrUnavailable, kv.ErrCommitUnknown, kv.ErrCorrupt}

// answered counts a closure's error.
func (o *outcomes) answered(err error) {
	if err == nil {
		return
	}
	for i, is := range outcomeErrors {
		if errors.Is(err, is) {
			o.failed[i].Add(1)
			return
		}
	}
}

// read adds what was counted to stats.
func (o *outcomes) read(stats *Stats) {
	for i := range o.times {
		stats.CommitTimes[i] = o.times[i].Load()
	}
	stats.CommitTime = time.Duration(o.total.Load())
	stats.Conflicts, stats.Unavailable = o.failed[0].Load(), o.failed[1].Load()
	stats.Unknown, stats.Corrupt = o.failed[2].Load(), o.failed[3].Load()
}
