package api

import (
	"context"
	"sync"
	"time"
)

const (
	// holdStep is how long a refusal waits for each other one of its workspace that has yet to be answered: some 500 a second
	// are, and a client that is alone in being refused waits for nothing.
	holdStep = 2 * time.Millisecond
	// maxHold is the longest that a refusal waits: as long again as retryAfter.
	maxHold = time.Second
)

// brake spaces refusals. To be refused costs a client next to nothing, and the store does not slow it down: some hundred that
// come back at once would have all of the processors, and everybody else would wait in the scheduler's line behind them. A
// connection has one request at a time, so it is enough to answer late. (docs/decisions/0050) Safe for concurrent use; the zero
// value is ready.
type brake struct {
	after func(time.Duration) <-chan time.Time // nil: time.After

	mu   sync.Mutex
	held map[string]int // refusals that have yet to be answered, by workspace
}

// hold returns when a refusal of a workspace may be written, or ctx ends. The caller calls done after it has written.
func (b *brake) hold(ctx context.Context, workspace string) (done func()) {
	b.mu.Lock()
	others := b.held[workspace]
	if b.held == nil {
		b.held = map[string]int{}
	}
	b.held[workspace] = others + 1
	b.mu.Unlock()
	if others > 0 {
		after := b.after
		if after == nil {
			after = time.After
		}
		select {
		case <-after(min(time.Duration(others)*holdStep, maxHold)):
		case <-ctx.Done():
		}
	}
	return func() { b.release(workspace) }
}

func (b *brake) release(workspace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[workspace]--; b.held[workspace] == 0 {
		delete(b.held, workspace)
	}
}
