package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// What each request writes. These numbers are the index budget: a new index shows here first.
func TestWritesPerRequest(t *testing.T) {
	f := newFixture(t)
	target := tags(protocol.TagTarget, "poll://any@g", protocol.TagBranch, "t", protocol.TagOrigin, "t", protocol.TagScope, "global")
	child := tags(protocol.TagBranch, "t", protocol.TagOrigin, "t", protocol.TagParent, "t", protocol.TagScope, "local")
	for _, step := range []struct {
		name          string
		puts, deletes int
		requests      []protocol.Request
	}{
		{"a targeted root: record, deadline, open task, execute", 4, 0, []protocol.Request{&protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: target}}},
		{"its claim: record, lease timer, pid; the execute goes", 3, 1, []protocol.Request{&protocol.TaskAcquire{ID: "t", Version: 0, PID: "w", TTL: 500}}},
		{"an internal child: record, branch", 2, 0, []protocol.Request{&protocol.TaskFence{ID: "t", Version: 1, Create: &protocol.PromiseCreate{ID: "t.1", TimeoutAt: far, Tags: child}}}},
		{"its settlement: record", 1, 0, []protocol.Request{&protocol.TaskFence{ID: "t", Version: 1, Settle: &protocol.PromiseSettle{ID: "t.1", State: protocol.Resolved}}}},
		{"an own tag costs one more", 3, 0, []protocol.Request{&protocol.PromiseCreate{ID: "t.2", TimeoutAt: far, Tags: child.With("own", "tag")}}},
		{"an origin in another tree costs one more", 2, 0, []protocol.Request{&protocol.PromiseCreate{ID: "u", TimeoutAt: far, Tags: tags(protocol.TagOrigin, "t")}}},
		{"a large param costs its chunks", 3, 0, []protocol.Request{&protocol.PromiseCreate{ID: "v", TimeoutAt: far, Param: protocol.MakeValue(nil, strings.Repeat("x", 100_000))}}},
		{"its settlement does not rewrite them", 1, 0, []protocol.Request{&protocol.PromiseSettle{ID: "v", State: protocol.Resolved}}},
		{"a sleep: record, deadline", 2, 0, []protocol.Request{&protocol.PromiseCreate{ID: "t.3", TimeoutAt: far, Tags: tags(protocol.TagTimer, "true")}}},
		{"a suspend: awaited record, waiter, record; lease timer and pid go", 3, 2, []protocol.Request{&protocol.TaskSuspend{ID: "t", Version: 1, Awaited: []string{"t.3"}}}},
		{"what wakes it: both records, execute; deadline and waiter go", 3, 2, []protocol.Request{&protocol.PromiseSettle{ID: "t.3", State: protocol.Resolved}}},
		{"registered twice: the waiter again", 5, 0, []protocol.Request{&protocol.PromiseRegisterListener{Awaited: "u", Address: "poll://uni@g/w"}, &protocol.PromiseRegisterListener{Awaited: "u", Address: "poll://uni@g/w"},
			&protocol.PromiseRegisterListener{Awaited: "u", Address: "poll://uni@g/w"}}},
		{"created twice, read: nothing", 0, 0, []protocol.Request{&protocol.PromiseCreate{ID: "u", TimeoutAt: 5}, &protocol.PromiseGet{ID: "u"}, &protocol.PromiseSettle{ID: "v", State: protocol.Rejected}}},
	} {
		if c := f.do(step.requests...); c.puts != step.puts || c.deletes != step.deletes {
			t.Errorf("%s: %d puts and %d deletes, want %d and %d", step.name, c.puts, c.deletes, step.puts, step.deletes)
		}
	}
	// A heartbeat writes one record and no index.
	f.now = 1400
	f.do(&protocol.TaskAcquire{ID: "t", Version: 1, PID: "w", TTL: 500})
	f.now = 1500
	f.update(func(tx kv.Tx) error {
		c := &counted{Tx: tx}
		op := machine.Op{State: Write(c, workspace, layout), Now: f.now}
		kept, err := op.Renew("t", "w", 2)
		if !kept || c.puts != 1 || c.deletes != 0 {
			t.Errorf("a heartbeat: kept %t, %d puts and %d deletes", kept, c.puts, c.deletes)
		}
		return err
	})
	if found, _ := f.problems(); len(found) != 0 {
		t.Error(found)
	}
}

// The signals of a commit: what the timer loop and delivery want to know.
func TestSignals(t *testing.T) {
	f := newFixture(t)
	target := tags(protocol.TagTarget, "poll://any@g")
	c := f.do(&protocol.PromiseCreate{ID: "p", TimeoutAt: 7000, Tags: target})
	want := []kv.Signal{TimerSignal(7000), ExecuteSignal(workspace, "p", 0, "poll://any@g")}
	check := func(what string, got []kv.Signal) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("%s: signals %+v, want %+v", what, got, want)
			return
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: signal %+v, want %+v", what, got[i], want[i])
			}
		}
	}
	check("birth", c.signals)
	c = f.do(&protocol.TaskAcquire{ID: "p", Version: 0, PID: "w", TTL: 500})
	want = []kv.Signal{ClaimedSignal(workspace, "p", 0), TimerSignal(1500)}
	check("claim", c.signals)
	f.do(&protocol.PromiseRegisterListener{Awaited: "p", Address: "poll://uni@g/w"})
	c = f.do(&protocol.PromiseSettle{ID: "p", State: protocol.Resolved})
	want = []kv.Signal{UnblockSignal(workspace, "p", "poll://uni@g/w")}
	check("settlement", c.signals)
	// Very many timers of one transaction give few signals, none later than the earliest.
	var many []protocol.Request
	for i := range int64(100) {
		many = append(many, &protocol.PromiseCreate{ID: fmt.Sprint("timer", i), TimeoutAt: 9000 - i, Tags: tags(protocol.TagTimer, "true")})
	}
	c = f.do(many...)
	if n := len(c.signals); n > timerHints || ParseTimer(c.signals[n-1].Body) > 9000-99 {
		t.Errorf("100 timers gave %d signals, the last %+v", n, c.signals[n-1])
	}
	m, ok := ParseMessage(ExecuteSignal("w", "i\x00d", 7, "a").Body)
	if !ok || m != (Message{Workspace: "w", ID: "i\x00d", Version: 7, Address: "a"}) {
		t.Errorf("%+v, %t", m, ok)
	}
	for _, body := range []string{"", "x", ExecuteSignal("w", "i", 7, "a").Body + "x"} {
		if _, ok := ParseMessage(body); ok {
			t.Errorf("%q parses", body)
		}
	}
	if at := ParseTimer("nonsense"); at != 0 {
		t.Errorf("a timer signal that does not parse is due at %d", at)
	}
}

// A read transaction writes nothing, and a record that breaks an invariant is never written.
func TestWhatIsNotWritten(t *testing.T) {
	f := newFixture(t)
	f.do(&protocol.PromiseCreate{ID: "p", TimeoutAt: far})
	err := f.store.View(context.Background(), func(s kv.Snapshot) error {
		txn := Read(s, workspace, layout)
		o, err := txn.Object("p")
		if err != nil {
			return err
		}
		return txn.Put(o)
	})
	if !errors.Is(err, errReadOnly) {
		t.Errorf("a write in a read transaction: %v", err)
	}
	_, err = f.store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		txn := Write(tx, workspace, layout)
		o, err := txn.Object("p")
		if err != nil {
			return err
		}
		o.Task = &machine.Task{State: protocol.TaskHalted}
		return txn.Put(o)
	})
	if !errors.Is(err, machine.ErrInvariant) {
		t.Errorf("a task without a target: %v", err)
	}
	if found, _ := f.problems(); len(found) != 0 {
		t.Error(found)
	}
}

// One transaction sees its own writes, and gives one pointer for one id.
func TestTransactionSeesItself(t *testing.T) {
	f := newFixture(t)
	f.do(&protocol.PromiseCreate{ID: "stored", TimeoutAt: far, Tags: tags("k", "v")})
	f.update(func(tx kv.Tx) error {
		txn := Write(tx, workspace, layout)
		if err := txn.Load([]string{"stored", "none", "stored"}); err != nil {
			return err
		}
		o, _ := txn.Object("stored")
		again, _ := txn.Object("stored")
		none, _ := txn.Object("none")
		if o == nil || o != again || none != nil {
			t.Errorf("%p and %p for one id, %p for none", o, again, none)
		}
		fresh := &machine.Object{ID: "fresh", State: protocol.Pending, TimeoutAt: far, Tags: tags("k", "v")}
		if err := txn.Put(fresh); err != nil {
			return err
		}
		o.Waited = true
		if err := txn.Put(o); err != nil {
			return err
		}
		page, err := txn.Enumerate(machine.Path{Kind: machine.PathTag, Name: "k", Value: "v"}, "", 10)
		if err != nil || len(page.Objects) != 2 || page.Objects[0] != fresh || page.Objects[1] != o {
			t.Errorf("%+v, %v", page, err)
		}
		return err
	})
	if found, _ := f.problems(); len(found) != 0 {
		t.Error(found)
	}
}

// Damaged payloads are errors that name their kind, never shorter payloads.
func TestDamagedPayloads(t *testing.T) {
	f := newFixture(t)
	f.fill()
	for _, row := range f.rows("chunk") {
		f.put(row.Key, nil)
	}
	err := f.store.View(context.Background(), func(s kv.Snapshot) error {
		txn := Read(s, workspace, layout)
		o, err := txn.Object("big")
		if err != nil {
			return err
		}
		_, err = txn.Payload(o, &o.Param)
		return err
	})
	var e *kv.Error
	if !errors.Is(err, kv.ErrCorrupt) || !errors.As(err, &e) || e.KeyKind != "chunk" {
		t.Errorf("%v", err)
	}
	if keyspace.InlineBytes >= chunkBytes {
		t.Error("an inline payload is larger than a chunk")
	}
}

// A transaction says whose it is to whoever hears of it, and once: with what is for its own server alone, the others hear
// nothing.
func TestSignatures(t *testing.T) {
	f := newFixture(t)
	here, abroad := ServerSignal("s"), ServerSignal("s")
	here.Local = true
	timer, execute := TimerSignal(7000), ExecuteSignal(workspace, "p", 0, "poll://any@g")
	for name, test := range map[string]struct{ give, want []kv.Signal }{
		"timers alone":       {[]kv.Signal{timer, timer}, []kv.Signal{here, timer, timer}},
		"a message alone":    {[]kv.Signal{execute, timer}, []kv.Signal{abroad, execute, timer}},
		"a message later on": {[]kv.Signal{timer, execute, execute}, []kv.Signal{here, timer, abroad, execute, execute}},
	} {
		f.update(func(tx kv.Tx) error {
			c := &counted{Tx: tx}
			txn := Write(c, workspace, layout).SignedBy("s")
			for _, s := range test.give {
				txn.hint(s)
			}
			if !slices.Equal(c.signals, test.want) {
				t.Errorf("%s: signals %+v, want %+v", name, c.signals, test.want)
			}
			return nil
		})
	}
}
