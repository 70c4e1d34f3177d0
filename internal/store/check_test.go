package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// A store that only the machine has written is without fault, and every kind of row is met. (G15)
func TestCheckFindsNothingWrong(t *testing.T) {
	f := newFixture(t)
	f.fill()
	f.put(keyspace.Quarantined([]byte("x")), keyspace.AppendQuarantined(nil, keyspace.QuarantinedRow{Value: []byte("v"), Reason: "r"}))
	found, tally := f.problems()
	for _, p := range found {
		t.Error(p)
	}
	for _, kind := range []string{"object", "branch", "waiter", "drain", "chunk", "unblock", "origin", "timer", "lease", "execute", "unblock entry",
		"open task", "tag", "many tags", "format", "workspace", "schedule", "schedule chunk", "quarantine", "server", "debug clock",
		"member", "roster", "connection"} {
		if tally[kind] == 0 {
			t.Errorf("no row of kind %s was seen", kind)
		}
	}
}

// Whatever single row is lost, the check says so, naming the record that misses it.
func TestCheckMissesEveryLostRow(t *testing.T) {
	f := newFixture(t)
	f.fill()
	seen := map[string]int{}
	for _, row := range f.rows("object", "branch", "waiter", "drain", "chunk", "unblock", "origin", "timer", "lease", "execute", "unblock entry",
		"open task", "tag", "many tags", "workspace", "schedule", "schedule chunk") {
		kind := keyspace.Kind(row.Key)
		if seen[kind]++; seen[kind] > 3 {
			continue
		}
		f.put(row.Key, nil)
		found, _ := f.problems()
		parsed, _ := keyspace.ParseRow(row.Key, row.Value)
		// A listener that is gone harms nobody that the store knows of; a callback does, if its task sleeps.
		quiet := kind == "waiter" && parsed.Waiter.Kind == machine.WaiterListener
		if (len(found) == 0) != quiet {
			t.Errorf("without the %s of %q: %d problems", kind, parsed.ID, len(found))
		}
		f.put(row.Key, row.Value)
	}
}

func (f *fixture) object(id string, value []byte) *machine.Object {
	o, err := keyspace.Object(id, value)
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

// Whatever value is damaged, the check says so, of that row.
func TestCheckReportsEveryDamagedValue(t *testing.T) {
	f := newFixture(t)
	f.fill()
	seen := map[string]int{}
	for _, row := range f.rows("object", "branch", "waiter", "drain", "chunk", "unblock", "origin", "timer", "lease", "execute", "unblock entry",
		"open task", "tag", "many tags", "format", "workspace", "schedule", "schedule chunk", "server", "debug clock",
		"member", "roster", "connection") {
		kind := keyspace.Kind(row.Key)
		if seen[kind]++; seen[kind] > 2 {
			continue
		}
		for name, value := range map[string][]byte{
			"another version": append([]byte{99}, row.Value[1:]...), "empty": {}, "a byte too many": append(bytes.Clone(row.Value), 1),
		} {
			f.put(row.Key, value)
			found, _ := f.problems()
			named := false
			for _, p := range found {
				named = named || p.Kind == kind
			}
			if !named {
				t.Errorf("%s of kind %s: %v", name, kind, found)
			}
		}
		f.put(row.Key, row.Value)
	}
}

// Rows that no record calls for are reported.
func TestCheckReportsWhatNobodyCallsFor(t *testing.T) {
	f := newFixture(t)
	f.fill()
	sample := map[string]kv.Entry{}
	for _, row := range f.rows("timer", "lease", "execute", "unblock entry", "open task", "tag", "many tags", "branch", "origin", "chunk",
		"schedule chunk", "waiter", "drain", "unblock") {
		sample[keyspace.Kind(row.Key)] = row
	}
	settled := keyspace.AppendInstant(nil, 1)
	for name, row := range map[string]kv.Entry{
		"a timer too many":             {Key: f.keys.DeriveSchedule(nil, &machine.Schedule{ID: "s", NextRunAt: 5})[0].Key, Value: keyspace.Marker()},
		"a timer of nobody":            {Key: f.keys.DeriveSchedule(nil, &machine.Schedule{ID: "nobody", NextRunAt: 5})[0].Key, Value: keyspace.Marker()},
		"a drain timer":                {Key: f.keys.DeriveDrain("plain").Key, Value: keyspace.Marker()},
		"a drain of a pending promise": {Key: f.keys.Drain("plain"), Value: keyspace.Marker()},
		"a drain of nobody":            {Key: f.keys.Drain("nobody"), Value: keyspace.Marker()},
		"a connection of the future":   {Key: f.keys.Connection("g", "later"), Value: keyspace.AppendConnection(nil, keyspace.Connection{Server: "server", Number: 3})},
		"a member of the future":       {Key: keyspace.MemberKey("later"), Value: keyspace.AppendMember(nil, keyspace.Member{Life: 3})},
		"an unblock of nobody":         {Key: f.keys.Unblock("nobody", "poll://uni@g/w"), Value: settled},
		"an unblock of a pending one":  {Key: f.keys.Unblock("plain", "poll://uni@g/w"), Value: settled},
		"an unblock entry":             f.keys.DeriveUnblock("done", "poll://uni@g/other"),
		"a chunk of another token":     {Key: f.keys.Chunk("big", keyspace.SideParam, "token", 0), Value: keyspace.AppendChunk(nil, nil)},
		"a chunk too many":             {Key: f.keys.Chunk("big", keyspace.SideParam, f.object("big", f.get(f.keys.Object("big"))).Param.Ref, 9), Value: keyspace.AppendChunk(nil, nil)},
		"a chunk of nobody":            {Key: f.keys.Chunk("nobody", keyspace.SideValue, "token", 0), Value: keyspace.AppendChunk(nil, nil)},
		"a schedule's chunk":           {Key: f.keys.ScheduleChunk("s", "token", 0), Value: keyspace.AppendChunk(nil, nil)},
		"a waiter on nobody":           {Key: f.keys.Waiter(machine.Waiter{Awaited: "nobody", Kind: machine.WaiterListener, To: "x"}), Value: keyspace.Marker()},
		"a waiter on a settled one":    {Key: f.keys.Waiter(machine.Waiter{Awaited: "done", Kind: machine.WaiterListener, To: "x"}), Value: keyspace.Marker()},
		"a waiter on an unmarked one":  {Key: f.keys.Waiter(machine.Waiter{Awaited: "queued", Kind: machine.WaiterListener, To: "x"}), Value: keyspace.Marker()},
		"a callback for no task":       {Key: f.keys.Waiter(machine.Waiter{Awaited: "plain", Kind: machine.WaiterCallback, To: "big"}), Value: keyspace.Marker()},
		"a waiter of no kind":          {Key: f.keys.Waiter(machine.Waiter{Awaited: "plain", Kind: 7, To: "x"}), Value: keyspace.Marker()},
		"a workspace without a record": {Key: keyspace.For("stray", layout).Drain("x"), Value: keyspace.Marker()},
		"an unknown key":               {Key: []byte{0x15, 0x77}, Value: []byte("x")},
		"an unknown key of a tree":     {Key: append(bytes.Clone(f.keys.All().Start), 0x02, 'x', 0, 0x15, 0x63, 0x02, 0), Value: []byte("x")},
		"bytes":                        {Key: []byte("zzz"), Value: nil},
	} {
		f.put(row.Key, append([]byte{}, row.Value...))
		if found, _ := f.problems(); len(found) == 0 {
			t.Errorf("%s was not reported", name)
		}
		f.put(row.Key, nil)
	}
	// Entries of a record that has ceased to call for them.
	f.do(&protocol.PromiseSettle{ID: "queued", State: protocol.Resolved}, &protocol.PromiseSettle{ID: "held", State: protocol.Resolved},
		&protocol.PromiseSettle{ID: "lastinline", State: protocol.Resolved})
	for kind, row := range sample {
		if f.get(row.Key) != nil {
			continue
		}
		f.put(row.Key, row.Value)
		if found, _ := f.problems(); len(found) == 0 {
			t.Errorf("a stale %s was not reported", kind)
		}
		f.put(row.Key, nil)
	}
	if found, _ := f.problems(); len(found) != 0 {
		t.Errorf("in the end: %v", found)
	}
}

// Records that decode and yet are wrong: whose relation to others, or whose own order, does not hold.
func TestCheckReportsBrokenRecords(t *testing.T) {
	f := newFixture(t)
	f.fill()
	rewrite := func(id string, change func(o *machine.Object)) []byte {
		o := f.object(id, f.get(f.keys.Object(id)))
		change(o)
		return keyspace.AppendObject(nil, o)
	}
	schedule := func(change func(s *machine.Schedule)) []byte {
		s, err := keyspace.Schedule("s", f.get(f.keys.Schedule("s")))
		if err != nil {
			t.Fatal(err)
		}
		change(s)
		return keyspace.AppendSchedule(nil, s)
	}
	for name, row := range map[string]kv.Entry{
		"tags out of order": {Key: f.keys.Object("plain"), Value: rewrite("plain", func(o *machine.Object) { o.Tags[0], o.Tags[1] = o.Tags[1], o.Tags[0] })},
		"a tag twice":       {Key: f.keys.Object("plain"), Value: rewrite("plain", func(o *machine.Object) { o.Tags[1] = o.Tags[0] })},
		"another deadline":  {Key: f.keys.Object("plain"), Value: rewrite("plain", func(o *machine.Object) { o.TimeoutAt-- })},
		"another lease":     {Key: f.keys.Object("held"), Value: rewrite("held", func(o *machine.Object) { o.Task.ArmedAt-- })},
		"another pid":       {Key: f.keys.Object("held"), Value: rewrite("held", func(o *machine.Object) { o.Task.PID = "v" })},
		"not queued":        {Key: f.keys.Object("queued"), Value: rewrite("queued", func(o *machine.Object) { o.Task.Queued = false })},
		"not waited on":     {Key: f.keys.Object("plain"), Value: rewrite("plain", func(o *machine.Object) { o.Waited = false })},
		"another payload":   {Key: f.keys.Object("big"), Value: rewrite("big", func(o *machine.Object) { o.Param.Ref = "token" })},
		"another size":      {Key: f.keys.Object("big"), Value: rewrite("big", func(o *machine.Object) { o.Param.Size++ })},
		"asleep for ever": {Key: f.keys.Object("lastinline"), Value: rewrite("lastinline", func(o *machine.Object) {
			*o.Task = machine.Task{State: protocol.TaskSuspended, Version: 1}
		})},
		"settled under a sleeper": {Key: f.keys.Object("plain"), Value: rewrite("plain", func(o *machine.Object) { o.State, o.SettledAt = protocol.Resolved, 1 })},
		"a cron of nonsense":      {Key: f.keys.Schedule("s"), Value: schedule(func(s *machine.Schedule) { s.Cron = "x" })},
		"another next run":        {Key: f.keys.Schedule("s"), Value: schedule(func(s *machine.Schedule) { s.NextRunAt++ })},
		"no next run":             {Key: f.keys.Schedule("s"), Value: schedule(func(s *machine.Schedule) { s.HasRun, s.LastRunAt = true, s.NextRunAt })},
		"disarmed and not run":    {Key: f.keys.Schedule("s"), Value: schedule(func(s *machine.Schedule) { s.Disarmed = true })},
		"another derivation":      {Key: keyspace.Format(), Value: keyspace.AppendFormat(nil, keyspace.StoreFormat{Derivation: 99, Shards: 1})},
		"other shards":            {Key: keyspace.Format(), Value: keyspace.AppendFormat(nil, keyspace.StoreFormat{Derivation: keyspace.DerivationVersion, Shards: 2})},
	} {
		before := f.get(row.Key)
		f.put(row.Key, row.Value)
		if found, _ := f.problems(); len(found) == 0 {
			t.Errorf("%s was not reported", name)
		}
		f.put(row.Key, before)
	}
	if found, _ := f.problems(); len(found) != 0 {
		t.Errorf("in the end: %v", found)
	}
}

// A suspended task is well while one of its callbacks will wake it, or its own deadline has passed; more of them than
// one batch holds are told apart.
func TestCheckOfSuspendedTasks(t *testing.T) {
	f := newFixture(t)
	target := tags(protocol.TagTarget, "poll://any@g")
	const n = 3 * checkPage
	f.do(&protocol.PromiseCreate{ID: "p", TimeoutAt: far})
	for i := range n {
		id := fmt.Sprintf("t%05d", i)
		f.do(&protocol.TaskCreate{PID: "w", TTL: 500, Action: protocol.PromiseCreate{ID: id, TimeoutAt: 5000, Tags: target}},
			&protocol.TaskSuspend{ID: id, Version: 1, Awaited: []string{"p"}})
	}
	for _, lost := range []string{"t00000", fmt.Sprintf("t%05d", n-1)} {
		f.put(f.keys.Waiter(machine.Waiter{Awaited: "p", Kind: machine.WaiterCallback, To: lost}), nil)
	}
	if found, _ := f.problems(); len(found) != 2 || !strings.Contains(found[0].String(), "nothing will ever wake") {
		t.Errorf("%d problems: %v", len(found), found)
	}
	f.now = 5000
	if found, _ := f.problems(); len(found) != 0 {
		t.Errorf("past their own deadline: %v", found)
	}
}

// An entry that was set aside is not missed a second time.
func TestCheckKnowsWhatWasSetAside(t *testing.T) {
	f := newFixture(t)
	f.do(&protocol.PromiseCreate{ID: "p", TimeoutAt: far, Tags: tags(protocol.TagTimer, "true")})
	row := f.rows("timer")[0]
	f.put(row.Key, nil)
	f.put(keyspace.Quarantined(row.Key), keyspace.AppendQuarantined(nil, keyspace.QuarantinedRow{Value: row.Value}))
	if found, tally := f.problems(); len(found) != 0 || tally["quarantine"] != 1 {
		t.Errorf("%v, %d set aside", found, tally["quarantine"])
	}
}

// The check ends when its caller has gone, or the store fails.
func TestCheckEnds(t *testing.T) {
	f := newFixture(t)
	f.fill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Check(ctx, f.store, layout, f.now, func(Problem) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a caller that has gone: %v", err)
	}
	f.store.Close()
	if _, err := Check(context.Background(), f.store, layout, f.now, func(Problem) {}); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("with a closed store: %v", err)
	}
}
