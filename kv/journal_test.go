package kv_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"abide/kv"
	"abide/kv/memkv"
)

// TestGolden holds the bytes of the reserved keys and of the floor's record against testdata/journal.txt, which
// every store shares.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/journal.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		seen++
		what, want, _ := strings.Cut(line, " = ")
		fields := strings.Fields(what)
		var got []byte
		switch fields[0] {
		case "entry":
			got = kv.JournalKey(unquote(t, fields[1]), position(t, fields[2]))
			partition, at, err := kv.ParseJournalKey(got)
			if err != nil || string(partition) != string(unquote(t, fields[1])) || at != position(t, fields[2]) {
				t.Errorf("%s: parsed as %q, %v, %v", what, partition, at, err)
			}
		case "floor-key":
			got = kv.FloorKey(unquote(t, fields[1]))
			if partition, err := kv.ParseFloorKey(got); err != nil || string(partition) != string(unquote(t, fields[1])) {
				t.Errorf("%s: parsed as %q, %v", what, partition, err)
			}
		case "floor":
			got = kv.AppendFloor(nil, position(t, fields[1]))
			if floor, err := kv.ParseFloor(got); err != nil || floor != position(t, fields[1]) {
				t.Errorf("%s: parsed as %v, %v", what, floor, err)
			}
		}
		if hex.EncodeToString(got) != want {
			t.Errorf("%s = %x, want %s", what, got, want)
		}
	}
	if seen < 10 {
		t.Errorf("%d fixtures", seen)
	}
}

func unquote(t *testing.T, s string) []byte {
	t.Helper()
	text, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return []byte(text)
}

// position reads "incarnation.sequence/index".
func position(t *testing.T, s string) kv.EntryPosition {
	t.Helper()
	var incarnation, index uint32
	var sequence uint64
	if _, err := fmt.Sscanf(s, "%d.%d/%d", &incarnation, &sequence, &index); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	if incarnation == 0 && sequence == 0 {
		return kv.EntryPosition{Index: index}
	}
	return kv.EntryPosition{Commit: kv.NewPosition(incarnation, sequence), Index: index}
}

func drawPosition(t *rapid.T, label string) kv.EntryPosition {
	return kv.EntryPosition{
		Commit: kv.NewPosition(rapid.Uint32Range(0, 3).Draw(t, label+" incarnation"), rapid.Uint64Range(0, 300).Draw(t, label+" sequence")),
		Index:  rapid.SampledFrom([]uint32{0, 1, 2, 255, 256, kv.AfterCommit}).Draw(t, label+" index"),
	}
}

// Keys order as (length of the partition, partition, position), and a partition's range holds its own alone.
func TestJournalKeysOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partition := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xFE, 0xFF}), 0, 3)
		p, q := partition.Draw(t, "p"), partition.Draw(t, "q")
		a, b := drawPosition(t, "a"), drawPosition(t, "b")
		keyA, keyB := kv.JournalKey(p, a), kv.JournalKey(q, b)
		if bytes.Equal(p, q) && bytes.Compare(keyA, keyB) != a.Compare(b) {
			t.Errorf("positions %v and %v order otherwise than their keys", a, b)
		}
		if !bytes.Equal(p, q) && (bytes.HasPrefix(keyA, keyB) || bytes.HasPrefix(keyB, keyA)) {
			t.Errorf("the key of %q begins that of %q", p, q)
		}
		after := drawPosition(t, "after")
		r := kv.EntriesAfter(p, after)
		within := bytes.Compare(r.Start, keyB) <= 0 && bytes.Compare(keyB, r.End) < 0
		if want := bytes.Equal(p, q) && b.Compare(after) > 0; within != want {
			t.Errorf("entry %v of %q is within the entries of %q after %v: %v", b, q, p, after, within)
		}
		through := kv.JournalRange(p, after, a)
		within = bytes.Compare(through.Start, keyB) <= 0 && bytes.Compare(keyB, through.End) < 0
		if want := bytes.Equal(p, q) && b.Compare(after) > 0 && b.Compare(a) <= 0; within != want {
			t.Errorf("entry %v of %q is within the entries of %q after %v through %v: %v", b, q, p, after, a, within)
		}
	})
}

func TestTheLongestKeysFit(t *testing.T) {
	partition := bytes.Repeat([]byte{'p'}, kv.MaxPartitionBytes)
	for _, key := range [][]byte{kv.JournalKey(partition, kv.EntryPosition{}), kv.FloorKey(partition)} {
		if len(key) > kv.MaxKeyBytes {
			t.Errorf("a key of %d bytes; at most %d", len(key), kv.MaxKeyBytes)
		}
	}
	if _, _, err := kv.ParseJournalKey(kv.JournalKey(partition, kv.EntryPosition{})); err != nil {
		t.Error(err)
	}
	tooLong := append(partition, 'p')
	if _, _, err := kv.ParseJournalKey(kv.JournalKey(tooLong, kv.EntryPosition{})); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("a partition that is too long: %v", err)
	}
}

// Every truncation and every change of a byte is either noticed or another valid key; nothing panics.
func TestDamagedReservedKeysAndFloors(t *testing.T) {
	at := kv.EntryPosition{Commit: kv.NewPosition(1, 2), Index: 3}
	entry, floor, record := kv.JournalKey([]byte("part"), at), kv.FloorKey([]byte("part")), kv.AppendFloor(nil, at)
	for n := range entry {
		if _, _, err := kv.ParseJournalKey(entry[:n]); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("an entry's key cut to %d bytes: %v", n, err)
		}
	}
	for n := range floor {
		if _, err := kv.ParseFloorKey(floor[:n]); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("a floor's key cut to %d bytes: %v", n, err)
		}
	}
	for n := range record {
		for _, damaged := range [][]byte{record[:n], flip(record, n), append(bytes.Clone(record), 0)} {
			_, err := kv.ParseFloor(damaged)
			var known *kv.Error
			if !errors.Is(err, kv.ErrCorrupt) || !errors.As(err, &known) || known.KeyKind != kv.KindFloor {
				t.Errorf("a floor's record damaged at byte %d: %v", n, err)
			}
		}
	}
	for n := range entry {
		if partition, at, err := kv.ParseJournalKey(flip(entry, n)); err == nil && !bytes.Equal(kv.JournalKey(partition, at), flip(entry, n)) {
			t.Errorf("a changed key parses as %q, %v, which is another", partition, at)
		}
	}
	// 0x84 0x00 is another way to write the length 4.
	if _, _, err := kv.ParseJournalKey(bytes.Replace(entry, []byte("j\x04"), []byte("j\x84\x00"), 1)); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("a length in another form: %v", err)
	}
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 0x01
	return b
}

func TestExpired(t *testing.T) {
	at := func(incarnation uint32, sequence uint64, index uint32) kv.EntryPosition {
		return kv.EntryPosition{Commit: kv.NewPosition(incarnation, sequence), Index: index}
	}
	origin := kv.EntryPosition{}
	for name, tc := range map[string]struct {
		after, floor kv.EntryPosition
		bound        kv.Position
		want         bool
	}{
		"the origin of an empty store":               {origin, origin, kv.Position{}, false},
		"the origin, never compacted":                {origin, origin, kv.NewPosition(1, 9), false},
		"the cursor of an empty snapshot, later":     {kv.EntryPosition{Index: kv.AfterCommit}, origin, kv.NewPosition(1, 9), false},
		"the cursor of an empty snapshot, compacted": {kv.EntryPosition{Index: kv.AfterCommit}, at(1, 1, 0), kv.NewPosition(1, 9), true},
		"the origin, compacted":                      {origin, at(1, 3, 0), kv.NewPosition(1, 9), true},
		"at the floor":                               {at(1, 3, 0), at(1, 3, 0), kv.NewPosition(1, 9), false},
		"inside the floor's commit":                  {at(1, 3, 1), at(1, 3, 0), kv.NewPosition(1, 9), false},
		"at the floor from before a restore":         {at(1, 3, 0), at(1, 3, 0), kv.NewPosition(2, 9), false},
		"just below the floor":                       {at(1, 3, 0), at(1, 3, 1), kv.NewPosition(1, 9), true},
		"at the bound":                               {at(1, 9, kv.AfterCommit), origin, kv.NewPosition(1, 9), false},
		"ahead of the bound":                         {at(1, 10, 0), origin, kv.NewPosition(1, 9), true},
		"of the incarnation before a restore":        {at(1, 5, 0), origin, kv.NewPosition(2, 9), true},
		"of an incarnation to come":                  {at(2, 5, 0), origin, kv.NewPosition(1, 9), true},
		"anything, in an empty store":                {at(1, 1, 0), origin, kv.Position{}, true},
	} {
		if got := kv.Expired(tc.after, tc.floor, tc.bound); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// A floor that does not decode stops readers and compaction with an error that says what is damaged; it is
// never taken for the origin.
func TestDamagedFloor(t *testing.T) {
	s := memkv.Open(memkv.Options{})
	defer s.Close()
	at, err := s.Update(t.Context(), kv.Hints{}, func(tx kv.Tx) error {
		return errors.Join(tx.Append([]byte("p"), []byte("1")), tx.Put(kv.FloorKey([]byte("p")), []byte("nonsense")))
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _, compactErr := kv.Compact(t.Context(), s, []byte("p"), kv.EntryPosition{Commit: at})
	journalErr := s.View(t.Context(), func(v kv.Snapshot) error {
		_, err := v.Journal([]byte("p"), kv.EntryPosition{}, 1)
		return err
	})
	for _, err := range []error{compactErr, journalErr} {
		if !errors.Is(err, kv.ErrCorrupt) || !strings.Contains(err.Error(), kv.KindFloor) {
			t.Errorf("%v, want ErrCorrupt of the floor", err)
		}
	}
	err = s.View(t.Context(), func(v kv.Snapshot) error { // the neighbours live
		_, err := v.Journal([]byte("q"), kv.EntryPosition{}, 1)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCompactOfABadPartition(t *testing.T) {
	s := memkv.Open(memkv.Options{})
	defer s.Close()
	floor, more, err := kv.Compact(t.Context(), s, make([]byte, kv.MaxPartitionBytes+1), kv.EntryPosition{})
	if !errors.Is(err, kv.ErrLimit) || more || floor != (kv.EntryPosition{}) {
		t.Errorf("%v, %v, %v", floor, more, err)
	}
}
