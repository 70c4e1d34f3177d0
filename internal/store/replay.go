package store

import (
	"context"
	"hash/maphash"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
)

const (
	// replayEntries is how many journal entries one pass of Replay folds at most, which bounds its memory to some
	// 50 MiB. A longer journal takes several passes, each for a share of the promises and schedules.
	replayEntries = 200_000
	// replayPage is how many journal entries are read in one snapshot.
	replayPage = 1000
)

// Replay folds the journal of every workspace and compares where it leads with the records. Each entry must continue
// the one before it of its promise or schedule, and the last must say what the record says. Where nothing of a journal
// has been compacted, it must tell of every record. It needs a store that nobody writes to. Damaged entries and records
// are passed over: they are Check's to report. It returns how many journal entries there were.
// (docs/machine.md, "Journal")
func (o Checker) Replay(ctx context.Context) (entries int64, err error) {
	return o.replay(ctx, replayEntries)
}

// replay is Replay with its bound.
func (o Checker) replay(ctx context.Context, bound int64) (entries int64, err error) {
	c := o.begin(ctx, "replay")
	for from, more := keyspace.Workspaces(), true; more; {
		var rows []kv.Entry
		err := c.store.View(ctx, func(s kv.Snapshot) (err error) {
			rows, err = s.Scan(from, checkPage)
			return err
		})
		if err != nil {
			return entries, err
		}
		for _, row := range rows {
			name, err := keyspace.ParseWorkspace(row.Key)
			if err != nil {
				continue
			}
			n, err := c.replayWorkspace(name, bound)
			if entries += n; err != nil {
				return entries, err
			}
		}
		if more = len(rows) == checkPage; more {
			from = keyspace.After(from, rows[len(rows)-1].Key)
		}
	}
	return entries, nil
}

func (c *checker) replayWorkspace(name string, bound int64) (entries int64, err error) {
	r := replay{checker: c, txn: Read(nil, name, c.layout)}
	if err := r.journal(func(kv.JournalEntry) { entries++ }); err != nil {
		return entries, err
	}
	shares := uint64(max(1, (entries+bound-1)/bound))
	seed := maphash.MakeSeed()
	for share := range shares {
		r.mine = func(s journal.Subject) bool { return maphash.Comparable(seed, s)%shares == share }
		if err := r.pass(); err != nil {
			return entries, err
		}
	}
	return entries, nil
}

// replay is the replay of one workspace.
type replay struct {
	*checker
	txn    *Txn                       // for its keys alone
	mine   func(journal.Subject) bool // whether a subject is one of this pass's share
	fold   *journal.Fold
	origin bool
}

// journal visits every retained entry of the workspace.
func (r *replay) journal(visit func(kv.JournalEntry)) error {
	partition := r.txn.keys.Partition()
	var after kv.EntryPosition
	for first, more := true, true; more; first = false {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		var entries []kv.JournalEntry
		err := r.store.View(r.ctx, func(s kv.Snapshot) (err error) {
			if first {
				if after, err = kv.Floor(s, partition); err != nil {
					return err
				}
				r.origin = after == kv.EntryPosition{}
			}
			entries, err = s.Journal(partition, after, replayPage)
			return err
		})
		if err != nil {
			return err
		}
		for _, e := range entries {
			visit(e)
			after = e.Position
		}
		more = len(entries) == replayPage
		r.tally[kv.KindEntry] += int64(len(entries))
		if r.progress != nil {
			r.progress(r.step, r.tally.Rows())
		}
	}
	return nil
}

// pass folds the entries of its share and compares them with the records.
func (r *replay) pass() error {
	r.fold = journal.NewFold(r.origin)
	err := r.journal(func(j kv.JournalEntry) {
		e, err := keyspace.Entry(j.Record)
		if err != nil || !r.mine(journal.Subject{What: e.What, ID: e.ID}) {
			return
		}
		if err := r.fold.Apply(e); err != nil {
			_ = r.bad(keyspace.Row{Kind: kv.KindEntry, Workspace: r.txn.ws, ID: e.ID}, "at %v, of a %s: %v", j.Position, e.What, err)
		}
	})
	if err != nil {
		return err
	}
	if err := r.checker.pages(r.txn.keys.All(), func(_ *page, row kv.Entry) error {
		id, isObject, err := r.txn.keys.ParseObject(row.Key)
		if err != nil || !isObject {
			return nil
		}
		var o *machine.Object
		return r.compare(journal.Subject{What: journal.Object, ID: id}, "object", func() (s journal.State, err error) {
			o, err = keyspace.Object(id, row.Value)
			return journal.OfObject(o), err
		})
	}); err != nil {
		return err
	}
	schedules := r.txn.keys.Schedules()
	if err := r.checker.pages(schedules, func(_ *page, row kv.Entry) error {
		id, err := keyspace.ParseLast(schedules, row.Key)
		if err != nil {
			return nil
		}
		return r.compare(journal.Subject{What: journal.Schedule, ID: id}, "schedule", func() (journal.State, error) {
			s, err := keyspace.Schedule(id, row.Value)
			return journal.OfSchedule(s), err
		})
	}); err != nil {
		return err
	}
	r.fold.Subjects(func(s journal.Subject, state journal.State) bool {
		if state != (journal.State{}) {
			_ = r.bad(keyspace.Row{Kind: kv.KindEntry, Workspace: r.txn.ws, ID: s.ID}, "the last one of a %s says that it is %s, and there is no record", s.What, state)
		}
		return true
	})
	return nil
}

// compare reports a record whose state is not the one that the journal leads to.
func (r *replay) compare(s journal.Subject, kind string, decode func() (journal.State, error)) error {
	if !r.mine(s) {
		return nil
	}
	folded, known := r.fold.State(s)
	r.fold.Forget(s)
	state, err := decode()
	row := keyspace.Row{Kind: kind, Workspace: r.txn.ws, ID: s.ID}
	switch {
	case err != nil: // Check reports it
		return nil
	case !known && r.origin:
		return r.bad(row, "it is %s, and the journal, which is complete, has no entry for it", state)
	case known && folded != state:
		return r.bad(row, "it is %s, its last journal entry says %s", state, folded)
	}
	return nil
}
