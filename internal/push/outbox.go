package push

import (
	"context"

	"abide/internal/deliver"
)

// Kind says which of the two messages something is about.
type Kind int

// The kinds of messages.
const (
	KindExecute Kind = iota
	KindUnblock
	kinds // how many there are
)

// String names the kind as metrics and logs show it.
func (k Kind) String() string { return [...]string{"execute", "unblock"}[k] }

// Queue is one queue of the outbox: the messages of a workspace to one address, as clients wrote it.
type Queue struct{ Workspace, Address string }

// Ask is a question for one page of a queue: its messages strictly after the cursor After ("" is the start), in key
// order, at most Limit.
type Ask struct {
	Queue
	After string
	Limit int
}

// UnblockPage answers an Ask about unblock messages. Next is the cursor of the following page, "" at the end; a page may
// hold fewer than Limit entries, even none, and still have a next one.
type UnblockPage struct {
	Unblocks []deliver.UnblockRef
	Next     string
}

// Limits of one Outbox call. An implementation sees no larger one.
const (
	// MaxQueues is how many queues one call of Queues returns.
	MaxQueues = 256
	// MaxAsks is how many queues one call reads.
	MaxAsks = deliver.MaxAsks
	// MaxPage is the largest number of messages in the pages of one call, in one check of executes and in one report.
	MaxPage = deliver.MaxPage
	// MaxUnblockCheck is the largest number of messages in one check of unblocks, which answers with whole records.
	MaxUnblockCheck = deliver.MaxUnblockPage
)

// Outbox is the durable queues of the messages to addresses that are no poll address. The engine implements it.
//
// All methods may be called concurrently, with a context that has a deadline (Limits.CallTimeoutMs). They must not keep or
// change the slices they are given; the caller owns what they return. An error means that the whole call failed. What does
// not decode is left out, and is no error.
//
// Workspaces in which delivery is paused (debug.start) have no queues, their pages and checks are empty, and reports change
// nothing.
type Outbox interface {
	// Queues lists queues that hold messages of a kind, in the order of their keys, at most MaxQueues of those after the
	// cursor after ("" is the start), each once. It may return fewer, even none, and still have a next cursor, which is ""
	// at the end. What it reads is bounded, however many messages wait in the queues.
	Queues(ctx context.Context, kind Kind, after string) (queues []Queue, next string, err error)
	// Executes returns pages of queued executes, each of which was true of its task's record. The pages answer the first of
	// asks in their order, at least one of them: where MaxPage messages have been found the call ends.
	Executes(ctx context.Context, asks []Ask) ([]deliver.ExecutePage, error)
	// Unblocks is Executes for unblock messages, without their records.
	Unblocks(ctx context.Context, asks []Ask) ([]UnblockPage, error)

	// CheckExecutes returns those of the executes, all of one workspace, that are still queued at their version. In any order.
	CheckExecutes(ctx context.Context, workspace string, asked []deliver.Execute) ([]deliver.Execute, error)
	// CheckUnblocks returns those of the unblocks that are still queued, with their records. In any order.
	CheckUnblocks(ctx context.Context, workspace string, asked []deliver.UnblockRef) ([]deliver.Unblock, error)
	// ExecutesDelivered removes the entries that are still queued at their version, and arms the retry of their tasks.
	// Others are left alone.
	ExecutesDelivered(ctx context.Context, workspace string, delivered []deliver.Execute) error
	// UnblocksDelivered removes the entries. One that is gone already is no error.
	UnblocksDelivered(ctx context.Context, workspace string, delivered []deliver.UnblockRef) error

	// Servers names this server and all that live of those that share the store, sorted, this one among them if its own
	// lease holds. Both are empty where no others can be. It reads no store and does not block.
	Servers() (self string, live []string)
}
