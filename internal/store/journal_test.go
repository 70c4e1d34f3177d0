package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// entries are the retained journal of the workspace.
func (f *fixture) entries() (all []journal.Entry, at []kv.EntryPosition) {
	f.t.Helper()
	err := f.store.View(context.Background(), func(s kv.Snapshot) error {
		floor, err := kv.Floor(s, f.keys.Partition())
		if err != nil {
			return err
		}
		rows, err := s.Journal(f.keys.Partition(), floor, 5000)
		for _, row := range rows {
			e, err := keyspace.Entry(row.Record)
			if err != nil {
				return err
			}
			all, at = append(all, e), append(at, row.Position)
		}
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return all, at
}

// as performs one operation with a cause and returns the journal entries that it made, for people.
func (f *fixture) as(cause journal.Cause, fn func(op *machine.Op) error) (said []string) {
	f.t.Helper()
	before, _ := f.entries()
	f.update(func(tx kv.Tx) error {
		return fn(&machine.Op{State: Write(tx, workspace, layout).Caused(cause, f.now), Now: f.now, Config: machine.Config{RetryTimeoutMs: 1000}})
	})
	after, _ := f.entries()
	for _, e := range after[len(before):] {
		if e.Cause != cause || e.At != f.now {
			f.t.Errorf("an entry by %q at %d, the operation was %q at %d", e.Cause, e.At, cause, f.now)
		}
		said = append(said, fmt.Sprintf("%s: %s -> %s", e.ID, e.From, e.To))
	}
	return said
}

// What each request and each step says in the journal: states and versions, nothing else.
func TestJournalOfEveryChange(t *testing.T) {
	f := newFixture(t)
	target := tags(protocol.TagTarget, "poll://any@g")
	request := func(r protocol.Request) func(op *machine.Op) error {
		return func(op *machine.Op) error {
			reply, err := op.Apply(r)
			if reply.Status >= 400 {
				t.Errorf("%s: %d %s", r.Kind(), reply.Status, reply.Message)
			}
			return err
		}
	}
	for i, step := range []struct {
		cause journal.Cause
		fn    func(op *machine.Op) error
		want  []string
	}{
		{"promise.create", request(&protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: target}), []string{"t: absent -> pending, its task pending at version 0"}},
		{"promise.create", request(&protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: target}), nil},
		{"promise.create", request(&protocol.PromiseCreate{ID: "a", TimeoutAt: 9000}), []string{"a: absent -> pending"}},
		{"", func(op *machine.Op) error { _, err := op.Delivered("t", 0); return err }, nil},
		{"dispatch", func(op *machine.Op) error { op.Now += 5000; _, err := op.Dispatch("t", false); return err }, nil},
		{"task.acquire", request(&protocol.TaskAcquire{ID: "t", PID: "w", TTL: 500}),
			[]string{"t: pending, its task pending at version 0 -> pending, its task acquired at version 1"}},
		{"task.heartbeat", func(op *machine.Op) error { op.Now += 5; _, err := op.Renew("t", "w", 1); return err }, nil},
		{"lease", func(op *machine.Op) error { op.Now += 500; _, err := op.LeaseExpiry("t"); return err }, nil}, // arms the timer anew
		{"promise.register_listener", request(&protocol.PromiseRegisterListener{Awaited: "a", Address: "poll://uni@g/w"}), nil},
		{"task.suspend", request(&protocol.TaskSuspend{ID: "t", Version: 1, Awaited: []string{"a"}}),
			[]string{"t: pending, its task acquired at version 1 -> pending, its task suspended at version 1"}},
		{"promise.settle", request(&protocol.PromiseSettle{ID: "a", State: protocol.Resolved}),
			[]string{"a: pending -> resolved", "t: pending, its task suspended at version 1 -> pending, its task pending at version 1"}},
		{"task.create", request(&protocol.TaskCreate{PID: "w", TTL: 5, Action: protocol.PromiseCreate{ID: "u", TimeoutAt: 9000, Tags: target}}),
			[]string{"u: absent -> pending, its task acquired at version 1"}},
		{"task.fence", request(&protocol.TaskFence{ID: "u", Version: 1, Create: &protocol.PromiseCreate{ID: "u.1", TimeoutAt: 5}}),
			[]string{"u.1: absent -> rejected_timedout"}},
		{"lease", func(op *machine.Op) error { op.Now += 500; _, err := op.LeaseExpiry("u"); return err },
			[]string{"u: pending, its task acquired at version 1 -> pending, its task pending at version 1"}},
		{"task.halt", request(&protocol.TaskHalt{ID: "u"}), []string{"u: pending, its task pending at version 1 -> pending, its task halted at version 1"}},
		{"task.halt", request(&protocol.TaskHalt{ID: "u"}), nil},
		{"timeout", func(op *machine.Op) error { op.Now = 9000; _, err := op.PromiseTimeout("u"); return err },
			[]string{"u: pending, its task halted at version 1 -> rejected_timedout, its task fulfilled at version 1"}},
		{"schedule.create", request(&protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 1 << 40}),
			[]string{"s: absent -> a schedule armed for 60000"}},
		{"schedule", func(op *machine.Op) error { op.Now = 120_000; _, err := op.RunSchedule("s"); return err },
			[]string{"s.60000: absent -> pending", "s.120000: absent -> pending", "s: a schedule armed for 60000 -> a schedule armed for 180000, last run at 120000"}},
		{"schedule.delete", request(&protocol.ScheduleDelete{ID: "s"}), []string{"s: a schedule armed for 180000, last run at 120000 -> absent"}},
	} {
		if got := f.as(step.cause, step.fn); strings.Join(got, "\n") != strings.Join(step.want, "\n") {
			t.Errorf("step %d, %s:\n%s\nwant\n%s", i, step.cause, strings.Join(got, "\n"), strings.Join(step.want, "\n"))
		}
	}
	f.replayed("in the end")
}

// replayed fails the test unless the journal leads to the records, in one pass and in several.
func (f *fixture) replayed(what string) {
	f.t.Helper()
	for _, bound := range []int64{replayEntries, 7} {
		_, err := f.checker(func(p Problem) { f.t.Errorf("%s, %d at a time: %s", what, bound, p) }).replay(context.Background(), bound)
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// The journal leads to the records, from the origin and above a floor; what is compacted no longer counts.
func TestReplay(t *testing.T) {
	f := newFixture(t)
	f.fill()
	f.replayed("from the origin")
	_, at := f.entries()
	for _, n := range []int{1, len(at) / 2, len(at) - 1} {
		for more := true; more; {
			var err error
			if _, more, err = kv.Compact(context.Background(), f.store, f.keys.Partition(), at[n]); err != nil {
				t.Fatal(err)
			}
		}
		f.replayed(fmt.Sprintf("above the floor at entry %d", n))
		f.do(&protocol.PromiseCreate{ID: fmt.Sprintf("n%d", n), TimeoutAt: far})
	}
	f.replayed("above the last floor")
}

// Whatever entry says otherwise, whatever record was changed past the journal, the replay tells.
func TestReplayReports(t *testing.T) {
	appended := func(e journal.Entry) func(f *fixture) {
		return func(f *fixture) {
			f.update(func(tx kv.Tx) error { return tx.Append(f.keys.Partition(), keyspace.AppendEntry(nil, &e)) })
		}
	}
	pending := journal.State{Promise: protocol.Pending}
	for name, c := range map[string]struct {
		damage func(f *fixture)
		says   string
	}{
		"an entry of nobody":          {appended(journal.Entry{ID: "nobody", To: pending}), "there is no record"},
		"an entry that follows none":  {appended(journal.Entry{ID: "plain", From: journal.State{Promise: protocol.Resolved}, To: pending}), "the one before that"},
		"an entry that did not occur": {appended(journal.Entry{ID: "plain", From: pending, To: journal.State{Promise: protocol.Resolved}}), "its last journal entry says resolved"},
		"a schedule of nobody": {appended(journal.Entry{What: journal.Schedule, ID: "nobody", To: journal.State{Schedule: journal.ScheduleArmed}}),
			"there is no record"},
		"a lost record":     {func(f *fixture) { f.put(f.keys.Object("plain"), nil) }, "there is no record"},
		"an unknown record": {func(f *fixture) { f.put(f.keys.Object("new"), f.get(f.keys.Object("plain"))) }, "which is complete"},
		"a lost entry": {func(f *fixture) {
			_, at := f.entries()
			f.update(func(tx kv.Tx) error { return tx.Delete(kv.JournalKey(f.keys.Partition(), at[0])) })
		}, "which is complete"},
		"a record of another state": {func(f *fixture) {
			o := f.object("queued", f.get(f.keys.Object("queued")))
			o.Task.Version++
			f.put(f.keys.Object("queued"), keyspace.AppendObject(nil, o))
		}, "its last journal entry says"},
		"a schedule of another run": {func(f *fixture) {
			s, _ := keyspace.Schedule("s", f.get(f.keys.Schedule("s")))
			s.NextRunAt++
			f.put(f.keys.Schedule("s"), keyspace.AppendSchedule(nil, s))
		}, "its last journal entry says"},
	} {
		f := newFixture(t)
		f.fill()
		c.damage(f)
		var found []string
		n, err := f.checker(func(p Problem) { found = append(found, p.String()) }).Replay(context.Background())
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		if !strings.Contains(strings.Join(found, "\n"), c.says) {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// What is wrong with a journal as a sequence.
func TestCheckOfJournals(t *testing.T) {
	f := newFixture(t)
	f.fill()
	_, at := f.entries()
	if _, tally := f.problems(); tally[kv.KindEntry] != int64(len(at)) || tally[kv.KindFloor] != 0 {
		t.Errorf("%v, and %d entries", tally, len(at))
	}
	if _, _, err := kv.Compact(context.Background(), f.store, f.keys.Partition(), at[3]); err != nil {
		t.Fatal(err)
	}
	if found, tally := f.problems(); len(found) != 0 || tally[kv.KindFloor] != 1 {
		t.Errorf("%v, %d floors", found, tally[kv.KindFloor])
	}
	floor := kv.FloorKey(f.keys.Partition())
	good := kv.AppendFloor(nil, at[3])
	future := kv.EntryPosition{Commit: kv.NewPosition(1, 1<<40)}
	for name, value := range map[string][]byte{"damaged": []byte("x"), "above an entry": kv.AppendFloor(nil, at[4]), "of the future": kv.AppendFloor(nil, future)} {
		f.put(floor, value)
		if found, _ := f.problems(); len(found) == 0 {
			t.Errorf("a floor %s is not reported", name)
		}
		f.put(floor, good)
	}
	for name, write := range map[string]func(tx kv.Tx) error{
		"nonsense":   func(tx kv.Tx) error { return tx.Append(f.keys.Partition(), []byte("x")) },
		"of nowhere": func(tx kv.Tx) error { return tx.Append([]byte("x"), nil) },
		"of a stranger": func(tx kv.Tx) error {
			e := journal.Entry{ID: "p", To: journal.State{Promise: protocol.Pending}}
			return tx.Append(keyspace.For("stranger", layout).Partition(), keyspace.AppendEntry(nil, &e))
		},
	} {
		before, _ := f.problems()
		f.update(write)
		if found, _ := f.problems(); len(found) != len(before)+1 && name != "of nowhere" {
			t.Errorf("an entry %s: %v", name, found)
		}
	}
}

// A transaction that is aborted leaves no entry, and neither does one that fails on its way.
func TestNoEntryWithoutItsChange(t *testing.T) {
	f := newFixture(t)
	f.do(&protocol.PromiseCreate{ID: "p", TimeoutAt: far})
	before, _ := f.entries()
	gone := errors.New("gone")
	_, err := f.store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		op := machine.Op{State: Write(tx, workspace, layout), Now: f.now}
		if _, err := op.Apply(&protocol.PromiseSettle{ID: "p", State: protocol.Resolved}); err != nil {
			return err
		}
		return gone
	})
	if after, _ := f.entries(); !errors.Is(err, gone) || len(after) != len(before) {
		t.Errorf("%v, %d entries, then %d", err, len(before), len(after))
	}
	f.replayed("after an abort")
}
