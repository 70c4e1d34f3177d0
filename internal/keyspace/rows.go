package keyspace

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The small records: rows that hold an instant, a piece of a payload, a format or what was set aside.

// CheckMarker checks the value of a row that says everything by its key.
func CheckMarker(kind string, b []byte) error {
	err := checkVersion(b)
	if err == nil && len(b) > 1 {
		err = fmt.Errorf("%d bytes after the version", len(b)-1)
	}
	if err != nil {
		return corrupt(kind, err)
	}
	return nil
}

// AppendInstant appends the record of a row that holds one instant (epoch ms): a queued unblock message,
// the ceiling of a server's clock, a workspace's largest debug instant or its birth.
func AppendInstant(b []byte, ms int64) []byte {
	return seal(putInt(append(b, recordVersion), 1, ms), len(b))
}

// Instant decodes such a record; kind names the key's kind for the error.
func Instant(kind string, b []byte) (ms int64, err error) {
	rest, err := body(b)
	if err != nil {
		return 0, corrupt(kind, err)
	}
	err = fields(rest, func(f protowire.Number, n int64, _ []byte) error {
		if f == 1 {
			ms = n
		}
		return nil
	})
	if err != nil {
		return 0, corrupt(kind, err)
	}
	return ms, nil
}

// AppendChunk appends the record of one piece of a payload; Chunk decodes it.
func AppendChunk(b, piece []byte) []byte {
	return seal(append(append(b, recordVersion), piece...), len(b))
}

// Chunk returns the piece of a payload that a chunk record holds, sharing its bytes.
func Chunk(b []byte) ([]byte, error) {
	rest, err := body(b)
	if err != nil {
		return nil, corrupt("chunk", err)
	}
	return rest, nil
}

// MaxShards is the largest number of shards of a store: every pass of the timers and of delivery looks into each.
const MaxShards = 1024

// StoreFormat is the store's format record: what its entries were derived by.
type StoreFormat struct {
	Derivation int64 // DerivationVersion of the writer
	Shards     int64 // at most MaxShards
}

// AppendFormat appends the format record.
func AppendFormat(b []byte, f StoreFormat) []byte {
	start := len(b)
	return seal(putInt(putInt(append(b, recordVersion), 1, f.Derivation), 2, f.Shards), start)
}

// ParseFormat decodes the format record.
func ParseFormat(b []byte) (f StoreFormat, err error) {
	rest, err := body(b)
	if err != nil {
		return f, corrupt("format", err)
	}
	err = fields(rest, func(field protowire.Number, n int64, _ []byte) error {
		switch field {
		case 1:
			f.Derivation = n
		case 2:
			f.Shards = n
		}
		return nil
	})
	if err == nil && f.Shards > MaxShards {
		err = fmt.Errorf("%d shards; at most %d", f.Shards, MaxShards)
	}
	if err != nil {
		return f, corrupt("format", err)
	}
	return f, nil
}

// QuarantinedRow is a row that was set aside because it does not decode or breaks an invariant.
type QuarantinedRow struct {
	Value     []byte // the row's value as it was
	Reason    string
	FirstSeen int64 // epoch ms
}

// AppendQuarantined appends the record of a row that was set aside.
func AppendQuarantined(b []byte, q QuarantinedRow) []byte {
	start := len(b)
	b = putBytes(append(b, recordVersion), 1, q.Value)
	return seal(putInt(putBytes(b, 2, q.Reason), 3, q.FirstSeen), start)
}

// ParseQuarantined decodes such a record.
func ParseQuarantined(b []byte) (q QuarantinedRow, err error) {
	rest, err := body(b)
	if err != nil {
		return q, corrupt("quarantine", err)
	}
	err = fields(rest, func(f protowire.Number, n int64, bytes []byte) error {
		switch f {
		case 1:
			q.Value = bytes
		case 2:
			q.Reason = string(bytes)
		case 3:
			q.FirstSeen = n
		}
		return nil
	})
	if err != nil {
		return q, corrupt("quarantine", err)
	}
	return q, nil
}
