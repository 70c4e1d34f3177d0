package keyspace

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"abide/internal/machine"
	"abide/kv"
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

// FuzzDecode: no bytes make a decoder panic, and what decodes encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	for _, r := range goldenRecords() {
		f.Add(r.bytes)
		f.Add(r.bytes[:len(r.bytes)/2])
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		// Most bytes fail the checksum; what is behind it must stand alone too.
		for _, b := range [][]byte{b, seal(append([]byte{recordVersion}, b...), 0)} {
			if o, err := Object("id", b); err == nil {
				if again, err := Object("id", AppendObject(nil, o)); err != nil || again.State != o.State || len(again.Tags) != len(o.Tags) {
					t.Errorf("%x decodes to %+v, which encodes to what does not: %v", b, o, err)
				}
			}
			if s, err := Schedule("id", b); err == nil {
				if _, err := Schedule("id", AppendSchedule(nil, s)); err != nil {
					t.Errorf("%x decodes to %+v, which encodes to what does not: %v", b, s, err)
				}
			}
			_, _ = Instant("server", b)
			_, _ = Chunk(b)
			_, _ = ParseFormat(b)
			_, _ = ParseQuarantined(b)
			_, _ = ParseMember(b)
			_, _ = ParseRoster(b)
			_, _ = ParseConnection(b)
			_ = CheckMarker("waiter", b)
		}
	})
}

// FuzzKeys: no bytes make a parser of keys panic.
func FuzzKeys(f *testing.F) {
	for _, k := range goldenKeys() {
		f.Add(k.bytes, []byte("value"))
		f.Add(k.bytes[:len(k.bytes)/2], []byte{})
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		_, _ = ParseRow(key, value)
		_ = Kind(key)
		_, _ = Placement(key)
		_, _ = Classify(key)
		_, _ = ParseTimer(key)
		_, _ = ParseWorkspace(key)
		_, _ = ParseUnblockEntry(key, value)
		_, _, _ = keys.ParseObject(key)
		_, _ = keys.ParseDrain(key)
		_, _, _ = keys.ParseUnblock(key)
		_, _ = keys.ParseAnyWaiter(key)
	})
}
