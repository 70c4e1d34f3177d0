// Package journal is what Abide puts into the commit-ordered journal of a store: which changes are entries, what
// an entry says, how entries fold to the states of what they are about, and how much of them is kept. It is
// pure: internal/keyspace encodes entries, internal/store appends them, internal/engine runs the retention.
//
// Every durable change of a promise, its task or a schedule is one entry, in the transaction that makes the
// change, in the partition of its workspace. A change is durable if the record came into being, went away, or
// changed a state or a version: a heartbeat, a dispatch, a delivery, an armed timer and the first waiter are
// none. An object's promise and task share an entry, as they share a record. Entries hold no payload and are
// facts: a deadline that has passed is an entry once it is persisted, not before.
//
// Source: docs/machine.md, "Journal".
package journal

import (
	"abide/internal/machine"
	"abide/protocol"
)

// What says what an entry is about. The numbers are stored.
type What int64

// What entries are about.
const (
	Object   What = 0 // a promise, together with its task if it has one
	Schedule What = 1
)

// String is for people.
func (w What) String() string {
	if w == Schedule {
		return "schedule"
	}
	return "promise"
}

// ScheduleState is the state of a schedule; empty if there is none.
type ScheduleState string

// The states of a schedule.
const (
	ScheduleArmed    ScheduleState = "armed"
	ScheduleDisarmed ScheduleState = "disarmed" // its cron never matches again
)

// State is what the journal knows about an object or a schedule at one moment. The zero State is that of what
// does not exist. States are comparable.
type State struct {
	Promise protocol.PromiseState
	Task    protocol.TaskState // empty if the promise is not targeted
	Version int64              // of the task

	// A schedule has no version: its next and its last run take that place, both of which rise with every run.
	Schedule  ScheduleState
	NextRunAt int64
	LastRunAt int64
	HasRun    bool
}

// OfObject is the state of an object; nil has the zero State.
func OfObject(o *machine.Object) State {
	if o == nil {
		return State{}
	}
	s := State{Promise: o.State}
	if o.Task != nil {
		s.Task, s.Version = o.Task.State, o.Task.Version
	}
	return s
}

// OfSchedule is the state of a schedule; nil has the zero State.
func OfSchedule(s *machine.Schedule) State {
	if s == nil {
		return State{}
	}
	state := State{Schedule: ScheduleArmed, NextRunAt: s.NextRunAt, LastRunAt: s.LastRunAt, HasRun: s.HasRun}
	if s.Disarmed {
		state.Schedule = ScheduleDisarmed
	}
	return state
}

// Cause is why something changed: the kind of the request, or the name of an internal step.
type Cause string

// The internal steps that change states. debug.tick runs them too, under these names.
const (
	CauseTimeout  Cause = "timeout"  // a deadline was persisted, with its settlement
	CauseDrain    Cause = "drain"    // a settlement's waiters were worked off
	CauseLease    Cause = "lease"    // a lease ended
	CauseSchedule Cause = "schedule" // a schedule ran
)

// Causes lists every cause that an entry can have. The place in it is stored: append only.
var Causes = []Cause{
	"", // not stated
	Cause(protocol.KindPromiseCreate), Cause(protocol.KindPromiseSettle),
	Cause(protocol.KindTaskCreate), Cause(protocol.KindTaskAcquire), Cause(protocol.KindTaskFence), Cause(protocol.KindTaskSuspend),
	Cause(protocol.KindTaskFulfill), Cause(protocol.KindTaskRelease), Cause(protocol.KindTaskHalt), Cause(protocol.KindTaskContinue),
	Cause(protocol.KindScheduleCreate), Cause(protocol.KindScheduleDelete), Cause(protocol.KindDebugReset),
	CauseTimeout, CauseDrain, CauseLease, CauseSchedule,
}

// Entry is one change.
type Entry struct {
	What What
	ID   string
	// From and To are the states before and after, the zero State where there was or is no record. They differ,
	// but for the deletion of a record that did not decode, whose state nobody knew: there both are zero.
	From, To State
	Cause    Cause
	At       int64 // the instant of the operation, epoch ms
}
