package engine

import (
	"context"
	"errors"
	"slices"

	"abide/internal/journal"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/protocol"
)

// The clocks of servers on one store may be up to cluster.MaxOffsetMs apart, so a promise that has timed out by one
// server's clock could still be settled at another. What somebody was told, and may have acted upon, must not be undone:
// where servers share a store, an answer that rests on a deadline alone is given only once that is stored. A search is a
// list to look at, not to act upon: its pages are as one server's clock shows them. (docs/servers.md)

// persistTries is how often an answer is worked out anew because it rests on deadlines that are not stored. Each time
// those that were met are stored, so more are needed only if others pass meanwhile.
const persistTries = 4

// errRestsOnDeadlines takes back an operation whose answer rests on deadlines that are not stored.
var errRestsOnDeadlines = errors.New("the answer rests on deadlines that are not stored")

// restsOn lists the promises whose deadlines, not yet stored, an operation's answer rests on; nil if it may be given as
// it is.
func (e *Engine) restsOn(kind protocol.Kind, at instant, op *machine.Op, try int) []string {
	txn, ok := op.State.(*store.Txn)
	if !ok || !e.shared || !op.Projected || at.debug != nil || isSearch(kind) || try >= persistTries {
		return nil
	}
	return txn.Expired(op.Now)
}

// settled works an answer out with answer, until it rests on no deadline that is not stored. Each call of answer gets
// the number of the try and returns the promises whose deadlines it rested on.
func (e *Engine) settled(ctx context.Context, workspace string, at instant, answer func(try int) (expired []string, err error)) error {
	for try := 0; ; try++ {
		expired, err := answer(try)
		if err != nil || len(expired) == 0 {
			return err
		}
		slices.Sort(expired)
		err = e.concurrently(len(expired), func(i int) error {
			w := work{cause: journal.CauseTimeout}
			return e.update(ctx, workspace, at, w, func(op *machine.Op, _ *store.Txn) error {
				_, err := op.PromiseTimeout(expired[i])
				return err
			})
		})
		if err != nil {
			return err
		}
	}
}
