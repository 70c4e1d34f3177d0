package pgkv

import (
	"maps"
	"sync"
	"sync/atomic"

	"abide/kv/batch"
)

// Stats count since the store was opened, but for what is said to be so now.
type Stats struct {
	batch.Stats
	// CommitLatency times the round trip that ends a physical transaction with writes; with it go the finding out of what
	// became of lost ones.
	CommitLatency batch.Latency
	// LockWait times a physical transaction from its begin to the lock, one round trip included.
	LockWait batch.Latency
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

type stats struct {
	commits, lockWaits                       batch.LatencyCounter
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
		CommitLatency: c.commits.Get(),
		LockWait:      c.lockWaits.Get(),
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
