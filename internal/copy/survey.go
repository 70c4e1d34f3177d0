package copy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"

	"abide/kv"
)

// Content is what a store holds: how many rows of each kind, and a digest of them. It does not depend on the
// engine nor on the incarnation.
type Content struct {
	Kinds map[string]Kind
	// Last is the last commit of the store.
	Last kv.Position
}

// Kind is what a store holds of one kind of rows, as the key register names it, or kv.KindEntry or kv.KindFloor.
type Kind struct {
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`  // of keys and values
	Digest string `json:"digest"` // SHA-256 of all keys and values in the order of the keys, in hexadecimal
}

// Rows is how many there are of all kinds.
func (c Content) Rows() (n int64) {
	for _, k := range c.Kinds {
		n += k.Rows
	}
	return n
}

// digest is one digest for all kinds.
func (c Content) digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		fmt.Fprintf(h, "%q %d %s\n", name, c.Kinds[name].Rows, c.Kinds[name].Digest)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Differences says kind by kind what d does not hold as c does, for a person; empty if they are the same.
func (c Content) Differences(d Content) []string {
	var found []string
	all := maps.Clone(c.Kinds)
	maps.Copy(all, d.Kinds)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, b := c.Kinds[name], d.Kinds[name]
		switch {
		case a.Rows != b.Rows:
			found = append(found, fmt.Sprintf("%s: %d rows in the source, %d in the copy", name, a.Rows, b.Rows))
		case a != b:
			found = append(found, fmt.Sprintf("%s: %d rows, whose content is not the same", name, a.Rows))
		}
	}
	return found
}

// Survey reads a whole store. kind names the kind of a key, as the key register does. progress, if not nil, is told now
// and then. Errors: the store's; ErrChanged.
func Survey(ctx context.Context, s kv.Store, kind func(key []byte) string, progress func(rows int64)) (Content, error) {
	kinds := map[string]*survey{}
	p := &pages{store: s}
	var seen int64
	for {
		rows, err := p.next(ctx)
		if err != nil {
			return Content{}, err
		}
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			name := kv.KindEntry
			switch p.space {
			case spaceFloors:
				name = kv.KindFloor
			case spaceEntries:
			default:
				name = kind(row.Key)
			}
			// In one incarnation for all: what the copy changes is no difference.
			if row, err = transposed(row, p.space, 1); err != nil {
				return Content{}, err
			}
			if kinds[name] == nil {
				kinds[name] = &survey{hash: sha256.New()}
			}
			kinds[name].add(row)
		}
		if seen += int64(len(rows)); progress != nil {
			progress(seen)
		}
	}
	c := Content{Kinds: map[string]Kind{}}
	if p.bound != nil {
		c.Last = *p.bound
	}
	for name, k := range kinds {
		c.Kinds[name] = Kind{Rows: k.rows, Bytes: k.bytes, Digest: hex.EncodeToString(k.hash.Sum(nil))}
	}
	return c, nil
}

type survey struct {
	rows, bytes int64
	hash        hash.Hash
	frame       []byte
}

func (s *survey) add(row kv.Entry) {
	s.rows++
	s.bytes += int64(len(row.Key) + len(row.Value))
	for _, part := range [][]byte{row.Key, row.Value} {
		s.frame = binary.AppendUvarint(s.frame[:0], uint64(len(part)))
		s.hash.Write(s.frame)
		s.hash.Write(part)
	}
}
