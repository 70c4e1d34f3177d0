package mysqlkv

import (
	"bytes"
	"crypto/rand"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"

	"abide/kv"
	"abide/kv/batch"
)

// table is the one table of a store.
const table = "abide_kv"

// The columns. An index entry of InnoDB holds 3,072 bytes; a value is at most 65,536 bytes, one more than BLOB takes.
const (
	keyColumnBytes = 2700
	createTable    = "CREATE TABLE IF NOT EXISTS " + table + " (\n" +
		"  k VARBINARY(2700) NOT NULL PRIMARY KEY,\n" +
		"  v MEDIUMBLOB NOT NULL\n" +
		") ENGINE=InnoDB ROW_FORMAT=DYNAMIC STATS_PERSISTENT=1 STATS_AUTO_RECALC=1"
)

// Schema is the DDL of a store, as statements that end with ';'. Open runs it where the table is missing and its user may;
// once the table is there, Open needs SELECT, INSERT, UPDATE and DELETE on it and nothing else.
func Schema() string { return createTable + ";\n" }

// The store's own rows stand around the commit counter, after the journal's entries.
var (
	counterKey = batch.CounterKey()
	formatKey  = append(batch.CounterKey(), 'f')
	// flushKey is a row that is written to make what was committed before durable; see horizon.
	flushKey = append(batch.CounterKey(), 's')
	// writerKeys begins the keys of what each writer committed last; see unknown.go.
	writerKeys = append(batch.CounterKey(), 'w')
)

// The format of the table. A change that an older program must not touch raises both numbers, one that it can live
// with only the first.
const (
	formatVersion    = 1
	formatMinReader  = 1
	firstIncarnation = 1
)

// format is the record that makes a table a store.
type format struct {
	version, minReader, incarnation uint32
	// id tells this store from every other.
	id [16]byte
}

const formatBytes = 3*4 + 16

func (f format) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, f.version)
	b = binary.BigEndian.AppendUint32(b, f.minReader)
	b = binary.BigEndian.AppendUint32(b, f.incarnation)
	return append(b, f.id[:]...)
}

func decodeFormat(b []byte) (f format, err error) {
	if len(b) < formatBytes {
		return f, &kv.Error{Is: kv.ErrCorrupt, Store: storeName, Op: "open",
			Detail: fmt.Sprintf("the format record has %d bytes, not %d", len(b), formatBytes)}
	}
	f.version, f.minReader = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	f.incarnation = binary.BigEndian.Uint32(b[8:])
	copy(f.id[:], b[12:])
	if f.minReader > formatVersion {
		return f, fmt.Errorf("%w: the table %s has format %d and needs a program that knows format %d or newer; this one knows "+
			"format %d: use a newer version", ErrFormat, table, f.version, f.minReader, formatVersion)
	}
	return f, nil
}

func encodeSequence(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func decodeSequence(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, &kv.Error{Is: kv.ErrCorrupt, Store: storeName, Op: "get",
			Detail: fmt.Sprintf("a commit counter has %d bytes, not 8", len(b))}
	}
	return binary.BigEndian.Uint64(b), nil
}

// getOwn reads some of the store's own rows outside a transaction.
func (s *session) getOwn(keys ...[]byte) ([][]byte, error) {
	f := &batch.Fetch{Gets: keys}
	script := &script{limit: s.packetBytes}
	script.fetch(f)
	err := s.send(script)
	return f.Values, err
}

// openTable makes an empty database into a store, unless it must exist, and checks that any other is one that this program can
// open.
func (s *session) openTable(existing bool) (format, error) {
	values, err := s.getOwn(formatKey)
	if number(err) == errNoTable && existing {
		return format{}, fmt.Errorf("%w: there is no table %s", ErrFormat, table)
	}
	if number(err) == errNoTable {
		if err := s.run(createTable); err != nil {
			return format{}, fmt.Errorf("mysql: the table %s is missing and cannot be made: make it by hand (abide migrate --print "+
				"shows how), or let this user: %w", table, err)
		}
		values, err = s.getOwn(formatKey)
	}
	if number(err) == errDenied {
		return format{}, fmt.Errorf("mysql: the table %s is missing, or this user may not read it: make it by hand (abide migrate --print "+
			"shows how) and grant SELECT, INSERT, UPDATE and DELETE on it: %w", table, err)
	}
	if err != nil {
		return format{}, failure("open", err)
	}
	if err := s.checkTable(); err != nil {
		return format{}, err
	}
	if values[0] == nil {
		if values, err = s.initialise(); err != nil {
			return format{}, err
		}
	}
	return decodeFormat(values[0])
}

// initialise puts the first rows into an empty table, unless another server has just done so.
func (s *session) initialise() ([][]byte, error) {
	rows := 0
	if err := s.run("SELECT 1 FROM "+table+" LIMIT 1", func([]driver.Value) error { rows++; return nil }); err != nil {
		return nil, failure("open", err)
	}
	if rows == 0 {
		f := format{version: formatVersion, minReader: formatMinReader, incarnation: firstIncarnation}
		_, _ = rand.Read(f.id[:]) // it never fails
		text := append([]byte("INSERT IGNORE INTO "+table+" (k,v) VALUES ("), appendLiteral(nil, counterKey)...)
		text = append(appendLiteral(append(text, ','), encodeSequence(0)), "),("...)
		text = appendLiteral(append(appendLiteral(text, formatKey), ','), f.encode())
		if err := s.run(string(append(text, ')'))); err != nil {
			return nil, failure("open", err)
		}
	}
	values, err := s.getOwn(formatKey)
	if err == nil && values[0] == nil {
		err = fmt.Errorf("%w: the table %s has rows and no format record: it is not a store; choose another database", ErrFormat, table)
	}
	return values, err
}

// checkTable makes sure that nobody has changed what the table is: another engine has no transactions.
func (s *session) checkTable() error {
	var engine []byte
	columns := 0
	err := s.run("SELECT engine,1 FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name='"+table+"';"+
		"SELECT column_name,LOWER(data_type),character_maximum_length FROM information_schema.columns "+
		"WHERE table_schema=DATABASE() AND table_name='"+table+"'",
		func(row []driver.Value) error { engine = bytes.ToLower(column(row, 0)); return nil },
		func(row []driver.Value) error {
			var length int
			_, _ = fmt.Sscan(string(column(row, 2)), &length) // 0 is no length that will do
			switch string(column(row, 0)) + " " + string(column(row, 1)) {
			case "k varbinary":
				if length >= keyColumnBytes {
					columns++
				}
			case "v mediumblob", "v longblob":
				columns++
			}
			return nil
		})
	if err != nil {
		return failure("open", err)
	}
	if string(engine) != "innodb" || columns != 2 {
		return fmt.Errorf("%w: the table %s is not as this program makes it (engine %s); abide migrate --print shows what it must be",
			ErrFormat, table, engine)
	}
	return nil
}

// recognise holds a format row against the store that was opened: a failover may have led to a database that is empty, or
// another one; a newer server may have changed the format.
func (c *connector) recognise(op string, row []byte) error {
	want := c.store.Load()
	if want == nil {
		return nil // it is being opened
	}
	if row == nil {
		return unavailable(op, "the database that answers holds no store: it is not the one that was opened")
	}
	f, err := decodeFormat(row)
	switch {
	case errors.Is(err, ErrFormat):
		return &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: op, Err: err}
	case err != nil:
		return err
	case f.id != want.id:
		return unavailable(op, "the database that answers holds another store than the one that was opened")
	case f.incarnation != want.incarnation && f.incarnation != c.importing.Load():
		return unavailable(op, "the store was restored or copied meanwhile: restart this server")
	}
	return nil
}
