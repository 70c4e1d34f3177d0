package sqlitekv

import (
	"bytes"
	"fmt"
	"net/url"
	"time"

	"github.com/ncruces/go-sqlite3"

	"abide/kv"
	"abide/kv/batch"
)

const (
	pageBytes = 4096
	// busyTimeout is how long a connection waits for a lock that another one of this store holds. Only the
	// writer writes, so this is the moment in which a log is restarted or recovered.
	busyTimeout = 5 * time.Second
)

// conn is one connection with its prepared statements. Not safe for concurrent use.
type conn struct {
	db   *sqlite3.Conn
	name string // of the store, in errors

	get, scan               *sqlite3.Stmt
	begin, commit, rollback *sqlite3.Stmt
	put, remove             *sqlite3.Stmt // writer only
}

// role is what a connection is for.
type role int

const (
	writing role = iota
	reading
	checkpointing
)

// openConn opens the file at path, which exists, with a page cache of at most cacheBytes.
func (o *Options) openConn(path string, r role, cacheBytes int) (*conn, error) {
	registerVFS()
	name := "file:" + url.PathEscape(path) + "?vfs=" + o.vfs
	db, err := sqlite3.OpenFlags(name, sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	if err != nil {
		return nil, failure("open", err)
	}
	c := &conn{db: db}
	if err := c.configure(r, cacheBytes); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// configure sets what a connection keeps to itself. What belongs to the file is set by create.
func (c *conn) configure(r role, cacheBytes int) error {
	if err := c.db.BusyTimeout(busyTimeout); err != nil {
		return failure("open", err)
	}
	// Durability is never left to the driver's default, which is NORMAL in WAL mode: a commit would not
	// survive a loss of power. On Apple's systems a plain fsync does not reach the disk.
	pragmas := fmt.Sprintf(`
		PRAGMA synchronous = FULL;
		PRAGMA fullfsync = ON;
		PRAGMA checkpoint_fullfsync = ON;
		PRAGMA wal_autocheckpoint = 0;
		PRAGMA journal_size_limit = %d;
		PRAGMA cache_size = -%d;
		PRAGMA temp_store = MEMORY;`, maxWALBytes, max(1, cacheBytes>>10))
	if r == reading {
		pragmas += `PRAGMA query_only = ON;`
	}
	if err := c.db.Exec(pragmas); err != nil {
		return failure("open", err)
	}
	const full = 2
	if level, err := c.int("PRAGMA synchronous"); err != nil {
		return err
	} else if level != full {
		return fmt.Errorf("sqlite: synchronous is %d although FULL (%d) was set: commits would not be durable", level, full)
	}
	return nil
}

// prepare compiles the statements; the table must exist.
func (c *conn) prepare(r role) error {
	begin := `BEGIN`
	if r == writing {
		begin = `BEGIN IMMEDIATE`
	}
	for _, s := range []struct {
		to    **sqlite3.Stmt
		sql   string
		needs role
	}{
		{&c.get, `SELECT v FROM kv WHERE k = ?1`, reading},
		{&c.scan, `SELECT k, v FROM kv WHERE k >= ?1 AND k < ?2 ORDER BY k`, reading},
		{&c.begin, begin, reading},
		{&c.commit, `COMMIT`, reading},
		{&c.rollback, `ROLLBACK`, reading},
		// REPLACE on a table whose only index is its key is one descent of the tree.
		{&c.put, `INSERT OR REPLACE INTO kv (k, v) VALUES (?1, ?2)`, writing},
		{&c.remove, `DELETE FROM kv WHERE k = ?1`, writing},
	} {
		if s.needs == writing && r != writing {
			continue
		}
		stmt, _, err := c.db.PrepareFlags(s.sql, sqlite3.PREPARE_PERSISTENT)
		if err != nil {
			return failure("open", err)
		}
		*s.to = stmt
	}
	return nil
}

// close releases the connection, and with it a transaction that is open.
func (c *conn) close() error {
	for _, s := range []*sqlite3.Stmt{c.get, c.scan, c.begin, c.commit, c.rollback, c.put, c.remove} {
		_ = s.Close() // repeats the statement's last error
	}
	return c.db.Close()
}

// int reads the one integer that a query answers.
func (c *conn) int(sql string) (int64, error) {
	s, _, err := c.db.Prepare(sql)
	if err != nil {
		return 0, failure("open", err)
	}
	defer s.Close()
	if !s.Step() {
		return 0, failure("open", fmt.Errorf("%s answered nothing: %w", sql, s.Err()))
	}
	return s.ColumnInt64(0), nil
}

// Get implements batch.DriverReader.
func (c *conn) Get(key []byte) ([]byte, error) {
	if err := c.get.BindBlob(1, key); err != nil {
		return nil, failure("get", err)
	}
	var value []byte
	if c.get.Step() {
		value = bytes.Clone(c.get.ColumnRawBlob(0))
		if value == nil { // SQLite shows an empty value like none
			value = []byte{}
		}
	}
	if err := c.get.Reset(); err != nil {
		return nil, failure("get", err)
	}
	return value, nil
}

// Scan implements batch.DriverReader.
func (c *conn) Scan(r kv.Range, visit func(key, value []byte) bool) error {
	start := r.Start
	if start == nil {
		start = []byte{} // NULL would compare with nothing
	}
	if err := c.scan.BindBlob(1, start); err != nil {
		return failure("scan", err)
	}
	if err := c.scan.BindBlob(2, r.End); err != nil {
		return failure("scan", err)
	}
	for c.scan.Step() {
		k, v := c.scan.ColumnRawBlob(0), c.scan.ColumnRawBlob(1)
		row := make([]byte, len(k)+len(v))
		n := copy(row, k)
		copy(row[n:], v)
		if !visit(row[:n:n], row[n:]) {
			break
		}
	}
	if err := c.scan.Reset(); err != nil {
		return failure("scan", err)
	}
	return nil
}

// sequence reads the number of the last commit.
func (c *conn) sequence() (uint64, error) {
	value, err := c.Get(counterKey)
	if err != nil {
		return 0, err
	}
	return decodeSequence(value)
}

var counterKey = batch.CounterKey()
