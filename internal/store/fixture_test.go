package store

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

const (
	workspace = "default"
	far       = int64(1) << 50
)

var layout = keyspace.Layout{Shards: 1}

// fixture is a store with the machine on top, at a fixed instant.
type fixture struct {
	t     *testing.T
	store kv.Store
	keys  keyspace.Keys
	now   int64
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := sqlitekv.Open(sqlitekv.Options{Path: filepath.Join(t.TempDir(), "abide.db"), Keys: keyspace.Register()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	f := &fixture{t: t, store: s, keys: keyspace.For(workspace, layout), now: 1000}
	f.put(f.keys.Workspace(), keyspace.AppendInstant(nil, f.now))
	f.put(keyspace.Format(), keyspace.AppendFormat(nil, keyspace.StoreFormat{Derivation: keyspace.DerivationVersion, Shards: 1}))
	f.put(keyspace.Server("server"), keyspace.AppendInstant(nil, 5))
	f.put(f.keys.DebugClock(), keyspace.AppendInstant(nil, 5))
	f.put(keyspace.MemberKey("server"), keyspace.AppendMember(nil, keyspace.Member{Life: 1, LeaseMs: 1, Host: "h"}))
	f.put(keyspace.RosterKey(), keyspace.AppendRoster(nil, keyspace.Roster{Number: 2}))
	f.put(f.keys.Connection("g", "w"), keyspace.AppendConnection(nil, keyspace.Connection{Server: "server", Number: 2}))
	return f
}

func (f *fixture) update(fn func(tx kv.Tx) error) {
	f.t.Helper()
	if _, err := f.store.Update(context.Background(), kv.Hints{}, fn); err != nil {
		f.t.Fatal(err)
	}
}

// put writes a row past the machine; nil deletes it.
func (f *fixture) put(key, value []byte) {
	f.t.Helper()
	f.update(func(tx kv.Tx) error {
		if value == nil {
			return tx.Delete(key)
		}
		return tx.Put(key, value)
	})
}

func (f *fixture) get(key []byte) (value []byte) {
	f.t.Helper()
	err := f.store.View(context.Background(), func(s kv.Snapshot) (err error) {
		value, err = s.Get(key)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return value
}

// counted counts what a transaction writes.
type counted struct {
	kv.Tx
	puts, deletes int
	signals       []kv.Signal
}

func (c *counted) Put(key, value []byte) error { c.puts++; return c.Tx.Put(key, value) }
func (c *counted) Delete(key []byte) error     { c.deletes++; return c.Tx.Delete(key) }
func (c *counted) Signal(s kv.Signal)          { c.signals = append(c.signals, s); c.Tx.Signal(s) }

// do performs requests in one transaction, each answered 200, and returns what they wrote.
func (f *fixture) do(requests ...protocol.Request) (c *counted) {
	f.t.Helper()
	f.update(func(tx kv.Tx) error {
		c = &counted{Tx: tx}
		op := machine.Op{State: Write(c, workspace, layout), Now: f.now, Config: machine.Config{RetryTimeoutMs: 30_000}}
		for _, r := range requests {
			reply, err := op.Apply(r)
			if err != nil {
				return err
			}
			if reply.Status != 200 {
				f.t.Errorf("%s: %d %s", r.Kind(), reply.Status, reply.Message)
			}
		}
		return nil
	})
	return c
}

// problems are what the check reports.
func (f *fixture) problems() (found []Problem, tally Tally) {
	f.t.Helper()
	tally, err := Check(context.Background(), f.store, layout, f.now, func(p Problem) { found = append(found, p) })
	if err != nil {
		f.t.Fatal(err)
	}
	return found, tally
}

// rows are all rows whose kind is one of kinds.
func (f *fixture) rows(kinds ...string) (rows []kv.Entry) {
	f.t.Helper()
	err := f.store.View(context.Background(), func(s kv.Snapshot) error {
		all, err := s.Scan(everything, kv.MaxScanRows/2)
		for _, row := range all {
			if slices.Contains(kinds, keyspace.Kind(row.Key)) {
				rows = append(rows, row)
			}
		}
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return rows
}

// fill puts something of every kind into the store.
func (f *fixture) fill() {
	f.t.Helper()
	target := tags(protocol.TagTarget, "poll://any@g")
	var many protocol.Tags
	for c := 'a'; c <= 'z'; c++ {
		many = many.With(string(c), "v").With(string(c)+"2", "v")
	}
	big := protocol.MakeValue(nil, string(bytes.Repeat([]byte("x"), 130_000)))
	f.do(&protocol.PromiseCreate{ID: "plain", TimeoutAt: far, Tags: many},
		&protocol.PromiseCreate{ID: "big", TimeoutAt: far, Param: big},
		&protocol.PromiseCreate{ID: "queued", TimeoutAt: far, Tags: target.With(protocol.TagBranch, "r").With(protocol.TagOrigin, "r")},
		&protocol.PromiseCreate{ID: "delayed", TimeoutAt: far, Tags: target.With(protocol.TagDelay, "5000")},
		&protocol.TaskCreate{PID: "w", TTL: 500, Action: protocol.PromiseCreate{ID: "held", TimeoutAt: far, Tags: target}},
		&protocol.TaskCreate{PID: "w", TTL: 500, Action: protocol.PromiseCreate{ID: "sleeper", TimeoutAt: far, Tags: target}},
		&protocol.TaskSuspend{ID: "sleeper", Version: 1, Awaited: []string{"plain"}},
		&protocol.PromiseRegisterListener{Awaited: "plain", Address: "poll://uni@g/w"},
		&protocol.PromiseCreate{ID: "done", TimeoutAt: far, Param: big},
		&protocol.PromiseRegisterListener{Awaited: "done", Address: "https://example.com/x"},
		&protocol.PromiseSettle{ID: "done", State: protocol.Resolved, Value: big},
		&protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 1, PromiseParam: big},
	)
	// A drain that is still open.
	f.do(&protocol.PromiseCreate{ID: "crowd", TimeoutAt: far})
	var crowd []protocol.Request
	for i := range 300 {
		crowd = append(crowd, &protocol.PromiseRegisterListener{Awaited: "crowd", Address: "poll://uni@h/" + string(rune('a'+i/26)) + string(rune('a'+i%26))})
	}
	f.do(crowd...)
	f.do(&protocol.TaskCreate{PID: "w", TTL: 500, Action: protocol.PromiseCreate{ID: "lastinline", TimeoutAt: far, Tags: target}})
	f.do(&protocol.PromiseSettle{ID: "crowd", State: protocol.Rejected})
}

func tags(pairs ...string) protocol.Tags {
	var t protocol.Tags
	for i := 0; i < len(pairs); i += 2 {
		t = t.With(pairs[i], pairs[i+1])
	}
	return t
}
