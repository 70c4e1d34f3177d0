package pgkv

import (
	"sync/atomic"

	"abide/kv/batch"
)

// Stats count since the store was opened, but for what is said to be so now.
type Stats struct {
	batch.Stats
	// RemoteStats has as causes of failures: a SQLSTATE, "timeout" or "connection".
	batch.RemoteStats
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
	failures                                 batch.Causes
}

// Stats returns the store's counters.
func (s *Store) Stats() Stats {
	c := s.writer.stats
	return Stats{
		Stats: s.Store.Stats(),
		RemoteStats: batch.RemoteStats{
			CommitLatency: c.commits.Get(),
			LockWait:      c.lockWaits.Get(),
			WriteTrips:    c.trips.Load(),
			ReadTrips:     c.readTrips.Load(),
			Connects:      c.connects.Load(),
			Failures:      c.failures.Get(),
			Resolved:      c.resolved.Load(),
			Unknown:       c.unknown.Load(),
			Readers:       cap(s.readers.free),
			Reading:       int(c.reading.Load()),
			ReaderWaits:   c.readerWaits.Load(),
		},
		Hints:     c.hintsGot.Load(),
		Listening: c.listening.Load(),
	}
}
