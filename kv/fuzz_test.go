package kv_test

import (
	"bytes"
	"errors"
	"testing"

	"abide/kv"
)

// FuzzJournalKeys: any bytes are the key of a journal entry or of a floor, of which they are the only spelling, or are
// refused as damaged, which only happens to keys that a store keeps for itself.
func FuzzJournalKeys(f *testing.F) {
	at := kv.EntryPosition{Commit: kv.NewPosition(1, 2), Index: 3}
	for _, partition := range []string{"", "p", "\x00\x02ws\x00", string(bytes.Repeat([]byte("x"), kv.MaxPartitionBytes))} {
		entry, floor := kv.JournalKey([]byte(partition), at), kv.FloorKey([]byte(partition))
		f.Add(entry)
		f.Add(floor)
		f.Add(entry[:len(entry)-1])
		f.Add(append(floor, 0))
	}
	f.Add([]byte("\xffj\x80\x00"))                                 // a length that is not the shortest
	f.Add([]byte("\xffj\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")) // a length beyond everything
	f.Fuzz(func(t *testing.T, key []byte) {
		partition, p, err := kv.ParseJournalKey(key)
		switch {
		case err != nil && !errors.Is(err, kv.ErrCorrupt):
			t.Fatalf("%x: %v", key, err)
		case err == nil && !bytes.Equal(kv.JournalKey(partition, p), key):
			t.Fatalf("%x is the entry of %x at %v, whose key is %x", key, partition, p, kv.JournalKey(partition, p))
		case err == nil && (len(partition) > kv.MaxPartitionBytes || len(key) > kv.MaxKeyBytes):
			t.Fatalf("a partition of %d bytes in a key of %d", len(partition), len(key))
		}
		partition, err = kv.ParseFloorKey(key)
		switch {
		case err != nil && !errors.Is(err, kv.ErrCorrupt):
			t.Fatalf("%x: %v", key, err)
		case err == nil && !bytes.Equal(kv.FloorKey(partition), key):
			t.Fatalf("%x is the floor of %x, whose key is %x", key, partition, kv.FloorKey(partition))
		}
	})
}
