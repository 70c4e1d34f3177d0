package sim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/memkv"
)

// disk is the store that outlives the servers. Everything that was committed is on it.
type disk struct {
	memory   *memkv.Store
	store    kv.Store
	outcomes []kv.Outcome // of commits that were reported as unknown; the token is the index
}

// newDisk makes an empty disk. With twice it runs every closure twice, as the contract allows.
func newDisk(wrap func(kv.Store) kv.Store, twice bool) *disk {
	memory := memkv.Open(memkv.Options{Keys: keyspace.Register(), RunTwice: twice})
	d := &disk{memory: memory, store: memory}
	if wrap != nil {
		d.store = wrap(d.store)
	}
	return d
}

// handle is the disk as one life of a server sees it, with all that goes wrong between them. It implements kv.Store
// and kv.Pacer. (kvfault decides by the number of a call alone; here faults come and go with the plan, a slow call lets
// others act, a death falls between two certain commits, and the world must know what became of each.)
type handle struct {
	world    *world
	server   *server
	disk     *disk
	store    kv.Store
	dead     bool // that life is over
	mute     bool // the commit under way tells nobody
	hidden   bool // the last transaction has committed, and nobody was told
	retrying bool // the last transaction met a conflict and is about to be tried again
	killIn   int  // dies at this transaction from now, 1 for the next; 0 for not at all
	killLate bool // after its commit
}

var (
	_ kv.Store = (*handle)(nil)
	_ kv.Pacer = (*handle)(nil)
)

// errUndone takes back a transaction that is to fail after its closure has run.
var errUndone = errors.New("taken back")

func (h *handle) killAt(transaction int, late bool) { h.killIn, h.killLate = transaction, late }

func (h *handle) fault(is error, detail string) error {
	return &kv.Error{Is: is, Store: "simulated", Op: "commit", Detail: detail}
}

// Update implements kv.Store.
func (h *handle) Update(ctx context.Context, hints kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	first := !h.retrying
	h.retrying = false
	// The store's own calls have no lane. The engine holds a lock around some of them, and none of them may wait for
	// what another event does.
	if first && hints.Lane != "" {
		h.linger()
	}
	h.hidden = false
	if h.dead {
		return kv.Position{}, h.fault(kv.ErrClosed, "")
	}
	w := h.world
	if w.exempt > 0 {
		return h.commit(ctx, hints, fn)
	}
	if h.killIn > 0 {
		if h.killIn--; h.killIn == 0 {
			return h.die(ctx, hints, fn)
		}
	}
	switch {
	case w.weather.p(StoreDown) > 0:
		return kv.Position{}, h.fault(kv.ErrUnavailable, "the store is down")
	case w.weather.p(DiskFull) > 0:
		return h.undo(ctx, hints, fn, h.fault(kv.ErrUnavailable, "the disk is full"))
	case chance(w.chaos, w.weather.p(Conflicts)):
		h.retrying = true
		w.stats.Conflicts++
		return h.undo(ctx, hints, fn, h.fault(kv.ErrConflict, ""))
	case chance(w.chaos, w.weather.p(Unknown)):
		return h.unknown(ctx, hints, fn)
	}
	return h.commit(ctx, hints, fn)
}

func (h *handle) commit(ctx context.Context, hints kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	pos, err := h.store.Update(ctx, hints, fn)
	if err == nil && !pos.IsZero() {
		h.world.stats.Commits++
	}
	return pos, err
}

// undo runs a transaction, takes it back and fails it.
func (h *handle) undo(ctx context.Context, hints kv.Hints, fn func(kv.Tx) error, failure error) (kv.Position, error) {
	_, err := h.store.Update(ctx, hints, func(tx kv.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return errUndone
	})
	if errors.Is(err, errUndone) {
		err = failure
	}
	return kv.Position{}, err
}

// die ends the server's life before or after a commit. Nobody hears of it, and nobody gets an answer.
func (h *handle) die(ctx context.Context, hints kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	if h.killLate {
		h.mute = true
		pos, err := h.commit(ctx, hints, fn)
		h.mute = false
		h.hidden = err == nil && !pos.IsZero()
	}
	h.server.crash()
	return kv.Position{}, h.fault(kv.ErrClosed, "")
}

// unknown commits or does not, and does not tell. A transaction that wrote nothing has no outcome to be unknown.
func (h *handle) unknown(ctx context.Context, hints kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	w := h.world
	outcome := kv.OutcomeNotCommitted
	h.mute = true
	defer func() { h.mute = false }()
	if chance(w.chaos, 0.5) {
		outcome = kv.OutcomeCommitted
		pos, err := h.commit(ctx, hints, fn)
		if err != nil || pos.IsZero() {
			return pos, err
		}
		h.hidden = true
	} else if _, err := h.undo(ctx, hints, fn, errUndone); !errors.Is(err, errUndone) {
		return kv.Position{}, err
	}
	w.stats.Unknown++
	if chance(w.chaos, 0.3) { // the engine cannot tell for good
		outcome = kv.OutcomeUnknown
	}
	h.disk.outcomes = append(h.disk.outcomes, outcome)
	return kv.Position{}, &kv.Error{Is: kv.ErrCommitUnknown, Store: "simulated", Op: "commit",
		Token: kv.Token(strconv.Itoa(len(h.disk.outcomes) - 1))}
}

// View implements kv.Store.
func (h *handle) View(ctx context.Context, fn func(kv.Snapshot) error) error {
	h.linger()
	if h.dead {
		return h.fault(kv.ErrClosed, "")
	}
	if h.world.exempt == 0 && h.world.weather.p(StoreDown) > 0 {
		return h.fault(kv.ErrUnavailable, "the store is down")
	}
	return h.store.View(ctx, fn)
}

// linger makes a call slow.
func (h *handle) linger() {
	w := h.world
	if !h.dead && w.exempt == 0 && chance(w.chaos, w.weather.p(SlowCalls)) {
		w.stats.Slow++
		w.pass(between(w.chaos, time.Millisecond, 200*time.Millisecond))
	}
}

// Resolve implements kv.Store.
func (h *handle) Resolve(_ context.Context, t kv.Token) (kv.Outcome, kv.Position, error) {
	if h.dead {
		return kv.OutcomeUnknown, kv.Position{}, h.fault(kv.ErrClosed, "")
	}
	i, err := strconv.Atoi(string(t))
	if err != nil || i >= len(h.disk.outcomes) {
		h.world.fail("the server asks for the outcome of token %q, which it was never given", t)
		return kv.OutcomeUnknown, kv.Position{}, h.fault(kv.ErrLimit, "no such token")
	}
	return h.disk.outcomes[i], kv.Position{}, nil
}

// Signals implements kv.Store. The signals of other servers come later, or never (fleet.go).
func (h *handle) Signals(fn func([]kv.Signal)) (stop func()) {
	h.server.hear = fn
	return h.store.Signals(func(signals []kv.Signal) {
		if h.dead || h.mute {
			return
		}
		h.hint(signals, 0, fn)
		h.world.carrySignals(h.server, signals)
	})
}

// hint gives signals to a server that lives, unless they are lost or come late on the way.
func (h *handle) hint(signals []kv.Signal, takes time.Duration, fn func([]kv.Signal)) {
	w := h.world
	lost := chance(w.chaos, w.weather.p(DropHints))
	late := chance(w.chaos, w.weather.p(Delay)) || (lost && chance(w.chaos, 0.5))
	switch {
	case late: // others overtake it
		w.stats.HintsDropped++
		takes += between(w.chaos, time.Millisecond, 2*time.Second)
	case lost:
		w.stats.HintsDropped++
		return
	case takes == 0:
		fn(signals)
		return
	}
	w.after(takes, func() {
		if !h.dead {
			fn(signals)
		}
	})
}

// Pause implements kv.Pacer: the pauses between attempts take no time, since nothing may happen during one.
func (h *handle) Pause(context.Context, time.Duration) error {
	if h.dead {
		return h.fault(kv.ErrClosed, "")
	}
	return nil
}

// Close implements kv.Store. The disk outlives every server.
func (h *handle) Close() error { return nil }
