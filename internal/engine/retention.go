package engine

import (
	"context"
	"time"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/kv"
)

const (
	// retainInterval is how often retention looks at the journals when it has caught up, and retainPause how long it
	// rests between two passes while it has not: it must not take the machine from requests.
	retainInterval = time.Second
	retainPause    = 20 * time.Millisecond
	// A pass ends when it has looked at retainWorkspaces workspaces, or has called the store retainCalls times.
	retainWorkspaces = 64
	retainCalls      = 256
	// retainPages bounds how far a pass follows one journal, in pages of retainPage entries, and retainSteps how many
	// steps of compaction it makes there. Both are about 16,000 entries.
	retainPages = 16
	retainPage  = 1000
	retainSteps = 128
)

// retainer is where retention stands. Used by one goroutine at a time.
type retainer struct {
	after    string // the last workspace that was looked at; empty: about to begin with the first
	behind   bool   // some workspace of this round is not done with
	calls    int    // of the store, in this pass
	followed map[string]*follower
}

// follower is what retention knows of one workspace's journal.
type follower struct {
	head   kv.EntryPosition // the last entry that was followed
	window *journal.Window
}

// retains is one pass of the retention loop.
func (e *Engine) retains(ctx context.Context) (time.Duration, error) {
	more, err := e.Retain(ctx)
	if more {
		return retainPause, err
	}
	return retainInterval, err
}

// Retain takes the next workspaces and brings their journals towards what is to be kept: it follows what was appended
// since it last looked, and compacts what is too old or too much, in bounded steps that yield to requests. more
// reports whether something is left to do in this round. It goes round all workspaces, paused ones too: what a
// journal keeps is no state of the machine. A journal that cannot be read is logged and passed over; errors are those
// that concern every workspace. Of several servers on a store, one does it. Not safe for concurrent use.
func (e *Engine) Retain(ctx context.Context) (more bool, err error) {
	r := &e.retainer
	if !e.owns(dutyJournal) {
		*r = retainer{} // whoever is to do it follows the journals by itself
		return false, nil
	}
	if r.followed == nil {
		r.followed = map[string]*follower{}
	}
	if r.after == "" {
		r.behind = false
	}
	r.calls = 0
	for n := 0; n < retainWorkspaces && r.calls < retainCalls; n++ {
		var name string
		err := e.called(ctx, func(ctx context.Context) (err error) {
			name, err = e.workspaceAfter(ctx, r.after)
			return err
		})
		if err != nil {
			return false, err
		}
		if r.after = name; name == "" {
			return r.behind, nil
		}
		behind, err := e.retain(ctx, name)
		if ofEveryStep(err) {
			return false, err
		}
		if err != nil {
			e.counts.failures.Add(1)
			e.log.Error("the journal of a workspace cannot be compacted; the next round tries again", "workspace", name, "error", err)
		}
		r.behind = r.behind || behind
	}
	return true, nil
}

// retain does a pass's share for one workspace.
func (e *Engine) retain(ctx context.Context, workspace string) (behind bool, err error) {
	f := e.retainer.followed[workspace]
	if f == nil {
		f = &follower{window: journal.NewWindow(e.retention)}
		e.retainer.followed[workspace] = f
	}
	partition := keyspace.For(workspace, e.layout).Partition()
	for pages := 0; ; pages++ {
		if pages == retainPages {
			behind = true
			break
		}
		var n int
		e.retainer.calls++
		err := e.called(ctx, func(ctx context.Context) (err error) {
			n, err = e.follow(ctx, f, partition)
			return err
		})
		if err != nil {
			return false, err
		}
		if n < retainPage {
			break
		}
	}
	target, ok := f.window.Target(e.clock.now())
	for step := 0; ok; step++ {
		if step == retainSteps {
			return true, nil
		}
		before := f.window.Entries()
		e.retainer.calls++
		err := e.called(ctx, func(ctx context.Context) error {
			floor, more, err := kv.Compact(ctx, e.store, partition, target)
			if err == nil {
				f.window.Drop(floor)
				ok = more
			}
			return err
		})
		if err != nil {
			return false, err
		}
		e.counts.compacted.Add(before - f.window.Entries())
	}
	return behind, nil
}

// follow takes the next page of a journal into its window and returns how many entries that were.
func (e *Engine) follow(ctx context.Context, f *follower, partition []byte) (n int, err error) {
	var entries []kv.JournalEntry
	var floor kv.EntryPosition
	err = e.hinted(ctx, []kv.Range{kv.Only(kv.FloorKey(partition))}, func(s kv.Snapshot) (err error) {
		if floor, err = kv.Floor(s, partition); err != nil {
			return err
		}
		after := f.head
		if after.Compare(floor) < 0 {
			after = floor
		}
		entries, err = s.Journal(partition, after, retainPage)
		return err
	})
	if err != nil {
		return 0, err
	}
	f.window.Drop(floor)
	for _, j := range entries {
		at := e.clock.now() // of one that does not decode: it goes by number, and by age from now on
		if entry, err := keyspace.Entry(j.Record); err == nil {
			at = entry.At
		}
		f.window.Add(j.Position, at)
		f.head = j.Position
	}
	return len(entries), nil
}
