// Package copy moves everything that a store holds into an empty store of any engine, and says whether it arrived:
// ordinary rows as they are, journal entries and floors in the incarnation of the new store.
//
// A copy is three steps, each of which reads in bounded pages: Survey counts and digests the source; Fill writes
// the rows in steps of the target's kv.Importer, and goes on where an earlier Fill broke off; End makes the target a
// store like any other. Between Fill and End the caller opens the target anew and compares its Survey with the
// source's.
//
// The source must not change meanwhile, which is checked on every page. It knows nothing of promises.
package copy

import (
	"context"
	"errors"
	"fmt"

	"abide/kv"
)

// Limits of a copy.
const (
	// pageRows and pageBytes bound what is read at a time and what one step of an import writes. A page may be
	// larger than pageBytes by the rows of one read.
	pageRows  = 2000
	pageBytes = 1 << 20
	// readRows is how many rows are read by one call: at the largest values 2 MiB.
	readRows = 32
)

// Progress is how far a step has come.
type Progress struct {
	Step string // "reading", "copying", "checking"
	Rows int64  // done in this step; what an earlier run has copied counts
	All  int64  // rows that the step has in all; 0 if that is not known
}

// ErrChanged: the source was written to while it was read.
var ErrChanged = errors.New("the source was changed while it was copied: a server uses it")

// pages reads all of a store, page after page. Each page is read in one snapshot, and all of them see the same commit.
type pages struct {
	store kv.Store
	bound *kv.Position // of the first page
	space int          // index of the range in spaces
	after []byte       // the last key that was read there; nil: none
}

// spaces are the ranges that together hold everything but the import's own mark and what the engine keeps to
// itself.
func spaces() []kv.Range {
	return []kv.Range{{End: []byte{kv.ReservedPrefix}}, kv.AllEntries(), kv.AllFloors()}
}

// next returns the next page and where it ends; no rows at the end. Rows are the caller's to keep.
func (p *pages) next(ctx context.Context) (rows []kv.Entry, err error) {
	all := spaces()
	for len(rows) == 0 && p.space < len(all) {
		if rows, err = p.read(ctx, all[p.space]); err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			p.space, p.after = p.space+1, nil
			continue
		}
		p.after = rows[len(rows)-1].Key
	}
	return rows, nil
}

func (p *pages) read(ctx context.Context, r kv.Range) (rows []kv.Entry, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = p.store.View(ctx, func(s kv.Snapshot) error {
		if bound := s.Bound(); p.bound == nil {
			p.bound = &bound
		} else if *p.bound != bound {
			return ErrChanged
		}
		from := r
		if p.after != nil {
			from.Start = append(append([]byte(nil), p.after...), 0)
		}
		rows = rows[:0]
		for bytes := 0; len(rows) < pageRows && bytes < pageBytes; {
			read, err := s.Scan(from, readRows)
			if err != nil {
				return err
			}
			rows = append(rows, read...)
			if len(read) < readRows {
				return nil
			}
			for _, row := range read {
				bytes += len(row.Key) + len(row.Value)
			}
			from.Start = append(append([]byte(nil), read[len(read)-1].Key...), 0)
		}
		return nil
	})
	return rows, err
}

// transposed is a row in a store of another incarnation.
func transposed(row kv.Entry, space int, incarnation uint32) (kv.Entry, error) {
	switch space {
	case spaceEntries:
		partition, at, err := kv.ParseJournalKey(row.Key)
		if err != nil {
			return row, err
		}
		return kv.Entry{Key: kv.JournalKey(partition, at.InIncarnation(incarnation)), Value: row.Value}, nil
	case spaceFloors:
		floor, err := kv.ParseFloor(row.Value)
		if err != nil {
			return row, fmt.Errorf("a floor of the source: %w", err)
		}
		return kv.Entry{Key: row.Key, Value: kv.AppendFloor(nil, floor.InIncarnation(incarnation))}, nil
	}
	return row, nil
}

// Indexes of spaces.
const (
	spaceEntries = 1
	spaceFloors  = 2
)
