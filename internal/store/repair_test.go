package store

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

func (f *fixture) checker(report func(Problem)) Checker {
	return Checker{Store: f.store, Layout: layout, NowMs: f.now, Report: report}
}

func (f *fixture) repair() Repaired {
	f.t.Helper()
	done, err := f.checker(func(p Problem) { f.t.Errorf("a repair reports %s", p) }).Repair(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return done
}

// contents are all rows.
func (f *fixture) contents() map[string]string {
	all := map[string]string{}
	err := f.store.View(context.Background(), func(s kv.Snapshot) error {
		rows, err := s.Scan(everything, kv.MaxScanRows/2)
		for _, row := range rows {
			all[string(row.Key)] = string(row.Value)
		}
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

func (f *fixture) same(before map[string]string, what string) {
	f.t.Helper()
	after := f.contents()
	for k, v := range before {
		if got, ok := after[k]; !ok || got != v {
			f.t.Errorf("%s: a row of kind %s differs", what, keyspace.Kind([]byte(k)))
		}
	}
	for k := range after {
		if _, ok := before[k]; !ok {
			f.t.Errorf("%s: a row of kind %s too many", what, keyspace.Kind([]byte(k)))
		}
	}
}

var derivedKinds = []string{"timer", "lease", "execute", "unblock entry", "open task", "tag", "many tags", "branch", "origin"}

// A repair brings a store back to what it was, whatever was done to its derived entries, and does nothing to one that
// is in order.
func TestRepairRebuildsDerivedEntries(t *testing.T) {
	f := newFixture(t)
	f.fill()
	before := f.contents()
	if done := f.repair(); done.Rows() != 0 {
		t.Errorf("a store in order is repaired: %+v", done)
	}
	f.same(before, "in order")
	rows := f.rows(derivedKinds...)
	if len(rows) < 40 {
		t.Fatalf("only %d derived entries", len(rows))
	}
	for _, row := range rows {
		f.put(row.Key, nil)
	}
	if done := f.repair(); done.Added.Rows() != int64(len(rows)) || done.Rows() != done.Added.Rows() {
		t.Errorf("%d entries were lost: %+v", len(rows), done)
	}
	f.same(before, "all lost")
	for _, row := range rows {
		f.put(row.Key, append(bytes.Clone(row.Value), 1))
	}
	if done := f.repair(); done.Added.Rows() != int64(len(rows)) || done.Removed.Rows() != int64(len(rows)) {
		t.Errorf("%d entries had other values: %+v", len(rows), done)
	}
	f.same(before, "all with other values")
	stale := []kv.Entry{
		f.keys.DeriveSchedule(nil, &machine.Schedule{ID: "s", NextRunAt: 5})[0],
		f.keys.DeriveSchedule(nil, &machine.Schedule{ID: "nobody", NextRunAt: 5})[0],
		f.keys.DeriveDrain("plain"), f.keys.DeriveUnblock("done", "poll://uni@g/other"),
		{Key: append(bytes.Clone(rows[0].Key), 0x77), Value: keyspace.Marker()},
	}
	stale = append(stale, f.keys.Derive(nil, &machine.Object{ID: "nobody", State: protocol.Pending, TimeoutAt: 5,
		Tags: tags(protocol.TagTarget, "poll://any@g", "k", "v", protocol.TagBranch, "b", protocol.TagOrigin, "o"), Task: &machine.Task{State: protocol.TaskPending}})...)
	for _, row := range stale {
		f.put(row.Key, row.Value)
	}
	if done := f.repair(); done.Removed.Rows() != int64(len(stale)) || done.Rows() != done.Removed.Rows() {
		t.Errorf("%d entries were stale: %+v", len(stale), done)
	}
	f.same(before, "stale ones")
}

// A repair leaves records alone, and the entries of records that do not decode.
func TestRepairTouchesNoRecord(t *testing.T) {
	f := newFixture(t)
	f.fill()
	for _, key := range [][]byte{f.keys.Object("queued"), f.keys.Schedule("s"), f.rows("drain")[0].Key, f.rows("chunk")[0].Key, f.rows("waiter")[0].Key} {
		f.put(key, []byte{99})
	}
	f.put(f.keys.Chunk("nobody", keyspace.SideValue, "token", 0), keyspace.AppendChunk(nil, nil))
	before := f.contents()
	found, _ := f.problems()
	if done := f.repair(); done.Rows() != 0 {
		t.Errorf("%+v", done)
	}
	f.same(before, "damaged records")
	if again, _ := f.problems(); len(again) != len(found) {
		t.Errorf("%d problems, %d after the repair", len(found), len(again))
	}
}

// aside moves a row into the quarantine, as the engine does.
func (f *fixture) aside(key, value []byte) {
	f.put(key, nil)
	f.put(keyspace.Quarantined(key), keyspace.AppendQuarantined(nil, keyspace.QuarantinedRow{Value: value, Reason: "test"}))
}

// Rows that were set aside come back where they are in order, and stay aside where they are not.
func TestRepairPutsBack(t *testing.T) {
	f := newFixture(t)
	f.fill()
	before := f.contents()
	seen := map[string]bool{}
	var moved int64
	for _, row := range f.rows(append([]string{"unblock", "waiter", "drain", "schedule"}, derivedKinds...)...) {
		if kind := keyspace.Kind(row.Key); !seen[kind] || kind == "waiter" {
			seen[kind] = true
			f.aside(row.Key, row.Value)
			moved++
		}
	}
	if done := f.repair(); done.PutBack.Rows() != moved {
		t.Errorf("%d rows were set aside: %+v", moved, done)
	}
	f.same(before, "set aside")

	timer := f.keys.DeriveSchedule(nil, &machine.Schedule{ID: "s", NextRunAt: 5})[0]
	for name, row := range map[string]kv.Entry{
		"a stale timer":        timer,
		"a waiter of nobody":   {Key: f.keys.Waiter(machine.Waiter{Awaited: "nobody", Kind: machine.WaiterListener, To: "x"}), Value: keyspace.Marker()},
		"a damaged waiter":     {Key: f.keys.Waiter(machine.Waiter{Awaited: "plain", Kind: machine.WaiterListener, To: "x"}), Value: []byte{99}},
		"a callback of nobody": {Key: f.keys.Waiter(machine.Waiter{Awaited: "done", Kind: machine.WaiterCallback, To: "nobody"}), Value: keyspace.Marker()},
		"bytes":                {Key: []byte("zzz"), Value: []byte("v")},
		"a damaged object":     {Key: f.keys.Object("elsewhere"), Value: []byte{99}},
	} {
		f.aside(row.Key, row.Value)
		if done := f.repair(); done.Rows() != 0 {
			t.Errorf("%s: %+v", name, done)
		}
		if f.get(row.Key) != nil || f.get(keyspace.Quarantined(row.Key)) == nil {
			t.Errorf("%s has left the quarantine", name)
		}
		f.put(keyspace.Quarantined(row.Key), nil)
	}
	f.same(before, "what is not in order")

	// One whose place has been taken since, and one whose record in the quarantine is damaged itself.
	f.put(keyspace.Quarantined(f.keys.Object("plain")), keyspace.AppendQuarantined(nil, keyspace.QuarantinedRow{Value: f.get(f.keys.Object("big"))}))
	f.put(keyspace.Quarantined([]byte("x")), []byte{99})
	if done := f.repair(); done.Rows() != 0 {
		t.Errorf("%+v", done)
	}
}

// A waiter that was set aside while its promise was drained comes back and is woken.
func TestRepairWakesWhoeverWasSetAside(t *testing.T) {
	f := newFixture(t)
	f.fill()
	callback := f.keys.Waiter(machine.Waiter{Awaited: "plain", Kind: machine.WaiterCallback, To: "sleeper"})
	f.aside(callback, keyspace.Marker())
	f.do(&protocol.PromiseSettle{ID: "plain", State: protocol.Resolved})
	if found, _ := f.problems(); len(found) != 1 {
		t.Errorf("nothing wakes the task, and the check finds %v", found)
	}
	if done := f.repair(); done.PutBack["waiter"] != 1 {
		t.Errorf("%+v", done)
	}
	if found, _ := f.problems(); len(found) != 0 {
		t.Errorf("after the repair: %v", found)
	}
	f.update(func(tx kv.Tx) error {
		op := machine.Op{State: Write(tx, workspace, layout), Now: f.now, Config: machine.Config{RetryTimeoutMs: 1}}
		more, err := op.Drain("plain")
		if o, _ := op.State.Object("sleeper"); more || o.Task.State != protocol.TaskPending {
			t.Errorf("more: %t, the task is %s", more, o.Task.State)
		}
		return err
	})
}

func TestRepairEnds(t *testing.T) {
	f := newFixture(t)
	f.fill()
	f.aside(f.keys.Drain("x"), keyspace.Marker())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.checker(nil).Repair(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a caller that has gone: %v", err)
	}
	f.store.Close()
	if _, err := f.checker(nil).Repair(context.Background()); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("with a closed store: %v", err)
	}
}
