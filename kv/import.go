package kv

import "context"

// Import is one step of filling a store with the rows of another one. It is no transaction of the contract: it
// writes keys that only a store may write, and keeps to no position.
type Import struct {
	// Rows are put as they are: ordinary keys, journal entries and floors, in any order, no key twice; together at
	// most MaxTxBytes and MaxTxOps of them. The caller has given entries and floors positions of this store's
	// incarnation; see InIncarnation.
	Rows []Entry
	// After is the State of the step before, nil for the first one. So no step is made twice, and of two importers
	// one is refused.
	After []byte
	// State is what the importer needs to go on after a break, at most MaxValueBytes and not empty. It is stored in
	// the same commit as Rows and marks the store as incomplete. Nil ends the import: the mark is removed, and the
	// store is like any other.
	State []byte
	// Incarnation is that of every position from now on. It is the same in all steps of an import.
	Incarnation uint32
	// Sequence is a number that this commit's sequence number is above: the last commit of the store that the rows come from.
	Sequence uint64
}

// Importer is what a store adds to the contract so that it can be filled from another engine. Every store on
// kv/batch whose driver can set its incarnation has it.
//
// A store that is being imported is incomplete until the import ends, across restarts of the process: whoever
// opens stores for use asks ImportState and refuses it. A handle keeps handing out positions of the incarnation
// that it was opened with, so a store is opened anew after its import.
type Importer interface {
	// ImportState is the State of the last step of an import that has not ended; nil if there is none. The
	// slice is the caller's.
	ImportState(ctx context.Context) ([]byte, error)
	// Import makes one step, durable when it returns. The first one, which must have a State, needs a store in which
	// nothing was ever committed.
	//
	// Errors: ErrConflict if After is not the state that the store has; ErrLimit for what is out of bounds, for a
	// first step on a store that is not empty, and for an engine that cannot be imported into; those of
	// Store.Update. After ErrCommitUnknown ImportState tells whether the step was made.
	Import(ctx context.Context, step Import) error
}

// InIncarnation is p in a store of another incarnation: the same place among its commits. The zero Position and
// with it the origin of the journal are in every store.
func (p Position) InIncarnation(incarnation uint32) Position {
	if p.IsZero() {
		return p
	}
	return NewPosition(incarnation, p.Sequence())
}

// InIncarnation is e in a store of another incarnation; see Position.InIncarnation.
func (e EntryPosition) InIncarnation(incarnation uint32) EntryPosition {
	return EntryPosition{Commit: e.Commit.InIncarnation(incarnation), Index: e.Index}
}

// MaxIncarnation is the largest incarnation of a store.
const MaxIncarnation = 1<<32 - 1<<24 - 1
