// Package kv is the storage contract that everything else in Abide stands on: a narrow, ordered,
// transactional key-value store with a commit-ordered journal. It knows nothing of promises, tasks or
// HTTP. Backends implement it (kv/sqlitekv, kv/memkv, ...); the engine uses nothing else.
//
// # What a store promises
//
//   - Strict serializability: a transaction that begins after another one was acknowledged, in any
//     process, observes it, and commit positions follow that order.
//   - Durability before acknowledgement: when Update returns a Position, the commit survives a crash of
//     the process and a loss of power.
//   - Atomicity: of one closure's writes, appends and signals either all happen or none.
//   - Notifications (Signals) are hints. They may be lost or coalesced; nothing may depend on them.
//
// # Who owns the bytes
//
// Slices given to a store (keys, values, records, ranges) are copied before the call returns; the
// caller may reuse them. Slices returned by a store may be kept for as long as the caller likes, but
// must not be changed: several callers may share them.
//
// Source: docs/storage-contract.md, after the RFD "Transactional storage contract", "Storage contract" and "Commit-ordered journal".
package kv

import "context"

// Limits of the contract. Each names the engine that sets it; every store enforces all of them alike,
// so that nothing that works on one engine fails on another.
const (
	// MaxKeyBytes is the longest key. Set by PostgreSQL, whose index rows end at 2,704 bytes. A key has at
	// least one byte, and its first byte is below ReservedPrefix.
	MaxKeyBytes = 2600
	// ReservedPrefix begins the keys that a store keeps for itself: the journal, of which JournalKey and
	// FloorKey say what may be seen, and what the engine needs. It is what FoundationDB reserves. A range may
	// end at it: Range{nil, []byte{ReservedPrefix}} is every key.
	ReservedPrefix = 0xFF
	// MaxValueBytes is the largest value. Set by FoundationDB (100,000 bytes), with room. Larger
	// payloads are chunked above the contract.
	MaxValueBytes = 64 << 10
	// MaxTxBytes bounds the keys, values and journal records that one closure writes. Set by
	// FoundationDB (10,000,000 bytes, discouraged above 1 MB) and by our largest request, 2 MiB.
	MaxTxBytes = 4 << 20
	// MaxTxOps bounds the reads, writes, appends and signals of one closure (a row returned by a scan counts
	// as one read). Set by FoundationDB's five seconds.
	MaxTxOps = 10_000
	// MaxScanRows is the largest limit of one Scan or Journal call.
	MaxScanRows = 10_000
	// MaxSignalBytes is the longest topic and body of a signal together. Set by PostgreSQL, whose notifications
	// end below 8,000 bytes, with room for several in one, and by the longest names that a message may have, which fit.
	MaxSignalBytes = 2304
	// MaxTxSeconds is how long one closure or snapshot may live. Set by FoundationDB.
	MaxTxSeconds = 5
)

// Range is the half-open interval [Start, End) of keys in byte order. A nil End is not "to infinity":
// every range has an end (kv/tuple computes it for a prefix). Start and End may be one byte longer than a
// key. A range whose End does not come after its Start is empty.
type Range struct{ Start, End []byte }

// Only is the range of one key. It keeps key and does not change it.
func Only(key []byte) Range { return Range{Start: key, End: append(key[:len(key):len(key)], 0)} }

// Entry is one key with its value, as a scan returns it.
type Entry struct{ Key, Value []byte }

// JournalEntry is one record of a journal partition with its place in the order.
type JournalEntry struct {
	Position EntryPosition
	Record   []byte
}

// Reader is what both kinds of transaction can read. Within one transaction every method sees one
// consistent state (in a Tx: plus the transaction's own writes). Not safe for concurrent use.
// Errors: ErrLimit for a key or limit out of bounds, ErrTooLarge when the closure has used up its
// operations or its time, ErrTxDone after the closure has returned, ErrCorrupt, ErrUnavailable, ErrClosed.
// An error of a Tx's method is final for its closure: nothing of it commits, and Update returns that error
// even if the closure does not.
type Reader interface {
	// Get returns the value of key, or nil if there is none. A value that is present is never nil.
	Get(key []byte) ([]byte, error)
	// GetMany returns the values of keys, in their order, nil where there is none: one round trip on
	// engines that have round trips.
	GetMany(keys [][]byte) ([][]byte, error)
	// Scan returns the first limit entries of r in ascending byte order of keys. Fewer than limit
	// entries means that the range has ended. limit is 1..MaxScanRows.
	Scan(r Range, limit int) ([]Entry, error)
}

// Snapshot is a read-only transaction.
type Snapshot interface {
	Reader
	// Journal returns at most limit entries of the partition strictly after the given position, in
	// commit order and, within a commit, in append order. Fewer than limit mean that there are no more.
	// ErrExpired, with the floor in it, if there could be a gap before the first of them (see Expired),
	// decided in this same snapshot.
	Journal(partition []byte, after EntryPosition, limit int) ([]JournalEntry, error)
	// Bound is the inclusive upper bound of the commits that this snapshot observes: exactly those at or
	// below it. EntryPosition{Bound(), AfterCommit} is therefore the cursor for the state it read.
	Bound() Position
}

// Tx is a read-write transaction. Reading the journal inside it is outside the contract (FoundationDB
// cannot read back what it has not committed), but for Compact, which reads only entries that a snapshot
// before it observed.
type Tx interface {
	Reader
	// Put sets key to value. An empty value is a value.
	Put(key, value []byte) error
	// Delete removes key; removing an absent key is not an error.
	Delete(key []byte) error
	// Append adds a record to a journal partition. It is stamped with the commit position of this
	// transaction and keeps its append order within it. An append alone makes the transaction a write.
	Append(partition, record []byte) error
	// Signal asks for a hint to be sent to the subscribers once this transaction has committed. Equal
	// signals of one physical commit are coalesced. A transaction that wrote nothing signals nothing. A
	// signal over its limit fails the transaction.
	Signal(s Signal)
}

// Signal is a post-commit hint: a topic, and a body whose meaning is the topic's own. Both are opaque to
// the store. Keep them short, at most MaxSignalBytes: some engines carry them to other servers.
type Signal struct {
	Topic, Body string
	// Local: nobody but subscribers of this handle of the store has a use for it. An engine that carries signals leaves
	// it out, and one whose signals are all local carries nothing.
	Local bool
}

// Hints accompany an Update. None of them changes what the transaction means.
type Hints struct {
	// Prefetch names ranges that the closure will probably read, so that an engine with round trips can
	// fetch them for a whole batch at once. A single key k is the range {k, k+"\x00"}.
	Prefetch []Range
	// Background marks work that no client waits for: it yields to requests.
	Background bool
	// Lane is the queue that this work waits in (the workspace). Lanes share the writer fairly.
	Lane string
}

// Store is an ordered transactional key-value store. All methods are safe for concurrent use.
type Store interface {
	// Update makes one attempt to run fn in a read-write transaction and to commit it, and returns only
	// when the outcome is known to be durable, not committed, or unknown. The position is zero when fn
	// wrote nothing.
	//
	// fn may share a physical transaction with other closures, may run any number of times and on any
	// goroutine, and must do nothing but call its Tx and overwrite its own results. Its error aborts its
	// own writes only and is returned as it is, after the outcome of the neighbours whose writes it may
	// have read is known. A cancelled ctx takes a closure out of the queue; it never interrupts a commit.
	//
	// Errors: fn's own; ErrConflict, ErrOverloaded, ErrUnavailable, ErrTooLarge, ErrLimit, ErrPartition,
	// ErrCorrupt, ErrClosed and a cancelled ctx (nothing committed); ErrCommitUnknown (carries a token for
	// Resolve).
	Update(ctx context.Context, h Hints, fn func(Tx) error) (Position, error)
	// View runs fn on a snapshot that observes every commit acknowledged before the call. It never waits
	// for a writer. fn's error is returned as it is.
	View(ctx context.Context, fn func(Snapshot) error) error
	// Resolve says what became of a commit whose outcome was unknown. It may answer OutcomeUnknown for
	// good where the engine cannot tell.
	Resolve(ctx context.Context, t Token) (Outcome, Position, error)
	// Signals subscribes fn to the hints of commits made through this store. fn runs on the commit path:
	// it must be quick and must not call the store. stop ends the subscription.
	Signals(fn func([]Signal)) (stop func())
	// Close waits for the commit under way, answers everything queued with ErrClosed and releases the
	// store. Closing twice is harmless.
	Close() error
}

// KeyRegister is what a store may know about the keys above it without knowing the domain: how to name
// the kind of a key in an error (never its content), and where a partitioned engine places it. Both
// functions are pure, must accept any bytes and must not keep the slice. A nil function means "unknown".
type KeyRegister struct {
	// Kind names a key's kind, as in "object" or "timer".
	Kind func(key []byte) string
	// Placement returns the storage partition of a key and whether it is an index entry (derived, and so
	// allowed to be stale on an engine without transactions across partitions).
	Placement func(key []byte) (partition []byte, index bool)
}
