package mysqlkv

import (
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	"abide/kv"
	"abide/kv/batch"
)

// Stats count since the store was opened, but for what is said to be so now.
type Stats struct {
	batch.Stats
	// CommitLatency times the round trip that ends a physical transaction with writes; with it go the finding out of
	// what became of lost ones.
	CommitLatency batch.Latency
	// LockWait times a physical transaction from its begin to the writers' lock, one round trip included.
	LockWait batch.Latency
	// WriteTrips and ReadTrips are round trips: of physical transactions, commits included, and of snapshots.
	WriteTrips, ReadTrips uint64
	// Connects are the connections made, Failures the failed batches and connections by cause: the number of a server's error,
	// "read-only", "connection" or "refused" for a database that is not the one it was.
	Connects uint64
	Failures map[string]uint64
	// Resolved are commits whose answer was lost and whose outcome was found out before anybody was answered,
	// Unknown those of which it was not.
	Resolved, Unknown uint64
	// Readers is the size of the pool for snapshots, Reading how many of it are in use now, ReaderWaits how often
	// none was free.
	Readers, Reading int
	ReaderWaits      uint64
	// Flushes are commits that were made so that what a snapshot had read is durable.
	Flushes uint64
}

// counters are what Stats are made of.
type counters struct {
	commits, lockWaits                      batch.LatencyCounter
	writeTrips, readTrips, connects         atomic.Uint64
	resolved, unknown, readerWaits, flushes atomic.Uint64

	mu       sync.Mutex
	failures map[string]uint64
}

// maxCauses bounds how many causes are told apart; further ones are "other".
const maxCauses = 32

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
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures == nil {
		c.failures = map[string]uint64{}
	}
	if _, ok := c.failures[cause]; !ok && len(c.failures) >= maxCauses {
		cause = "other"
	}
	c.failures[cause]++
}

// Stats returns the store's counters.
func (s *Store) Stats() Stats {
	c := s.engine.stats
	c.mu.Lock()
	failures := maps.Clone(c.failures)
	c.mu.Unlock()
	return Stats{
		Stats:         s.Store.Stats(),
		CommitLatency: c.commits.Get(),
		LockWait:      c.lockWaits.Get(),
		WriteTrips:    c.writeTrips.Load(),
		ReadTrips:     c.readTrips.Load(),
		Connects:      c.connects.Load(),
		Failures:      failures,
		Resolved:      c.resolved.Load(),
		Unknown:       c.unknown.Load(),
		Readers:       cap(s.engine.readers.slots),
		Reading:       len(s.engine.readers.slots),
		ReaderWaits:   c.readerWaits.Load(),
		Flushes:       c.flushes.Load(),
	}
}
