package engine

import (
	"context"
	"strings"
	"sync"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

const (
	// heartbeatTasks is how many leases one transaction renews.
	heartbeatTasks = 100
	// heartbeatPage is how many tasks are looked at in one read transaction.
	heartbeatPage = 1000
)

// heartbeat renews leases: read first, then write only what must move, a call tree at a time and at most
// heartbeatTasks in one transaction. Not atomic as a whole; the answer comes when all are durable.
func (e *Engine) heartbeat(ctx context.Context, workspace string, r *protocol.TaskHeartbeat, at instant) (protocol.Reply, error) {
	now, err := at.forRead(ctx)
	if err != nil {
		return protocol.Reply{}, err
	}
	beat := &beat{pid: r.PID, within: r.Within}
	if len(r.Tasks) == 0 {
		err = e.heldBy(ctx, workspace, at, now, beat)
	} else {
		err = e.judge(ctx, workspace, now, beat, r.Tasks)
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	groups := byTree(beat.moving)
	err = e.concurrently(len(groups), func(i int) error {
		return e.renew(ctx, workspace, at, beat, groups[i])
	})
	if err != nil {
		return protocol.Reply{}, err
	}
	return protocol.OK(protocol.HeartbeatBody{Lost: beat.lostIn(r.Tasks)}), nil
}

// beat is one heartbeat under way.
type beat struct {
	pid    string
	within string             // beginning of the ids that an empty heartbeat is about
	moving []protocol.TaskRef // leases that must move
	mu     sync.Mutex
	lost   map[protocol.TaskRef]bool
}

func (b *beat) lose(ref protocol.TaskRef) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost == nil {
		b.lost = map[protocol.TaskRef]bool{}
	}
	b.lost[ref] = true
}

// lostIn lists the ids of the refs that were not renewed, each once, in the order of the request.
func (b *beat) lostIn(refs []protocol.TaskRef) []string {
	var ids []string
	seen := map[string]bool{}
	for _, ref := range refs {
		if b.lost[ref] && !seen[ref.ID] {
			seen[ref.ID] = true
			ids = append(ids, ref.ID)
		}
	}
	return ids
}

// judge sorts the named tasks into lost, moving and those whose lease may stay, page by page.
func (e *Engine) judge(ctx context.Context, workspace string, now int64, b *beat, refs []protocol.TaskRef) error {
	seen := make(map[protocol.TaskRef]bool, len(refs))
	for len(refs) > 0 {
		page := refs[:min(len(refs), heartbeatPage)]
		refs = refs[len(page):]
		var lost, moving []protocol.TaskRef
		err := e.store.View(ctx, func(s kv.Snapshot) error {
			lost, moving = lost[:0], moving[:0]
			txn := store.Read(s, workspace, e.layout)
			op := machine.Op{State: txn, Now: now, Config: e.config}
			ids := make([]string, len(page))
			for i, ref := range page {
				ids[i] = ref.ID
			}
			if err := txn.Load(ids); err != nil {
				return err
			}
			for _, ref := range page {
				if seen[ref] {
					continue
				}
				kept, leaseAt, err := op.Lease(ref.ID, b.pid, ref.Version)
				switch {
				case err != nil:
					return err
				case !kept:
					lost = append(lost, ref)
				case leaseAt != 0:
					moving = append(moving, ref)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, ref := range page {
			seen[ref] = true
		}
		for _, ref := range lost {
			b.lose(ref)
		}
		b.moving = append(b.moving, moving...)
	}
	return nil
}

// heldBy finds every task that the pid has claimed in this life of the server and whose lease must move.
func (e *Engine) heldBy(ctx context.Context, workspace string, at instant, now int64, b *beat) error {
	all := keyspace.For(workspace, e.layout).Leases(b.pid)
	for from, more := all, true; more; {
		var moving []protocol.TaskRef
		var rest kv.Range
		err := e.store.View(ctx, func(s kv.Snapshot) error {
			moving = moving[:0]
			rows, err := s.Scan(from, heartbeatPage)
			if err != nil {
				return err
			}
			ids := make([]string, 0, len(rows))
			for _, row := range rows {
				id, err := keyspace.ParseLast(all, row.Key)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			if more = len(rows) == heartbeatPage; more {
				rest = keyspace.After(all, rows[len(rows)-1].Key)
			}
			txn := store.Read(s, workspace, e.layout)
			op := machine.Op{State: txn, Now: now, Config: e.config, ClaimedSince: at.claimedSince()}
			if err := txn.Load(ids); err != nil {
				return err
			}
			for _, id := range ids {
				if !strings.HasPrefix(id, b.within) {
					continue
				}
				_, leaseAt, err := op.Lease(id, b.pid, -1)
				if err != nil {
					return err
				}
				if leaseAt != 0 {
					moving = append(moving, protocol.TaskRef{ID: id, Version: -1})
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		b.moving = append(b.moving, moving...)
		from = rest
	}
	return nil
}

// byTree cuts refs into groups of one call tree and at most heartbeatTasks each.
func byTree(refs []protocol.TaskRef) [][]protocol.TaskRef {
	open := map[string]int{} // tree -> its last group
	var groups [][]protocol.TaskRef
	for _, ref := range refs {
		tree := keyspace.Tree(ref.ID)
		i, ok := open[tree]
		if !ok || len(groups[i]) == heartbeatTasks {
			i = len(groups)
			open[tree] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], ref)
	}
	return groups
}

// renew moves the leases of one group; what is no longer held by then is lost.
func (e *Engine) renew(ctx context.Context, workspace string, at instant, b *beat, refs []protocol.TaskRef) error {
	var lost []protocol.TaskRef
	ids := make([]string, len(refs))
	for i, ref := range refs {
		ids[i] = ref.ID
	}
	err := e.update(ctx, workspace, at, request(protocol.KindTaskHeartbeat).reading(ids...), func(op *machine.Op, _ *store.Txn) error {
		lost = lost[:0]
		for _, ref := range refs {
			kept, err := op.Renew(ref.ID, b.pid, ref.Version)
			if err != nil {
				return err
			}
			if !kept {
				lost = append(lost, ref)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, ref := range lost {
		b.lose(ref)
	}
	return nil
}

// inParallel is how many operations of one piece of work wait for the writer together: they share a commit.
const inParallel = 64

// concurrently calls fn(0..n-1), up to inParallel at a time, and returns the first error after all that were
// begun have returned. A panic in fn is an error. With Options.Sequential it calls one after the other.
func (e *Engine) concurrently(n int, fn func(i int) error) error {
	if n == 1 || e.opt.Sequential {
		for i := range n {
			if err := guard(func() error { return fn(i) }); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	next := 0
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if first != nil || next == n {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range min(n, inParallel) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i, ok := take(); ok; i, ok = take() {
				if err := guard(func() error { return fn(i) }); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		}()
	}
	wg.Wait()
	return first
}
