package journal

import (
	"strings"
	"testing"

	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"

	"pgregory.net/rapid"
)

var (
	absent  = State{}
	pending = State{Promise: protocol.Pending}
	settled = State{Promise: protocol.Resolved}
)

func TestStates(t *testing.T) {
	task := &machine.Object{State: protocol.Pending, Task: &machine.Task{State: protocol.TaskAcquired, Version: 3, PID: "w"}}
	schedule := &machine.Schedule{NextRunAt: 9, LastRunAt: 8, HasRun: true, Disarmed: true}
	for _, c := range []struct {
		got, want State
		says      string
	}{
		{OfObject(nil), absent, "absent"},
		{OfSchedule(nil), absent, "absent"},
		{OfObject(&machine.Object{State: protocol.Pending, Waited: true}), pending, "pending"},
		{OfObject(task), State{Promise: protocol.Pending, Task: protocol.TaskAcquired, Version: 3}, "pending, its task acquired at version 3"},
		{OfSchedule(schedule), State{Schedule: ScheduleDisarmed, NextRunAt: 9, LastRunAt: 8, HasRun: true}, "a schedule disarmed for 9, last run at 8"},
		{OfSchedule(&machine.Schedule{NextRunAt: 9}), State{Schedule: ScheduleArmed, NextRunAt: 9}, "a schedule armed for 9"},
	} {
		if c.got != c.want || c.got.String() != c.says {
			t.Errorf("%+v (%s), want %+v (%s)", c.got, c.got, c.want, c.says)
		}
	}
	if Object.String() != "promise" || Schedule.String() != "schedule" {
		t.Error("what entries are about has other names")
	}
}

func TestFold(t *testing.T) {
	for name, c := range map[string]struct {
		origin  bool
		entries []Entry
		says    string // what is wrong with the last entry; empty: nothing
		state   State
	}{
		"from birth to settlement":            {true, []Entry{{ID: "p", To: pending}, {ID: "p", From: pending, To: settled}}, "", settled},
		"begins in the middle of a whole one": {true, []Entry{{ID: "p", From: pending, To: settled}}, "complete", settled},
		"begins in the middle above a floor":  {false, []Entry{{ID: "p", From: pending, To: settled}}, "", settled},
		"one is missing":                      {false, []Entry{{ID: "p", To: pending}, {ID: "p", From: settled}}, "had become pending", absent},
		"twice":                               {true, []Entry{{ID: "p", To: pending}, {ID: "p", To: pending}}, "it was absent", pending},
		"deleted and made anew":               {true, []Entry{{ID: "p", To: pending}, {ID: "p", From: pending}, {ID: "p", To: pending}}, "", pending},
		"deleted unread":                      {true, []Entry{{ID: "p", To: pending}, {ID: "p"}}, "", absent},
		"after a deletion":                    {false, []Entry{{ID: "p", To: pending}, {ID: "p"}, {ID: "p", From: settled, To: pending}}, "had become absent", pending},
		"another of the name":                 {true, []Entry{{ID: "p", To: pending}, {What: Schedule, ID: "p", To: State{Schedule: ScheduleArmed}}}, "", pending},
	} {
		f := NewFold(c.origin)
		for i, e := range c.entries {
			err := f.Apply(e)
			last := i == len(c.entries)-1
			if (err != nil) != (last && c.says != "") || (err != nil && !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s, entry %d: %v", name, i, err)
			}
		}
		if state, known := f.State(Subject{Object, "p"}); !known || state != c.state {
			t.Errorf("%s: %s, known: %t", name, state, known)
		}
	}
	f := NewFold(true)
	if _, known := f.State(Subject{ID: "p"}); known {
		t.Error("a subject of no entry is known")
	}
	_ = f.Apply(Entry{ID: "p", To: pending})
	_ = f.Apply(Entry{ID: "q", To: pending})
	n := 0
	f.Subjects(func(Subject, State) bool { n++; return false })
	f.Subjects(func(Subject, State) bool { n++; return true })
	if n != 3 {
		t.Errorf("%d visits", n)
	}
}

func at(n uint64) kv.EntryPosition { return kv.EntryPosition{Commit: kv.NewPosition(1, n)} }

// A window keeps to both bounds whatever comes, never gives up what it must keep, and stays small.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := Retention{AgeMs: rapid.Int64Range(1, 2000).Draw(t, "age"), Entries: rapid.Int64Range(1, 3000).Draw(t, "entries")}
		w := NewWindow(keep)
		var instants []int64 // of entry i, at position i+1
		floor, now, next := 0, int64(0), uint64(1)
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			pace := rapid.Int64Range(0, 20).Draw(t, "pace")
			for range rapid.IntRange(0, 500).Draw(t, "burst") {
				now += pace
				w.Add(at(next), now)
				instants = append(instants, now)
				next++
			}
			now += rapid.Int64Range(0, 100).Draw(t, "pause")
			if target, ok := w.Target(now); ok {
				floor = int(target.Commit.Sequence())
				w.Drop(target)
			}
			kept := instants[floor:]
			if int64(len(kept)) != w.Entries() {
				t.Fatalf("%d entries are there, the window counts %d", len(kept), w.Entries())
			}
			if int64(len(kept)) > keep.Entries {
				t.Fatalf("%d entries are kept, at most %d may be", len(kept), keep.Entries)
			}
			if len(kept) > 0 && now-kept[0] >= keep.AgeMs+keep.AgeMs/marksPerAge+1 {
				t.Fatalf("an entry %d ms old is kept, at most %d may be", now-kept[0], keep.AgeMs)
			}
			// What has gone was too old, or as many as are to be kept came after it, but for one mark's worth.
			if floor > 0 && now-instants[floor-1] < keep.AgeMs && int64(len(kept)) < keep.Entries-max(1, keep.Entries/marksPerEntries) {
				t.Fatalf("an entry of %d ms has gone although only %d are left", now-instants[floor-1], len(kept))
			}
			if n := len(w.marks); n > 2*marksPerEntries+2*marksPerAge {
				t.Fatalf("%d marks", n)
			}
		}
	})
}

// The number of marks is bounded for the largest retention as for the default one.
func TestWindowIsSmall(t *testing.T) {
	w := NewWindow(Retention{AgeMs: DefaultAgeMs, Entries: DefaultEntries})
	for n := range uint64(300_000) {
		w.Add(at(n+1), int64(n))
	}
	if len(w.marks) > marksPerEntries+marksPerAge {
		t.Errorf("%d marks", len(w.marks))
	}
	if _, ok := w.Target(300_000); ok {
		t.Error("entries within both bounds are given up")
	}
}

// Instants that jump back and forth, as debug times do, hold nothing back for ever.
func TestWindowOfJumpingInstants(t *testing.T) {
	w := NewWindow(Retention{AgeMs: 1000, Entries: 10})
	for n, instant := range []int64{1 << 62, 5, 1 << 62, 7, 0, 9} {
		w.Add(at(uint64(n+1)), instant)
	}
	if _, ok := w.Target(100); ok {
		t.Error("an entry of the future goes by age")
	}
	for n := range uint64(10) {
		w.Add(at(n+7), 9)
	}
	if target, ok := w.Target(100); !ok || target.Compare(at(6)) < 0 {
		t.Errorf("%v, %t", target, ok)
	}
}
