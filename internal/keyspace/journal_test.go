package keyspace

import (
	"errors"
	"slices"
	"testing"

	"abide/internal/journal"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// Every request that can change a record has a place among the causes.
func TestEveryWritingRequestIsACause(t *testing.T) {
	// These change no state themselves: waiters and leases are none, and what a tick does has names of its own.
	silent := []protocol.Kind{protocol.KindPromiseRegisterCallback, protocol.KindPromiseRegisterListener, protocol.KindTaskHeartbeat,
		protocol.KindDebugStart, protocol.KindDebugStop, protocol.KindDebugTick}
	for _, r := range []protocol.Request{&protocol.PromiseCreate{}, &protocol.PromiseSettle{}, &protocol.PromiseRegisterCallback{},
		&protocol.PromiseRegisterListener{}, &protocol.TaskCreate{}, &protocol.TaskAcquire{}, &protocol.TaskFence{}, &protocol.TaskHeartbeat{},
		&protocol.TaskSuspend{}, &protocol.TaskFulfill{}, &protocol.TaskRelease{}, &protocol.TaskHalt{}, &protocol.TaskContinue{},
		&protocol.ScheduleCreate{}, &protocol.ScheduleDelete{}, &protocol.DebugStart{}, &protocol.DebugStop{}, &protocol.DebugReset{},
		&protocol.DebugTick{}, &protocol.DebugSnap{}, &protocol.PromiseGet{}, &protocol.TaskSearch{}} {
		k := r.Kind()
		listed := slices.Contains(journal.Causes, journal.Cause(k))
		if want := machine.Writes(k) && !slices.Contains(silent, k); listed != want {
			t.Errorf("%s is a cause: %t, want %t", k, listed, want)
		}
	}
}

// A cause that has no place is stored as none.
func TestUnknownCause(t *testing.T) {
	e := journal.Entry{ID: "p", To: journal.State{Promise: protocol.Pending}, Cause: "whim"}
	got, err := Entry(AppendEntry(nil, &e))
	if e.Cause = ""; err != nil || got != e {
		t.Errorf("%+v, %v", got, err)
	}
}

// Entries that no change looks like do not decode.
func TestImpossibleEntries(t *testing.T) {
	pending := journal.State{Promise: protocol.Pending}
	for name, e := range map[string]journal.Entry{
		"no id": {To: pending}, "no change": {ID: "p", From: pending, To: pending},
		"a state of the future": {ID: "p", To: journal.State{Promise: "undecided"}},
		"another subject":       {ID: "p", What: 7, To: pending},
		"a task of nothing":     {ID: "p", From: journal.State{Task: protocol.TaskPending}, To: pending},
		"a version of nothing":  {ID: "p", From: journal.State{Version: 3}, To: journal.State{Promise: protocol.Pending, Version: 4}},
		"a version below 0":     {ID: "p", From: journal.State{Promise: protocol.Pending, Version: -1}, To: pending},
		"a run of nothing":      {ID: "s", What: journal.Schedule, From: journal.State{NextRunAt: 5}, To: journal.State{Schedule: journal.ScheduleArmed}},
	} {
		var fault *kv.Error
		if _, err := Entry(AppendEntry(nil, &e)); name != "a state of the future" && (!errors.Is(err, kv.ErrCorrupt) || !errors.As(err, &fault) || fault.KeyKind != "journal") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPartitions(t *testing.T) {
	for _, name := range []string{"default", "d", "", "w\x00x"} {
		got, err := ParsePartition(For(name, Layout{Shards: 1}).Partition())
		if err != nil || got != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	for _, bytes := range []string{"", "x", "\x00", string(keys.Partition()) + "x"} {
		if _, err := ParsePartition([]byte(bytes)); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%q: %v", bytes, err)
		}
	}
}
