package keyspace

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"abide/internal/machine"
	"abide/kv"
	"abide/kv/tuple"
)

// refused checks that an error says that bytes are damaged, and of what kind, and not what they hold.
func refused(t *testing.T, what, kind string, err error) {
	t.Helper()
	var e *kv.Error
	switch {
	case !errors.Is(err, kv.ErrCorrupt) || !errors.Is(err, machine.ErrInvariant):
		t.Errorf("%s: %v", what, err)
	case !errors.As(err, &e) || e.KeyKind != kind:
		t.Errorf("%s: the error does not name the kind %q: %v", what, kind, err)
	}
}

// A record that was cut short anywhere, or in which a byte was flipped, does not decode: not even to something else.
func TestDamagedRecordsDoNotDecode(t *testing.T) {
	for _, r := range goldenRecords() {
		for n := range len(r.bytes) {
			_, err := r.decode(r.bytes[:n])
			refused(t, r.name+" cut short", r.kind, err)
			for _, flip := range []byte{0x01, 0x80, 0xff} {
				b := bytes.Clone(r.bytes)
				b[n] ^= flip
				_, err := r.decode(b)
				refused(t, r.name+" with a flipped byte", r.kind, err)
			}
		}
		_, err := r.decode(append(bytes.Clone(r.bytes), 0))
		refused(t, r.name+" with a byte too many", r.kind, err)
		_, err = r.decode(nil)
		refused(t, "no "+r.name, r.kind, err)
		b := bytes.Clone(r.bytes)
		b[0] = recordVersion + 1
		if _, err := r.decode(b); !strings.Contains(err.Error(), "version 2") {
			t.Errorf("%s of another version: %v", r.name, err)
		}
	}
}

// A payload is in its record or elsewhere, and where it is elsewhere it is not without bound: whoever reads it makes room for
// as much as the record says.
func TestImpossiblePayloads(t *testing.T) {
	inline, size := putBytes(nil, payInline, "x"), func(n int64) []byte { return putInt(nil, paySize, n) }
	ref := putBytes(nil, payRef, "token")
	for name, payload := range map[string][]byte{
		"inline with a size": slices.Concat(inline, size(9)), "a reference without a size": ref, "both": slices.Concat(inline, ref, size(9)),
		"a size alone": size(9), "more than there is": slices.Concat(ref, size(maxPayloadBytes+1)), "more than there is memory": slices.Concat(ref, size(1<<62)),
	} {
		for _, field := range []protowire.Number{objParam, objValue} {
			_, err := Object("id", seal(putBytes([]byte{recordVersion}, field, payload), 0))
			refused(t, name, "object", err)
		}
		_, err := Schedule("id", seal(putBytes([]byte{recordVersion}, schParam, payload), 0))
		refused(t, name, "schedule", err)
	}
}

// A format with shards without number is damage: every pass of a loop would go through them all.
func TestTooManyShards(t *testing.T) {
	for shards, good := range map[int64]bool{0: true, 1: true, MaxShards: true, MaxShards + 1: false, 1 << 62: false} {
		f, err := ParseFormat(AppendFormat(nil, StoreFormat{Derivation: 1, Shards: shards}))
		if good && (err != nil || f.Shards != shards) {
			t.Errorf("%d shards: %+v, %v", shards, f, err)
		}
		if !good {
			refused(t, "too many shards", "format", err)
		}
	}
}

// An id has one key of each kind: where it is cut elsewhere than at its tree, it is nobody's.
func TestMiscutIDs(t *testing.T) {
	for _, cut := range [][2]string{{"a.b", ""}, {"a", "b"}, {"", "b"}, {"a:", "b"}} {
		end := tuple.AppendString(tuple.AppendString(nil, cut[0]), cut[1])
		for kind := range treeKinds {
			key := tuple.AppendString(keys.tree(cut[0], kind), cut[1])
			if _, err := ParseRow(key, nil); !errors.Is(err, kv.ErrCorrupt) {
				t.Errorf("%q of kind %d: %v", cut, kind, err)
			}
			if _, ok := keys.ParseDrain(key); ok {
				t.Errorf("%q is drained", cut)
			}
		}
		_, _, err := keys.ParseObject(tuple.AppendString(keys.tree(cut[0], treeObject), cut[1]))
		refused(t, "an object", "object", err)
		_, err = ParseID(keys.OpenTasks(), append(keys.OpenTasks().Start, end...))
		refused(t, "an open task", "open task", err)
	}
}

func TestDamagedMarkers(t *testing.T) {
	if err := CheckMarker("waiter", Marker()); err != nil {
		t.Error(err)
	}
	for _, b := range [][]byte{nil, {}, {recordVersion + 1}, {0}} {
		refused(t, "a marker", "waiter", CheckMarker("waiter", b))
	}
}

// An unblock entry tells its address only if it is the one that the key was made with.
func TestDamagedUnblockEntries(t *testing.T) {
	for _, address := range []string{"poll://uni@g/w", "https://example.com/x"} {
		e := keys.DeriveUnblock("r.1", address)
		u, err := ParseUnblockEntry(e.Key, e.Value)
		if err != nil || u != (UnblockEntry{Workspace: "ws", ID: "r.1", Address: address}) {
			t.Errorf("%+v, %v", u, err)
		}
		for n := range len(e.Value) {
			_, err := ParseUnblockEntry(e.Key, e.Value[:n])
			refused(t, "cut short", "unblock entry", err)
			b := bytes.Clone(e.Value)
			b[n] ^= 1
			_, err = ParseUnblockEntry(e.Key, b)
			refused(t, "flipped", "unblock entry", err)
		}
		for n := range len(e.Key) {
			_, err := ParseUnblockEntry(e.Key[:n], e.Value)
			refused(t, "key cut short", "unblock entry", err)
		}
	}
}

// Every key comes back as what it was made of; cut short it is refused, by the kind that can still be told.
func TestKeysRoundTrip(t *testing.T) {
	for _, k := range goldenKeys() {
		if strings.Contains(k.name, "waiters of") || strings.Contains(k.name, "of a long value") {
			continue // the beginning of a range
		}
		value := Marker()
		if Kind(k.bytes) == "unblock entry" {
			address := "poll://uni@g/w"
			if strings.Contains(k.name, "another scheme") {
				address = "https://example.com/x"
			}
			value = keys.DeriveUnblock("r.1", address).Value
		}
		row, err := ParseRow(k.bytes, value)
		if err != nil {
			t.Errorf("%s: %v", k.name, err)
			continue
		}
		if row.Kind == "unknown" || (row.Workspace != "ws") != slices.Contains([]string{"format", "server", "quarantine", "member", "roster"}, row.Kind) {
			t.Errorf("%s: %+v", k.name, row)
		}
		if partition, index := Placement(k.bytes); (len(partition) > 0) != (k.bytes[0] == 0) || (index && row.Kind == "object") {
			t.Errorf("%s: placed in %x, index: %t", k.name, partition, index)
		}
		for n := range len(k.bytes) {
			if row.Kind == "quarantine" && k.bytes[n] == 0xff {
				continue // it ends in the middle of an escaped NUL, which is a NUL at the end: another key
			}
			if _, err := ParseRow(k.bytes[:n], value); !errors.Is(err, kv.ErrCorrupt) {
				t.Errorf("%s cut after %d bytes: %v", k.name, n, err)
			}
		}
		if _, err := ParseRow(append(bytes.Clone(k.bytes), 0x30), value); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%s with a byte too many: %v", k.name, err)
		}
	}
	for _, kind := range TimerKinds {
		key := append(timers(kind, 3), keys.timer(kind, 77, "id")[len(timers(kind, 0)):]...)
		timer, err := ParseTimer(key)
		if err != nil || timer.Kind != kind || timer.DueAt != 77 || timer.Workspace != "ws" || timer.ID != "id" {
			t.Errorf("%+v, %v", timer, err)
		}
	}
}
