package machine

import (
	"fmt"
	"strconv"
	"strings"

	"abide/internal/cron"
	"abide/protocol"
)

// The internal steps (docs/machine.md section 4). Each re-reads its object and re-checks its own
// precondition: an armed timer means "not before", so late, early, duplicated and stale firings are
// harmless. Each reports whether it did anything.

// PromiseTimeout persists the projection of an expired promise, with settlement. (spec: timeout)
func (op *Op) PromiseTimeout(id string) (did bool, err error) {
	o, err := op.State.Object(id)
	if err != nil || o == nil || !expired(o, op.Now) {
		return false, err
	}
	op.expire(o)
	return true, op.settled(o)
}

// Drain does the next bounded part of a drain obligation, and removes the obligation with the last. more
// reports whether any is left. (spec: settlement scrub)
func (op *Op) Drain(id string) (more bool, err error) {
	draining, err := op.State.Draining(id)
	if err != nil || !draining {
		return false, err
	}
	o, err := op.State.Object(id)
	if err != nil {
		return false, err
	}
	if o == nil || o.State == protocol.Pending {
		return false, fmt.Errorf("%w: a drain obligation names a promise that is not settled", ErrInvariant)
	}
	done, err := op.drain(o)
	if err != nil || !done {
		return true, err
	}
	return false, op.State.SetDraining(id, false)
}

// Dispatch dispatches a pending task again whose retry is due. again also dispatches one that is queued
// already, into the same entry: debug.tick sees the specification's view, in which a queued task has a
// retry like any other. (spec: dispatch)
func (op *Op) Dispatch(id string, again bool) (did bool, err error) {
	o, err := op.State.Object(id)
	if err != nil || o == nil || o.Task == nil {
		return false, err
	}
	t := o.Task
	if op.taskState(o) != protocol.TaskPending || t.RetryAt > op.Now || (t.Queued && !again) {
		return false, nil
	}
	op.dispatch(o)
	return true, op.State.Put(o)
}

// LeaseExpiry takes a task back whose lease has ended. A timer that stands before the lease's end, because
// a heartbeat moved the lease, is armed again at the end. (spec: lease expiry)
func (op *Op) LeaseExpiry(id string) (did bool, err error) {
	o, err := op.State.Object(id)
	if err != nil || o == nil || o.Task == nil || op.taskState(o) != protocol.TaskAcquired {
		return false, err
	}
	t := o.Task
	if t.LeaseAt > op.Now {
		if t.ArmedAt > op.Now {
			return false, nil // a stale entry: the record's own stands later
		}
		t.ArmedAt = t.LeaseAt
		return false, op.State.Put(o)
	}
	if op.Now-t.ClaimedAt >= hastyWithinMs {
		t.Hasty = 0
	}
	unclaim(t, protocol.TaskPending)
	op.dispatch(o)
	return true, op.State.Put(o)
}

// Delivered records that the execute of a task at a version has been delivered: its entry goes and the
// retry is armed. Nothing happens if the entry is another one by now. (docs/machine.md, Delivery)
func (op *Op) Delivered(id string, version int64) (did bool, err error) {
	o, err := op.State.Object(id)
	if err != nil || o == nil || o.Task == nil {
		return false, err
	}
	t := o.Task
	if op.taskState(o) != protocol.TaskPending || !t.Queued || t.Version != version {
		return false, nil
	}
	t.Queued = false
	t.RetryAt = add(op.Now, op.Config.RetryTimeoutMs)
	return true, op.State.Put(o)
}

// Executable reports whether the execute of a task at a version is still to be sent.
func (op *Op) Executable(o *Object, version int64) bool {
	return o != nil && o.Task != nil && op.taskState(o) == protocol.TaskPending && o.Task.Queued && o.Task.Version == version
}

// Promise is the object as a message shows it: projected, with whole payloads.
func (op *Op) Promise(o *Object) (protocol.Promise, error) { return op.promise(o) }

// Task is the object's task as an answer shows it: projected.
func (op *Op) Task(o *Object) protocol.Task { return op.task(o) }

// newSchedule is the record of a schedule.create, or the reason why it is refused.
func (op *Op) newSchedule(r *protocol.ScheduleCreate) (s *Schedule, refusal string) {
	expr, err := cron.Parse(r.Cron)
	if err != nil {
		return nil, "Invalid cron expression: " + err.Error()
	}
	next, ok := expr.Next(op.Now)
	if !ok {
		return nil, "Invalid cron expression: it never matches after now"
	}
	if n := len(occurrenceID(r.ID, r.PromiseID, maxOccurrence)); n > protocol.MaxIDBytes {
		return nil, fmt.Sprintf("Invalid promiseId: the ids that it makes have up to %d bytes, the limit is %d", n, protocol.MaxIDBytes)
	}
	return &Schedule{
		ID: r.ID, Cron: r.Cron, PromiseID: r.PromiseID, PromiseTimeout: r.PromiseTimeout,
		PromiseParam: inline(r.PromiseParam), PromiseTags: r.PromiseTags,
		CreatedAt: op.Now, NextRunAt: next,
	}, ""
}

// maxOccurrence is the longest timestamp of an occurrence: cron years end with 2100.
const maxOccurrence = 9_999_999_999_999

// occurrenceID expands a promise id template for the occurrence at an instant.
func occurrenceID(schedule, template string, at int64) string {
	id := strings.ReplaceAll(template, "{{.id}}", schedule)
	return strings.ReplaceAll(id, "{{.timestamp}}", strconv.FormatInt(at, 10))
}

// RunSchedule makes the promises of a schedule's due occurrences, oldest first, and advances it in the
// same transaction. more reports whether due occurrences are left after a bounded number. (spec: schedule)
func (op *Op) RunSchedule(id string) (more bool, err error) {
	s, err := op.State.Schedule(id)
	if err != nil || s == nil || s.Disarmed || s.NextRunAt > op.Now {
		return false, err
	}
	expr, err := cron.Parse(s.Cron)
	if err != nil {
		return false, fmt.Errorf("%w: the cron expression of a schedule does not parse: %v", ErrInvariant, err)
	}
	param, err := op.schedule(s)
	if err != nil {
		return false, err
	}
	bytes := int64(0)
	for n := 0; n < occurrences && bytes < occurrenceBytes; n++ {
		written, err := op.occur(s, param.PromiseParam, s.NextRunAt)
		if err != nil {
			return false, err
		}
		bytes += written
		s.LastRunAt, s.HasRun = s.NextRunAt, true
		next, ok := expr.Next(s.LastRunAt)
		if !ok {
			s.Disarmed = true // keeps NextRunAt = its last run: SDKs require a number
			return false, op.State.PutSchedule(s)
		}
		if s.NextRunAt = next; next > op.Now {
			return false, op.State.PutSchedule(s)
		}
	}
	return true, op.State.PutSchedule(s)
}

// occur makes the promise of one occurrence unless its id is taken, and returns about how many bytes that
// wrote. Birth is at the scheduled instant; what its deadline has overtaken by now is settled at once.
func (op *Op) occur(s *Schedule, param protocol.Value, at int64) (bytes int64, err error) {
	id := occurrenceID(s.ID, s.PromiseID, at)
	o, err := op.State.Object(id)
	if err != nil || o != nil {
		return 0, err
	}
	tags := s.PromiseTags.With(protocol.TagSchedule, s.ID)
	for _, name := range []string{protocol.TagOrigin, protocol.TagBranch, protocol.TagParent, protocol.TagPrefix} {
		tags = tags.With(name, id)
	}
	o = op.birth(&protocol.PromiseCreate{ID: id, TimeoutAt: add(at, s.PromiseTimeout), Param: param, Tags: tags}, at)
	if expired(o, op.Now) {
		op.expire(o)
	}
	return o.recordBytes(), op.State.Put(o)
}
