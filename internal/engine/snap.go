package engine

import (
	"cmp"
	"context"
	"slices"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

// snapPage is how many rows one snapshot of debug.snap reads; each may lead to 70 pieces of large payloads.
const snapPage = 100

// snapTries is how often debug.snap begins anew because the state changed while it was read.
const snapTries = 5

// snap reads the whole state of a workspace, projected at the request's instant: the specification's view, in
// which every pending task has a retry, queued or not. Page after page has a snapshot of its own; they are one
// state because no commit has come between them.
func (e *Engine) snap(ctx context.Context, workspace string, at instant) (protocol.Reply, error) {
	now, err := at.forRead(ctx)
	if err != nil {
		return protocol.Reply{}, err
	}
	for range snapTries {
		body, whole, err := e.snapOnce(ctx, workspace, now)
		if err != nil {
			return protocol.Reply{}, err
		}
		if whole {
			sortSnap(body)
			return protocol.OK(*body), nil
		}
	}
	return protocol.Fail(protocol.StatusUnavailable, "The state keeps changing while it is read; pause the workspace with debug.start, or try again"), nil
}

// snapOnce reads the pages of a snapshot; whole is false if a commit came between two of them.
func (e *Engine) snapOnce(ctx context.Context, workspace string, now int64) (body *protocol.SnapBody, whole bool, err error) {
	body = &protocol.SnapBody{}
	var bound kv.Position
	from := keyspace.For(workspace, e.layout).All()
	for first, more := true, true; more; first = false {
		part, rest := &protocol.SnapBody{}, kv.Range{}
		err := e.store.View(ctx, func(s kv.Snapshot) error {
			*part = protocol.SnapBody{}
			if first {
				bound = s.Bound()
			} else if s.Bound() != bound {
				whole = false
				more = false
				return nil
			}
			whole = true
			txn := store.Read(s, workspace, e.layout)
			snap := snapshot{
				keys: txn.Keys(), txn: txn, body: part,
				op: machine.Op{State: txn, Now: now, Config: e.config},
			}
			rows, err := s.Scan(from, snapPage)
			if err != nil {
				return err
			}
			for _, row := range rows {
				if err := snap.row(row); err != nil {
					return err
				}
			}
			if more = len(rows) == snapPage; more {
				rest = keyspace.After(from, rows[len(rows)-1].Key)
			}
			return nil
		})
		if err != nil {
			return nil, false, err
		}
		appendSnap(body, part)
		from = rest
	}
	return body, whole, nil
}

func appendSnap(b, part *protocol.SnapBody) {
	b.Promises = append(b.Promises, part.Promises...)
	b.PromiseTimeouts = append(b.PromiseTimeouts, part.PromiseTimeouts...)
	b.Callbacks = append(b.Callbacks, part.Callbacks...)
	b.Listeners = append(b.Listeners, part.Listeners...)
	b.Tasks = append(b.Tasks, part.Tasks...)
	b.TaskTimeouts = append(b.TaskTimeouts, part.TaskTimeouts...)
	b.Messages = append(b.Messages, part.Messages...)
}

// snapshot collects the rows of one debug.snap.
type snapshot struct {
	keys keyspace.Keys
	txn  *store.Txn
	op   machine.Op
	body *protocol.SnapBody
}

func (s *snapshot) row(row kv.Entry) error {
	if id, isObject, err := s.keys.ParseObject(row.Key); err != nil {
		return err
	} else if isObject {
		return s.object(id)
	}
	if w, ok := s.keys.ParseAnyWaiter(row.Key); ok {
		if w.Kind == machine.WaiterCallback {
			s.body.Callbacks = append(s.body.Callbacks, protocol.SnapCallback{Awaiter: w.To, Awaited: w.Awaited})
		} else {
			s.body.Listeners = append(s.body.Listeners, protocol.SnapListener{ID: w.Awaited, Address: w.To})
		}
		return nil
	}
	if id, address, ok := s.keys.ParseUnblock(row.Key); ok {
		o, err := s.txn.Object(id)
		if err != nil || o == nil {
			return err
		}
		p, err := s.op.Promise(o)
		s.body.Messages = append(s.body.Messages, protocol.SnapMessage{Address: address, Unblock: &p})
		return err
	}
	return nil
}

func (s *snapshot) object(id string) error {
	o, err := s.txn.Object(id)
	if err != nil || o == nil {
		return err
	}
	p, err := s.op.Promise(o)
	if err != nil {
		return err
	}
	b := s.body
	b.Promises = append(b.Promises, p)
	if p.State == protocol.Pending && o.Armed() {
		b.PromiseTimeouts = append(b.PromiseTimeouts, protocol.SnapTimeout{ID: id, Timeout: o.TimeoutAt})
	}
	if o.Task == nil {
		return nil
	}
	t := s.op.Task(o)
	b.Tasks = append(b.Tasks, t)
	switch t.State {
	case protocol.TaskPending:
		b.TaskTimeouts = append(b.TaskTimeouts, protocol.SnapTaskTimeout{ID: id, Type: 0, Timeout: o.Task.RetryAt})
		if o.Task.Queued {
			ref := &protocol.TaskRef{ID: id, Version: t.Version}
			b.Messages = append(b.Messages, protocol.SnapMessage{Address: o.Target(), Execute: ref})
		}
	case protocol.TaskAcquired:
		b.TaskTimeouts = append(b.TaskTimeouts, protocol.SnapTaskTimeout{ID: id, Type: 1, Timeout: o.Task.LeaseAt})
	}
	return nil
}

// sortSnap puts every list into the order of the protocol: by id, then by address; executes before unblocks.
func sortSnap(b *protocol.SnapBody) {
	slices.SortFunc(b.Promises, func(x, y protocol.Promise) int { return cmp.Compare(x.ID, y.ID) })
	slices.SortFunc(b.PromiseTimeouts, func(x, y protocol.SnapTimeout) int { return cmp.Compare(x.ID, y.ID) })
	slices.SortFunc(b.Callbacks, func(x, y protocol.SnapCallback) int {
		return cmp.Or(cmp.Compare(x.Awaiter, y.Awaiter), cmp.Compare(x.Awaited, y.Awaited))
	})
	slices.SortFunc(b.Listeners, func(x, y protocol.SnapListener) int {
		return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.Address, y.Address))
	})
	slices.SortFunc(b.Tasks, func(x, y protocol.Task) int { return cmp.Compare(x.ID, y.ID) })
	slices.SortFunc(b.TaskTimeouts, func(x, y protocol.SnapTaskTimeout) int { return cmp.Compare(x.ID, y.ID) })
	slices.SortFunc(b.Messages, func(x, y protocol.SnapMessage) int {
		return cmp.Or(cmp.Compare(messageRank(x), messageRank(y)), cmp.Compare(messageID(x), messageID(y)),
			cmp.Compare(x.Address, y.Address))
	})
}

func messageRank(m protocol.SnapMessage) int {
	if m.Execute != nil {
		return 0
	}
	return 1
}

func messageID(m protocol.SnapMessage) string {
	if m.Execute != nil {
		return m.Execute.ID
	}
	return m.Unblock.ID
}
