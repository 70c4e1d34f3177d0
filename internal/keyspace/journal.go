package keyspace

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"abide/internal/journal"
	"abide/kv/tuple"
	"abide/protocol"
)

// Fields of a journal entry's record.
const (
	entryID           = 1
	entryAt           = 2
	entryCause        = 3 // place in journal.Causes
	entryWhat         = 4
	entryFromPromise  = 5 // state number + 1; absent: none
	entryToPromise    = 6
	entryFromTask     = 7 // state number + 1; absent: none
	entryToTask       = 8
	entryVersion      = 9  // after the change; of a deletion: before it
	entryRaised       = 10 // by how much the change raised the version
	entryFromSchedule = 11 // 1 armed, 2 disarmed; absent: none
	entryToSchedule   = 12
	entryFromNext     = 13
	entryFromLast     = 14 // absent: had not run
	entryToNext       = 15
	entryToLast       = 16 // absent: has not run
)

var scheduleStates = []journal.ScheduleState{journal.ScheduleArmed, journal.ScheduleDisarmed}

// Partition is the journal partition of the workspace.
func (k Keys) Partition() []byte { return append([]byte(nil), k.ws...) }

// ParsePartition returns the workspace that a journal partition belongs to.
func ParsePartition(partition []byte) (workspace string, err error) {
	r := tuple.NewReader(partition)
	if err = r.NextNil(); err == nil {
		workspace, err = lastString(&r)
	}
	if err != nil {
		return "", corrupt("journal", err)
	}
	return workspace, nil
}

// putState writes a state of one of a list as its number + 1, nothing for the empty state.
func putState[S ~string](b []byte, field protowire.Number, states []S, s S) []byte {
	if s == "" {
		return b
	}
	return putInt(b, field, stateNumber(states, s)+1)
}

func putLast(b []byte, field protowire.Number, s *journal.State) []byte {
	if !s.HasRun {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(s.LastRunAt))
}

// AppendEntry appends the record of a journal entry.
func AppendEntry(b []byte, e *journal.Entry) []byte {
	start := len(b)
	b = append(b, recordVersion)
	b = putBytes(b, entryID, e.ID)
	b = putInt(b, entryAt, e.At)
	b = putInt(b, entryCause, int64(max(0, slices.Index(journal.Causes, e.Cause))))
	b = putInt(b, entryWhat, int64(e.What))
	if e.What == journal.Schedule {
		b = putState(b, entryFromSchedule, scheduleStates, e.From.Schedule)
		b = putState(b, entryToSchedule, scheduleStates, e.To.Schedule)
		b = putLast(putInt(b, entryFromNext, e.From.NextRunAt), entryFromLast, &e.From)
		b = putLast(putInt(b, entryToNext, e.To.NextRunAt), entryToLast, &e.To)
		return seal(b, start)
	}
	b = putState(b, entryFromPromise, promiseStates, e.From.Promise)
	b = putState(b, entryToPromise, promiseStates, e.To.Promise)
	b = putState(b, entryFromTask, taskStates, e.From.Task)
	b = putState(b, entryToTask, taskStates, e.To.Task)
	if e.To.Promise == "" {
		b = putInt(b, entryVersion, e.From.Version)
	} else {
		b = putInt(putInt(b, entryVersion, e.To.Version), entryRaised, e.To.Version-e.From.Version)
	}
	return seal(b, start)
}

// Entry decodes the record of a journal entry. Errors: kv.ErrCorrupt.
func Entry(b []byte) (e journal.Entry, err error) {
	rest, err := body(b)
	if err != nil {
		return e, corrupt("journal", err)
	}
	var version, raised int64
	err = fields(rest, func(f protowire.Number, n int64, bytes []byte) (err error) {
		switch f {
		case entryID:
			e.ID = string(bytes)
		case entryAt:
			e.At = n
		case entryCause:
			e.Cause, err = getState(journal.Causes, n)
		case entryWhat:
			e.What, err = getState([]journal.What{journal.Object, journal.Schedule}, n)
		case entryFromPromise:
			e.From.Promise, err = getState(promiseStates, n-1)
		case entryToPromise:
			e.To.Promise, err = getState(promiseStates, n-1)
		case entryFromTask:
			e.From.Task, err = getState(taskStates, n-1)
		case entryToTask:
			e.To.Task, err = getState(taskStates, n-1)
		case entryVersion:
			version = n
		case entryRaised:
			raised = n
		case entryFromSchedule:
			e.From.Schedule, err = getState(scheduleStates, n-1)
		case entryToSchedule:
			e.To.Schedule, err = getState(scheduleStates, n-1)
		case entryFromNext:
			e.From.NextRunAt = n
		case entryFromLast:
			e.From.LastRunAt, e.From.HasRun = n, true
		case entryToNext:
			e.To.NextRunAt = n
		case entryToLast:
			e.To.LastRunAt, e.To.HasRun = n, true
		}
		return err
	})
	switch {
	case err != nil:
	case e.To.Promise != "":
		e.To.Version, e.From.Version = version, version-raised
		err = checkEntry(&e)
	default:
		e.From.Version = version
		err = checkEntry(&e)
	}
	if err != nil {
		return e, corrupt("journal", err)
	}
	return e, nil
}

// checkEntry finds what no change can look like.
func checkEntry(e *journal.Entry) error {
	switch {
	case e.ID == "" || len(e.ID) > protocol.MaxIDBytes:
		return fmt.Errorf("an id of %d bytes", len(e.ID))
	case e.From == e.To && e.To != journal.State{}:
		return errors.New("nothing changes")
	}
	for _, s := range []journal.State{e.From, e.To} {
		if err := checkState(e.What, s); err != nil {
			return err
		}
	}
	return nil
}

// checkState finds what no state of an object or a schedule can look like.
func checkState(what journal.What, s journal.State) error {
	ofSchedule := journal.State{Schedule: s.Schedule, NextRunAt: s.NextRunAt, LastRunAt: s.LastRunAt, HasRun: s.HasRun}
	ofObject := journal.State{Promise: s.Promise, Task: s.Task, Version: s.Version}
	switch {
	case what == journal.Schedule && s != ofSchedule, what == journal.Object && s != ofObject:
		return errors.New("a state of a promise and of a schedule at once")
	case s.Promise == "" && s.Schedule == "" && s != journal.State{}:
		return errors.New("a state of nothing")
	case s.Version < 0:
		return fmt.Errorf("version %d", s.Version)
	}
	return nil
}
