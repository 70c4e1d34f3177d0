package metrics

import (
	"context"
	"time"

	"abide/internal/deliver"
	"abide/internal/engine"
	"abide/internal/push"
	"abide/internal/store"
	"abide/internal/trace"
	"abide/kv/batch"
)

// Sources are where a scrape reads. Every function must be quick, but for those with a context, and safe for concurrent use.
type Sources struct {
	// Version is that of the binary.
	Version string
	// Store is what the store counts.
	Store func() Store
	// Engine is what the engine counts.
	Engine func() engine.Counts
	// Delivery is what delivery counts and holds.
	Delivery func() deliver.Stats
	// Push is what push counts and holds.
	Push func() push.Stats
	// InFlight is how many requests are in the engine.
	InFlight func() int64
	// MaxConnections is how many streams to workers may be open at once.
	MaxConnections int
	// MaxPushes is how many messages may be on their way to addresses that are no poll address.
	MaxPushes int
	// Workspaces is how many workspaces the store has, and may have. It may fail: then the metrics of it are missing.
	Workspaces func(ctx context.Context) (n, limit int, err error)
	// Ready reports why requests cannot be served now; nil if they can.
	Ready func(ctx context.Context) error
	// Traces is what was recorded of traces; nil without them.
	Traces func() trace.Stats
	// Queues looks at what waits in the store. It may fail: the metrics that come of it are then missing.
	Queues func(ctx context.Context) (store.Queues, error)
	// Census reads which servers run on the store. It may fail, too.
	Census func(ctx context.Context) (engine.Census, error)
}

// Store is what a store counts, whatever its engine.
type Store struct {
	Engine string // sqlite, postgres, mysql
	// Durable is false for a database that may lose acknowledged writes, which the operator has accepted.
	Durable bool
	// Writable is false while it takes no writes.
	Writable bool
	Batch    batch.Stats
	// FileBytes and LogBytes are the sizes of the database file and of the log beside it; negative where the engine
	// keeps its files to itself.
	FileBytes, LogBytes int64
	// DiskFreeBytes is the space left where they are; negative if that is not known.
	DiskFreeBytes int64
	// Remote is nil for an engine in this process.
	Remote *Remote
}

// Remote is what an engine in other processes adds.
type Remote struct {
	WriteTrips, ReadTrips uint64            // round trips of physical transactions, commits included, and of snapshots
	Failures              map[string]uint64 // failed calls by cause, of which there are few
	LockWaits             uint64            // times that the writer took the store's lock
	LockWait              time.Duration     // that it took all of them together, one round trip each included
	Connects              uint64            // connections made
	Resolved              uint64            // commits whose answer was lost and whose outcome was found out
	Readers, Reading      int               // size of the pool for snapshots, and how many of it are in use now
	ReaderWaits           uint64            // snapshots that waited for one of it
	Hints                 uint64            // notifications of other servers' commits
	Listening             bool              // whether they arrive now
}
