package machine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
	"abide/kv/memkv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

const (
	workspace      = "default"
	retryTimeoutMs = 30_000
	far            = int64(1) << 50
)

var layout = keyspace.Layout{Shards: 1}

// world is the machine over one store and a virtual clock. Every operation is checked: afterwards the whole
// store must be as the properties of the machine demand.
type world struct {
	t     testing.TB
	store kv.Store
	keys  keyspace.Keys
	now   int64
}

// newWorld is a world over a fresh SQLite file, the code of production.
func newWorld(t testing.TB) *world {
	t.Helper()
	s, err := sqlitekv.Open(sqlitekv.Options{Path: filepath.Join(t.TempDir(), "abide.db"), Keys: keyspace.Register()})
	if err != nil {
		t.Fatal(err)
	}
	return worldOver(t, s)
}

// newQuickWorld is a world in memory, whose closures run twice: for tests of very many operations.
func newQuickWorld(t testing.TB) *world {
	return worldOver(t, memkv.Open(memkv.Options{Keys: keyspace.Register(), RunTwice: true}))
}

func worldOver(t testing.TB, s kv.Store) *world {
	t.Helper()
	w := &world{t: t, store: s, keys: keyspace.For(workspace, layout), now: 1000}
	_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		return tx.Put(w.keys.Workspace(), keyspace.AppendInstant(nil, w.now))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.check()
		s.Close()
	})
	return w
}

func (w *world) op(txn *store.Txn) *machine.Op {
	return &machine.Op{State: txn, Now: w.now, Config: machine.Config{RetryTimeoutMs: retryTimeoutMs}}
}

// step runs one operation in a transaction of its own and checks the store afterwards.
func (w *world) step(fn func(op *machine.Op) error) {
	w.t.Helper()
	w.update(fn)
	w.check()
}

func (w *world) update(fn func(op *machine.Op) error) {
	w.t.Helper()
	_, err := kv.Run(context.Background(), w.store, kv.Hints{}, func(tx kv.Tx) error {
		return fn(w.op(store.Write(tx, workspace, layout)))
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// view runs a read on a snapshot.
func (w *world) view(fn func(op *machine.Op) error) {
	w.t.Helper()
	err := w.store.View(context.Background(), func(s kv.Snapshot) error {
		return fn(w.op(store.Read(s, workspace, layout)))
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// apply performs a request where the engine would: reads on a snapshot, writes in a transaction, a heartbeat
// task by task.
func (w *world) apply(req protocol.Request) (reply protocol.Reply) {
	w.t.Helper()
	run := func(op *machine.Op) (err error) {
		reply, err = op.Apply(req)
		return err
	}
	if beat, ok := req.(*protocol.TaskHeartbeat); ok {
		run = func(op *machine.Op) (err error) {
			reply, err = w.heartbeat(op, beat)
			return err
		}
	}
	if machine.Writes(req.Kind()) {
		w.step(run)
	} else {
		w.view(run)
	}
	return reply
}

func (w *world) heartbeat(op *machine.Op, beat *protocol.TaskHeartbeat) (protocol.Reply, error) {
	var lost []string
	refs := beat.Tasks
	if len(refs) == 0 {
		for _, id := range w.held(beat.PID) {
			refs = append(refs, protocol.TaskRef{ID: id, Version: -1})
		}
	}
	for _, ref := range refs {
		kept, err := op.Renew(ref.ID, beat.PID, ref.Version)
		if err != nil {
			return protocol.Reply{}, err
		}
		if !kept {
			lost = append(lost, ref.ID)
		}
	}
	return protocol.OK(protocol.HeartbeatBody{Lost: lost}), nil
}

// held lists the tasks that the lease index shows for a pid.
func (w *world) held(pid string) (ids []string) {
	all := w.keys.Leases(pid)
	for _, row := range w.scan(all) {
		id, err := keyspace.ParseLast(all, row.Key)
		if err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// do performs a request and fails the test unless it is answered with the status.
func (w *world) do(status int, req protocol.Request) protocol.Reply {
	w.t.Helper()
	reply := w.apply(req)
	if reply.Status != status {
		w.t.Fatalf("%s %+v: status %d (%s), want %d", req.Kind(), req, reply.Status, reply.Message, status)
	}
	return reply
}

func (w *world) promise(id string) protocol.Promise {
	w.t.Helper()
	return w.do(200, &protocol.PromiseGet{ID: id}).Body.(protocol.PromiseBody).Promise
}

func (w *world) task(id string) protocol.Task {
	w.t.Helper()
	return w.do(200, &protocol.TaskGet{ID: id}).Body.(protocol.TaskBody).Task
}

func (w *world) scan(r kv.Range) []kv.Entry {
	w.t.Helper()
	var rows []kv.Entry
	err := w.store.View(context.Background(), func(s kv.Snapshot) (err error) {
		rows, err = s.Scan(r, kv.MaxScanRows/2)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// everything is every key of a store.
var everything = kv.Range{End: []byte{kv.ReservedPrefix}}

// check fails the test if anything is wrong with the store, or its journal does not lead to it.
func (w *world) check() {
	w.t.Helper()
	var problems []string
	checker := store.Checker{Store: w.store, Layout: layout, NowMs: w.now, Report: func(p store.Problem) {
		problems = append(problems, p.String())
	}}
	if _, err := checker.Check(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	if _, err := checker.Replay(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	if len(problems) > 0 {
		w.t.Fatalf("the store breaks its invariants at %d:\n  %s", w.now, strings.Join(problems, "\n  "))
	}
}

// timer is an armed timer.
type timer struct {
	kind  keyspace.TimerKind
	id    string
	dueAt int64
}

// due lists the timers that are due, in the order of one pass.
func (w *world) due() (timers []timer) {
	for _, kind := range keyspace.TimerKinds {
		for _, row := range w.scan(keyspace.Timers(kind, 0, w.now)) {
			t, err := keyspace.ParseTimer(row.Key)
			if err != nil {
				w.t.Fatal(err)
			}
			timers = append(timers, timer{t.Kind, t.ID, t.DueAt})
		}
	}
	return timers
}

// fire does what a timer stands for, whether it still stands or not. more: the step was a bounded part.
func (w *world) fire(t timer) (did, more bool) {
	w.t.Helper()
	w.step(func(op *machine.Op) (err error) {
		did, more = false, false
		switch t.kind {
		case keyspace.TimerDrain:
			more, err = op.Drain(t.id)
		case keyspace.TimerPromise:
			did, err = op.PromiseTimeout(t.id)
		case keyspace.TimerRetry:
			did, err = op.Dispatch(t.id, false)
		case keyspace.TimerLease:
			did, err = op.LeaseExpiry(t.id)
		case keyspace.TimerSchedule:
			more, err = op.RunSchedule(t.id)
		}
		return err
	})
	return did, more
}

// pass fires everything that is due when it begins.
func (w *world) pass() {
	w.t.Helper()
	for _, t := range w.due() {
		for more := true; more; {
			_, more = w.fire(t)
		}
	}
}

var timerNames = map[keyspace.TimerKind]string{
	keyspace.TimerDrain: "drain", keyspace.TimerPromise: "promise", keyspace.TimerRetry: "retry",
	keyspace.TimerLease: "lease", keyspace.TimerSchedule: "schedule",
}

// dump is the state as lines that a person can read: records, waiters, messages and timers. The other entries
// are the checker's to compare.
func (w *world) dump() []string {
	w.t.Helper()
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, entry := range w.scan(everything) {
		row, err := keyspace.ParseRow(entry.Key, entry.Value)
		if err != nil {
			w.t.Fatal(err)
		}
		switch row.Kind {
		case "object":
			add("%s", describe(w.object(row.ID, entry.Value)))
		case "waiter":
			if row.Waiter.Kind == machine.WaiterCallback {
				add("callback %s wakes %s", row.ID, row.Waiter.To)
			} else {
				add("listener %s tells %s", row.ID, row.Waiter.To)
			}
		case "drain":
			add("drain    %s", row.ID)
		case "unblock":
			add("unblock  %s to %s", row.ID, row.Address)
		case "execute":
			add("execute  %s", row.ID)
		case "timer":
			t, _ := keyspace.ParseTimer(entry.Key)
			add("timer    %s %s @%d", timerNames[t.Kind], t.ID, t.DueAt)
		case "schedule":
			s, err := keyspace.Schedule(row.ID, entry.Value)
			if err != nil {
				w.t.Fatal(err)
			}
			add("schedule %s next=%d last=%d run=%t disarmed=%t", s.ID, s.NextRunAt, s.LastRunAt, s.HasRun, s.Disarmed)
		}
	}
	slices.Sort(lines)
	return lines
}

func (w *world) object(id string, value []byte) *machine.Object {
	o, err := keyspace.Object(id, value)
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// describe is one object in one line.
func describe(o *machine.Object) string {
	var b strings.Builder
	fmt.Fprintf(&b, "promise  %s %s created=%d timeout=%d", o.ID, o.State, o.CreatedAt, o.TimeoutAt)
	if o.State != protocol.Pending {
		fmt.Fprintf(&b, " settled=%d", o.SettledAt)
	}
	if o.Waited {
		b.WriteString(" waited")
	}
	t := o.Task
	if t == nil {
		return b.String()
	}
	fmt.Fprintf(&b, " | task %s v%d", t.State, t.Version)
	field := func(name string, v int64) {
		if v != 0 {
			fmt.Fprintf(&b, " %s=%d", name, v)
		}
	}
	field("resumes", t.Resumes)
	if t.PID != "" {
		fmt.Fprintf(&b, " pid=%s", t.PID)
	}
	field("ttl", t.TTL)
	field("lease", t.LeaseAt)
	field("armed", t.ArmedAt)
	field("retry", t.RetryAt)
	if t.Queued {
		b.WriteString(" queued")
	}
	field("claimed", t.ClaimedAt)
	field("hasty", t.Hasty)
	return b.String()
}

// tags makes tags of names and values in turn.
func tags(pairs ...string) protocol.Tags {
	var t protocol.Tags
	for i := 0; i < len(pairs); i += 2 {
		t = t.With(pairs[i], pairs[i+1])
	}
	return t
}

var target = tags(protocol.TagTarget, "poll://any@g")
