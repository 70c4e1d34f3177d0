package pgkv

import (
	"errors"
	"sync"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// Pauses between attempts to reach a database that cannot be reached. It is tried for ever.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// backoff keeps attempts to connect apart.
type backoff struct {
	mu    sync.Mutex
	pause time.Duration
	last  error // of the last attempt; nil when the next may be made
}

// ready returns the error of the last attempt while it is too early for another one.
func (b *backoff) ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// note takes the outcome of an attempt.
func (b *backoff) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.pause, b.last = 0, nil
		return
	}
	b.pause = min(max(2*b.pause, firstPause), maxPause)
	b.last = err
	time.AfterFunc(b.pause, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.last = nil
	})
}

// health knows whether the store can write. Only a transaction that has begun makes it healthy again; while there
// is no traffic, the probe begins one.
type health struct {
	mu      sync.Mutex
	failure error // nil while the store can write
	nudge   chan struct{}
	stop    chan struct{}
	ended   chan struct{}
}

func newHealth() *health {
	return &health{nudge: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
}

// note takes the outcome of a step of a physical transaction.
func (h *health) note(err error) {
	if errors.Is(err, kv.ErrConflict) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure = err; err != nil {
		select {
		case h.nudge <- struct{}{}:
		default:
		}
	}
}

func (h *health) get() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure
}

// watch probes after a failure until the store can write again; close ends it.
func (h *health) watch(probe func()) {
	defer close(h.ended)
	for {
		select {
		case <-h.stop:
			return
		case <-h.nudge:
		}
		for h.get() != nil {
			select {
			case <-h.stop:
				return
			case <-time.After(maxPause / 2):
			}
			probe()
		}
	}
}

func (h *health) close() {
	close(h.stop)
	<-h.ended
}

// probe begins a transaction and ends it.
func (w *writer) probe() {
	if w.health.get() == nil {
		return
	}
	if _, err := w.Begin(&batch.Fetch{}); err == nil {
		w.Rollback()
	}
}

// Writable reports why the store cannot write for now; nil if it can. A store that cannot tries again by itself,
// without any traffic.
func (s *Store) Writable() error { return s.writer.health.get() }
