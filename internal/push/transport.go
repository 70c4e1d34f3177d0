// Package push delivers the messages whose address names no worker group: to HTTP endpoints, to Pub/Sub topics, to
// scripts that the server runs itself. What such a message needs besides a queue is a Transport.
package push

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"

	"abide/protocol"
)

// Message is one message on its way to an address: the unblock of Promise if that is set, else the execute of Task.
type Message struct {
	Workspace string
	// Address is where it goes, as the client wrote it.
	Address string
	Task    protocol.TaskRef
	// Promise is without param and value, which Body has. Nobody may change it.
	Promise *protocol.Promise
	// Body is the message in the protocol's JSON, one line of ASCII. It belongs to the transport.
	Body []byte
	// Trace is the trace that an execute's task is part of, with this delivery as the cause of what comes if it is
	// recorded; nil if it is part of none. It is shared, and Body has it too.
	Trace *protocol.Trace
	// Attempt counts the sends of this message that this server has begun, from 1.
	Attempt int
}

// DeliveryID names a message, the same each time that it is sent: msg_ and 32 hexadecimal digits. It is a digest, since an id
// may hold what no header can, and be longer than the value of an attribute.
func (m Message) DeliveryID() string {
	parts := []string{m.Workspace, protocol.MessageExecute, m.Task.ID, strconv.FormatInt(m.Task.Version, 10)}
	if m.Promise != nil {
		parts = []string{m.Workspace, protocol.MessageUnblock, m.Promise.ID, m.Address}
	}
	sum := sha256.New()
	for _, part := range parts {
		sum.Write([]byte(strconv.Itoa(len(part)) + ":" + part)) // the length keeps "a","bc" apart from "ab","c"
	}
	return "msg_" + hex.EncodeToString(sum.Sum(nil)[:16])
}

// Errors of a Transport. Any other error means that the destination did not accept the message now: it stays queued and
// is sent again after a pause that grows.
var (
	// ErrRefused says that no repetition helps while the settings and the address are what they are: a destination
	// that is denied, a credential that cannot be had, an address that names nothing. The message stays queued, and
	// is tried again at the longest pause, because settings change. The text wrapped around it says why.
	ErrRefused = errors.New("refused")
	// ErrStale says that the message has nothing left to do: its task is taken or settled. It counts as delivered.
	ErrStale = errors.New("stale")
)

// LaterError is the error of a destination that says when it wants to be asked again. That is honoured up to
// Limits.MaxLaterMs, and holds for the whole lane.
type LaterError struct {
	Err     error
	AfterMs int64
}

func (e *LaterError) Error() string { return e.Err.Error() }

// Unwrap returns what was wrong.
func (e *LaterError) Unwrap() error { return e.Err }

// Transport sends messages of some schemes. It is safe for concurrent use.
type Transport interface {
	// Lane names what a message waits in line for: messages of one lane share their concurrency, their backoff and
	// their turn, and a lane that hangs holds up no other. For HTTP it is the scheme, host and port. It is a pure
	// function of the address, at most 255 bytes. The error says why nothing can ever be sent there.
	Lane(address protocol.Address, text string) (string, error)
	// Send hands over one message and returns when it was accepted (nil), or was not. It ends soon after ctx does. The
	// execute of a task may be a whole execution of it, so a Send may take minutes.
	Send(ctx context.Context, m Message) error
	// Concurrency is how many Sends of one lane may run at once, at least 1.
	Concurrency(lane string) int
	// Close waits until what it holds is released, or ctx ends. No Send is running any more.
	Close(ctx context.Context) error
}

// Interrupter is a Transport whose Sends may last longer than a stop takes. Interrupt is called at the beginning of a stop:
// it makes them end soon, in a way that lets another server do their work at once, as the end of their context would. It
// does not wait for them.
type Interrupter interface{ Interrupt() }
