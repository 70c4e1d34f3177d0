package batch

import (
	"encoding/binary"
	"fmt"

	"abide/kv"
)

// Journal entries live in the key space of the store, after all other keys, where each partition only ever
// grows at its end:
//
//	FF 'j' | length of the partition, uvarint | partition | commit position, 16 bytes | index, 4 bytes big-endian
//
// The length in front keeps any partition from being the beginning of another.
const journalSpace = 'j'

// counterSpace follows the journal: drivers that keep their sequence number as a row put it there, so that
// it shares a page with the end of the journal.
const counterSpace = 'z'

const entryPositionBytes = len(kv.Position{}) + 4

// CounterKey is the key of the row in which a driver may keep the sequence number of the last commit. No key
// of the store comes after it.
func CounterKey() []byte { return []byte{kv.ReservedPrefix, counterSpace} }

// JournalRange is the range of every journal entry of every partition.
func JournalRange() kv.Range {
	return kv.Range{
		Start: []byte{kv.ReservedPrefix, journalSpace},
		End:   []byte{kv.ReservedPrefix, journalSpace + 1},
	}
}

// appendPartition appends what the keys of all entries of a partition begin with.
func appendPartition(dst, partition []byte) []byte {
	dst = append(dst, kv.ReservedPrefix, journalSpace)
	dst = binary.AppendUvarint(dst, uint64(len(partition)))
	return append(dst, partition...)
}

// appendEntryPosition appends the end of an entry's key.
func appendEntryPosition(dst []byte, p kv.EntryPosition) []byte {
	dst = append(dst, p.Commit[:]...)
	return binary.BigEndian.AppendUint32(dst, p.Index)
}

// JournalPosition is the entry position in the key of a journal entry. ErrCorrupt if the key is none.
func JournalPosition(key []byte) (kv.EntryPosition, error) {
	var p kv.EntryPosition
	if len(key) < 3+entryPositionBytes || key[0] != kv.ReservedPrefix || key[1] != journalSpace {
		return p, fmt.Errorf("%w: a journal key of %d bytes", kv.ErrCorrupt, len(key))
	}
	tail := key[len(key)-entryPositionBytes:]
	copy(p.Commit[:], tail)
	p.Index = binary.BigEndian.Uint32(tail[len(p.Commit):])
	return p, nil
}

// lastEntryPosition comes after every entry that any store can hold.
var lastEntryPosition = kv.EntryPosition{
	Commit: kv.Position{
		0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
	},
	Index: kv.AfterCommit,
}
