package engine

import (
	"context"
	"errors"
	"time"

	"abide/internal/keyspace"
	"abide/kv"
	"abide/protocol"
)

// DefaultMaxWorkspaces is how many workspaces a store may have unless Options say otherwise. Each costs a walk of the
// sweep and of retention, and some memory while it is used.
const DefaultMaxWorkspaces = 10_000

const (
	// workspacePage is how many workspaces one snapshot counts.
	workspacePage = 1000
	// recountInterval is how long a count is good for that other servers may have overtaken, or that leaves no room.
	recountInterval = 10 * time.Second
	// watchInterval is the same for whoever only looks on: a count reads every workspace's row.
	watchInterval = time.Minute
)

// errNoRoom is why a request in a workspace that does not exist yet is refused.
var errNoRoom = errors.New("the store has as many workspaces as it may have")

// workspaceCount is how many workspaces exist, for whoever wants to make one more.
type workspaceCount struct {
	turn chan struct{} // holds a token while somebody makes one
	n    int           // how many there are; more than the limit are not counted
	at   time.Duration // when they were counted, on the steady clock
	know bool
}

// ensureWorkspace makes the workspace's record with its first write, in a transaction of its own. It is errNoRoom if there
// are too many.
func (e *Engine) ensureWorkspace(ctx context.Context, workspace string) error {
	if _, ok := e.workspaces.Load(workspace); ok {
		return nil
	}
	found, err := e.findWorkspace(ctx, workspace, false)
	switch {
	case err != nil:
		return err
	case !found:
		return e.makeWorkspace(ctx, workspace)
	}
	e.workspaces.Store(workspace, struct{}{})
	return nil
}

// makeWorkspace makes a workspace's record if there is room for it. One is made at a time, so that the count holds; but
// nobody waits who would wait for themselves (Options.Sequential): then two may, and the count is one too many until the
// next.
func (e *Engine) makeWorkspace(ctx context.Context, workspace string) error {
	if !e.opt.Sequential {
		select {
		case e.existing.turn <- struct{}{}:
			defer func() { <-e.existing.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if _, ok := e.workspaces.Load(workspace); ok {
		return nil
	}
	if err := e.countWorkspaces(ctx, recountInterval); err != nil {
		return err
	}
	// The default one is what most clients mean: whoever makes up names must not keep them out.
	if e.existing.n >= e.opt.MaxWorkspaces && workspace != protocol.DefaultWorkspace {
		return errNoRoom
	}
	found, err := e.findWorkspace(ctx, workspace, true)
	switch {
	case err != nil:
		e.existing.know = false // it may be there
	case !found:
		e.existing.n++
	}
	if err == nil {
		e.workspaces.Store(workspace, struct{}{})
	}
	return err
}

// findWorkspace reports whether a workspace has its record, and puts it if it is to.
func (e *Engine) findWorkspace(ctx context.Context, workspace string, put bool) (found bool, err error) {
	key := keyspace.For(workspace, e.layout).Workspace()
	_, err = kv.Run(ctx, e.store, kv.Hints{Lane: workspace}, func(tx kv.Tx) error {
		b, err := tx.Get(key)
		if found = b != nil; err != nil || found || !put {
			return err
		}
		return tx.Put(key, keyspace.AppendInstant(nil, e.clock.now()))
	})
	return found, err
}

// Workspaces is how many workspaces the store has, and how many it may have; more than that are not counted. Several servers on
// a store find the others' a minute later. It may fail with the store. Safe for concurrent use.
func (e *Engine) Workspaces(ctx context.Context) (n, limit int, err error) {
	select {
	case e.existing.turn <- struct{}{}:
		defer func() { <-e.existing.turn }()
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	err = e.countWorkspaces(ctx, watchInterval)
	return min(e.existing.n, e.opt.MaxWorkspaces), e.opt.MaxWorkspaces, err
}

// countWorkspaces counts the workspaces unless their number is known. It is known to the server that makes them all; one
// of several looks again when its count is as old as goodFor.
func (e *Engine) countWorkspaces(ctx context.Context, goodFor time.Duration) error {
	c, now := &e.existing, e.opt.Source.Mono()
	aged := now-c.at >= goodFor && (e.shared || c.n >= e.opt.MaxWorkspaces)
	if c.know && !aged {
		return nil
	}
	n := 0
	for r := keyspace.Workspaces(); ; {
		var rows []kv.Entry
		err := e.store.View(ctx, func(s kv.Snapshot) (err error) {
			rows, err = s.Scan(r, workspacePage)
			return err
		})
		if err != nil {
			return err
		}
		if n += len(rows); len(rows) < workspacePage || n >= e.opt.MaxWorkspaces {
			break
		}
		r = keyspace.After(r, rows[len(rows)-1].Key)
	}
	c.n, c.at, c.know = n, now, true
	return nil
}
