package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"abide/protocol"
)

// Defaults of Retry.
const (
	// DefaultAttempts is how often a request is sent at most.
	DefaultAttempts = 4
	// DefaultMaxPause is the longest pause between two of them.
	DefaultMaxPause = 10 * time.Second
)

// firstPause is the pause before the first repeat where the server asks for none; it doubles from one to the next.
const firstPause = 100 * time.Millisecond

// Retry bounds the repeats of one request.
type Retry struct {
	// Attempts is how often it is sent at most; 0 stands for DefaultAttempts, 1 for no repeats.
	Attempts int
	// MaxPause is the longest pause between two attempts; 0 stands for DefaultMaxPause. A server that asks for a longer
	// one is not waited for: the call ends at once, with what it answered.
	MaxPause time.Duration
}

// ErrUnknownOutcome is in the errors of requests that may have had their effect or not: the connection broke, or the
// server does not know. No repeat ever applies a request of the protocol twice, but the answer to it may be another
// one: a task request that has succeeded is answered 409 the next time. Ask for the record to learn what happened.
var ErrUnknownOutcome = errors.New("the outcome is unknown")

// Repeatable tells whether a request of that kind may be repeated after an unknown outcome as if it had never been
// sent: the state and the answer are then those of one request, whatever others do in between.
//
// They are those that only read; promise.create, promise.settle, promise.register_callback and
// promise.register_listener, which do nothing to what is there already and are never undone; task.fence, whose inner
// request is one of these, under a version; task.heartbeat, which only moves an end. The others are not: task.create,
// task.acquire, task.suspend, task.fulfill, task.release and task.continue answer 409 when they are done, and
// schedule.delete 404; a task.halt may undo another's task.continue, a schedule.create another's schedule.delete, and
// debug.* anything.
func Repeatable(kind protocol.Kind) bool {
	switch kind {
	case protocol.KindPromiseCreate, protocol.KindPromiseSettle, protocol.KindPromiseRegisterCallback,
		protocol.KindPromiseRegisterListener, protocol.KindTaskFence, protocol.KindTaskHeartbeat:
		return true
	}
	return readOnly(kind)
}

func readOnly(kind protocol.Kind) bool {
	switch kind {
	case protocol.KindPromiseGet, protocol.KindPromiseSearch, protocol.KindTaskGet, protocol.KindTaskSearch,
		protocol.KindTaskExplain, protocol.KindScheduleGet, protocol.KindScheduleSearch, protocol.KindDebugSnap:
		return true
	}
	return false
}

// outcome is what is known about a request that was sent.
type outcome int

const (
	final     outcome = iota // answered, and a repeat would be answered the same
	untouched                // nothing was changed; a repeat may succeed
	unknown                  // it may have had its effect
)

// attempt is how one request went.
type attempt struct {
	response protocol.Response
	pause    time.Duration // what Retry-After asks for; 0 for nothing
	outcome  outcome
	err      error // no answer of the protocol
}

// do sends req until an answer is final or the repeats are used up. pause is what the last answer asks for.
func (c *Client) do(ctx context.Context, req protocol.Request) (response protocol.Response, pause time.Duration, err error) {
	kind := req.Kind()
	head := protocol.Head{CorrID: strconv.FormatInt(c.corrIDs.Add(1), 10), Auth: c.options.Token}
	if c.options.DebugTime != nil {
		now := c.options.DebugTime()
		head.DebugTime = &now
	}
	body := protocol.AppendRequest(nil, head, req)
	attempts, longest := c.options.Retry.Attempts, c.options.Retry.MaxPause
	if attempts <= 0 {
		attempts = DefaultAttempts
	}
	if longest <= 0 {
		longest = DefaultMaxPause
	}
	doubted := false // an earlier attempt may have had its effect
	for n, backoff := 1, firstPause; ; n, backoff = n+1, min(2*backoff, longest) {
		a := c.exchange(ctx, kind, body)
		doubted = doubted || a.outcome == unknown
		again := a.outcome == untouched || a.outcome == unknown && Repeatable(kind)
		if !again || n >= attempts || a.pause > longest || ctx.Err() != nil {
			if a.err == nil && a.outcome == untouched && doubted && !readOnly(kind) {
				a.err = failure(kind, a.response, a.pause) // nothing was changed this time, but before?
			}
			return a.response, a.pause, blame(kind, a.err, doubted)
		}
		pause := a.pause
		if pause == 0 {
			pause = backoff/2 + rand.N(backoff/2+1)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			last := a.err
			if last == nil {
				last = failure(kind, a.response, a.pause)
			}
			return protocol.Response{}, 0, blame(kind, fmt.Errorf("%w; the last attempt: %w", ctx.Err(), last), doubted)
		}
	}
}

// blame marks the error of a request that may have had its effect.
func blame(kind protocol.Kind, err error, doubted bool) error {
	if err == nil || !doubted || readOnly(kind) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

// outcomeOf judges an error of the HTTP client. Only a connection that was never made is known to have carried nothing.
func outcomeOf(err error) outcome {
	if cert := (*tls.CertificateVerificationError)(nil); errors.As(err, &cert) {
		return final
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return untouched
	}
	return unknown
}

// outcomeOfStatus judges the status of an answer. 502 and 504 are those of a proxy that has lost the server.
func outcomeOfStatus(status int) outcome {
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return untouched
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return unknown
	}
	return final
}

// retryAfter reads the header Retry-After: seconds, or an instant, which counts from the answer's own Date so that
// nobody's clock matters. 0 if there is none.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return max(at.Sub(date), 0)
}
