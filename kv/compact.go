package kv

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// MaxCompactionEntries is how many journal entries one step of Compact removes at most, so that it holds up
// nobody. With the one that it looks for beyond them, it reads as many as engines with round trips fetch of a range
// that is named (kv/batch): a step reads nothing on its way.
const MaxCompactionEntries = 127

// Floor is the retained floor of a journal partition in what r reads: every entry at or below it may have
// been removed, every entry above it is there. It is the zero EntryPosition, the origin, for a partition that
// was never compacted, and never moves backwards. Errors are those of Reader.Get; ErrCorrupt for a floor that
// does not decode.
//
// Source: docs/storage-contract.md, after the RFD "Transactional storage contract", "Commit-ordered journal".
func Floor(r Reader, partition []byte) (EntryPosition, error) {
	value, err := r.Get(FloorKey(partition))
	if err != nil || value == nil {
		return EntryPosition{}, err
	}
	return ParseFloor(value)
}

// Compact makes one step towards a journal partition that begins after target: it removes the oldest entries
// at or below it, at most MaxCompactionEntries, and raises the floor past them in the same transaction. It
// returns the floor that now holds and whether entries at or below target remain, for which the caller calls
// again. A target at or below the floor changes nothing, and costs no write; one that no entry occupies is as
// good as any.
//
// Readers between the old and the new floor get ErrExpired from then on. Entries of commits after target are
// not touched, and appending does not conflict with compaction.
//
// Errors: ErrLimit for a target ahead of what a snapshot observes or a partition out of bounds; those of
// Store.View and Run. After ErrCommitUnknown it may be called again: the step is then done or it is not.
func Compact(ctx context.Context, s Store, partition []byte, target EntryPosition) (floor EntryPosition, more bool, err error) {
	bound, floor, err := stands(ctx, s, partition)
	switch {
	case err != nil:
		return EntryPosition{}, false, err
	case target.Commit.Compare(bound) > 0:
		return EntryPosition{}, false, &Error{Is: ErrLimit, Store: "journal", Op: "compact", KeyKind: KindFloor,
			Detail: fmt.Sprintf("the target %v is ahead of the last commit, %v", target, bound)}
	case target.Compare(floor) <= 0:
		return floor, false, nil
	}
	// The target is within what the snapshot above observed, and therefore within what this transaction reads:
	// entries that are committed but not yet in its reach (a neighbour's of the same batch) are all later.
	// On engines with round trips what the step reads comes with its batch: otherwise nearly every batch of a busy
	// store would make two more, for requests to wait in.
	h := Hints{Background: true, Lane: string(partition), Prefetch: []Range{
		Only(FloorKey(partition)), JournalRange(partition, floor, target)}}
	_, err = Run(ctx, s, h, func(tx Tx) (err error) {
		floor, more, err = compactStep(tx, partition, target)
		return err
	})
	if err != nil {
		return EntryPosition{}, false, err
	}
	return floor, more, nil
}

// onceViewer is what a Store may also be if its reads are round trips; see batch.Store.ViewOnce.
type onceViewer interface {
	ViewOnce(ctx context.Context, prefetch []Range, rows int, fn func(Snapshot) error) error
}

// stands is what a snapshot observes of a partition: how far it reaches and where the floor is.
func stands(ctx context.Context, s Store, partition []byte) (bound Position, floor EntryPosition, err error) {
	look := func(v Snapshot) (err error) {
		bound = v.Bound()
		floor, err = Floor(v, partition)
		return err
	}
	if once, ok := s.(onceViewer); ok {
		err = once.ViewOnce(ctx, []Range{Only(FloorKey(partition))}, 1, look)
	} else {
		err = s.View(ctx, look)
	}
	return bound, floor, err
}

func compactStep(tx Tx, partition []byte, target EntryPosition) (floor EntryPosition, more bool, err error) {
	floor, err = Floor(tx, partition)
	if err != nil || target.Compare(floor) <= 0 {
		return floor, false, err
	}
	entries, err := tx.Scan(JournalRange(partition, floor, target), MaxCompactionEntries+1)
	if err != nil {
		return EntryPosition{}, false, err
	}
	floor = target
	if len(entries) > MaxCompactionEntries {
		more, entries = true, entries[:MaxCompactionEntries]
		if _, floor, err = ParseJournalKey(entries[len(entries)-1].Key); err != nil {
			return EntryPosition{}, false, err
		}
	}
	for _, e := range entries {
		if err := tx.Delete(e.Key); err != nil {
			return EntryPosition{}, false, err
		}
	}
	return floor, more, tx.Put(FloorKey(partition), AppendFloor(nil, floor))
}

// Expired reports whether a reader whose last entry was at after can no longer go on without a gap, in a
// snapshot that shows this floor and this bound: what came next may have been removed, or after is a place in
// another history than this one (the store was restored, or made anew). Every store's Snapshot.Journal asks
// it, in the snapshot that it then scans, and refuses with ErrExpired. The origin, the cursor of a snapshot of an
// empty store and the floor itself are places in every history.
func Expired(after, floor EntryPosition, bound Position) bool {
	if c := after.Compare(floor); c <= 0 {
		return c < 0
	}
	return !after.Commit.IsZero() && (after.Commit.Compare(bound) > 0 || after.Commit.Incarnation() != bound.Incarnation())
}

// A floor is stored as its version, the entry position, and a CRC-32C of both, little endian.
const (
	floorVersion = 1
	floorBytes   = 1 + entryPositionBytes + crc32.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendFloor appends the record of a floor.
func AppendFloor(dst []byte, floor EntryPosition) []byte {
	start := len(dst)
	dst = appendEntryPosition(append(dst, floorVersion), floor)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// ParseFloor decodes the record of a floor. ErrCorrupt if it is none of a version that is known.
func ParseFloor(record []byte) (EntryPosition, error) {
	switch {
	case len(record) == 0:
		return EntryPosition{}, corruptJournal("floor", "an empty record")
	case record[0] != floorVersion:
		return EntryPosition{}, corruptJournal("floor", fmt.Sprintf("a record of version %d; this program knows version %d", record[0], floorVersion))
	case len(record) != floorBytes:
		return EntryPosition{}, corruptJournal("floor", fmt.Sprintf("a record of %d bytes, not %d", len(record), floorBytes))
	}
	body := record[:floorBytes-crc32.Size]
	if binary.LittleEndian.Uint32(record[len(body):]) != crc32.Checksum(body, castagnoli) {
		return EntryPosition{}, corruptJournal("floor", "the checksum does not fit")
	}
	return decodeEntryPosition(body[1:]), nil
}
