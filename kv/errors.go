package kv

import (
	"errors"
	"strings"
)

// The identities of a store's errors; test with errors.Is. Grouped by what they say about the commit.
var (
	// ErrConflict: another transaction was in the way. Nothing committed; Run tries again.
	ErrConflict = errors.New("conflict with another transaction; nothing was committed")
	// ErrOverloaded: the queue in front of the writer is full. Nothing committed; the caller may come back
	// later.
	ErrOverloaded = errors.New("the store's write queue is full; nothing was committed")
	// ErrUnavailable: the engine cannot be reached, or refuses to write for now (disk full). Nothing
	// committed.
	ErrUnavailable = errors.New("the store is unavailable; nothing was committed")
	// ErrCommitUnknown: the commit was under way when the engine failed. It may be durable. Never retried
	// blindly; the *Error carries a Token for Resolve.
	ErrCommitUnknown = errors.New("the outcome of the commit is unknown")

	// ErrLimit: a key, value or limit is out of the contract's bounds.
	ErrLimit = errors.New("over a limit of the storage contract")
	// ErrTooLarge: the closure wrote too many bytes or used too many operations.
	ErrTooLarge = errors.New("the transaction is too large")
	// ErrPartition: the engine cannot change these partitions in one transaction.
	ErrPartition = errors.New("the transaction spans storage partitions that this engine cannot change together")
	// ErrCorrupt: stored bytes do not decode, or the engine reports damage.
	ErrCorrupt = errors.New("stored data is damaged")
	// ErrExpired: journal entries after the reader's position may have been removed, or the position is none of
	// this store's history. The *Error carries the Floor. The reader starts again: it reads the state in one
	// snapshot and goes on after that snapshot's bound.
	ErrExpired = errors.New("the journal is no longer kept from this position on")
	// ErrTxDone: a transaction was used after its closure had returned.
	ErrTxDone = errors.New("the transaction is over")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("the store is closed")
)

// Token names a commit whose outcome is unknown. Opaque.
type Token string

// Outcome is what Resolve answers.
type Outcome int

// The three outcomes of a commit.
const (
	OutcomeUnknown Outcome = iota
	OutcomeCommitted
	OutcomeNotCommitted
)

// Error is how a store reports a failure: which store, which operation, which kind of key, never a key or
// a value. Unwrap gives both the identity and the engine's own error.
type Error struct {
	Is      error         // one of the identities above
	Store   string        // "sqlite", "memory", ...
	Op      string        // "get", "put", "commit", ...
	KeyKind string        // as the key register names it, or KindEntry or KindFloor; empty if no key is concerned
	Detail  string        // what was exceeded, by how much; for a person
	Token   Token         // set for ErrCommitUnknown
	Floor   EntryPosition // set for ErrExpired: the floor of the partition
	Err     error         // the engine's own error, if any
}

// Error is for people and logs.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Store)
	b.WriteString(" ")
	b.WriteString(e.Op)
	if e.KeyKind != "" {
		b.WriteString(" of ")
		b.WriteString(e.KeyKind)
	}
	b.WriteString(": ")
	b.WriteString(e.Is.Error())
	if e.Detail != "" {
		b.WriteString(" (" + e.Detail + ")")
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap makes errors.Is and errors.As see the identity and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Is}
	}
	return []error{e.Is, e.Err}
}
