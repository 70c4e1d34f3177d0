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

// ask is a question for a page of a queue: what of it comes after a cursor, at most limit entries.
type ask struct {
	workspace string
	to        keyspace.Destination
	after     string
	limit     int
}

// pollAsks are delivery's asks.
func pollAsks(asks []deliver.Ask) []ask {
	out := make([]ask, len(asks))
	for i, a := range asks {
		out[i] = ask{a.Workspace, keyspace.Destination{Poll: true, Group: a.Group, PID: a.PID}, a.After, a.Limit}
	}
	return out
}

// Executes implements deliver.Outbox. The cursor is the last key of the page.
func (o Outbox) Executes(ctx context.Context, asks []deliver.Ask) ([]deliver.ExecutePage, error) {
	return o.engine.executePages(ctx, pollAsks(asks))
}

// executePages answers asks about executes.
func (e *Engine) executePages(ctx context.Context, asks []ask) (pages []deliver.ExecutePage, err error) {
	now := e.clock.now()
	foreseen := func(keyspace.Keys) (ranges []kv.Range) {
		for _, a := range asks {
			for _, x := range e.executesOf(a) {
				ranges = append(ranges, x.rest)
			}
		}
		return ranges
	}
	err = e.snapshot(ctx, "", foreseen, func(s kv.Snapshot) error {
		queued, err := e.queuedExecutes(s, asks)
		if err != nil {
			return err
		}
		var records []kv.Range
		for i, q := range queued {
			records = append(records, readsOfObjects(keyspace.For(asks[i].workspace, e.layout), q.ids...)...)
		}
		if err := e.learn(s, records); err != nil {
			return err
		}
		pages = make([]deliver.ExecutePage, len(queued))
		for i, q := range queued {
			pages[i].Next = q.next
			if pages[i].Executes, err = e.executable(s, asks[i].workspace, now, q.ids); err != nil {
				return err
			}
		}
		return nil
	})
	return pages, err
}

// queuedPage is a page of the index of executes.
type queuedPage struct {
	ids  []string
	next string
}

// queuedExecutes reads the index for asks, as far as deliver.MaxPage entries go.
func (e *Engine) queuedExecutes(s kv.Snapshot, asks []ask) (pages []queuedPage, err error) {
	left := deliver.MaxPage
	for _, a := range asks {
		limit := min(a.limit, left)
		if limit <= 0 {
			break
		}
		var page queuedPage
		for _, x := range e.executesOf(a) {
			rows, err := s.Scan(x.rest, limit)
			if err != nil {
				return nil, err
			}
			for _, row := range rows {
				if id, err := keyspace.ParseLast(x.all, row.Key); err == nil {
					page.ids = append(page.ids, id)
				}
			}
			left -= len(rows)
			if limit -= len(rows); limit == 0 {
				page.next = string(rows[len(rows)-1].Key)
				break
			}
		}
		pages = append(pages, page)
	}
	return pages, nil
}

// executable are the messages of those of some objects whose tasks are to be sent.
func (e *Engine) executable(s kv.Snapshot, workspace string, now int64, ids []string) (found []deliver.Execute, err error) {
	txn := store.Read(s, workspace, e.layout)
	op := machine.Op{State: txn, Now: now, Config: e.config}
	if err := txn.Load(ids); err != nil && !errors.Is(err, kv.ErrCorrupt) {
		return nil, err
	}
	for _, id := range ids {
		o, err := txn.Object(id)
		if errors.Is(err, kv.ErrCorrupt) {
			e.log.Error("a queued execute names a damaged record", "error", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if o != nil && o.Task != nil && op.Executable(o, o.Task.Version) {
			found = append(found, deliver.Execute{Workspace: workspace, ID: id, Version: o.Task.Version, Address: o.Target(), Trace: o.Trace})
		}
	}
	return found, nil
}

// executeRange is the range of a queue in one shard, and what of it is asked for.
type executeRange struct{ all, rest kv.Range }

// executesOf are the ranges that an ask is about: none in a workspace that is paused.
func (e *Engine) executesOf(a ask) (ranges []executeRange) {
	if e.paused.has(a.workspace) {
		return nil
	}
	keys := keyspace.For(a.workspace, e.layout)
	for shard := range e.layout.Shards {
		all := keys.Executes(a.to, shard)
		if rest, ok := executesAfter(all, a.after); ok {
			ranges = append(ranges, executeRange{all, rest})
		}
	}
	return ranges
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
	err = e.snapshotOnce(ctx, workspace, foreseen, func(s kv.Snapshot) error {
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
				h.Trace = o.Trace
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
func (o Outbox) Unblocks(ctx context.Context, polled []deliver.Ask) (pages []deliver.UnblockPage, err error) {
	e := o.engine
	now := e.clock.now()
	asks := pollAsks(polled)
	err = e.snapshot(ctx, "", e.foreseenUnblocks(asks), func(s kv.Snapshot) error {
		queued, err := e.queuedUnblocks(s, asks, deliver.MaxUnblockPage)
		if err != nil {
			return err
		}
		var records []kv.Range
		for i, q := range queued {
			records = append(records, unblocksOf(asks[i].workspace, e.layout, q.rows)...)
		}
		if err := e.learn(s, records); err != nil {
			return err
		}
		pages = pages[:0]
		left := int64(unblockPageBytes)
		for _, q := range queued {
			if left <= 0 {
				break
			}
			page, size, err := e.unblockPage(s, now, q, left)
			if err != nil {
				return err
			}
			left -= size
			pages = append(pages, page)
		}
		return nil
	})
	return pages, err
}

// unblockRows is a page of the index of unblock messages.
type unblockRows struct {
	rows []kv.Entry
	next string
}

// foreseenUnblocks names what asks about unblock messages read of the index.
func (e *Engine) foreseenUnblocks(asks []ask) func(keyspace.Keys) []kv.Range {
	return func(keyspace.Keys) (ranges []kv.Range) {
		for _, a := range asks {
			ranges = append(ranges, e.unblocksAfter(a))
		}
		return ranges
	}
}

// unblocksAfter is the range that an ask is about.
func (e *Engine) unblocksAfter(a ask) kv.Range {
	all := keyspace.For(a.workspace, e.layout).Unblocks(a.to)
	if a.after == "" {
		return all
	}
	return keyspace.After(all, []byte(a.after))
}

// queuedUnblocks reads the index for asks, as far as so many entries go. That of a workspace that is paused shows as
// empty.
func (e *Engine) queuedUnblocks(s kv.Snapshot, asks []ask, left int) (pages []unblockRows, err error) {
	for _, a := range asks {
		limit := min(a.limit, left)
		if limit <= 0 {
			break
		}
		var page unblockRows
		if !e.paused.has(a.workspace) {
			if page.rows, err = s.Scan(e.unblocksAfter(a), limit); err != nil {
				return nil, err
			}
		}
		if n := len(page.rows); n == limit {
			page.next = string(page.rows[n-1].Key)
		}
		left -= len(page.rows)
		pages = append(pages, page)
	}
	return pages, nil
}

// unblockPage makes the messages of a page of the index, and ends after those that reach so many bytes.
func (e *Engine) unblockPage(s kv.Snapshot, now int64, q unblockRows, bytes int64) (page deliver.UnblockPage, size int64, err error) {
	page.Next = q.next
	for i, row := range q.rows {
		u, err := keyspace.ParseUnblockEntry(row.Key, row.Value)
		if err != nil {
			e.log.Error("an entry of the unblock index is damaged", "error", err)
			continue // the sweep sets it aside
		}
		m, n, err := e.unblock(s, now, u)
		if err != nil {
			return page, size, err
		}
		if n > 0 {
			page.Unblocks = append(page.Unblocks, m)
		}
		size += n
		if last := i == len(q.rows)-1; size >= bytes && !last {
			page.Next = string(row.Key)
			return page, size, nil
		}
	}
	return page, size, nil
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
	err = e.snapshotOnce(ctx, workspace, foreseen, func(s kv.Snapshot) error {
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
