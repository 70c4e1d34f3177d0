package keyspace

import (
	"bytes"
	"errors"
	"reflect"
	"runtime"
	"testing"

	"abide/internal/journal"
	"abide/internal/machine"
	"abide/kv"
	"abide/kv/tuple"
)

// Decoding n bytes takes at most allocPerByte*n + allocBase bytes of memory: the worst that a record can hold is empty tags,
// three bytes each, of which every one becomes two strings, in a list that doubles as it grows.
const (
	allocPerByte = 64
	allocBase    = 16 << 10
)

// frugal runs decode and checks what it allocates. Other goroutines allocate too, so the least of some tries counts.
func frugal(t *testing.T, b []byte, decode func()) {
	t.Helper()
	var before, after runtime.MemStats
	least := ^uint64(0)
	limit := uint64(allocPerByte*len(b) + allocBase)
	for range 20 {
		runtime.ReadMemStats(&before)
		decode()
		runtime.ReadMemStats(&after)
		if least = min(least, after.TotalAlloc-before.TotalAlloc); least <= limit {
			return
		}
	}
	t.Fatalf("decoding %d bytes takes %d bytes of memory, the bound is %d: %x", len(b), least, limit, b)
}

// sameMeaning decodes b, encodes what comes out, and wants the same from that; or b is refused as damaged.
func sameMeaning[T any](t *testing.T, b []byte, decode func([]byte) (T, error), encode func(T) []byte) {
	t.Helper()
	v, err := decode(b)
	if err != nil {
		if !errors.Is(err, kv.ErrCorrupt) || !errors.Is(err, machine.ErrInvariant) {
			t.Fatalf("%x: %v", b, err)
		}
		return
	}
	text := encode(v)
	again, err := decode(text)
	if err != nil || !reflect.DeepEqual(again, v) {
		t.Fatalf("%x is %+v,\nwhich is written as %x, which is %+v, %v", b, v, text, again, err)
	}
	if once := encode(again); !bytes.Equal(once, text) {
		t.Fatalf("%+v is written as %x, then as %x", v, text, once)
	}
}

// plain makes nothing of what is empty, as an encoder does.
func plain(p machine.Payload) machine.Payload {
	if len(p.Inline) == 0 {
		p.Inline = nil
	}
	return p
}

// FuzzRecords: any bytes are a record of a kind, and keep their meaning when they are written again, or are refused as
// damaged, without much memory. Most bytes fail the checksum, so they are also tried with one that fits.
func FuzzRecords(f *testing.F) {
	for _, r := range goldenRecords() {
		f.Add(r.bytes[1 : len(r.bytes)-sumBytes])
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, b := range [][]byte{body, seal(append([]byte{recordVersion}, body...), 0)} {
			frugal(t, b, func() { _, _ = Object("id", b); _, _ = Schedule("id", b); _, _ = Entry(b) })
			sameMeaning(t, b, func(b []byte) (machine.Object, error) {
				o, err := Object("id", b)
				if err != nil {
					return machine.Object{}, err
				}
				o.Param, o.Value = plain(o.Param), plain(o.Value)
				if len(o.Tags) == 0 {
					o.Tags = nil
				}
				return *o, nil
			}, func(o machine.Object) []byte { return AppendObject(nil, &o) })
			sameMeaning(t, b, func(b []byte) (machine.Schedule, error) {
				s, err := Schedule("id", b)
				if err != nil {
					return machine.Schedule{}, err
				}
				s.PromiseParam = plain(s.PromiseParam)
				return *s, nil
			}, func(s machine.Schedule) []byte { return AppendSchedule(nil, &s) })
			smallRecords(t, b)
		}
	})
}

func smallRecords(t *testing.T, b []byte) {
	t.Helper()
	sameMeaning(t, b, Entry, func(e journal.Entry) []byte { return AppendEntry(nil, &e) })
	sameMeaning(t, b, func(b []byte) (int64, error) { return Instant("server", b) }, func(ms int64) []byte { return AppendInstant(nil, ms) })
	sameMeaning(t, b, Chunk, func(piece []byte) []byte { return AppendChunk(nil, piece) })
	sameMeaning(t, b, ParseFormat, func(s StoreFormat) []byte { return AppendFormat(nil, s) })
	sameMeaning(t, b, func(b []byte) (QuarantinedRow, error) {
		q, err := ParseQuarantined(b)
		if len(q.Value) == 0 {
			q.Value = nil
		}
		return q, err
	}, func(q QuarantinedRow) []byte { return AppendQuarantined(nil, q) })
	sameMeaning(t, b, ParseMember, func(m Member) []byte { return AppendMember(nil, m) })
	sameMeaning(t, b, ParseRoster, func(r Roster) []byte { return AppendRoster(nil, r) })
	sameMeaning(t, b, ParseConnection, func(c Connection) []byte { return AppendConnection(nil, c) })
	if err := CheckMarker("waiter", b); (err == nil) != bytes.Equal(b, Marker()) {
		t.Fatalf("%x is a marker: %v", b, err)
	}
}

// FuzzRowKeys: any bytes are the key of a row, written the only way there is, or are refused as damaged.
func FuzzRowKeys(f *testing.F) {
	for _, k := range goldenKeys() {
		f.Add(k.bytes, []byte("\x01poll://uni@g/w"))
		f.Add(k.bytes[:len(k.bytes)/2], []byte{})
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		_, _ = Classify(key)
		_, _ = ParseTimer(key)
		_, _ = ParseWorkspace(key)
		_, _, _ = keys.ParseObject(key)
		_, _ = keys.ParseDrain(key)
		_, _, _ = keys.ParseUnblock(key)
		_, _ = keys.ParseAnyWaiter(key)
		row, err := ParseRow(key, value)
		if err != nil {
			if !errors.Is(err, kv.ErrCorrupt) {
				t.Fatalf("%x: %v", key, err)
			}
			return
		}
		if row.Kind != Kind(key) || row.Kind == "unknown" {
			t.Fatalf("%x is the key of a row of kind %q, and by its beginning %q", key, row.Kind, Kind(key))
		}
		k := For(row.Workspace, Layout{Shards: 1})
		if whole := wholeKey(k, row); whole != nil && !bytes.Equal(whole, key) {
			t.Fatalf("%x is the key of %+v, which is %x", key, row, whole)
		}
		if end := keyEnd(row); !bytes.HasSuffix(key, end) {
			t.Fatalf("%x is the key of %+v, which ends with %x", key, row, end)
		}
		if partition, _ := Placement(key); (key[0] == 0) != (len(partition) > 0) || !bytes.HasPrefix(key, partition) {
			t.Fatalf("%x is placed in %x", key, partition)
		}
	})
}

// wholeKey is the key of a row whose kind says everything in the Row, nil for the others.
func wholeKey(k Keys, row Row) []byte {
	switch row.Kind {
	case "object":
		return k.Object(row.ID)
	case "drain":
		return k.Drain(row.ID)
	case "waiter":
		return k.Waiter(row.Waiter)
	case "chunk":
		return k.Chunk(row.ID, row.Side, row.Token, row.Piece)
	case "unblock":
		return k.Unblock(row.ID, row.Address)
	case "unblock entry":
		return k.DeriveUnblock(row.ID, row.Address).Key
	case "schedule":
		return k.Schedule(row.ID)
	case "schedule chunk":
		return k.ScheduleChunk(row.ID, row.Token, row.Piece)
	case "workspace":
		return k.Workspace()
	case "debug clock":
		return k.DebugClock()
	case "format":
		return Format()
	case "quarantine":
		return Quarantined(row.Moved)
	case "server":
		return Server(row.ID)
	case "member":
		return MemberKey(row.ID)
	case "roster":
		return RosterKey()
	case "connection":
		return k.Connection(row.Group, row.PID)
	default:
		return nil
	}
}

// keyEnd is what the key of an index entry ends with, as far as the Row says it.
func keyEnd(row Row) []byte {
	switch row.Kind {
	case "branch", "origin", "open task", "tag", "many tags":
		return appendID(nil, row.ID)
	case "timer", "lease", "execute":
		return tuple.AppendString(nil, row.ID)
	default:
		return nil
	}
}

// FuzzPartition: any bytes are the journal partition of a workspace, or are refused as damaged.
func FuzzPartition(f *testing.F) {
	f.Add(keys.Partition())
	f.Add([]byte("\x00\x02w\x00\xffx\x00"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		workspace, err := ParsePartition(b)
		if err != nil && !errors.Is(err, kv.ErrCorrupt) {
			t.Fatalf("%x: %v", b, err)
		}
		if err == nil && !bytes.Equal(For(workspace, Layout{Shards: 1}).Partition(), b) {
			t.Fatalf("%x is the partition of %q, which is %x", b, workspace, For(workspace, Layout{Shards: 1}).Partition())
		}
	})
}
