package keyspace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// The longest names there are make no key longer than the storage contract allows, whichever characters they hold.
func TestLongestKeys(t *testing.T) {
	repeat := func(c string, n int) string { return strings.Repeat(c, n/len(c)) }
	longest := 0
	check := func(what string, key []byte) {
		t.Helper()
		longest = max(longest, len(key))
		if len(key) > kv.MaxKeyBytes {
			t.Errorf("%s: a key of %d bytes, the limit is %d", what, len(key), kv.MaxKeyBytes)
		}
		// A row of any kind can be set aside.
		if n := len(Quarantined(key)); n > kv.MaxKeyBytes {
			t.Errorf("%s: set aside under a key of %d bytes", what, n)
		}
	}
	for _, c := range []string{"x", ".", ":", "é", "😀", "\x01", "\xff"} {
		id := repeat(c, protocol.MaxIDBytes)
		k := For(repeat("w", protocol.MaxWorkspaceBytes), Layout{Shards: 1 << 30})
		pid := repeat(c, protocol.MaxPIDBytes)
		token := strings.Repeat("\x00", 8)
		for name, address := range map[string]string{
			"anycast":      "poll://any@" + repeat("g", protocol.MaxAddressBytes-11),
			"unicast":      "poll://uni@g/" + repeat("i", protocol.MaxAddressBytes-13),
			"split":        "poll://uni@" + repeat("g", 500) + "/" + repeat("i", protocol.MaxAddressBytes-512),
			"escaped":      "poll://uni@g/" + repeat("%00", protocol.MaxAddressBytes-13),
			"other scheme": "http://example.com/" + repeat("h", protocol.MaxAddressBytes-19),
		} {
			check(name+" unblock", k.Unblock(id, address))
			check(name+" unblock entry", k.DeriveUnblock(id, address).Key)
			check(name+" listener", k.Waiter(machine.Waiter{Awaited: id, Kind: machine.WaiterListener, To: address}))
			tags := protocol.Tags{}.With(protocol.TagTarget, address).With(protocol.TagBranch, repeat(c, protocol.MaxIDBytes-2)).
				With(protocol.TagOrigin, repeat(c, protocol.MaxIDBytes-2)).With("k", repeat("v", 20_000)).With(repeat("n", 9000), "v")
			for _, task := range []*machine.Task{
				{State: protocol.TaskPending, RetryAt: 1<<63 - 1, Queued: true},
				{State: protocol.TaskPending, RetryAt: 1<<63 - 1},
				{State: protocol.TaskAcquired, Version: 1, PID: pid, TTL: 1, LeaseAt: 1<<63 - 1, ArmedAt: 1<<63 - 1},
			} {
				o := &machine.Object{ID: id, State: protocol.Pending, TimeoutAt: 1<<63 - 1, Tags: tags, Task: task}
				for _, e := range k.Derive(nil, o) {
					check(name+" "+Kind(e.Key), e.Key)
				}
				if n := len(AppendObject(nil, o)); n > kv.MaxValueBytes {
					t.Errorf("an object of %d bytes", n)
				}
			}
		}
		check("object", k.Object(id))
		check("callback", k.Waiter(machine.Waiter{Awaited: id, Kind: machine.WaiterCallback, To: id}))
		check("drain", k.Drain(id))
		check("drain timer", k.DeriveDrain(id).Key)
		check("chunk", k.Chunk(id, SideValue, token, 1<<40))
		check("schedule", k.Schedule(id))
		check("schedule chunk", k.ScheduleChunk(id, token, 1<<40))
		check("schedule timer", k.DeriveSchedule(nil, &machine.Schedule{ID: id, NextRunAt: 1<<63 - 1})[0].Key)
		check("branch", k.Branch(repeat(c, 30_000)).Start)
		check("origin", k.Origin(repeat(c, 30_000)).Start)
		check("leases", k.Leases(pid).Start)
		check("connection", k.Connection(repeat(c, 500), repeat(c, protocol.MaxAddressBytes-500)))
		check("connection of NULs", k.Connection(strings.Repeat("\x00", 100), strings.Repeat("\x00", protocol.MaxAddressBytes/3-100)))
	}
	t.Logf("the longest key has %d bytes", longest)
}

// Keys order objects as CompareIDs orders ids: by (tree, id).
func TestKeyOrderIsIDOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	letters := []rune{'a', 'b', '.', ':', '-', '/', ' ', '\x01', 'é', '😀', '0'}
	var ids []string
	for range 400 {
		var b strings.Builder
		for range 1 + r.IntN(6) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		ids = append(ids, b.String())
	}
	slices.SortFunc(ids, CompareIDs)
	ids = slices.Compact(ids)
	for i := 1; i < len(ids); i++ {
		a, b := ids[i-1], ids[i]
		for what, pair := range map[string][2][]byte{
			"objects":   {keys.Object(a), keys.Object(b)},
			"open task": {appendID(keys.space(nsOpenTask), a), appendID(keys.space(nsOpenTask), b)},
			"tag":       {appendID(keys.tagged("k", "v"), a), appendID(keys.tagged("k", "v"), b)},
		} {
			if Tree(a) != Tree(b) || what != "objects" {
				if bytes.Compare(pair[0], pair[1]) >= 0 {
					t.Fatalf("%s: the key of %q does not come before that of %q", what, a, b)
				}
			}
		}
		// A walk that continues after a tree meets the next tree first.
		if Tree(a) != Tree(b) {
			if end := keys.TreeEnd(a); bytes.Compare(keys.Object(a), end) >= 0 || bytes.Compare(end, keys.Object(b)) > 0 {
				t.Fatalf("the end of the tree of %q does not lie between it and %q", a, b)
			}
			if after := Tree(a) + "\x00"; CompareIDs(a, after) >= 0 || CompareIDs(after, b) >= 0 {
				t.Fatalf("%q does not stand between %q and %q", after, a, b)
			}
		}
	}
}

// No key of one range lies in another's: ids that begin alike, workspaces that begin alike.
func TestRangesDoNotOverlap(t *testing.T) {
	type named struct {
		name string
		kv.Range
		own []byte
	}
	var ranges []named
	for _, ws := range []string{"w", "w2", "w\x01", ""} {
		k := For(ws, Layout{Shards: 1})
		ranges = append(ranges, named{ws + " all", k.All(), k.Object("r")}, named{ws + " schedules", k.Schedules(), k.Schedule("r")},
			named{ws + " open tasks", k.OpenTasks(), appendID(k.space(nsOpenTask), "r")})
		for _, id := range []string{"r", "r.1", "r.10", "rr"} {
			ranges = append(ranges, named{ws + " leases " + id, k.Leases(id), append(k.Leases(id).Start, 0x02, 'x', 0)})
		}
	}
	in := func(r kv.Range, key []byte) bool {
		return bytes.Compare(r.Start, key) <= 0 && bytes.Compare(key, r.End) < 0
	}
	for _, a := range ranges {
		for _, b := range ranges {
			if in(a.Range, b.own) != (a.name == b.name) {
				t.Errorf("a key of %q in the range of %q: %t", b.name, a.name, in(a.Range, b.own))
			}
		}
	}
	for _, id := range []string{"r", "r.1", "r:1"} {
		waiter := keys.Waiter(machine.Waiter{Awaited: id, Kind: machine.WaiterListener, To: "poll://uni@g/w"})
		for _, other := range []string{"r", "r.1", "r:1", "r.11"} {
			if in(keys.Waiters(other), waiter) != (id == other) {
				t.Errorf("a waiter of %q among those of %q", id, other)
			}
		}
	}
}

// Timers are found up to and including their instant, in the order of their instants.
func TestTimerRanges(t *testing.T) {
	in := func(r kv.Range, key []byte) bool {
		return bytes.Compare(r.Start, key) <= 0 && bytes.Compare(key, r.End) < 0
	}
	instants := []int64{0, 1, 255, 256, 65_535, 1_700_000_000_000, 1<<53 - 1, 1<<63 - 2, 1<<63 - 1}
	for i, at := range instants {
		key := keys.timer(TimerPromise, at, "r")
		for j, until := range instants {
			if in(Timers(TimerPromise, 0, until), key) != (i <= j) {
				t.Errorf("a timer at %d among those until %d: %t", at, until, i > j)
			}
		}
		if in(Timers(TimerLease, 0, 1<<63-1), key) || in(Timers(TimerPromise, 1, 1<<63-1), key) {
			t.Error("a timer among those of another kind or shard")
		}
		if kind, dueAt := Classify(key); kind != EntryTimer || dueAt != at {
			t.Errorf("classified as %d, due at %d", kind, dueAt)
		}
	}
}

// Every id falls into one of the shards, and always into the same.
func TestShards(t *testing.T) {
	k := For("ws", Layout{Shards: 4})
	counts := map[int64]int{}
	for i := range 400 {
		id := fmt.Sprint("id", i)
		shard := k.shard(id)
		if shard != k.shard(id) || shard < 0 || shard >= 4 {
			t.Fatalf("%s in shard %d", id, shard)
		}
		counts[shard]++
	}
	for shard := range int64(4) {
		if counts[shard] < 40 {
			t.Errorf("%d of 400 ids in shard %d", counts[shard], shard)
		}
	}
}

// A worker is addressable as long as there is an address for it, however its names are encoded.
func TestAddressable(t *testing.T) {
	for _, c := range []struct {
		group, pid string
		want       bool
	}{
		{"g", "w", true},
		{strings.Repeat("g", 500), strings.Repeat("w", protocol.MaxAddressBytes-500), true},
		{strings.Repeat("g", 500), strings.Repeat("w", protocol.MaxAddressBytes-499), false},
		{"g", strings.Repeat("\x00", protocol.MaxAddressBytes/2), false},
	} {
		if got := Addressable(c.group, c.pid); got != c.want {
			t.Errorf("%d and %d bytes: %t", len(c.group), len(c.pid), got)
		}
	}
}
