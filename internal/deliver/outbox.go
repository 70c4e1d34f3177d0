package deliver

import (
	"context"

	"abide/protocol"
)

// Destination is one queue of the outbox: the messages that the same connections may take.
//
// An address poll://any@g or poll://any@g/id belongs to {w, g, ""}: every member of the group may take
// it. An address poll://uni@g/id belongs to {w, g, id}: only that worker may, and however many messages
// wait for workers that are gone, nobody else's scan meets them. poll://uni@g (no id) can reach nobody
// and should belong to no queue that is read here; one that is met all the same is passed over.
// Group and PID are the decoded names, as protocol.ParseAddress and the path of the poll request give
// them. A connection's group is never empty.
//
// In a workspace W other than the default one, poll://any@W/poll and poll://uni@W/poll belong to {W, "", ""}:
// the whole workspace. The TypeScript SDK (0.11.4, 0.11.5) reads its own group and pid off the first two
// segments of the path of its poll URL. With a base URL that ends in /w/W it polls the right path,
// /w/W/poll/<group>/<pid>, but calls itself W and poll in the targets of the roots that it runs and in the
// listeners that it registers. So nobody has to be connected as W/poll; who is takes part like all others.
//
//   - An execute goes to any connection of W, of whatever group.
//   - An unblock goes to any one of them, and that one counts for its delivery. All others are written a copy
//     as far as their buffers have room, because only the worker that waits knows that it does. To the
//     others it is a promise that they never asked for, which they ignore.
//
// Any and uni make no difference here.
type Destination struct {
	Workspace string
	Group     string
	PID       string
}

// Execute is the queued execute message of a pending task. Address is the task's target as its creator
// wrote it; the message itself carries only ID and Version, and Trace, the trace that the task is part of: nil if it is
// part of none, and in what delivery asks about. A Trace is shared, and nobody changes it.
type Execute struct {
	Workspace string
	ID        string
	Version   int64
	Address   string
	Trace     *protocol.Trace
}

// UnblockRef names one queued unblock message: the settled promise and the listener's address.
type UnblockRef struct {
	ID      string
	Address string
}

// Unblock is a queued unblock message with the settled promise's whole record.
type Unblock struct {
	Workspace string
	ID        string
	Address   string
	Promise   protocol.Promise
}

// Ask is a question for one page of a queue: the entries of Destination strictly after the cursor After ("" is the
// start), in key order, at most Limit.
type Ask struct {
	Destination
	After string
	Limit int
}

// ExecutePage answers an Ask. Next is the cursor of the following page, "" at the end; a page may hold fewer than
// Limit entries, even none, and still have a next one.
type ExecutePage struct {
	Executes []Execute
	Next     string
}

// UnblockPage is the same of unblock messages.
type UnblockPage struct {
	Unblocks []Unblock
	Next     string
}

// Limits of one Outbox call. An implementation sees no larger one.
const (
	// MaxPage is the largest number of entries in the pages of one call, in one check and in one report.
	MaxPage = 256
	// MaxUnblockPage is the same for calls that answer with whole promise records, each of which may be
	// as large as a request body.
	MaxUnblockPage = 16
	// MaxAsks is how many queues one call reads. On an engine whose reads are round trips all of them together cost
	// what one does, and most queues that are looked at are empty.
	MaxAsks = 64
)

// Outbox is the durable queue of messages, as delivery sees it. The engine implements it.
//
// All methods may be called concurrently, with a context that has a deadline (Limits.CallTimeoutMs). They
// must not keep or change the slices they are given; the caller owns what they return. An error means
// that the whole call failed; the caller comes back later. A single record that does not decode is not an error:
// the implementation sets it aside and leaves it out, so that it holds up nobody else.
//
// While delivery in a workspace is paused (debug.start), pages and checks of it are empty and reports change
// nothing. What was in flight ends as if it had been delivered, and is found again by a scan after the pause.
type Outbox interface {
	// Executes returns pages of queued executes, read in one snapshot. Each message was true of its task's record in
	// it: the task viewed pending, the version the record's. The pages answer the first of asks in their order, at
	// least one of them: where MaxPage messages have been found the call ends, and what is left is asked again.
	Executes(ctx context.Context, asks []Ask) ([]ExecutePage, error)

	// CheckExecutes reads the tasks' records again and returns those of the hinted executes that are
	// still true, with their traces: the task viewed pending, the version equal, the execute still queued. In any order.
	CheckExecutes(ctx context.Context, workspace string, hinted []Execute) ([]Execute, error)

	// ExecutesDelivered removes the entries that are unchanged (still queued, same version) and arms the
	// retry of their tasks, in bounded transactions. Entries that have changed are left alone: that is no
	// error. Calling it again with the same entries is harmless.
	ExecutesDelivered(ctx context.Context, workspace string, delivered []Execute) error

	// Unblocks is Executes for unblock messages, of which it finds MaxUnblockPage. Because it returns whole records, it
	// should also end at a few MiB.
	Unblocks(ctx context.Context, asks []Ask) ([]UnblockPage, error)

	// CheckUnblocks returns those of the hinted unblocks that are still queued, with their records. In
	// any order.
	CheckUnblocks(ctx context.Context, workspace string, hinted []UnblockRef) ([]Unblock, error)

	// UnblocksDelivered removes the entries. One that is gone already is no error.
	UnblocksDelivered(ctx context.Context, workspace string, delivered []UnblockRef) error
}

// Hints is what the engine tells delivery after a commit. Deliverer implements it. None of the methods
// blocks, each may be called from any goroutine, and each may lose what it is told: a message whose hint is
// lost is found by the next scan that its workers have room for.
type Hints interface {
	// HintExecute says that a commit has just queued e, anew or into an entry that was there already.
	// Addresses of other schemes than poll are ignored.
	HintExecute(e Execute)
	// HintClaimed says that a task at this version is pending no longer: it was claimed (version is the one
	// the claimant presented), halted or settled. It comes also for a task whose execute was delivered, and so
	// is not queued: a worker's slot is taken until then (Limits.MaxExecutes). One that is lost costs that slot for
	// Limits.HoldMs.
	HintClaimed(workspace, id string, version int64)
	// HintUnblock says that a commit has just queued this unblock.
	HintUnblock(workspace string, ref UnblockRef)
}
