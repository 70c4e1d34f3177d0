package store

import (
	"crypto/sha256"
	"fmt"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// chunkBytes is the size of one piece of a large payload: a value's limit, with room for what an engine
// puts around it.
const chunkBytes = 60 << 10

// chunkRoom is what a chunk's record puts around its piece, or a little more.
const chunkRoom = 8

// spill moves a payload that is too large for its record into chunk rows, once: from then on the record
// names it by a token. The token is a digest of the content, so that a chunk of an attempt that never
// committed is never taken for one of another content.
func (t *Txn) spill(p *machine.Payload, key func(token string, n int64) []byte) error {
	if p.Ref != "" || len(p.Inline) <= keyspace.InlineBytes {
		return nil
	}
	sum := sha256.Sum256(p.Inline)
	p.Ref = string(sum[:8])
	for n, rest := int64(0), []byte(p.Inline); len(rest) > 0; n++ {
		size := min(len(rest), chunkBytes)
		if err := t.tx.Put(key(p.Ref, n), keyspace.AppendChunk(make([]byte, 0, size+chunkRoom), rest[:size])); err != nil {
			return err
		}
		rest = rest[size:]
	}
	return nil
}

// pieces is how many chunks a payload of a size has.
func pieces(size int64) int64 { return (size + chunkBytes - 1) / chunkBytes }

// assemble reads a payload from its chunks.
func (t *Txn) assemble(p *machine.Payload, key func(n int64) []byte) (protocol.Value, error) {
	keys := make([][]byte, pieces(p.Size))
	for n := range keys {
		keys[n] = key(int64(n))
	}
	rows, err := t.r.GetMany(keys)
	if err != nil {
		return nil, err
	}
	out := make(protocol.Value, 0, p.Size)
	for _, row := range rows {
		piece, err := keyspace.Chunk(row)
		if err != nil {
			return nil, err
		}
		out = append(out, piece...)
	}
	if int64(len(out)) != p.Size {
		return nil, &kv.Error{Is: kv.ErrCorrupt, Store: "store", Op: "read payload", KeyKind: "chunk",
			Detail: fmt.Sprintf("%d bytes instead of %d", len(out), p.Size)}
	}
	return out, nil
}

// SchedulePayload implements machine.State.
func (t *Txn) SchedulePayload(s *machine.Schedule) (protocol.Value, error) {
	p := &s.PromiseParam
	return t.assemble(p, func(n int64) []byte { return t.keys.ScheduleChunk(s.ID, p.Ref, n) })
}
