package engine

import (
	"context"
	"sync"
	"time"
)

// Source is where a server's time comes from. The simulator and tests bring their own.
type Source interface {
	// Wall is the wall clock; it may step either way.
	Wall() time.Time
	// Mono is time since some fixed instant; it never steps.
	Mono() time.Duration
	// Sleep waits, or returns early with the error of ctx.
	Sleep(ctx context.Context, d time.Duration) error
}

const (
	// ceilingAhead is how far ahead of the present the persisted ceiling is raised.
	ceilingAhead = 250 * time.Millisecond
	// ceilingWait is the largest lag behind its ceiling that a starting server sleeps off; with a larger one
	// it begins at the ceiling. (Otherwise quick restarts would add up to a clock that runs away.)
	ceilingWait = time.Second
)

// clock is a server's time on the real clock, in epoch milliseconds: it follows the wall forward, absorbs a
// backward step by running at half speed until the wall has caught up, never goes back, never stops, and
// serves no instant beyond a ceiling that is durable. It also knows which writing operations are under way, so
// that an answer that rests on a deadline having passed can wait for the operations that began before it.
// (docs/machine.md, Time)
//
// All methods are safe for concurrent use.
type clock struct {
	source Source

	mu       sync.Mutex
	served   time.Duration // since the epoch; the largest instant given out
	mono     time.Duration // when served was computed
	ceiling  int64         // ms; durable
	inFlight []*ticket     // oldest first; its head is never done
	moved    chan struct{} // closed when the head of inFlight goes; nil if nobody waits
}

// ticket is one writing operation under way. Not safe for concurrent use.
type ticket struct {
	at   int64 // its instant
	done bool
}

// newClock starts a clock that is not below the ceiling of this server's earlier life.
func newClock(ctx context.Context, source Source, ceiling int64) (*clock, error) {
	c := &clock{source: source, ceiling: ceiling}
	if lag := time.Duration(ceiling-source.Wall().UnixMilli()) * time.Millisecond; lag > 0 && lag < ceilingWait {
		if err := source.Sleep(ctx, lag); err != nil {
			return nil, err
		}
	}
	c.served = max(sinceEpoch(source.Wall()), time.Duration(ceiling)*time.Millisecond)
	c.mono = source.Mono()
	return c, nil
}

func sinceEpoch(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }

// now is the present instant. It may lie beyond the ceiling: see covered.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *clock) nowLocked() int64 {
	wall, mono := sinceEpoch(c.source.Wall()), c.source.Mono()
	// Half of what has passed is the least: so it does not matter how often the clock is read.
	c.served = max(wall, c.served+max(0, mono-c.mono)/2)
	c.mono = mono
	return c.served.Milliseconds()
}

// covered reports whether an instant may be served: whether it is at or below the durable ceiling.
func (c *clock) covered(at int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at <= c.ceiling
}

// raised notes that a ceiling has become durable.
func (c *clock) raised(ceiling int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ceiling = max(c.ceiling, ceiling)
}

// enter begins an attempt of a writing operation: its instant, and the ceiling that its transaction must
// persist, 0 if the present one covers it. An attempt made before with the same ticket is over.
func (c *clock) enter(t **ticket) (at, ceiling int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(*t)
	at = c.nowLocked()
	*t = &ticket{at: at}
	c.inFlight = append(c.inFlight, *t)
	if at > c.ceiling {
		ceiling = at + ceilingAhead.Milliseconds()
	}
	return at, ceiling
}

// leave ends an operation: its outcome is known, or never will be. A nil ticket is one that never entered.
func (c *clock) leave(t *ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(t)
}

func (c *clock) leaveLocked(t *ticket) {
	if t == nil {
		return
	}
	t.done = true
	n := 0
	for n < len(c.inFlight) && c.inFlight[n].done {
		c.inFlight[n] = nil
		n++
	}
	if n == 0 {
		return
	}
	if c.inFlight = c.inFlight[n:]; len(c.inFlight) == 0 {
		c.inFlight = nil // lets the array go, so that it never grows for ever
	}
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

// settle waits until no writing operation with an instant before at is under way: what they decide about
// instants before at is visible in every snapshot taken afterwards.
func (c *clock) settle(ctx context.Context, at int64) error {
	for {
		c.mu.Lock()
		if len(c.inFlight) == 0 || c.inFlight[0].at >= at {
			c.mu.Unlock()
			return nil
		}
		if c.moved == nil {
			c.moved = make(chan struct{})
		}
		moved := c.moved
		c.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
