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
	sequence uint64
	err      error // of a fetch; the snapshot is over
}

// ViewHinted is View with what fn will probably read, so that an engine with round trips fetches it with the
// snapshot; see kv.Hints.Prefetch. Of each range the first rows entries are fetched; with 0, and at most, as many as of
// the hints of an Update.
func (s *Store) ViewHinted(ctx context.Context, prefetch []kv.Range, rows int, fn func(kv.Snapshot) error) error {
	return s.viewHinted(ctx, prefetch, rows, false, fn)
}

// ViewOnce is ViewHinted for an fn that will probably read nothing beyond that, so that an engine with round trips ends
// the snapshot in the one that takes it. If fn reads more, it runs again from its beginning, on another snapshot, and
// what it has come to before counts for nothing: it must do nothing but read and overwrite its own results.
func (s *Store) ViewOnce(ctx context.Context, prefetch []kv.Range, rows int, fn func(kv.Snapshot) error) error {
	return s.viewHinted(ctx, prefetch, rows, true, fn)
}

func (s *Store) viewHinted(ctx context.Context, prefetch []kv.Range, rows int, once bool, fn func(kv.Snapshot) error) error {
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
	if rows <= 0 || rows > maxPrefetchRows {
		rows = maxPrefetchRows
	}
	var r reads
	r.cache = newOverlay()
	r.hint(prefetch, rows)
	first := r.take()
	if once && !first.Empty() {
		first.Last = true
		more, err := s.viewRemote(ctx, first, fn)
		if more == nil {
			return err
		}
		first = *more
	}
	_, err := s.viewRemote(ctx, first, fn)
	return err
}

// viewRemote runs fn on a snapshot, which begins with a fetch. It is taken before fn begins, which may commit something
// else before it reads. If it was to be the last and fn missed something, more is all that fn is known to read.
func (s *Store) viewRemote(ctx context.Context, first Fetch, fn func(kv.Snapshot) error) (more *Fetch, err error) {
	v := &remoteView{store: s}
	v.reads = reads{cache: newOverlay(), fetch: v.fetch, direct: !first.Last}
	s.views.Add(1)
	s.viewTrips.Add(1)
	engine, err := s.remote.Snapshot(ctx)
	if err == nil {
		v.engine = engine
		defer engine.Release()
		v.sequence, err = engine.Fetch(&first)
	}
	if err != nil {
		if errors.Is(err, ctx.Err()) {
			return nil, err
		}
		return nil, s.opt.driverFault(err, "view", nil)
	}
	snap := &snapshot{budget: newBudget(&s.opt), ctx: ctx, bound: s.position(v.sequence)}
	v.keep(&first)
	v.snapshot, snap.remote = snap, v
	defer func() { snap.done = true }()
	if err = fn(snap); v.need.Empty() {
		return nil, err
	}
	v.need.Gets = append(v.need.Gets, first.Gets...)
	v.need.Scans = append(v.need.Scans, first.Scans...)
	all := v.take()
	return &all, nil
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
	return v.missed()
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
