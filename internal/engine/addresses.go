package engine

import (
	"bytes"
	"context"
	"errors"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/internal/push"
	"abide/kv"
)

const (
	// queueRows is how many entries of the outbox one read of a walk over its queues takes. Most queues that nobody takes
	// from hold one message, so that a read shows many of them; a deep one is passed with the next read.
	queueRows = 64
	// queueReads is how many such reads one call of Addresses.Queues makes.
	queueReads = 64
)

// Addresses are the queues of the messages to addresses that are no poll address: it implements push.Outbox.
type Addresses struct{ Outbox }

// Addresses returns the engine's queues by address.
func (e *Engine) Addresses() Addresses { return Addresses{Outbox{e}} }

// Queues implements push.Outbox. The cursor is the key where the walk goes on.
func (a Addresses) Queues(ctx context.Context, kind push.Kind, after string) (queues []push.Queue, next string, err error) {
	e := a.engine
	all := keyspace.AllExecutes()
	if kind == push.KindUnblock {
		all = keyspace.AllUnblocks()
	}
	if after != "" {
		all.Start = []byte(after)
	}
	err = e.firstOf(ctx, []kv.Range{all}, queueRows, func(s kv.Snapshot) error {
		queues, next = queues[:0], ""
		rest := all
		for range queueReads {
			rows, err := s.Scan(rest, queueRows)
			if err != nil {
				return err
			}
			for _, row := range rows {
				if bytes.Compare(row.Key, rest.Start) < 0 {
					continue // of a queue that is passed
				}
				w, err := keyspace.ParseWaiting(row.Key)
				if err != nil {
					rest = keyspace.After(rest, row.Key) // the sweep sets it aside
					continue
				}
				rest = w.Rest(rest)
				if w.To.Poll || e.paused.has(w.Workspace) {
					continue
				}
				if queues = append(queues, push.Queue{Workspace: w.Workspace, Address: w.To.Other}); len(queues) == push.MaxQueues {
					next = string(rest.Start)
					return nil
				}
			}
			if len(rows) < queueRows {
				return nil
			}
		}
		next = string(rest.Start)
		return nil
	})
	return queues, next, err
}

func addressAsks(asks []push.Ask) []ask {
	out := make([]ask, len(asks))
	for i, a := range asks {
		out[i] = ask{a.Workspace, keyspace.Destination{Other: a.Address}, a.After, a.Limit}
	}
	return out
}

// Executes implements push.Outbox. The cursor is the last key of the page.
func (a Addresses) Executes(ctx context.Context, asks []push.Ask) ([]deliver.ExecutePage, error) {
	return a.engine.executePages(ctx, addressAsks(asks))
}

// Unblocks implements push.Outbox. The cursor is the last key of the page.
func (a Addresses) Unblocks(ctx context.Context, asked []push.Ask) (pages []push.UnblockPage, err error) {
	e := a.engine
	asks := addressAsks(asked)
	err = e.snapshot(ctx, "", e.foreseenUnblocks(asks), func(s kv.Snapshot) error {
		queued, err := e.queuedUnblocks(s, asks, push.MaxPage)
		if err != nil {
			return err
		}
		pages = make([]push.UnblockPage, len(queued))
		for i, q := range queued {
			pages[i].Next = q.next
			for _, row := range q.rows {
				u, err := keyspace.ParseUnblockEntry(row.Key, row.Value)
				if errors.Is(err, kv.ErrCorrupt) {
					continue // the sweep sets it aside
				}
				pages[i].Unblocks = append(pages[i].Unblocks, deliver.UnblockRef{ID: u.ID, Address: u.Address})
			}
		}
		return nil
	})
	return pages, err
}

// Servers implements push.Outbox.
func (a Addresses) Servers() (self string, live []string) {
	e := a.engine
	if !e.shared {
		return "", nil
	}
	if known := e.holding(); known != nil {
		live = known.live
	}
	return e.opt.ServerID, live
}
