package engine

import (
	"context"
	"errors"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

// unblockPageBytes ends a page of unblock messages, which carry whole records.
const unblockPageBytes = 4 << 20

// Outbox is what delivery reads and writes of the store: it implements deliver.Outbox. Workspaces that
// debug.start has paused show as empty and stay as they are.
type Outbox struct{ engine *Engine }

// Outbox returns the engine's outbox.
func (e *Engine) Outbox() Outbox { return Outbox{e} }

func destination(d deliver.Destination) keyspace.Destination {
	return keyspace.Destination{Poll: true, Group: d.Group, PID: d.PID}
}

// Executes implements deliver.Outbox. The cursor is the last key of the page.
func (o Outbox) Executes(ctx context.Context, d deliver.Destination, after string, limit int) (page []deliver.Execute, next string, err error) {
	e := o.engine
	if e.paused.has(d.Workspace) {
		return nil, "", nil
	}
	keys := keyspace.For(d.Workspace, e.layout)
	now := e.clock.now()
	foreseen := func(keyspace.Keys) (ranges []kv.Range) {
		for shard := range e.layout.Shards {
			if r, ok := executesAfter(keys.Executes(destination(d), shard), after); ok {
				ranges = append(ranges, r)
			}
		}
		return ranges
	}
	err = e.snapshot(ctx, d.Workspace, foreseen, func(s kv.Snapshot) error {
		page, next = page[:0], ""
		ids := make([]string, 0, limit)
		for shard := range e.layout.Shards {
			all := keys.Executes(destination(d), shard)
			r, ok := executesAfter(all, after)
			if !ok {
				continue
			}
			rows, err := s.Scan(r, limit-len(ids))
			if err != nil {
				return err
			}
			for _, row := range rows {
				if id, err := keyspace.ParseLast(all, row.Key); err == nil {
					ids = append(ids, id)
				}
			}
			if len(ids) >= limit {
				next = string(rows[len(rows)-1].Key)
				break
			}
		}
		txn := store.Read(s, d.Workspace, e.layout)
		op := machine.Op{State: txn, Now: now, Config: e.config}
		if err := txn.Load(ids); err != nil && !errors.Is(err, kv.ErrCorrupt) {
			return err
		}
		for _, id := range ids {
			o, err := txn.Object(id)
			if errors.Is(err, kv.ErrCorrupt) {
				e.log.Error("a queued execute names a damaged record", "error", err)
				continue
			}
			if err != nil {
				return err
			}
			if o != nil && o.Task != nil && op.Executable(o, o.Task.Version) {
				page = append(page, deliver.Execute{Workspace: d.Workspace, ID: id, Version: o.Task.Version, Address: o.Target()})
			}
		}
		return nil
	})
	return page, next, err
}

// executesAfter is what of a shard's range comes after a cursor, which may be of another shard; not ok if nothing does.
func executesAfter(all kv.Range, after string) (r kv.Range, ok bool) {
	switch {
	case after >= string(all.End):
		return kv.Range{}, false
	case after > string(all.Start):
		return keyspace.After(all, []byte(after)), true
	}
	return all, true
}

// CheckExecutes implements deliver.Outbox.
func (o Outbox) CheckExecutes(ctx context.Context, workspace string, hinted []deliver.Execute) (valid []deliver.Execute, err error) {
	e := o.engine
	if e.paused.has(workspace) {
		return nil, nil
	}
	now := e.clock.now()
	foreseen := func(k keyspace.Keys) []kv.Range { return readsOfExecutes(k, hinted) }
	err = e.snapshot(ctx, workspace, foreseen, func(s kv.Snapshot) error {
		valid = valid[:0]
		txn := store.Read(s, workspace, e.layout)
		op := machine.Op{State: txn, Now: now, Config: e.config}
		if err := loadExecutes(txn, hinted); err != nil {
			return err
		}
		for _, h := range hinted {
			o, err := txn.Object(h.ID)
			if errors.Is(err, kv.ErrCorrupt) {
				e.log.Error("a hinted execute names a damaged record", "error", err)
				continue
			}
			if err != nil {
				return err
			}
			if op.Executable(o, h.Version) {
				valid = append(valid, h)
			}
		}
		return nil
	})
	return valid, err
}

// ExecutesDelivered implements deliver.Outbox: one small transaction each, submitted together so that they
// share a commit.
func (o Outbox) ExecutesDelivered(ctx context.Context, workspace string, delivered []deliver.Execute) error {
	if o.engine.paused.has(workspace) {
		return nil
	}
	at := instant{engine: o.engine, workspace: workspace}
	return o.engine.concurrently(len(delivered), func(i int) error {
		return o.engine.update(ctx, workspace, at, work{background: true}.reading(delivered[i].ID), func(op *machine.Op, _ *store.Txn) error {
			_, err := op.Delivered(delivered[i].ID, delivered[i].Version)
			return err
		})
	})
}

// Unblocks implements deliver.Outbox. The cursor is the last key of the page.
func (o Outbox) Unblocks(ctx context.Context, d deliver.Destination, after string, limit int) (page []deliver.Unblock, next string, err error) {
	e := o.engine
	if e.paused.has(d.Workspace) {
		return nil, "", nil
	}
	all := keyspace.For(d.Workspace, e.layout).Unblocks(destination(d))
	r := all
	if after != "" {
		r = keyspace.After(all, []byte(after))
	}
	now := e.clock.now()
	foreseen := func(keyspace.Keys) []kv.Range { return []kv.Range{r} }
	err = e.snapshot(ctx, d.Workspace, foreseen, func(s kv.Snapshot) error {
		page, next = page[:0], ""
		rows, err := s.Scan(r, limit)
		if err != nil {
			return err
		}
		if err := e.learn(s, unblocksOf(d.Workspace, e.layout, rows)); err != nil {
			return err
		}
		bytes := int64(0)
		for i, row := range rows {
			u, err := keyspace.ParseUnblockEntry(row.Key, row.Value)
			if err != nil {
				e.log.Error("an entry of the unblock index is damaged", "error", err)
				continue // the sweep sets it aside
			}
			m, size, err := e.unblock(s, now, u)
			if err != nil {
				return err
			}
			if size > 0 {
				page = append(page, m)
			}
			bytes += size
			if last := i == len(rows)-1; (bytes >= unblockPageBytes && !last) || (last && len(rows) == limit) {
				next = string(row.Key)
				return nil
			}
		}
		return nil
	})
	return page, next, err
}

// unblocksOf names what the messages of a page of the unblock index are made of. Damaged entries are passed over.
func unblocksOf(workspace string, l keyspace.Layout, rows []kv.Entry) []kv.Range {
	refs := make([]deliver.UnblockRef, 0, len(rows))
	for _, row := range rows {
		if u, err := keyspace.ParseUnblockEntry(row.Key, row.Value); err == nil {
			refs = append(refs, deliver.UnblockRef{ID: u.ID, Address: u.Address})
		}
	}
	return readsOfUnblocks(keyspace.For(workspace, l), refs)
}

// unblock is the message of an entry, with about its size; 0 if there is none to send.
func (e *Engine) unblock(s kv.Snapshot, now int64, u keyspace.UnblockEntry) (m deliver.Unblock, size int64, err error) {
	txn := store.Read(s, u.Workspace, e.layout)
	op := machine.Op{State: txn, Now: now, Config: e.config}
	p, queued, err := queuedPromise(&op, txn, u)
	if errors.Is(err, kv.ErrCorrupt) {
		e.log.Error("a queued unblock names a damaged record", "error", err)
		return m, 0, nil
	}
	if err != nil || !queued {
		return m, 0, err
	}
	m = deliver.Unblock{Workspace: u.Workspace, ID: u.ID, Address: u.Address, Promise: p}
	return m, int64(len(p.Param) + len(p.Value) + 500), nil
}

// queuedPromise is the settled promise that an unblock entry stands for, if its message is still queued.
func queuedPromise(op *machine.Op, txn *store.Txn, u keyspace.UnblockEntry) (p protocol.Promise, queued bool, err error) {
	if _, queued, err = txn.UnblockDueAt(u.ID, u.Address); err != nil || !queued {
		return p, false, err
	}
	o, err := txn.Object(u.ID)
	if err != nil || o == nil || o.State == protocol.Pending {
		return p, false, err
	}
	p, err = op.Promise(o)
	return p, err == nil, err
}

// CheckUnblocks implements deliver.Outbox.
func (o Outbox) CheckUnblocks(ctx context.Context, workspace string, hinted []deliver.UnblockRef) (queued []deliver.Unblock, err error) {
	e := o.engine
	if e.paused.has(workspace) {
		return nil, nil
	}
	now := e.clock.now()
	foreseen := func(k keyspace.Keys) []kv.Range { return readsOfUnblocks(k, hinted) }
	err = e.snapshot(ctx, workspace, foreseen, func(s kv.Snapshot) error {
		queued = queued[:0]
		for _, h := range hinted {
			m, size, err := e.unblock(s, now, keyspace.UnblockEntry{Workspace: workspace, ID: h.ID, Address: h.Address})
			if err != nil {
				return err
			}
			if size > 0 {
				queued = append(queued, m)
			}
		}
		return nil
	})
	return queued, err
}

// UnblocksDelivered implements deliver.Outbox.
func (o Outbox) UnblocksDelivered(ctx context.Context, workspace string, delivered []deliver.UnblockRef) error {
	e := o.engine
	if e.paused.has(workspace) {
		return nil
	}
	return e.concurrently(len(delivered), func(i int) error {
		_, err := kv.Run(ctx, e.store, kv.Hints{Background: true, Lane: workspace}, func(tx kv.Tx) error {
			return store.Write(tx, workspace, e.layout).DeleteUnblock(delivered[i].ID, delivered[i].Address)
		})
		return err
	})
}
