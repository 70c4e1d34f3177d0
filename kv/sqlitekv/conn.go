package sqlitekv

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync/atomic"
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
	db *sqlite3.Conn

	keys, journal           statements
	begin, commit, rollback *sqlite3.Stmt
	counter                 *sqlite3.Stmt // reads the commit counter, which every snapshot does

	name     string         // for connParameter
	logSyncs *atomic.Uint64 // how many syncs of the log have failed through this connection
}

// statements are those of one table; put and remove only on the writer's connection.
type statements struct{ get, scan, put, remove *sqlite3.Stmt }

// of returns the statements of the table in which a key lies. A range lies in one table.
func (c *conn) of(key []byte) *statements {
	if len(key) > 0 && key[0] >= kv.ReservedPrefix {
		return &c.journal
	}
	return &c.keys
}

// role is what a connection is for.
type role int

const (
	writing role = iota
	reading
	checkpointing
)

// synchronous is what SQLite calls the points at which it syncs.
type synchronous int

// full syncs every commit before it is acknowledged.
const full synchronous = 2

// openConn opens the file at path, which exists, with a page cache of at most cacheBytes.
func (o *Options) openConn(path string, r role, cacheBytes int) (*conn, error) {
	registerVFS()
	c := &conn{}
	c.name, c.logSyncs = countLogSyncs()
	uri := "file:" + url.PathEscape(path) + "?vfs=" + o.vfs + "&" + connParameter + "=" + c.name
	db, err := sqlite3.OpenFlags(uri, sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	if err != nil {
		forgetLogSyncs(c.name)
		return nil, failure("open", err)
	}
	c.db = db
	if err := c.configure(r, cacheBytes, full-o.weaker); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// configure sets what a connection keeps to itself. What belongs to the file is set by create.
func (c *conn) configure(r role, cacheBytes int, want synchronous) error {
	if err := c.db.BusyTimeout(busyTimeout); err != nil {
		return failure("open", err)
	}
	// Durability is never left to the driver's default, which is NORMAL in WAL mode: a commit would not
	// survive a loss of power. On Apple's systems a plain fsync does not reach the disk.
	pragmas := fmt.Sprintf(`
		PRAGMA synchronous = %d;
		PRAGMA fullfsync = ON;
		PRAGMA checkpoint_fullfsync = ON;
		PRAGMA wal_autocheckpoint = 0;
		PRAGMA journal_size_limit = %d;
		PRAGMA cache_size = -%d;
		PRAGMA temp_store = MEMORY;`, want, maxWALBytes, max(1, cacheBytes>>10))
	if r == reading {
		pragmas += `PRAGMA query_only = ON;`
	}
	if err := c.db.Exec(pragmas); err != nil {
		return failure("open", err)
	}
	if level, err := c.int("PRAGMA synchronous"); err != nil {
		return err
	} else if level != int64(want) {
		return fmt.Errorf("sqlite: synchronous is %d although FULL (%d) was set: commits would not be durable", level, want)
	}
	return nil
}

// prepare compiles the statements; the tables must exist.
func (c *conn) prepare(r role) error {
	begin := `BEGIN`
	if r == writing {
		begin = `BEGIN IMMEDIATE`
	}
	type compile struct {
		to  **sqlite3.Stmt
		sql string
	}
	list := []compile{{&c.begin, begin}, {&c.commit, `COMMIT`}, {&c.rollback, `ROLLBACK`},
		{&c.counter, fmt.Sprintf(`SELECT v FROM journal WHERE k = x'%X'`, counterKey)}}
	for table, s := range map[string]*statements{"kv": &c.keys, "journal": &c.journal} {
		list = append(list,
			compile{&s.get, `SELECT v FROM ` + table + ` WHERE k = ?1`},
			compile{&s.scan, `SELECT k, v FROM ` + table + ` WHERE k >= ?1 AND k < ?2 ORDER BY k`})
		if r == writing {
			list = append(list,
				compile{&s.put, `INSERT INTO ` + table + ` (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v`},
				compile{&s.remove, `DELETE FROM ` + table + ` WHERE k = ?1`})
		}
	}
	for _, s := range list {
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
	for _, s := range slices.Collect(c.db.Stmts()) {
		_ = s.Close() // repeats the statement's last error
	}
	forgetLogSyncs(c.name)
	return c.db.Close()
}

// abandon releases the connection and leaves the log as it is, even if no other connection is open.
func (c *conn) abandon() error {
	_, err := c.db.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true)
	return errors.Join(err, c.close())
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
	s := c.of(key).get
	if err := s.BindBlob(1, key); err != nil {
		return nil, failure("get", err)
	}
	var value []byte
	if s.Step() {
		value = bytes.Clone(s.ColumnRawBlob(0))
		if value == nil { // SQLite shows an empty value like none
			value = []byte{}
		}
	}
	if err := s.Reset(); err != nil {
		return nil, failure("get", err)
	}
	return value, nil
}

// rowsBytes is how much memory the rows of a scan share. Who keeps one row keeps that much.
const rowsBytes = 4096

// Scan implements batch.DriverReader.
func (c *conn) Scan(r kv.Range, visit func(key, value []byte) bool) error {
	s, start := c.of(r.Start).scan, r.Start
	if start == nil {
		start = []byte{} // NULL would compare with nothing
	}
	if err := s.BindBlob(1, start); err != nil {
		return failure("scan", err)
	}
	if err := s.BindBlob(2, r.End); err != nil {
		return failure("scan", err)
	}
	var room []byte // for the next rows; the first one, which is often the only one, gets its own
	for next := 0; s.Step(); next = rowsBytes {
		k, v := s.ColumnRawBlob(0), s.ColumnRawBlob(1)
		n := len(k) + len(v)
		if len(room) < n {
			room = make([]byte, max(n, next))
		}
		copy(room, k)
		copy(room[len(k):], v)
		row := room[:n:n]
		room = room[n:]
		if !visit(row[:len(k):len(k)], row[len(k):]) {
			break
		}
	}
	if err := s.Reset(); err != nil {
		return failure("scan", err)
	}
	return nil
}

// apply makes one change of a transaction.
func (c *conn) apply(change *batch.Write) error {
	table := c.of(change.Key)
	s := table.put
	if change.Delete {
		s = table.remove
	} else if err := s.BindBlob(2, change.Value); err != nil {
		return err
	}
	if err := s.BindBlob(1, change.Key); err != nil {
		return err
	}
	return s.Exec()
}

// sequence reads the number of the last commit.
func (c *conn) sequence() (uint64, error) {
	var sequence uint64
	var bad error
	if c.counter.Step() {
		sequence, bad = decodeSequence(c.counter.ColumnRawBlob(0))
	}
	if err := c.counter.Reset(); err != nil {
		return 0, failure("get", err)
	}
	return sequence, bad
}

var counterKey = batch.CounterKey()
