package engine

import (
	"context"
	"errors"
	"time"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

const (
	// sweepInterval is how often the sweep takes a page.
	sweepInterval = time.Second
	// sweepRows is how many objects, or unblock messages, one page of the sweep looks at.
	sweepRows = 500
)

// sweeper is where the slow sweep stands. Used by one goroutine at a time.
type sweeper struct {
	workspace string // the workspace it is in; empty: about to begin with the first
	after     string // the last object it has seen there
	unblocks  []byte // the last unblock entry it has seen; nil: at the start
}

// sweeps is one pass of the sweep loop.
func (e *Engine) sweeps(ctx context.Context) (time.Duration, error) {
	return sweepInterval, e.Sweep(ctx)
}

// Sweep looks at the next page of objects and persists the expired promises among them that nobody armed,
// so that they do not pile up under "pending"; and at the next page of unblock messages, giving up those that
// could not be delivered for UnblockExpiryMs. It goes round the whole store, page by page. Workspaces that
// debug.start has paused are passed over. Of several servers on a store, one does it. Not safe for concurrent use.
func (e *Engine) Sweep(ctx context.Context) error {
	if !e.owns(dutySweep) {
		return nil
	}
	if err := e.sweepObjects(ctx); err != nil {
		return err
	}
	return e.sweepUnblocks(ctx)
}

func (e *Engine) sweepObjects(ctx context.Context) error {
	s := &e.sweeper
	if s.after == "" {
		next, err := e.workspaceAfter(ctx, s.workspace)
		if err != nil {
			return err
		}
		if s.workspace = next; next == "" {
			return nil // round: the next pass begins with the first workspace
		}
	}
	if e.paused.has(s.workspace) {
		s.after = ""
		return nil
	}
	at := instant{engine: e, workspace: s.workspace}
	now := e.clock.now()
	page, err := e.sweepPage(ctx, s.workspace, s.after)
	if err != nil {
		return err
	}
	var expired []string
	for _, o := range page.Objects {
		if o.State == protocol.Pending && o.TimeoutAt <= now && !o.Armed() {
			expired = append(expired, o.ID)
		}
	}
	err = e.sweepEach(ctx, len(expired), func(ctx context.Context, i int) error {
		did := false
		err := e.update(ctx, s.workspace, at, work{cause: journal.CauseTimeout, background: true}.reading(expired[i]), func(op *machine.Op, _ *store.Txn) (err error) {
			did, err = op.PromiseTimeout(expired[i])
			return err
		})
		if err == nil && did {
			e.counts.swept.Add(1)
		}
		return err
	})
	if err == nil {
		s.after = page.Next
	}
	return err
}

// sweepEach does one thing for each of n rows of a page, several at a time so that they share commits. What cannot
// be done for one row is counted and left to the next round; only what keeps every row from being done is an error.
func (e *Engine) sweepEach(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	return e.concurrently(n, func(i int) error {
		err := guard(func() error {
			return e.called(ctx, func(ctx context.Context) error { return do(ctx, i) })
		})
		if err == nil || ofEveryStep(err) {
			return err
		}
		e.counts.failures.Add(1)
		e.log.Error("the sweep could not do its work for a row; the next round tries it again", "error", err)
		return nil
	})
}

// sweepPage is the next page of a workspace's objects. It ends before a record that does not decode, and the next
// one begins behind that: requests that name it report it.
func (e *Engine) sweepPage(ctx context.Context, workspace, after string) (page machine.Page, err error) {
	var damaged []byte
	err = e.viewed(ctx, func(snap kv.Snapshot) (err error) {
		txn := store.Read(snap, workspace, e.layout)
		page, err = txn.Enumerate(machine.Path{Kind: machine.PathAll}, after, sweepRows)
		damaged = txn.Damaged()
		return err
	})
	if !errors.Is(err, kv.ErrCorrupt) || damaged == nil {
		return page, err
	}
	e.log.Error("the sweep met a damaged record", "error", err)
	row, err := keyspace.ParseRow(damaged, nil)
	page.Next = row.ID
	return page, err
}

// viewed is a View with the deadline of a store call.
func (e *Engine) viewed(ctx context.Context, fn func(kv.Snapshot) error) error {
	return e.called(ctx, func(ctx context.Context) error { return e.store.View(ctx, fn) })
}

// workspaceAfter is the name of the next workspace, empty after the last.
func (e *Engine) workspaceAfter(ctx context.Context, name string) (next string, err error) {
	r := keyspace.Workspaces()
	if name != "" {
		r = keyspace.After(r, keyspace.For(name, e.layout).Workspace())
	}
	err = e.viewed(ctx, func(s kv.Snapshot) error {
		rows, err := s.Scan(r, 1)
		if err != nil || len(rows) == 0 {
			next = ""
			return err
		}
		next, err = keyspace.ParseWorkspace(rows[0].Key)
		return err
	})
	return next, err
}

func (e *Engine) sweepUnblocks(ctx context.Context) error {
	all := keyspace.AllUnblocks()
	from := all
	if e.sweeper.unblocks != nil {
		from = keyspace.After(all, e.sweeper.unblocks)
	}
	var rows []kv.Entry
	err := e.viewed(ctx, func(s kv.Snapshot) (err error) {
		rows, err = s.Scan(from, sweepRows)
		return err
	})
	if err != nil {
		return err
	}
	err = e.sweepEach(ctx, len(rows), func(ctx context.Context, i int) error {
		u, err := keyspace.ParseUnblockEntry(rows[i].Key, rows[i].Value)
		if err != nil {
			_, err = e.quarantine(ctx, rows[i].Key, err)
			return err
		}
		return e.expireUnblock(ctx, u)
	})
	if err != nil {
		return err
	}
	e.sweeper.unblocks = nil
	if len(rows) == sweepRows {
		e.sweeper.unblocks = rows[len(rows)-1].Key
	}
	return nil
}

// expireUnblock gives an unblock message up that has waited for too long, and clears an entry away whose
// message is gone.
func (e *Engine) expireUnblock(ctx context.Context, u keyspace.UnblockEntry) error {
	if e.paused.has(u.Workspace) {
		return nil
	}
	old := e.clock.now() - e.opt.UnblockExpiryMs
	var dueAt int64
	var queued bool
	err := e.store.View(ctx, func(s kv.Snapshot) (err error) {
		dueAt, queued, err = store.Read(s, u.Workspace, e.layout).UnblockDueAt(u.ID, u.Address)
		return err
	})
	if errors.Is(err, kv.ErrCorrupt) {
		_, err = e.quarantine(ctx, keyspace.For(u.Workspace, e.layout).Unblock(u.ID, u.Address), err)
		return err
	}
	if err != nil || (queued && dueAt > old) {
		return err
	}
	_, err = kv.Run(ctx, e.store, kv.Hints{Background: true, Lane: u.Workspace}, func(tx kv.Tx) error {
		txn := store.Write(tx, u.Workspace, e.layout)
		dueAt, queued, err = txn.UnblockDueAt(u.ID, u.Address)
		if queued = queued && dueAt <= old; err != nil || (!queued && dueAt > old) {
			return err // queued anew since it was read
		}
		return txn.DeleteUnblock(u.ID, u.Address)
	})
	if err == nil && queued {
		e.counts.expired.Add(1)
		e.log.Warn("unblock message given up: its address could not be reached for too long", "workspace", u.Workspace)
	}
	return err
}
