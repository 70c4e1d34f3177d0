package kv

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
)

// Position is where a commit stands in the order of one store: opaque, unique, strictly ordered by
// commit. Its first four bytes are the store's incarnation, raised by a restore or a copy, so that a
// cursor of another incarnation is recognised; the rest belongs to the engine (a sequence number on
// SQLite, a versionstamp on FoundationDB). The zero Position stands before every commit and is what a
// read-only outcome has.
type Position [16]byte

// NewPosition builds the position of an engine that counts its commits: sequence n, from 1.
func NewPosition(incarnation uint32, n uint64) Position {
	var p Position
	binary.BigEndian.PutUint32(p[0:4], incarnation)
	binary.BigEndian.PutUint64(p[8:16], n)
	return p
}

// Incarnation is the incarnation of the store that made p.
func (p Position) Incarnation() uint32 { return binary.BigEndian.Uint32(p[0:4]) }

// Sequence is the number that NewPosition was given. It has no meaning on engines that do not count.
func (p Position) Sequence() uint64 { return binary.BigEndian.Uint64(p[8:16]) }

// IsZero reports whether p is the position of no commit.
func (p Position) IsZero() bool { return p == Position{} }

// Compare orders positions: -1, 0 or 1.
func (p Position) Compare(q Position) int { return bytes.Compare(p[:], q[:]) }

// String is the position in hexadecimal, which orders as the position does.
func (p Position) String() string { return hex.EncodeToString(p[:]) }

// AfterCommit is the index that stands after every entry of a commit: EntryPosition{P, AfterCommit} is
// the cursor of a reader that has seen all of P.
const AfterCommit = math.MaxUint32

// EntryPosition is where one journal entry stands: its commit, and its append order within that commit
// from 0. The zero EntryPosition is the origin of the journal: it names no entry (no commit has the zero
// Position) and orders before all of them, so a scan strictly after it starts at the beginning.
type EntryPosition struct {
	Commit Position
	Index  uint32
}

// Compare orders entry positions: -1, 0 or 1.
func (e EntryPosition) Compare(f EntryPosition) int {
	if c := e.Commit.Compare(f.Commit); c != 0 {
		return c
	}
	switch {
	case e.Index < f.Index:
		return -1
	case e.Index > f.Index:
		return 1
	}
	return 0
}

// String is for people and logs.
func (e EntryPosition) String() string { return fmt.Sprintf("%s/%d", e.Commit, e.Index) }
