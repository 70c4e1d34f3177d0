package keyspace

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"abide/internal/journal"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

var rewrite = flag.Bool("rewrite", false, "write the bytes as they are now into testdata: stored data of every earlier build becomes unreadable wherever they differ")

var keys = For("ws", Layout{Shards: 1})

// namedBytes are bytes with a name for people.
type namedBytes struct {
	name  string
	bytes []byte
}

// goldenKeys is one key of every kind, in both dialects of child ids.
func goldenKeys() []namedBytes {
	sharded := For("ws", Layout{Shards: 8})
	callback := machine.Waiter{Awaited: "r.1", Kind: machine.WaiterCallback, To: "r"}
	listener := machine.Waiter{Awaited: "r", Kind: machine.WaiterListener, To: "poll://uni@g/w"}
	long := strings.Repeat("x", protocol.MaxIDBytes+1)
	start := func(r kv.Range) []byte { return r.Start }
	derived := func(o *machine.Object) (all []namedBytes) {
		for _, e := range keys.Derive(nil, o) {
			all = append(all, namedBytes{fmt.Sprintf("entry of %s: %s", o.ID, Kind(e.Key)), e.Key})
		}
		return all
	}
	all := []namedBytes{
		{"object r", keys.Object("r")},
		{"object r.1", keys.Object("r.1")},
		{"object r:1.2", keys.Object("r:1.2")},
		{"object .", keys.Object(".")},
		{"waiter: callback", keys.Waiter(callback)},
		{"waiter: listener", keys.Waiter(listener)},
		{"waiters of r.1", start(keys.Waiters("r.1"))},
		{"drain r.1", keys.Drain("r.1")},
		{"chunk of a param", keys.Chunk("r.1", SideParam, "\x01\x00\xff", 0)},
		{"chunk of a value", keys.Chunk("r.1", SideValue, "token", 300)},
		{"unblock r.1", keys.Unblock("r.1", "http://example.com/")},
		{"branch of a long value", start(keys.Branch(long))},
		{"origin of a long value", start(keys.Origin(long))},
		{"schedule s", keys.Schedule("s")},
		{"schedule chunk", keys.ScheduleChunk("s", "token", 1)},
		{"workspace", keys.Workspace()},
		{"debug clock", keys.DebugClock()},
		{"format", Format()},
		{"server", Server("server")},
		{"servers that are gone", Server("")},
		{"member", MemberKey("server")},
		{"roster", RosterKey()},
		{"connection", keys.Connection("g", "w")},
		{"quarantined", Quarantined(keys.Object("r.1"))},
		{"drain timer", keys.DeriveDrain("r.1").Key},
		{"drain timer in one of 8 shards", sharded.DeriveDrain("r.1").Key},
		{"schedule timer", keys.DeriveSchedule(nil, &machine.Schedule{ID: "s", NextRunAt: 60_000})[0].Key},
		{"unblock entry, unicast", keys.DeriveUnblock("r.1", "poll://uni@g/w").Key},
		{"unblock entry, another scheme", keys.DeriveUnblock("r.1", "https://example.com/x").Key},
	}
	for _, o := range goldenObjects() {
		all = append(all, derived(o)...)
	}
	return all
}

// goldenObjects are objects in every state, with every field set somewhere.
func goldenObjects() []*machine.Object {
	var many protocol.Tags
	for i := range 33 {
		many = many.With(fmt.Sprintf("k%02d", i), "v")
	}
	target := protocol.Tags{}.With(protocol.TagTarget, "poll://any@g")
	unicast := protocol.Tags{}.With(protocol.TagTarget, "poll://uni@g/w").With(protocol.TagBranch, "r").With(protocol.TagOrigin, "q")
	trace := protocol.ParseTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	stated := protocol.ParseTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "a=1,b=2")
	web := protocol.Tags{}.With(protocol.TagTarget, "https://example.com/x")
	return []*machine.Object{
		{ID: "plain", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000},
		{ID: "waited", State: protocol.Pending, TimeoutAt: 1<<63 - 1, CreatedAt: 0, Waited: true, Param: machine.Payload{Inline: protocol.Value(`{"data":"eA=="}`), Size: 15}},
		{ID: "many", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000, Tags: many},
		{ID: "settled", State: protocol.RejectedCanceled, TimeoutAt: 5000, CreatedAt: 1000, SettledAt: 2000,
			Value: machine.Payload{Ref: "\x00token\xff", Size: 70_000}, Tags: protocol.Tags{{Name: "", Value: ""}, {Name: "é", Value: "\n"}}},
		{ID: "queued", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000, Tags: target,
			Task: &machine.Task{State: protocol.TaskPending, RetryAt: 31_000, Queued: true}},
		{ID: "r.1", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000, Tags: unicast,
			Task: &machine.Task{State: protocol.TaskPending, Version: 3, Resumes: 2, RetryAt: 2000, ClaimedAt: 1500, Hasty: 4}},
		{ID: "queuedelsewhere", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000, Tags: web,
			Task: &machine.Task{State: protocol.TaskPending, RetryAt: 1, Queued: true}},
		{ID: "acquired", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000, Tags: target, Waited: true,
			Task: &machine.Task{State: protocol.TaskAcquired, Version: 1, PID: "w", TTL: 500, LeaseAt: 2000, ArmedAt: 1500, ClaimedAt: 1000}},
		{ID: "suspended", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000, Tags: target, Task: &machine.Task{State: protocol.TaskSuspended, Version: 2}},
		{ID: "halted", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000, Tags: target, Task: &machine.Task{State: protocol.TaskHalted}},
		{ID: "fulfilled", State: protocol.Resolved, TimeoutAt: 5000, CreatedAt: 1000, SettledAt: 1000, Tags: target, Task: &machine.Task{State: protocol.TaskFulfilled, Version: 1}},
		{ID: "timer", State: protocol.Resolved, TimeoutAt: 5000, CreatedAt: 1000, SettledAt: 5000, Tags: target.With(protocol.TagTimer, "true")},
		{ID: "rejected", State: protocol.Rejected, TimeoutAt: 5000, CreatedAt: 1000, SettledAt: 1000},
		{ID: "traced", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000, Tags: target, Task: &machine.Task{State: protocol.TaskHalted}, Trace: trace},
		{ID: "tracedbymany", State: protocol.Pending, TimeoutAt: 5000, CreatedAt: 1000, Tags: target, Task: &machine.Task{State: protocol.TaskHalted}, Trace: stated},
		{ID: "timedout", State: protocol.RejectedTimedout, TimeoutAt: 5000, CreatedAt: 5000, SettledAt: 5000},
	}
}

func goldenSchedules() []*machine.Schedule {
	return []*machine.Schedule{
		{ID: "fresh", Cron: "* * * * *", PromiseID: "{{.id}}.{{.timestamp}}", PromiseTimeout: 1000, CreatedAt: 1, NextRunAt: 60_000,
			PromiseParam: machine.Payload{Inline: protocol.Value(`{"data":"eA=="}`), Size: 15}, PromiseTags: protocol.Tags{}.With("k", "v")},
		{ID: "ran", Cron: "* * * * *", PromiseID: "x", CreatedAt: 1, NextRunAt: 60_000, HasRun: true, PromiseParam: machine.Payload{Ref: "token", Size: 5000}},
		{ID: "disarmed", Cron: "0 0 1 1 * 1970", PromiseID: "x", PromiseTimeout: 1<<63 - 1, NextRunAt: 7, LastRunAt: 7, HasRun: true, Disarmed: true},
	}
}

// record is one record with its decoder, which gives back what was encoded.
type record struct {
	namedBytes
	kind   string
	decode func(b []byte) (any, error)
	want   any
}

func goldenRecords() (all []record) {
	for _, o := range goldenObjects() {
		all = append(all, record{namedBytes{"object " + o.ID, AppendObject(nil, o)}, "object",
			func(b []byte) (any, error) { return nilable(Object(o.ID, b)) }, o})
	}
	for _, s := range goldenSchedules() {
		all = append(all, record{namedBytes{"schedule " + s.ID, AppendSchedule(nil, s)}, "schedule",
			func(b []byte) (any, error) { return nilable(Schedule(s.ID, b)) }, s})
	}
	for _, ms := range []int64{0, 1, 1_700_000_000_000, 1<<63 - 1} {
		all = append(all, record{namedBytes{fmt.Sprint("instant ", ms), AppendInstant(nil, ms)}, "server",
			func(b []byte) (any, error) { return Instant("server", b) }, ms})
	}
	for _, piece := range []string{"", "piece", strings.Repeat("p", 100)} {
		all = append(all, record{namedBytes{fmt.Sprintf("chunk of %d", len(piece)), AppendChunk(nil, []byte(piece))}, "chunk",
			func(b []byte) (any, error) { return asString(Chunk(b)) }, piece})
	}
	f := StoreFormat{Derivation: 1, Shards: 8}
	all = append(all, record{namedBytes{"format", AppendFormat(nil, f)}, "format", func(b []byte) (any, error) { return ParseFormat(b) }, f})
	q := QuarantinedRow{Value: []byte{99, 0}, Reason: "why", FirstSeen: 1000}
	all = append(all, record{namedBytes{"quarantine", AppendQuarantined(nil, q)}, "quarantine", func(b []byte) (any, error) { return ParseQuarantined(b) }, q})
	all = append(all, goldenServers()...)
	for _, e := range goldenEntries() {
		all = append(all, record{namedBytes{fmt.Sprintf("journal entry: %s of %s", e.Cause, e.ID), AppendEntry(nil, &e)}, "journal",
			func(b []byte) (any, error) { return Entry(b) }, e})
	}
	return all
}

// goldenServers are the records of several servers on one store.
func goldenServers() (all []record) {
	for i, m := range []Member{
		{},
		{Life: 7, Renewals: 300, LeaseMs: 10_000, ClockMs: 1_700_000_000_000, OffsetMs: 40, StartedMs: 1_699_999_000_000, Host: "host", ProcessID: 4711,
			URL: "http://host:8001", Version: "1.2.3", Derivation: 1},
		{Life: 8, OffsetMs: -2000},
	} {
		all = append(all, record{namedBytes{fmt.Sprint("member ", i), AppendMember(nil, m)}, "member", func(b []byte) (any, error) { return ParseMember(b) }, m})
	}
	for i, r := range []Roster{{Number: 1}, {Number: 1 << 40, LostMs: 1_700_000_000_000}} {
		all = append(all, record{namedBytes{fmt.Sprint("roster ", i), AppendRoster(nil, r)}, "roster", func(b []byte) (any, error) { return decodeRoster(b) }, r})
	}
	c := Connection{Server: "server", Number: 12}
	return append(all, record{namedBytes{"connection", AppendConnection(nil, c)}, "connection", func(b []byte) (any, error) { return ParseConnection(b) }, c})
}

// decodeRoster is ParseRoster for bytes that are there: none at all are a store without a roster.
func decodeRoster(b []byte) (Roster, error) {
	if b == nil {
		b = []byte{}
	}
	return ParseRoster(b)
}

// goldenEntries are journal entries of every shape.
func goldenEntries() []journal.Entry {
	pending := journal.State{Promise: protocol.Pending}
	task := func(p protocol.PromiseState, s protocol.TaskState, version int64) journal.State {
		return journal.State{Promise: p, Task: s, Version: version}
	}
	armed := journal.State{Schedule: journal.ScheduleArmed, NextRunAt: 60_000}
	ran := journal.State{Schedule: journal.ScheduleArmed, NextRunAt: 120_000, LastRunAt: 60_000, HasRun: true}
	ended := journal.State{Schedule: journal.ScheduleDisarmed, NextRunAt: 120_000, LastRunAt: 120_000, HasRun: true}
	zero := journal.State{Schedule: journal.ScheduleArmed, NextRunAt: 60_000, HasRun: true}
	return []journal.Entry{
		{ID: "p", To: pending, Cause: "promise.create", At: 1_700_000_000_000},
		{ID: "p", From: pending, To: journal.State{Promise: protocol.RejectedTimedout}, Cause: journal.CauseTimeout, At: 1},
		{ID: "t", To: task(protocol.Pending, protocol.TaskAcquired, 1), Cause: "task.create"},
		{ID: "r.1", From: task(protocol.Pending, protocol.TaskPending, 4), To: task(protocol.Pending, protocol.TaskAcquired, 5), Cause: "task.acquire"},
		{ID: "r.1", From: task(protocol.Pending, protocol.TaskAcquired, 5), To: task(protocol.Resolved, protocol.TaskFulfilled, 5), Cause: "task.fulfill"},
		{ID: "r.1", From: task(protocol.Resolved, protocol.TaskFulfilled, 5), Cause: "debug.reset"},
		{ID: "damaged", Cause: "debug.reset"},
		{ID: "unstated", From: task(protocol.Pending, protocol.TaskHalted, 0), To: task(protocol.Pending, protocol.TaskPending, 0)},
		{What: journal.Schedule, ID: "s", To: armed, Cause: "schedule.create", At: 1<<63 - 1},
		{What: journal.Schedule, ID: "s", From: armed, To: ran, Cause: journal.CauseSchedule},
		{What: journal.Schedule, ID: "s", From: zero, To: ended, Cause: journal.CauseSchedule},
		{What: journal.Schedule, ID: "s", From: ended, Cause: "schedule.delete"},
	}
}

func nilable[T any](v *T, err error) (any, error) { return v, err }

func asString(b []byte, err error) (any, error) { return string(b), err }

// TestGoldenBytes pins every key and every record: stored data must stay readable. A difference is a change of
// format, to be made on purpose and with a new version.
func TestGoldenBytes(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Keys and records as they are stored, in hexadecimal. See TestGoldenBytes.\n\n# Keys of the workspace ws.\n")
	for _, k := range goldenKeys() {
		fmt.Fprintf(&b, "%s = %s\n", k.name, hex.EncodeToString(k.bytes))
	}
	b.WriteString("\n# Values.\n")
	fmt.Fprintf(&b, "marker = %s\n", hex.EncodeToString(Marker()))
	unblock := keys.DeriveUnblock("r.1", "poll://uni@g/w")
	fmt.Fprintf(&b, "journal partition = %s\n", hex.EncodeToString(keys.Partition()))
	fmt.Fprintf(&b, "unblock entry = %s\n", hex.EncodeToString(unblock.Value))
	for _, r := range goldenRecords() {
		fmt.Fprintf(&b, "%s = %s\n", r.name, hex.EncodeToString(r.bytes))
	}
	const file = "testdata/golden.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, got := strings.Split(string(golden), "\n"), strings.Split(b.String(), "\n")
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("line %d of %s:\nwant %s\ngot  %s", i+1, file, want[i], got[i])
		}
	}
	if len(want) != len(got) {
		t.Fatalf("%s has %d lines, want %d", file, len(got), len(want))
	}
}

// Every record comes back as it was, with every subset of its fields.
func TestRecordsRoundTrip(t *testing.T) {
	for _, r := range goldenRecords() {
		got, err := r.decode(r.bytes)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
		} else if !reflect.DeepEqual(got, r.want) {
			t.Errorf("%s: %+v, want %+v", r.name, got, r.want)
		}
	}
	// Appended to something, a record is the same.
	prefix := []byte("prefix")
	for _, o := range goldenObjects() {
		if got := AppendObject(prefix, o); string(got) != "prefix"+string(AppendObject(nil, o)) {
			t.Errorf("object %s differs when it is appended", o.ID)
		}
	}
}
