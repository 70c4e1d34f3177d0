package machine

import (
	"errors"
	"fmt"

	"abide/protocol"
)

// ErrInvariant marks stored state that does not decode or breaks a property of the machine: a row to be
// quarantined, not a failure of the store. A State gives it too.
var ErrInvariant = errors.New("stored state breaks an invariant")

// CheckObject returns what is wrong with one object by itself, nil if nothing: the properties of
// docs/machine.md section 5 that need no other record.
func CheckObject(o *Object) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvariant, fmt.Sprintf(format, args...))
	}
	settled := o.State != protocol.Pending
	switch o.State {
	case protocol.Pending, protocol.Resolved, protocol.Rejected, protocol.RejectedCanceled, protocol.RejectedTimedout:
	default:
		return bad("promise state %q", o.State)
	}
	if settled && o.SettledAt > o.TimeoutAt {
		return bad("settled after its deadline")
	}
	if (o.Task != nil) != IsTargeted(o.Tags) {
		return bad("a task exists iff its promise is targeted")
	}
	if o.Task == nil {
		return nil
	}
	t := o.Task
	if settled != (t.State == protocol.TaskFulfilled) {
		return bad("promise %s with task %s", o.State, t.State)
	}
	if t.Version < 0 {
		return bad("version %d", t.Version)
	}
	held := t.PID != "" && t.TTL > 0 && t.LeaseAt > 0 && t.ArmedAt > 0
	free := t.PID == "" && t.TTL == 0 && t.LeaseAt == 0 && t.ArmedAt == 0
	switch t.State {
	case protocol.TaskAcquired:
		if !held || t.Version == 0 || t.ArmedAt > t.LeaseAt {
			return bad("acquired without pid, ttl, lease or version")
		}
	case protocol.TaskPending, protocol.TaskSuspended, protocol.TaskHalted, protocol.TaskFulfilled:
		if !free {
			return bad("%s with pid, ttl or lease", t.State)
		}
	default:
		return bad("task state %q", t.State)
	}
	if pending := t.State == protocol.TaskPending; pending != (t.RetryAt > 0) || (t.Queued && !pending) {
		return bad("a pending task, and only one, has a retryAt and may be queued")
	}
	return nil
}

// CheckWaiter returns what is wrong with a waiter, given the promise it waits on and whether a drain
// obligation names that.
func CheckWaiter(w Waiter, awaited *Object, draining bool) error {
	switch {
	case awaited == nil:
		return fmt.Errorf("%w: a waiter on a promise that does not exist", ErrInvariant)
	case !awaited.Waited:
		return fmt.Errorf("%w: a waiter on a promise that is not marked as waited on", ErrInvariant)
	case awaited.State != protocol.Pending && !draining:
		return fmt.Errorf("%w: a waiter on a settled promise that no drain obligation names", ErrInvariant)
	}
	return nil
}

// CheckSuspended returns what is wrong with a suspended task, given the promises it has callbacks on and
// which of them a drain obligation names.
func CheckSuspended(o *Object, now int64, awaited []*Object, draining func(id string) bool) error {
	if o.Task == nil || o.Task.State != protocol.TaskSuspended || expired(o, now) {
		return nil
	}
	for _, a := range awaited {
		if (a.State == protocol.Pending && a.Armed()) || (a.State != protocol.Pending && draining(a.ID)) {
			return nil
		}
	}
	return fmt.Errorf("%w: a suspended task that nothing will ever wake", ErrInvariant)
}
