package engine

import (
	"context"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// explainScan is how many waiters of a task's call tree one task.explain looks at. There is no index from a task to
// what it awaits: nothing but a person ever asks.
const explainScan = 2000

// explain answers task.explain from a snapshot. How many workers are connected is not the engine's to know: whoever
// serves the request adds it.
func (e *Engine) explain(ctx context.Context, workspace string, r *protocol.TaskExplain, at instant) (protocol.Reply, error) {
	return e.view(ctx, workspace, at, r, func(op *machine.Op, s kv.Snapshot) (protocol.Reply, error) {
		o, err := op.State.Object(r.ID)
		if err != nil {
			return protocol.Reply{}, err
		}
		if o == nil || o.Task == nil {
			return op.Apply(&protocol.TaskGet{ID: r.ID}) // the 404 in its one wording
		}
		promise, err := op.Promise(o)
		if err != nil {
			return protocol.Reply{}, err
		}
		body := protocol.ExplainBody{
			Task: op.Task(o), Promise: promise.State, Target: o.Target(), TimeoutAt: o.TimeoutAt, Now: op.Now,
			ClaimedAt: o.Task.ClaimedAt, Hasty: o.Task.Hasty,
		}
		switch body.Task.State {
		case protocol.TaskPending:
			if body.Queued = o.Task.Queued; !body.Queued {
				body.RetryAt = o.Task.RetryAt
			}
		case protocol.TaskAcquired:
			body.LeaseAt = o.Task.LeaseAt
		case protocol.TaskSuspended:
			keys := keyspace.For(workspace, e.layout)
			body.Awaiting, body.Partial, err = awaiting(op, keys, s, r.ID)
		}
		return protocol.OK(body), err
	})
}

// awaiting lists the pending promises of a task's call tree that have it as a waiter; more tells that not all were
// looked at, or named.
func awaiting(op *machine.Op, keys keyspace.Keys, s kv.Snapshot, awaiter string) (ids []string, more bool, err error) {
	rows, err := s.Scan(keys.TreeWaiters(awaiter), explainScan)
	if err != nil {
		return nil, false, err
	}
	var found []string
	for _, row := range rows {
		if w, ok := keys.ParseAnyWaiter(row.Key); ok && w.Kind == machine.WaiterCallback && w.To == awaiter {
			found = append(found, w.Awaited)
		}
	}
	more = len(rows) == explainScan
	if err := op.State.Load(found); err != nil {
		return nil, false, err
	}
	for _, id := range found {
		o, err := op.State.Object(id)
		switch {
		case err != nil:
			return nil, false, err
		case o == nil || o.State != protocol.Pending || o.TimeoutAt <= op.Now:
			continue // settled: its drain is about to resume the task
		case len(ids) == protocol.MaxExplainAwaiting:
			return ids, true, nil
		}
		ids = append(ids, id)
	}
	return ids, more, nil
}
