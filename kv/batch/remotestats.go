package batch

import (
	"maps"
	"sync"
)

// RemoteStats are what every remote engine counts since the store was opened, but for what is said to be so now.
type RemoteStats struct {
	// CommitLatency times the round trip that ends a physical transaction with writes; with it go the finding out of
	// what became of lost ones.
	CommitLatency Latency
	// LockWait times a physical transaction from its begin to the writers' lock, one round trip included.
	LockWait Latency
	// WriteTrips and ReadTrips are round trips: of physical transactions, commits included, and of snapshots.
	WriteTrips, ReadTrips uint64
	// Connects are the connections made, Failures the failed calls by cause, which is the engine's own to name.
	Connects uint64
	Failures map[string]uint64
	// Resolved are commits whose answer was lost and whose outcome was found out before anybody was answered,
	// Unknown those of which it was not.
	Resolved, Unknown uint64
	// Readers is the size of the pool for snapshots, Reading how many of it are in use now, ReaderWaits how often
	// none was free.
	Readers, Reading int
	ReaderWaits      uint64
}

// maxCauses bounds how many causes are told apart; further ones are "other".
const maxCauses = 32

// Causes counts failures by their causes. Safe for concurrent use; the zero value is ready.
type Causes struct {
	mu     sync.Mutex
	counts map[string]uint64
}

// Add counts one failure. Of more than 32 causes the later ones are "other".
func (c *Causes) Add(cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]uint64{}
	}
	if _, ok := c.counts[cause]; !ok && len(c.counts) >= maxCauses {
		cause = "other"
	}
	c.counts[cause]++
}

// Get returns a copy of the counts, which is the caller's; nil if there are none.
func (c *Causes) Get() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}
