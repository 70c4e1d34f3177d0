package pgkv

import (
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"abide/kv/batch"
)

// LatencyClasses is how many classes Latency tells apart.
const LatencyClasses = 14

// Latency counts durations: in Classes by powers of two, below 1 ms, 2, 4, ... 4,096 ms and above.
type Latency struct {
	Count     uint64
	SumMicros uint64
	Classes   [LatencyClasses]uint64
}

// Stats count since the store was opened, but for what is said to be so now.
type Stats struct {
	batch.Stats
	// CommitLatency times the round trip that ends a physical transaction with writes; with it go the finding out of what
	// became of lost ones.
	CommitLatency Latency
	// LockWait times a physical transaction from its begin to the lock, one round trip included.
	LockWait Latency
	// WriteTrips and ReadTrips are round trips: of physical transactions, commits included, and of snapshots.
	WriteTrips, ReadTrips uint64
	// Connects are the connections made, Failures the failed calls by cause: a SQLSTATE, "timeout" or "connection".
	Connects uint64
	Failures map[string]uint64
	// Resolved are commits whose answer was lost and whose outcome was found out before anybody was answered,
	// Unknown those of which it was not.
	Resolved, Unknown uint64
	// Readers is the size of the pool for snapshots, Reading how many of it are in use now, ReaderWaits how often
	// none was free.
	Readers, Reading int
	ReaderWaits      uint64
	// Hints are notifications of other servers' commits, Listening whether they arrive now.
	Hints     uint64
	Listening bool
}

// latency is a Latency that many may add to.
type latency struct {
	count, sum atomic.Uint64
	classes    [LatencyClasses]atomic.Uint64
}

func (l *latency) add(d time.Duration) {
	l.count.Add(1)
	l.sum.Add(uint64(max(0, d.Microseconds())))
	l.classes[min(bits.Len64(uint64(max(0, d.Milliseconds()))), LatencyClasses-1)].Add(1)
}

func (l *latency) get() Latency {
	out := Latency{Count: l.count.Load(), SumMicros: l.sum.Load()}
	for i := range l.classes {
		out.Classes[i] = l.classes[i].Load()
	}
	return out
}

type stats struct {
	commits, lockWaits                       latency
	trips, readTrips, connects               atomic.Uint64
	resolved, unknown, readerWaits, hintsGot atomic.Uint64
	reading                                  atomic.Int64
	listening                                atomic.Bool

	mu       sync.Mutex
	failures map[string]uint64
}

// maxCauses bounds how many causes are told apart; further ones are "other".
const maxCauses = 32

func (s *stats) failed(cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == nil {
		s.failures = map[string]uint64{}
	}
	if _, ok := s.failures[cause]; !ok && len(s.failures) >= maxCauses {
		cause = "other"
	}
	s.failures[cause]++
}

// Stats returns the store's counters.
func (s *Store) Stats() Stats {
	c := s.writer.stats
	c.mu.Lock()
	failures := maps.Clone(c.failures)
	c.mu.Unlock()
	return Stats{
		Stats:         s.Store.Stats(),
		CommitLatency: c.commits.get(),
		LockWait:      c.lockWaits.get(),
		WriteTrips:    c.trips.Load(),
		ReadTrips:     c.readTrips.Load(),
		Connects:      c.connects.Load(),
		Failures:      failures,
		Resolved:      c.resolved.Load(),
		Unknown:       c.unknown.Load(),
		Readers:       cap(s.readers.free),
		Reading:       int(c.reading.Load()),
		ReaderWaits:   c.readerWaits.Load(),
		Hints:         c.hintsGot.Load(),
		Listening:     c.listening.Load(),
	}
}
