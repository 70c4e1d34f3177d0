package sqlitekv

import (
	"encoding/binary"
	"fmt"
	"strings"

	"abide/kv"
)

// The format of the file. A change that an older program must not touch raises both numbers, one that it can
// live with only the first.
const (
	formatVersion    = 1
	formatMinReader  = 1
	firstIncarnation = 1

	// applicationID marks the file as ours: "Abid".
	applicationID = 0x41626964
)

// format is the record that every file begins with.
type format struct {
	version, minReader int64
	incarnation        uint32
}

// schema has two tables with the same columns.
//
// kv is an ordinary table with an index on its keys, not WITHOUT ROWID: there, inner pages of the tree hold
// whole records, six to a page, and a random record costs seven levels. Here they hold keys, a record that is
// written again changes one page near those written with it, and large values are no burden. For records of
// 640 bytes that halves both the pages written and the CPU of a transaction.
//
// journal is the store's own key space: it is written at its ends, in small records, and the counter is its
// last row, so a commit changes one page of it.
const schema = `
	PRAGMA application_id = %d;
	CREATE TABLE format (
		id INTEGER PRIMARY KEY CHECK (id = 1),
		version INTEGER NOT NULL,      -- of the format that wrote the file
		min_reader INTEGER NOT NULL,   -- the oldest format that may open it
		incarnation INTEGER NOT NULL   -- raised by a restore or a copy; the beginning of every position
	) STRICT;
	INSERT INTO format VALUES (1, %d, %d, %d);
	CREATE TABLE kv (
		k BLOB PRIMARY KEY NOT NULL,
		v BLOB NOT NULL
	) STRICT;
	CREATE TABLE journal (
		k BLOB PRIMARY KEY NOT NULL,
		v BLOB NOT NULL
	) STRICT, WITHOUT ROWID;`

// Schema is the SQL that makes an empty file into a store. Open does it by itself.
func Schema() string {
	return fmt.Sprintf("PRAGMA page_size = %d;\nPRAGMA journal_mode = WAL;", pageBytes) +
		strings.ReplaceAll(fmt.Sprintf(schema, applicationID, formatVersion, formatMinReader, firstIncarnation), "\n\t", "\n") + "\n"
}

// prepareFile makes an empty file into a store, and checks that any other file is one that this program can
// open. c is the writer's connection.
func (c *conn) prepareFile() (format, error) {
	tables, err := c.int(`SELECT count(*) FROM sqlite_schema`)
	if err != nil {
		return format{}, err
	}
	if tables == 0 {
		if err := c.create(); err != nil {
			return format{}, err
		}
	}
	f, err := c.readFormat()
	if err != nil {
		return format{}, err
	}
	return f, c.enterWAL() // a copy that another tool made may be in another mode
}

func (c *conn) create() error {
	// The page size must be set before the first page is written, and outside a transaction.
	if err := c.db.Exec(fmt.Sprintf(`PRAGMA page_size = %d`, pageBytes)); err != nil {
		return failure("open", err)
	}
	if err := c.enterWAL(); err != nil {
		return err
	}
	sql := fmt.Sprintf(schema, applicationID, formatVersion, formatMinReader, firstIncarnation)
	if err := c.db.Exec("BEGIN IMMEDIATE;" + sql + "COMMIT;"); err != nil {
		return failure("open", err)
	}
	return nil
}

// enterWAL puts the file into WAL mode, in which it stays.
func (c *conn) enterWAL() error {
	s, _, err := c.db.Prepare(`PRAGMA journal_mode = WAL`)
	if err != nil {
		return failure("open", err)
	}
	defer s.Close()
	if !s.Step() {
		return failure("open", fmt.Errorf("journal_mode answered nothing: %w", s.Err()))
	}
	if mode := s.ColumnText(0); mode != "wal" {
		return fmt.Errorf("sqlite: the file system does not support write-ahead logging (journal mode %s): "+
			"put the database on a local disk", mode)
	}
	return nil
}

func (c *conn) readFormat() (format, error) {
	id, err := c.int(`PRAGMA application_id`)
	if err != nil {
		return format{}, err
	}
	if id != applicationID {
		return format{}, fmt.Errorf("%w: the file is an SQLite database of another program; choose another path", ErrFormat)
	}
	var f format
	if f.minReader, err = c.int(`SELECT min_reader FROM format`); err != nil {
		return format{}, err
	}
	if f.version, err = c.int(`SELECT version FROM format`); err != nil {
		return format{}, err
	}
	if f.minReader > formatVersion {
		return format{}, fmt.Errorf("%w: the file has format %d and needs a program that knows format %d or newer; "+
			"this one knows format %d: use a newer version", ErrFormat, f.version, f.minReader, formatVersion)
	}
	incarnation, err := c.int(`SELECT incarnation FROM format`)
	if err != nil {
		return format{}, err
	}
	f.incarnation = uint32(incarnation)
	return f, nil
}

// checkRoots is the first half of the light check at start: the root of each tree and the path to its first
// row can be read. A full check takes seconds for each gigabyte.
func (c *conn) checkRoots() error {
	for _, first := range []string{
		`SELECT count(*) FROM (SELECT v FROM kv LIMIT 1)`,
		`SELECT count(*) FROM (SELECT k FROM kv ORDER BY k LIMIT 1)`,
		`SELECT count(*) FROM (SELECT v FROM journal LIMIT 1)`,
	} {
		if _, err := c.int(first); err != nil {
			return err
		}
	}
	return nil
}

// checkLast is the other half: the counter decodes, and the journal's last entry, which stands next to it, is
// not ahead of it.
func (c *conn) checkLast() (uint64, error) {
	sequence, err := c.sequence()
	if err != nil {
		return 0, err
	}
	s, _, err := c.db.Prepare(`SELECT k FROM journal WHERE k >= ?1 AND k < ?2 ORDER BY k DESC LIMIT 1`)
	if err != nil {
		return 0, failure("open", err)
	}
	defer s.Close()
	r := kv.AllEntries()
	if err := s.BindBlob(1, r.Start); err != nil {
		return 0, failure("open", err)
	}
	if err := s.BindBlob(2, r.End); err != nil {
		return 0, failure("open", err)
	}
	if !s.Step() {
		if err := s.Err(); err != nil {
			return 0, failure("open", err)
		}
		return sequence, nil
	}
	_, at, err := kv.ParseJournalKey(s.ColumnRawBlob(0))
	if err != nil {
		return 0, err
	}
	if at.Commit.Sequence() > sequence {
		return 0, &kv.Error{Is: kv.ErrCorrupt, Store: storeName, Op: "open",
			Detail: fmt.Sprintf("the journal holds commit %d, the counter says %d", at.Commit.Sequence(), sequence)}
	}
	return sequence, nil
}

func encodeSequence(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// decodeSequence reads the counter row; an absent one is that of an empty store.
func decodeSequence(value []byte) (uint64, error) {
	switch len(value) {
	case 0:
		return 0, nil
	case 8:
		return binary.BigEndian.Uint64(value), nil
	}
	return 0, &kv.Error{Is: kv.ErrCorrupt, Store: storeName, Op: "get",
		Detail: fmt.Sprintf("the commit counter has %d bytes, not 8", len(value))}
}
