package kv

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The journal lives in the key space that a store keeps for itself, in two parts:
//
//	FF 'j'              | length of the partition, uvarint | partition | commit position, 16 bytes | index, 4 bytes big-endian
//	FF "~journal-floor" | length of the partition, uvarint | partition
//
// The first are its entries, of which each partition only ever grows at its end; the length in front keeps
// any partition from being the beginning of another. The second is the retained floor of each partition that
// was ever compacted: see Floor.
//
// Of the reserved keys a store lets through exactly what Floor and Compact need, and what a checker needs to
// see everything: Get and Put of a FloorKey, Delete of a JournalKey, Scan of a range within AllEntries or
// AllFloors. Nothing but Compact may put or delete them: an entry that vanishes above the floor is a silent
// gap for its readers.
const (
	entrySpace = "\xFFj"
	floorSpace = "\xFF~journal-floor"
)

// MaxPartitionBytes is the longest name of a journal partition, so that its entries have room in a key.
const MaxPartitionBytes = 1024

const entryPositionBytes = len(Position{}) + 4

// lastPosition comes after every entry that any store can hold.
var lastPosition = EntryPosition{
	Commit: Position(bytes.Repeat([]byte{0xFF}, len(Position{}))),
	Index:  AfterCommit,
}

// JournalKey is the key of the entry of a partition at a position, in a slice of its own. Keys of one partition
// order as the positions do.
func JournalKey(partition []byte, p EntryPosition) []byte {
	key := appendPartition(make([]byte, 0, len(entrySpace)+maxUvarintBytes+len(partition)+entryPositionBytes), entrySpace, partition)
	return appendEntryPosition(key, p)
}

// JournalRange is the range of the entries of a partition strictly after one position and up to and including
// another.
func JournalRange(partition []byte, after, through EntryPosition) Range {
	// A key is followed by itself with one more byte.
	return Range{Start: append(JournalKey(partition, after), 0), End: append(JournalKey(partition, through), 0)}
}

// EntriesAfter is the range of the entries of a partition strictly after a position, to the last.
func EntriesAfter(partition []byte, after EntryPosition) Range {
	return JournalRange(partition, after, lastPosition)
}

// AllEntries is the range of every entry of every partition.
func AllEntries() Range { return spaceRange(entrySpace) }

// AllFloors is the range of the floors of all partitions that were ever compacted.
func AllFloors() Range { return spaceRange(floorSpace) }

func spaceRange(space string) Range {
	end := []byte(space)
	end[len(end)-1]++
	return Range{Start: []byte(space), End: end}
}

// FloorKey is the key of the retained floor of a partition, in a slice of its own.
func FloorKey(partition []byte) []byte { return appendPartition(nil, floorSpace, partition) }

// maxUvarintBytes is what the length of a partition needs at most.
const maxUvarintBytes = 2

// appendPartition appends what every key of a partition begins with.
func appendPartition(dst []byte, space string, partition []byte) []byte {
	dst = append(dst, space...)
	dst = binary.AppendUvarint(dst, uint64(len(partition)))
	return append(dst, partition...)
}

func appendEntryPosition(dst []byte, p EntryPosition) []byte {
	dst = append(dst, p.Commit[:]...)
	return binary.BigEndian.AppendUint32(dst, p.Index)
}

func decodeEntryPosition(b []byte) (p EntryPosition) {
	n := copy(p.Commit[:], b)
	p.Index = binary.BigEndian.Uint32(b[n:])
	return p
}

// cutPartition undoes appendPartition. Only what that writes is accepted.
func cutPartition(key []byte, space string) (partition, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(key, []byte(space))
	if !ok {
		return nil, nil, false
	}
	length, n := binary.Uvarint(rest)
	if n <= 0 || length > MaxPartitionBytes || n != len(binary.AppendUvarint(nil, length)) || uint64(len(rest)-n) < length {
		return nil, nil, false
	}
	rest = rest[n:]
	return rest[:length:length], rest[length:], true
}

// ParseJournalKey returns the partition and the position in the key of a journal entry. ErrCorrupt if the key
// is none. The partition is a part of key.
func ParseJournalKey(key []byte) (partition []byte, p EntryPosition, err error) {
	partition, rest, ok := cutPartition(key, entrySpace)
	if !ok || len(rest) != entryPositionBytes {
		return nil, p, corruptJournal("entry", fmt.Sprintf("a key of %d bytes that is not an entry's", len(key)))
	}
	return partition, decodeEntryPosition(rest), nil
}

// ParseFloorKey returns the partition in the key of a floor. ErrCorrupt if the key is none. The partition is a
// part of key.
func ParseFloorKey(key []byte) (partition []byte, err error) {
	partition, rest, ok := cutPartition(key, floorSpace)
	if !ok || len(rest) != 0 {
		return nil, corruptJournal("floor", fmt.Sprintf("a key of %d bytes that is not a floor's", len(key)))
	}
	return partition, nil
}

// The kinds of the reserved keys in errors.
const (
	KindEntry = "journal entry"
	KindFloor = "journal floor"
)

func corruptJournal(what, detail string) error {
	return &Error{Is: ErrCorrupt, Store: "journal", Op: "decode", KeyKind: "journal " + what, Detail: detail}
}
