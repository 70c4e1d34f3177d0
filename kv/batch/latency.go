package batch

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// LatencyClasses is how many classes Latency tells apart.
const LatencyClasses = 14

// Latency counts durations: in Classes by powers of two, below 1 ms, 2, 4, ... 4,096 ms and above.
type Latency struct {
	Count     uint64
	SumMicros uint64
	Classes   [LatencyClasses]uint64
}

// LatencyCounter counts durations for an engine's statistics. Safe for concurrent use; the zero value is ready.
type LatencyCounter struct {
	count, sum atomic.Uint64
	classes    [LatencyClasses]atomic.Uint64
}

// Add counts one; a negative duration counts as none.
func (c *LatencyCounter) Add(d time.Duration) {
	c.count.Add(1)
	c.sum.Add(uint64(max(0, d.Microseconds())))
	c.classes[min(bits.Len64(uint64(max(0, d.Milliseconds()))), LatencyClasses-1)].Add(1)
}

// Get returns what was counted so far. Durations that are added meanwhile may be in part of it.
func (c *LatencyCounter) Get() Latency {
	out := Latency{Count: c.count.Load(), SumMicros: c.sum.Load()}
	for i := range c.classes {
		out.Classes[i] = c.classes[i].Load()
	}
	return out
}
