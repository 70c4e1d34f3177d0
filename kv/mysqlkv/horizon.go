package mysqlkv

import (
	"context"
	"sync"
	"sync/atomic"

	"abide/kv/batch"
)

// horizon is what is known to be durable: every commit up to a sequence number.
//
// Without a binary log InnoDB shows a commit to others before it is on disk; the one who commits hears of it
// afterwards. A crash can take back what was read meanwhile. So whoever has read beyond the horizon waits for it
// to reach what was read: for this server's own commit if one is under way, because a sync covers everything before it,
// else for a commit of the horizon's own. With a binary log what is visible is durable.
//
// The horizon is also what a store must never be seen to fall behind: that is another database, or a replica that lags.
type horizon struct {
	showsEarly atomic.Bool // commits are visible before they are durable

	mu         sync.Mutex
	durable    uint64
	wanted     uint64        // the highest number that somebody waits for
	committing uint64        // the last number of the commit under way; 0 if none is
	changed    chan struct{} // closed when durable or committing changes

	flushing sync.Mutex // held by whoever commits for the horizon
	session  *session
	dial     func(context.Context) (*session, error)
	count    uint64
	stats    *counters
}

func newHorizon(stats *counters) *horizon {
	return &horizon{changed: make(chan struct{}), stats: stats}
}

// at is the highest number that is known to be durable.
func (h *horizon) at() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.durable
}

// reach notes that everything up to n is durable.
func (h *horizon) reach(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.durable = max(h.durable, n)
	h.change()
}

// commits notes that the commit of everything up to n is under way; 0 that it has ended.
func (h *horizon) commits(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.committing = n
	h.change()
}

// change wakes those who wait. mu is held.
func (h *horizon) change() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// seen returns once everything up to n, which was read, is durable.
func (h *horizon) seen(ctx context.Context, n uint64) error {
	if !h.showsEarly.Load() {
		h.mu.Lock()
		h.durable = max(h.durable, n)
		h.mu.Unlock()
		return nil
	}
	for {
		h.mu.Lock()
		durable, committing, changed := h.durable, h.committing, h.changed
		h.wanted = max(h.wanted, n)
		h.mu.Unlock()
		if durable >= n {
			return nil
		}
		if committing < n {
			return h.flush(ctx, n)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// flush commits something, so that everything before it is durable.
func (h *horizon) flush(ctx context.Context, n uint64) error {
	h.flushing.Lock()
	defer h.flushing.Unlock()
	h.mu.Lock()
	durable, wanted := h.durable, h.wanted
	h.mu.Unlock()
	if durable >= n {
		return nil // whoever was first has done it for all
	}
	h.stats.flushes.Add(1)
	for again := h.session != nil; ; again = false {
		err := h.write(ctx)
		if err == nil {
			h.reach(wanted)
			return nil
		}
		if !again {
			return failure("view", err)
		}
	}
}

// write makes one small commit. Its value is always another one: InnoDB does not write what is there already.
func (h *horizon) write(ctx context.Context) error {
	if h.session == nil {
		s, err := h.dial(ctx)
		if err != nil {
			return err
		}
		h.session = s
	}
	h.count++
	script := &script{limit: h.session.packetBytes}
	script.write([]batch.Write{{Key: flushKey, Value: encodeSequence(h.count)}})
	err := h.session.send(script)
	if err != nil {
		h.session.hangUp() // a new one is made when it is needed
		h.session = nil
	}
	return err
}

func (h *horizon) close() {
	h.flushing.Lock()
	defer h.flushing.Unlock()
	if h.session != nil {
		h.session.hangUp()
		h.session = nil
	}
}
