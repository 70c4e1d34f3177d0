package batch

import "time"

const (
	// contentionWindow is of how many begins the shortest tells for how long the writers' lock is waited for.
	contentionWindow = 4
	// minGather is the shortest wait for the lock that is worth gathering for: timers are not finer.
	minGather = time.Millisecond
	// maxGather bounds the gathering before a batch.
	maxGather = 10 * time.Millisecond
)

// contention knows for how long other servers have the writers' lock while this one waits for it. Closures that come
// during that wait cost a round trip of their own under the lock, in which everybody waits; so a batch is begun only
// when half of the wait is over, with those that have come meanwhile. The place in the queue for the lock is kept, as
// long as the others go on as they did; when they do not, the gathering shrinks by half from batch to batch.
type contention struct {
	waits [contentionWindow]time.Duration // of the last batches, from their first closure to the lock
	n     int
	trip  time.Duration // of the last fetch: a begin without a wait
}

// begun takes in how long a batch has waited from its first closure until it had the lock.
func (c *contention) begun(waited time.Duration) {
	c.waits[c.n%contentionWindow] = waited
	c.n++
}

// fetched takes in how long a round trip has taken that waits for no lock.
func (c *contention) fetched(took time.Duration) { c.trip = took }

// wait is for how long a batch will wait for others at least, if they go on as they did; 0 if that is next to nothing,
// or not known yet.
func (c *contention) wait() time.Duration {
	if c.n < contentionWindow || c.trip == 0 {
		return 0
	}
	shortest := c.waits[0]
	for _, w := range c.waits[1:] {
		shortest = min(shortest, w)
	}
	if shortest -= c.trip; shortest < 2*minGather {
		return 0
	}
	return shortest
}

// gather is for how long a batch may be filled before it is begun.
func (c *contention) gather() time.Duration { return min(c.wait()/2, maxGather) }
