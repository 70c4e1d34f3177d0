package batch

import (
	"context"

	"abide/kv"
)

// Remote is what an engine whose reads are round trips gives to group commit, in place of a Driver. All that
// the closures of a batch read is fetched together: what their hints name with Begin, what they miss after that
// in rounds (see run.rounds); so a batch is two round trips if the hints are right.
//
// Begin, Fetch, Commit, Rollback and Resolve are called by one goroutine at a time. After a successful Begin
// comes exactly one Commit or Rollback; after an error of Fetch only Rollback. Snapshot and Close may be called
// by any goroutine.
//
// The physical transaction must exclude every other writer of the store from Begin on, also those of other
// servers, and see all that they committed: what is fetched is taken for the committed state until Commit.
//
// Errors are *kv.Error with one of the identities of package kv, or context errors where a context is given.
// Every call must end by itself: the writer waits for it.
type Remote interface {
	// Begin starts the physical transaction, returns the sequence number of the last commit of all servers, and
	// answers f, which may be empty, in the same round trip.
	Begin(f *Fetch) (sequence uint64, err error)
	// Fetch answers f within the physical transaction, in one round trip.
	Fetch(f *Fetch) error
	// Commit applies the writes, sets the last commit's sequence number and makes both durable, in one round
	// trip if it can. Its error says what became of them: ErrConflict or ErrUnavailable for nothing,
	// ErrCommitUnknown with a token that Resolve knows. An engine that can find out what became of a commit
	// whose answer was lost does so before it returns. The transaction is over in every case.
	Commit(c Commit) error
	// Rollback ends the physical transaction without a change.
	Rollback()
	// Resolve says what became of the commit that a token names.
	Resolve(ctx context.Context, token kv.Token) (kv.Outcome, error)
	// Snapshot opens a snapshot that observes every commit that has returned. It never waits for the
	// physical transaction, at most for a free connection until ctx ends.
	Snapshot(ctx context.Context) (RemoteSnapshot, error)
	// Close releases the engine. No physical transaction is open; snapshots may be.
	Close() error
}

// Settler is what a Remote adds if its reads may show what other servers have committed before that is durable. (A commit
// makes durable what its batch has read; what a snapshot reads is for its Fetch to wait for.)
type Settler interface {
	// Settle ends a physical transaction that has only read, in place of Rollback, and returns once what it has read
	// is durable. An error says that it may not be; then nobody is told what was decided on it.
	Settle() error
}

// RemoteSnapshot is a read-only state of a remote engine. It is taken with the first fetch.
type RemoteSnapshot interface {
	// Fetch answers f from the snapshot and returns the sequence number of the last commit in it, in one round
	// trip.
	Fetch(f *Fetch) (sequence uint64, err error)
	// Release ends the snapshot. It is called exactly once.
	Release()
}

// Fetch is a set of reads that are answered together. Who fills the answers in gives the slices away: they are
// kept, shared and never changed. The questions belong to the caller again when the call has returned.
type Fetch struct {
	// Gets are keys in ascending order, each once. Values are their values in the same order, nil where there is
	// none; an empty value is not nil.
	Gets   [][]byte
	Values [][]byte
	// Scans ask for the first Limit entries of a range each. They may overlap.
	Scans []Scan
	// Last: of a snapshot, nothing is read after this, so an engine may end it in the same round trip.
	Last bool
}

// Scan is one range of a Fetch. Entries are the first Limit entries in it, in ascending order; fewer mean that
// the range has ended.
type Scan struct {
	kv.Range
	Limit   int
	Entries []kv.Entry
}

// Empty reports whether f asks for nothing.
func (f *Fetch) Empty() bool { return len(f.Gets) == 0 && len(f.Scans) == 0 }

// Commit is what a batch came to.
type Commit struct {
	// Sequence is the sequence number of the last closure that wrote.
	Sequence uint64
	// Writes are the changes in ascending order of keys, each key once. Keys and values may be kept, without ever
	// changing them, but not the list.
	Writes []Write
	// Incarnation, unless 0, replaces what every position of the store begins with, for whoever opens it next: an
	// import's first step. The incarnation that this store was opened with stays as it is.
	Incarnation uint32
	// Signals are the hints of the batch that are for others too, for an engine that can carry them to other servers. They
	// are lost without harm.
	Signals []kv.Signal
}

// NewRemote starts group commit over an engine whose reads are round trips, which the store then owns.
func NewRemote(remote Remote, opt Options) *Store {
	s := prepare(remote, opt)
	s.remote = remote
	s.run.rounds = newRounds(&s.run, remote)
	s.start()
	return s
}

// engine is what both kinds of engine have.
type engine interface {
	Rollback()
	Resolve(ctx context.Context, token kv.Token) (kv.Outcome, error)
	Close() error
}
