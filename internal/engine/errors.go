package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// resolveTimeout bounds the question what became of an unknown commit.
const resolveTimeout = 2 * time.Second

// Texts of the answers to failed transactions.
const (
	messageUnavailable = "The server cannot take the request now; nothing was changed. Try again."
	messageUnknown     = "The outcome of the request is unknown: it may or may not have been applied. " +
		"A repeat never applies twice (a repeated task request may answer 409)."
	messageDamaged = "A stored record is damaged; the server's log names its kind."
	messagePartial = "The request was not finished in its time; part of it has been done. Repeat it."
)

// resolve asks the store what became of a commit whose outcome is unknown. Committed is success; not
// committed is a conflict, which the client may retry; unknown stays unknown.
func (e *Engine) resolve(ctx context.Context, err error) error {
	var unknown *kv.Error
	if !errors.Is(err, kv.ErrCommitUnknown) || !errors.As(err, &unknown) || unknown.Token == "" {
		return err
	}
	// The question outlives the request's deadline: an honest answer is worth a moment more.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTimeout)
	defer cancel()
	outcome, _, rerr := e.store.Resolve(ctx, unknown.Token)
	switch {
	case rerr != nil || outcome == kv.OutcomeUnknown:
		return err
	case outcome == kv.OutcomeCommitted:
		return nil
	}
	return &kv.Error{Is: kv.ErrUnavailable, Store: unknown.Store, Op: unknown.Op, Detail: "the commit did not take place", Err: unknown.Err}
}

// failure is the reply to a request whose transaction failed. What a client can do about it is in the
// reply; the cause is in the log, with the kinds of keys and never their content.
func (e *Engine) failure(req protocol.Request, err error) protocol.Reply {
	switch {
	case errors.Is(err, errNoRoom):
		return protocol.Fail(protocol.StatusForbidden, fmt.Sprintf("Forbidden: this workspace does not exist, and there are as many as there may be, %d (limits.workspaces)", e.opt.MaxWorkspaces))
	case errors.Is(err, kv.ErrCommitUnknown):
		e.noteFailure(slog.LevelError, "commit outcome unknown", req.Kind(), err)
		return protocol.Fail(protocol.StatusInternal, messageUnknown)
	case errors.Is(err, kv.ErrTooLarge), errors.Is(err, kv.ErrLimit):
		return protocol.Fail(protocol.StatusInvalid, "The request is too large for one transaction: "+detail(err)+". Split it.")
	case errors.Is(err, kv.ErrPartition):
		return protocol.Fail(protocol.StatusUnsupported, "This server's store cannot change several call trees in one request.")
	case errors.Is(err, kv.ErrCorrupt), errors.Is(err, machine.ErrInvariant):
		e.noteFailure(slog.LevelError, "stored record is damaged", req.Kind(), err)
		return protocol.Fail(protocol.StatusInternal, messageDamaged)
	case errors.Is(err, kv.ErrConflict), errors.Is(err, kv.ErrOverloaded), errors.Is(err, kv.ErrUnavailable),
		errors.Is(err, kv.ErrClosed), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e.noteFailure(slog.LevelWarn, "request not served", req.Kind(), err)
		return unserved(req.Kind())
	}
	e.noteFailure(slog.LevelError, "request failed", req.Kind(), err)
	return protocol.Fail(protocol.StatusInternal, "Internal error.")
}

// noteFailure tells the log of a failed request.
func (e *Engine) noteFailure(level slog.Level, message string, kind protocol.Kind, err error) {
	e.failures.tell(e.log, e.mono(), level, message, kind, err)
}

// unserved is the reply to a request that did not get its transactions. One that takes several may have done
// part of its work, and must not claim otherwise; a repeat of it goes on.
func unserved(kind protocol.Kind) protocol.Reply {
	switch kind {
	case protocol.KindDebugTick, protocol.KindDebugReset:
		return protocol.Fail(protocol.StatusInternal, messagePartial)
	case protocol.KindTaskHeartbeat:
		return protocol.Fail(protocol.StatusUnavailable, messagePartial)
	}
	return protocol.Fail(protocol.StatusUnavailable, messageUnavailable)
}

// detail is what a person may know of a limit that was exceeded.
func detail(err error) string {
	var e *kv.Error
	if errors.As(err, &e) && e.Detail != "" {
		return e.Detail
	}
	return "over a limit of the store"
}
