package pgkv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"abide/kv"
	"abide/kv/batch"
)

// The format of a schema. A change that an older program must not touch raises both numbers, one that it can
// live with only the first.
const (
	formatVersion    = 1
	formatMinReader  = 1
	firstIncarnation = 1
)

// DefaultSchema is the schema that the table is in unless the options name another.
const DefaultSchema = "abide"

// ErrFormat: what the schema holds is not a store that this program can open.
var ErrFormat = errors.New("not a store that this program can open")

// The rows that a schema keeps for itself, in the key space that is the store's own. Beside them there is one row
// for each life of each server; see writerKey.
var (
	formatKey  = []byte{kv.ReservedPrefix, 'f'}
	counterKey = batch.CounterKey()
)

// writerKey is the row in which a life of a server leaves the sequence number of its last commit: whether one
// whose answer was lost is there can be read from it, whatever other servers have committed since.
func writerKey(writer uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kv.ReservedPrefix, 'w'}, writer)
}

// writersEnd ends the range of all writerKeys.
var writersEnd = []byte{kv.ReservedPrefix, 'w' + 1}

// format is the record that says who may open a schema.
type format struct{ version, minReader, incarnation uint32 }

func (f format) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.version)
	b = binary.BigEndian.AppendUint32(b, f.minReader)
	return binary.BigEndian.AppendUint32(b, f.incarnation)
}

// parseFormat reads a format record of this version or a later one, and refuses one that it must not touch.
func parseFormat(b []byte) (format, error) {
	if len(b) < 12 {
		return format{}, fmt.Errorf("%w: its format row has %d bytes, at least 12 are needed: the table is damaged or another program's", ErrFormat, len(b))
	}
	f := format{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])}
	if f.minReader > formatVersion {
		return format{}, fmt.Errorf("%w: the schema has format %d and needs a program that knows format %d or newer; this one knows format %d: use a newer version",
			ErrFormat, f.version, f.minReader, formatVersion)
	}
	if f.incarnation == 0 || f.incarnation > kv.MaxIncarnation {
		return format{}, fmt.Errorf("%w: its incarnation is %d, which none has: the format row is damaged", ErrFormat, f.incarnation)
	}
	return f, nil
}

// counter is the row that every commit changes and every transaction locks first: the sequence number of the last
// commit, and a number that tells this store from every other, so that a connection which has come to another
// database is noticed at once.
type counter struct{ sequence, store uint64 }

func (c counter) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, c.sequence)
	return binary.BigEndian.AppendUint64(b, c.store)
}

func parseCounter(b []byte) (counter, error) {
	if len(b) != 16 {
		return counter{}, &kv.Error{Is: kv.ErrCorrupt, Store: storeName, Op: "get", Detail: fmt.Sprintf("the commit counter has %d bytes, not 16", len(b))}
	}
	return counter{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, nil
}

// Schema returns the statements that make a store in a schema, for whoever may create schemas; "" stands for
// DefaultSchema. They change nothing that is there already. A role that serves the store then needs USAGE on the
// schema, and SELECT, INSERT, UPDATE and DELETE on its table.
func Schema(schema string) string {
	table := tableName(schema)
	return fmt.Sprintf(`CREATE SCHEMA IF NOT EXISTS %s;
CREATE TABLE IF NOT EXISTS %s (
	k bytea PRIMARY KEY,
	v bytea NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
ALTER TABLE %s ALTER COLUMN v SET STORAGE MAIN;
INSERT INTO %s VALUES
	('\x%x', '\x%x'),
	('\x%x', '\x0000000000000000' || substring(uuid_send(gen_random_uuid()) FOR 8))
	ON CONFLICT DO NOTHING;
`, quoteName(schemaName(schema)), table, table, table, formatKey, format{formatVersion, formatMinReader, firstIncarnation}.append(nil), counterKey)
}

func schemaName(schema string) string {
	if schema == "" {
		return DefaultSchema
	}
	return schema
}

// tableName is the table of a schema, as SQL names it.
func tableName(schema string) string { return quoteName(schemaName(schema)) + ".kv" }

// quoteName makes any name one of SQL's.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
