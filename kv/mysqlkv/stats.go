package mysqlkv

import (
	"errors"
	"strconv"
	"sync/atomic"

	"abide/kv"
	"abide/kv/batch"
)

// Stats count since the store was opened, but for what is said to be so now.
type Stats struct {
	batch.Stats
	// RemoteStats has as causes of failures: the number of a server's error, "read-only",
	// "connection", or "refused" for a database that is not the one it was.
	batch.RemoteStats
	// Flushes are commits that were made so that what a snapshot had read is durable.
	Flushes uint64
}

// counters are what Stats are made of.
type counters struct {
	commits, lockWaits                      batch.LatencyCounter
	writeTrips, readTrips, connects         atomic.Uint64
	resolved, unknown, readerWaits, flushes atomic.Uint64

	failures batch.Causes
}

// failed counts a failure by its cause.
func (c *counters) failed(err error) {
	var known *kv.Error
	cause := "connection"
	switch n := number(err); {
	case isReadOnly(err):
		cause = "read-only"
	case n != 0:
		cause = strconv.Itoa(n)
	case errors.As(err, &known) && known.Err == nil:
		cause = "refused"
	}
	c.failures.Add(cause)
}

// Stats returns the store's counters.
func (s *Store) Stats() Stats {
	c := s.engine.stats
	return Stats{
		Stats: s.Store.Stats(),
		RemoteStats: batch.RemoteStats{
			CommitLatency: c.commits.Get(),
			LockWait:      c.lockWaits.Get(),
			WriteTrips:    c.writeTrips.Load(),
			ReadTrips:     c.readTrips.Load(),
			Connects:      c.connects.Load(),
			Failures:      c.failures.Get(),
			Resolved:      c.resolved.Load(),
			Unknown:       c.unknown.Load(),
			Readers:       cap(s.engine.readers.slots),
			Reading:       len(s.engine.readers.slots),
			ReaderWaits:   c.readerWaits.Load(),
		},
		Flushes: c.flushes.Load(),
	}
}
