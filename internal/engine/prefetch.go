package engine

import (
	"context"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// prefetches reports whether a store makes use of kv.Hints.Prefetch, so that no others pay for the hints.
func prefetches(s kv.Store) bool {
	p, ok := s.(interface{ Prefetches() bool })
	return ok && p.Prefetches()
}

// hintedViewer is a store that makes use of hints of what a snapshot is read for.
type hintedViewer interface {
	ViewHinted(ctx context.Context, prefetch []kv.Range, rows int, fn func(kv.Snapshot) error) error
	ViewOnce(ctx context.Context, prefetch []kv.Range, rows int, fn func(kv.Snapshot) error) error
}

// snapshot is kv.Store.View with what fn will probably read; read may be nil.
func (e *Engine) snapshot(ctx context.Context, workspace string, read func(keyspace.Keys) []kv.Range, fn func(kv.Snapshot) error) error {
	if e.prefetches && read != nil {
		return e.hinted(ctx, read(keyspace.For(workspace, e.layout)), fn)
	}
	return e.store.View(ctx, fn)
}

// hinted is kv.Store.View with what fn will probably read first.
func (e *Engine) hinted(ctx context.Context, ranges []kv.Range, fn func(kv.Snapshot) error) error {
	if v, ok := e.store.(hintedViewer); ok && e.prefetches {
		return v.ViewHinted(ctx, ranges, 0, fn)
	}
	return e.store.View(ctx, fn)
}

// snapshotOnce is snapshot for an fn that will probably read nothing else, and may run again if it does.
func (e *Engine) snapshotOnce(ctx context.Context, workspace string, read func(keyspace.Keys) []kv.Range, fn func(kv.Snapshot) error) error {
	if v, ok := e.store.(hintedViewer); ok && e.prefetches && read != nil {
		return v.ViewOnce(ctx, read(keyspace.For(workspace, e.layout)), 0, fn)
	}
	return e.store.View(ctx, fn)
}

// firstOf is kv.Store.View for an fn that reads the first rows entries of ranges, and may run again if it reads more.
func (e *Engine) firstOf(ctx context.Context, ranges []kv.Range, rows int, fn func(kv.Snapshot) error) error {
	if v, ok := e.store.(hintedViewer); ok && e.prefetches {
		return v.ViewOnce(ctx, ranges, rows, fn)
	}
	return e.store.View(ctx, fn)
}

// learn reads the keys of ranges in one round trip, so that the reads after it need none. Where reads are no round
// trips it does nothing.
func (e *Engine) learn(s kv.Snapshot, ranges []kv.Range) error {
	if !e.prefetches || len(ranges) == 0 {
		return nil
	}
	keys := make([][]byte, len(ranges))
	for i, r := range ranges {
		keys[i] = r.Start
	}
	_, err := s.GetMany(keys)
	return err
}

// reads collects what an operation will probably read. A guess too many costs a fraction of a round trip that is
// made anyway; what is missing costs one more.
type reads struct {
	keys   keyspace.Keys
	ranges []kv.Range
}

func (r *reads) key(key []byte) { r.ranges = append(r.ranges, kv.Only(key)) }

func (r *reads) objects(ids ...string) {
	for _, id := range ids {
		r.key(r.keys.Object(id))
	}
}

// settled are the reads of a settlement: who waits for the promise, and, because what waits is most often the call
// that made it, the objects that its id lies under.
func (r *reads) settled(id string) {
	r.ranges = append(r.ranges, r.keys.Waiters(id))
	for i := len(id) - 1; i > 0; i-- {
		if id[i] == '.' || id[i] == ':' {
			r.objects(id[:i])
			break
		}
	}
	if tree := keyspace.Tree(id); len(tree) < len(id) {
		r.objects(tree)
	}
}

// claimed are the reads of a preload. Which branch the task belongs to is in its record; most often it is its own.
func (r *reads) claimed(id string) { r.ranges = append(r.ranges, r.keys.Branch(id)) }

// readsOf names what a request will probably read beyond the workspace's own records.
func readsOf(k keyspace.Keys, req protocol.Request) []kv.Range {
	r := reads{keys: k}
	r.objects(machine.Names(req)...)
	switch req := req.(type) {
	case *protocol.PromiseSettle:
		r.settled(req.ID)
	case *protocol.TaskFulfill:
		r.settled(req.ID)
	case *protocol.TaskFence:
		r.claimed(req.ID)
		if req.Settle != nil {
			r.settled(req.Settle.ID)
		}
	case *protocol.TaskCreate:
		r.claimed(req.Action.ID)
	case *protocol.TaskAcquire:
		r.claimed(req.ID)
	case *protocol.TaskSuspend:
		r.claimed(req.ID)
	case *protocol.TaskExplain:
		r.objects(req.ID)
	case *protocol.ScheduleGet:
		r.key(k.Schedule(req.ID))
	case *protocol.ScheduleCreate:
		r.key(k.Schedule(req.ID))
	case *protocol.ScheduleDelete:
		r.key(k.Schedule(req.ID))
		r.ranges = append(r.ranges, k.ScheduleChunks(req.ID))
	}
	return r.ranges
}

// readsOfTimer names what the step that a timer entry stands for will probably read.
func readsOfTimer(k keyspace.Keys, t keyspace.Timer) []kv.Range {
	r := reads{keys: k}
	switch t.Kind {
	case keyspace.TimerDrain:
		r.key(k.Drain(t.ID))
		r.objects(t.ID)
		r.settled(t.ID)
	case keyspace.TimerPromise:
		r.objects(t.ID)
		r.settled(t.ID)
	case keyspace.TimerSchedule:
		r.key(k.Schedule(t.ID))
	default:
		r.objects(t.ID)
	}
	return r.ranges
}

// readsOfUnblocks names the rows of unblock messages and the promises that they are about.
func readsOfUnblocks(k keyspace.Keys, unblocks []deliver.UnblockRef) []kv.Range {
	r := reads{keys: k}
	for _, u := range unblocks {
		r.key(k.Unblock(u.ID, u.Address))
		r.objects(u.ID)
	}
	return r.ranges
}

// readsOfExecutes names the records of the tasks that executes are for.
func readsOfExecutes(k keyspace.Keys, executes []deliver.Execute) []kv.Range {
	r := reads{keys: k}
	for _, x := range executes {
		r.objects(x.ID)
	}
	return r.ranges
}

// readsOfObjects names the records of objects.
func readsOfObjects(k keyspace.Keys, ids ...string) []kv.Range {
	r := reads{keys: k}
	r.objects(ids...)
	return r.ranges
}
