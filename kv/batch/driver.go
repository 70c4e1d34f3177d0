package batch

import (
	"context"

	"abide/kv"
)

// Driver is what an engine gives to group commit: one physical read-write transaction at a time, and
// snapshots beside it. Keys may be anything up to the reserved key space and beyond; the batcher has checked
// every limit before it calls.
//
// Begin, Get, Scan, Apply, Commit, Rollback and Resolve are called by one goroutine at a time. After a
// successful Begin comes exactly one Commit or Rollback. Snapshot and Close may be called by any goroutine.
//
// Errors are *kv.Error with one of the identities of package kv, or context errors where a context is given.
type Driver interface {
	DriverReader
	// Begin starts the physical transaction and returns the sequence number of the last commit, 0 for an
	// empty store. ErrUnavailable where the engine cannot write for now.
	Begin() (sequence uint64, err error)
	// Apply writes the batch's changes in ascending order of keys. It may keep keys and values, without ever
	// changing them, but not the list. After an error only Rollback follows.
	Apply(writes []Write) error
	// Commit makes the changes durable and sets the last commit's sequence number. Its error says what became
	// of them: ErrConflict or ErrUnavailable for nothing, ErrCommitUnknown with a token that Resolve knows.
	// The transaction is over in every case.
	Commit(sequence uint64) error
	// Rollback ends the physical transaction without a change.
	Rollback()
	// Resolve says what became of the commit that a token names.
	Resolve(ctx context.Context, token kv.Token) (kv.Outcome, error)
	// Snapshot opens a snapshot that observes every commit that has returned. It never waits for the
	// physical transaction, at most for a free connection until ctx ends.
	Snapshot(ctx context.Context) (DriverSnapshot, error)
	// Close releases the engine. No physical transaction is open; snapshots may be.
	Close() error
}

// DriverReader reads one consistent state. Slices that it returns belong to nobody: they may be kept and
// shared, and are never changed.
type DriverReader interface {
	// Get returns the value of key, nil if there is none; an empty value is not nil.
	Get(key []byte) ([]byte, error)
	// Scan visits the entries of r in ascending order of keys until visit returns false.
	Scan(r kv.Range, visit func(key, value []byte) bool) error
}

// DriverSnapshot is a read-only state with the sequence number of the last commit in it.
type DriverSnapshot interface {
	DriverReader
	Sequence() (uint64, error)
	// Release ends the snapshot. It is called exactly once.
	Release()
}

// Write is one change of a batch: a put of Value, or a deletion.
type Write struct {
	Key, Value []byte
	Delete     bool
}
