package batch

import (
	"context"
	"errors"

	"abide/kv"
)

// remoteView is the part of a snapshot that knows that its reads are round trips: what a call needs is fetched at
// once, and kept as long as the snapshot.
type remoteView struct {
	reads
	store    *Store
	snapshot *snapshot
	engine   RemoteSnapshot
	err      error // of a fetch; the snapshot is over
}

// ViewHinted is View with what fn will probably read, so that an engine with round trips fetches it with the
// snapshot; see kv.Hints.Prefetch. Of each range the first rows entries are fetched; with 0, and at most, as many as of
// the hints of an Update.
func (s *Store) ViewHinted(ctx context.Context, prefetch []kv.Range, rows int, fn func(kv.Snapshot) error) error {
	if s.remote == nil {
		return s.View(ctx, fn)
	}
	if t := kv.TimingOf(ctx); t != nil {
		began := t.Now()
		defer func() { t.ReadSince(began) }()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closing.Load() {
		return s.opt.fault(kv.ErrClosed, "view", nil, "")
	}
	return s.viewRemote(ctx, prefetch, rows, fn)
}

// viewRemote runs fn on a snapshot. It is taken before fn begins, which may commit something else before it reads.
func (s *Store) viewRemote(ctx context.Context, hints []kv.Range, rows int, fn func(kv.Snapshot) error) error {
	engine, err := s.remote.Snapshot(ctx)
	if err != nil {
		if errors.Is(err, ctx.Err()) {
			return err
		}
		return s.opt.driverFault(err, "view", nil)
	}
	defer engine.Release()
	v := &remoteView{store: s, engine: engine}
	v.reads = reads{cache: newOverlay(), fetch: v.fetch, direct: true}
	if rows <= 0 || rows > maxPrefetchRows {
		rows = maxPrefetchRows
	}
	v.hint(hints, rows)
	first := v.take()
	s.views.Add(1)
	s.viewTrips.Add(1)
	sequence, err := engine.Fetch(&first)
	if err != nil {
		if errors.Is(err, ctx.Err()) {
			return err
		}
		return s.opt.driverFault(err, "view", nil)
	}
	snap := &snapshot{budget: newBudget(&s.opt), ctx: ctx, bound: s.position(sequence)}
	v.keep(&first)
	v.snapshot, snap.remote = snap, v
	defer func() { snap.done = true }()
	return fn(snap)
}

func (v *remoteView) fetch(f *Fetch) error {
	if v.err != nil {
		return v.err
	}
	v.store.viewTrips.Add(1)
	if _, err := v.engine.Fetch(f); err != nil {
		v.err = v.snapshot.opt.driverFault(err, "view", nil)
	}
	return v.err
}

// journal fetches what a page of a partition's journal needs: its floor, the entries and the bound.
func (v *remoteView) journal(partition []byte, after kv.EntryPosition, limit int) error {
	if _, known := v.cache.known(kv.FloorKey(partition)); !known {
		v.miss(kv.FloorKey(partition))
	}
	r := kv.EntriesAfter(partition, after)
	if left, from := v.cache.scanKnown(r, limit, func(_, _ []byte) bool { return true }); left > 0 && string(from) < string(r.End) {
		r.Start = from
		v.missRange(r, left)
	}
	if v.need.Empty() {
		return nil
	}
	return v.load()
}

// learn fetches keys together. Those that are out of bounds are left to Get, which says so.
func (v *snapshot) learn(keys [][]byte) error {
	if err := v.ctx.Err(); err != nil {
		return err
	}
	inBounds := make([][]byte, 0, max(0, min(len(keys), kv.MaxTxOps-v.ops)))
	for _, key := range keys {
		if len(inBounds) == cap(inBounds) || v.checkKey("get", key, isFloor) != nil {
			break
		}
		inBounds = append(inBounds, key)
	}
	if err := v.remote.learn(inBounds); err != nil {
		return v.opt.driverFault(err, "get", nil)
	}
	return nil
}
