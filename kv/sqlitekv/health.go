package sqlitekv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"abide/kv"
	"abide/kv/batch"
)

const (
	// probeInterval is how often a store that failed to write tries again by itself.
	probeInterval = time.Second
	// roomBytes is how much there must be room for on a disk that was full before the store calls itself
	// writable: more than the log takes for a batch of the usual size, so that it does not fail again at once.
	roomBytes = 1 << 20
)

// errDiskFull is what Writable reports of a disk without room, whatever the system and SQLite call it.
var errDiskFull = errors.New("the disk is full")

// health knows whether the store can write. A write that fails for want of a working disk makes it unhealthy,
// and only the probe makes it healthy again: a commit that happens to fit into the log as it stands says
// nothing about the next one. Meanwhile writes are tried as ever, and each hears its own outcome.
type health struct {
	mu       sync.Mutex
	failure  error // nil while the store can write
	full     bool  // the failure is a full disk
	failures uint64
	nudge    chan struct{}
	stop     chan struct{}
	ended    chan struct{}
}

func newHealth() *health {
	return &health{nudge: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
}

// note takes the outcome of a step of a physical transaction.
func (h *health) note(err error) {
	if err == nil || errors.Is(err, kv.ErrConflict) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures++
	h.failure = err
	if errors.Is(err, sqlite3.FULL) || isDiskFull(err) {
		h.full = true
		h.failure = fmt.Errorf("%w: %w", errDiskFull, err)
	}
	h.wake()
}

// wake makes watch probe, one interval from now.
func (h *health) wake() {
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

func (h *health) get() (failures uint64, full bool, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures, h.full, h.failure
}

// recovered ends a state of failure, unless another failure has come since there were so many.
func (h *health) recovered(failures uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == failures {
		h.failure, h.full = nil, false
	}
}

// watch probes after a failure, every interval, until the store can write again; close ends it.
func (h *health) watch(probe func(full bool) error) {
	defer close(h.ended)
	for {
		select {
		case <-h.stop:
			return
		case <-h.nudge:
		}
		pause := time.NewTimer(probeInterval)
		select {
		case <-h.stop:
			pause.Stop()
			return
		case <-pause.C:
		}
		failures, full, failure := h.get()
		if failure == nil {
			continue
		}
		if err := probe(full); err != nil {
			h.note(err)
			h.wake()
			continue
		}
		h.recovered(failures)
	}
}

func (h *health) close() {
	close(h.stop)
	<-h.ended
}

// Writable reports why the store cannot write for now; nil if it can. A store that failed to write tries every
// probeInterval, without any traffic, whether it can again: it makes a commit of its own, and where the disk
// was full it looks for room first.
func (s *Store) Writable() error {
	_, _, failure := s.health.get()
	return failure
}

// probe is one try. It commits the next sequence number and nothing else: a number more or less is nothing to
// anybody, and what changed is one page that every commit changes.
func (d *driver) probe(full bool) error {
	if full {
		if err := findRoom(d.path + probeSuffix); err != nil {
			return err
		}
	}
	sequence, err := d.begin()
	if err != nil {
		return err
	}
	return d.finish(sequence + 1)
}

// probeSuffix names the file that findRoom makes, beside the database.
const probeSuffix = ".probe"

// findRoom makes a file of roomBytes and removes it.
func findRoom(path string) error {
	defer os.Remove(path)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, roomBytes))
	if err == nil {
		err = file.Sync() // some file systems look for room only now
	}
	return errors.Join(err, file.Close())
}

// begin and finish bracket a physical transaction: the probe's, and the batches'.
func (d *driver) begin() (uint64, error) {
	d.turn.Lock()
	sequence, err := d.writer.Begin()
	if err != nil {
		d.turn.Unlock()
	}
	return sequence, err
}

func (d *driver) finish(sequence uint64) error {
	defer d.turn.Unlock()
	return d.writer.Commit(sequence)
}

// Begin implements batch.Driver.
func (d *driver) Begin() (uint64, error) {
	sequence, err := d.begin()
	d.health.note(err)
	return sequence, err
}

// Apply implements batch.Driver.
func (d *driver) Apply(writes []batch.Write) error {
	err := d.writer.Apply(writes)
	d.health.note(err)
	return err
}

// Commit implements batch.Driver.
func (d *driver) Commit(sequence uint64) error {
	err := d.finish(sequence)
	d.health.note(err)
	return err
}

// Rollback implements batch.Driver.
func (d *driver) Rollback() {
	defer d.turn.Unlock()
	d.writer.Rollback()
}

// Resolve implements batch.Driver.
func (d *driver) Resolve(ctx context.Context, token kv.Token) (kv.Outcome, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.writer.Resolve(ctx, token)
}
