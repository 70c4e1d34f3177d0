package mysqlkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
)

// Limits that every session sets for itself, in seconds.
const (
	// lockWaitSeconds bounds how long a batch waits for the batch of another server, and DDL for a metadata lock.
	lockWaitSeconds = 3
	// idleSeconds is how long a server keeps a session that sends nothing. It bounds how long a server that
	// vanished without a word, or its network, holds the writers' lock; see writer.keep.
	idleSeconds = 10
	// readSeconds bounds one statement of a snapshot at the server.
	readSeconds = 8
)

// role is what a session is for.
type role int

const (
	writing role = iota
	reading
)

// session is one connection to the server. It is used by one goroutine at a time.
type session struct {
	conn   driver.Conn
	server server
	// packetBytes is the most that a packet of this session holds.
	packetBytes int
	lost        bool
	row         [3]driver.Value
	trips       *atomic.Uint64
}

// maxPacketBytes is what a packet holds at most even where the server would take more: the server keeps a buffer of
// that size for the session.
const maxPacketBytes = 4 << 20

// minPacketBytes is the least max_allowed_packet that will do: the longest key with the largest value must fit.
const minPacketBytes = 256 << 10

// connector makes sessions.
type connector struct {
	driver driver.Connector
	accept bool // less than durable
	// store is the one that was opened; nil while it is being opened.
	store atomic.Pointer[format]
	// importing is the incarnation that an import of this server gives the store; 0 if there is none.
	importing atomic.Uint32
	// weak are the settings of the server that was reached last which lose commits.
	weak    atomic.Pointer[[]string]
	stats   *counters
	horizon *horizon
}

// dial connects, looks at what kind of server answers, and makes the session's settings. Its errors say what a person
// has to mend.
func (c *connector) dial(ctx context.Context, r role) (*session, error) {
	conn, err := c.driver.Connect(ctx)
	if err != nil {
		c.stats.failed(err)
		return nil, failure("connect", err)
	}
	c.stats.connects.Add(1)
	s := &session{conn: conn, packetBytes: minPacketBytes, trips: &c.stats.writeTrips}
	if r == reading {
		s.trips = &c.stats.readTrips
	}
	err = s.prepare(r)
	if err == nil {
		c.weak.Store(&s.server.weak)
		err = s.server.check(c.accept, r)
	}
	if err == nil && c.store.Load() != nil {
		var rows [][]byte
		if rows, err = s.getOwn(formatKey); err == nil || number(err) == errNoTable {
			err = c.recognise("connect", rows[0])
		}
	}
	if err != nil {
		c.stats.failed(err)
		s.hangUp()
		return nil, failure("connect", err)
	}
	c.horizon.showsEarly.Store(!s.server.binlog)
	return s, nil
}

// hangUp ends a session. What it has not committed is gone.
func (s *session) hangUp() { _ = s.conn.Close() }

// prepare reads what the server is and sets what this engine relies on. READ COMMITTED lets a batch see, after it has
// the writers' lock, all that was committed before, and takes no locks of gaps; a snapshot is REPEATABLE READ.
func (s *session) prepare(r role) error {
	values := map[string]string{}
	err := s.run("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('"+strings.Join(variables, "','")+"');"+
		"SHOW GLOBAL STATUS WHERE Variable_name='Innodb_redo_log_enabled'", takeSettings(values), takeSettings(values))
	if err != nil {
		return err
	}
	s.server = readServer(values)
	s.packetBytes = min(s.server.maxPacket-1024, maxPacketBytes)
	level, limit := "READ COMMITTED", ""
	if r == reading {
		level = "REPEATABLE READ"
		if limit = fmt.Sprintf(",max_execution_time=%d", readSeconds*1000); s.server.mariaDB {
			limit = fmt.Sprintf(",max_statement_time=%d", readSeconds)
		}
	}
	return s.run(fmt.Sprintf("SET NAMES binary;SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',autocommit=1,"+
		"innodb_lock_wait_timeout=%d,lock_wait_timeout=%d,wait_timeout=%d%s;SET SESSION TRANSACTION ISOLATION LEVEL %s",
		lockWaitSeconds, lockWaitSeconds, idleSeconds, limit, level))
}

func takeSettings(into map[string]string) sink {
	return func(row []driver.Value) error {
		into[strings.ToLower(string(column(row, 0)))] = string(column(row, 1))
		return nil
	}
}

// run sends statements in one packet and gives the rows of each result to the sink in its place. A server's error
// ends it: statements after the one that failed were not run.
func (s *session) run(text string, sinks ...sink) error {
	s.trips.Add(1)
	rows, err := s.conn.(driver.QueryerContext).QueryContext(context.Background(), text, nil)
	for i := 0; err == nil; i++ {
		if err = s.takeRows(rows, i, sinks); err == nil {
			err = rows.(driver.RowsNextResultSet).NextResultSet()
		}
	}
	if err == io.EOF {
		return rows.Close()
	}
	if isLost(err) {
		s.lost = true
	}
	return err
}

// takeRows reads one result to its end.
func (s *session) takeRows(rows driver.Rows, i int, sinks []sink) error {
	row := s.row[:min(len(rows.Columns()), len(s.row))]
	if i >= len(sinks) && len(row) > 0 {
		s.lost = true
		return fmt.Errorf("mysql: %d results were expected, and more came", len(sinks))
	}
	for {
		err := rows.Next(row)
		if err == nil {
			err = sinks[i](row)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// send runs the packets of a script, one round trip each.
func (s *session) send(script *script) error {
	for i := range script.packets {
		p := &script.packets[i]
		if err := s.run(string(p.text), p.sinks...); err != nil {
			return err
		}
		p.text = nil
	}
	return nil
}

// rollback ends the session's transaction; a session that cannot is lost.
func (s *session) rollback() {
	if !s.lost && s.run("ROLLBACK") != nil {
		s.lost = true
	}
}

// server is what a session's server says of itself.
type server struct {
	version   string
	mariaDB   bool
	binlog    bool // on: a commit is durable before others see it
	readOnly  bool
	maxPacket int
	format    string // of the binary log
	weak      []string
}

// variables are those that readServer looks at.
var variables = []string{
	"version", "max_allowed_packet", "read_only", "innodb_read_only", "log_bin", "binlog_format", "sync_binlog",
	"innodb_flush_log_at_trx_commit", "innodb_doublewrite", "innodb_flush_method",
}

func readServer(v map[string]string) server {
	isOn := func(name string) bool { return strings.EqualFold(v[name], "ON") || v[name] == "1" }
	s := server{
		version:  v["version"],
		mariaDB:  strings.Contains(v["version"], "MariaDB"),
		binlog:   isOn("log_bin"),
		readOnly: (v["read_only"] != "" && !strings.EqualFold(v["read_only"], "OFF") && v["read_only"] != "0") || isOn("innodb_read_only"),
		format:   strings.ToUpper(v["binlog_format"]),
	}
	s.maxPacket, _ = strconv.Atoi(v["max_allowed_packet"]) // 0 is refused by check
	weak := func(name, want string) {
		s.weak = append(s.weak, fmt.Sprintf("%s is %s, not %s", name, v[name], want))
	}
	if v["innodb_flush_log_at_trx_commit"] != "1" {
		weak("innodb_flush_log_at_trx_commit", "1")
	}
	if s.binlog && v["sync_binlog"] != "1" {
		weak("sync_binlog", "1")
	}
	if strings.EqualFold(v["innodb_doublewrite"], "OFF") || v["innodb_doublewrite"] == "0" || strings.EqualFold(v["innodb_doublewrite"], "DETECT_ONLY") {
		weak("innodb_doublewrite", "ON")
	}
	if m := strings.ToLower(v["innodb_flush_method"]); m == "nosync" || m == "littlesync" {
		weak("innodb_flush_method", "one that syncs")
	}
	if strings.EqualFold(v["innodb_redo_log_enabled"], "OFF") {
		weak("innodb_redo_log_enabled", "ON")
	}
	return s
}

// oldest are the first versions that are supported.
var oldestMySQL, oldestMariaDB = [2]int{8, 0}, [2]int{10, 11}

// check says why a server cannot be used, nil if it can.
func (s *server) check(acceptDataLoss bool, r role) error {
	oldest, name := oldestMySQL, "MySQL"
	if s.mariaDB {
		oldest, name = oldestMariaDB, "MariaDB"
	}
	var major, minor int
	_, err := fmt.Sscanf(s.version, "%d.%d", &major, &minor)
	switch {
	case err != nil, major < oldest[0], major == oldest[0] && minor < oldest[1]:
		return fmt.Errorf("%w: the server is %s %s; it must be MySQL %d.%d or newer, or MariaDB %d.%d or newer", ErrFormat, name,
			s.version, oldestMySQL[0], oldestMySQL[1], oldestMariaDB[0], oldestMariaDB[1])
	case s.maxPacket < minPacketBytes:
		return fmt.Errorf("%w: max_allowed_packet is %d bytes; set it to at least %d, better 16M", ErrFormat, s.maxPacket, minPacketBytes)
	case s.binlog && s.format == "STATEMENT":
		return fmt.Errorf("%w: binlog_format is STATEMENT, which READ COMMITTED cannot use; set it to ROW", ErrFormat)
	case len(s.weak) > 0 && !acceptDataLoss:
		return &durabilityError{s.weak}
	case r == writing && s.readOnly:
		return unavailable("connect", "the server is read-only: it is a replica, or was set so for maintenance")
	}
	return nil
}

// ErrDurability: the server is set to lose acknowledged commits in a crash, and Options.AcceptDataLoss is not given.
var ErrDurability = errors.New("the database server's settings lose acknowledged writes in a crash")

type durabilityError struct{ weak []string }

func (e *durabilityError) Error() string {
	return "mysql: " + ErrDurability.Error() + ": " + strings.Join(e.weak, "; ") +
		"; change the settings, or accept the loss of data explicitly"
}

func (e *durabilityError) Unwrap() error { return ErrDurability }

// newConnector makes sessions at an address.
func newConnector(a address, acceptDataLoss bool, h *horizon) (*connector, error) {
	d, err := mysql.NewConnector(a.config)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	return &connector{driver: d, accept: acceptDataLoss, horizon: h, stats: h.stats}, nil
}
