package pgkv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Timeouts that every transaction has, whatever the server's defaults are.
const (
	// lockTimeout is how long a transaction waits for another server's batch. After it the closures of the batch
	// hear a conflict, and kv.Run tries again.
	lockTimeout = 3 * time.Second
	// statementTimeout bounds one statement. A batch takes some milliseconds.
	statementTimeout = 5 * time.Second
	// idleTimeout is when the server ends a transaction whose client says nothing, and gives its lock free: longer
	// than closures and snapshots live.
	idleTimeout = 6 * time.Second
	// callTimeout bounds one round trip, so that a connection whose other end has gone silent is given up while its
	// callers still wait.
	callTimeout = 6 * time.Second
)

// statement is one of those that connections know, with the types of its parameters.
type statement struct {
	name, sql string
	types     []uint32
}

// statements of one table.
type statements struct {
	beginWrite, beginRead, commit, rollback, settings statement
	lock, count, get, scan, put, remove               statement
	notify, terminate                                 statement
}

// settings are what every transaction runs with: the timeouts, and plans by the index alone, whatever statistics
// the table has or lacks. With seqscan off, costs are such that JIT would compile every statement.
var settings = [][2]string{
	{"lock_timeout", milliseconds(lockTimeout)},
	{"statement_timeout", milliseconds(statementTimeout)},
	{"idle_in_transaction_session_timeout", milliseconds(idleTimeout)},
	{"enable_seqscan", "off"},
	{"enable_bitmapscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"jit", "off"},
	{"plan_cache_mode", "force_generic_plan"},
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// settingsSQL sets them for the transaction, or for the session.
func settingsSQL(local bool) string {
	var calls []string
	for _, s := range settings {
		calls = append(calls, fmt.Sprintf("set_config('%s', '%s', %t)", s[0], s[1], local))
	}
	return "SELECT " + strings.Join(calls, ", ")
}

func newStatements(table string) *statements {
	return &statements{
		// Not the session's defaults: somebody may have set them to something else.
		beginWrite: statement{name: "abide_begin_write", sql: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"},
		beginRead:  statement{name: "abide_begin_read", sql: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
		commit:     statement{name: "abide_commit", sql: "COMMIT"},
		rollback:   statement{name: "abide_rollback", sql: "ROLLBACK"},
		settings:   statement{name: "abide_settings", sql: settingsSQL(true)},
		// READ COMMITTED: the statements after this one see everything that was committed before the lock was had.
		lock: statement{name: "abide_lock", types: []uint32{byteaOID},
			sql: "SELECT v, pg_backend_pid()::int8, (extract(epoch FROM now()) * 1000000)::int8 FROM " + table + " WHERE k = $1 FOR UPDATE"},
		count: statement{name: "abide_count", types: []uint32{byteaOID},
			sql: "SELECT v FROM " + table + " WHERE k = $1"},
		get: statement{name: "abide_get", types: []uint32{byteaArrayOID},
			sql: "SELECT k, v FROM " + table + " WHERE k = ANY($1)"},
		scan: statement{name: "abide_scan", types: []uint32{byteaArrayOID, byteaArrayOID, int4ArrayOID},
			sql: "SELECT r.i, s.k, s.v FROM unnest($1, $2, $3) WITH ORDINALITY AS r(a, b, n, i)," +
				" LATERAL (SELECT k, v FROM " + table + " WHERE k >= r.a AND k < r.b ORDER BY k LIMIT r.n) AS s"},
		put: statement{name: "abide_put", types: []uint32{byteaArrayOID, byteaArrayOID},
			sql: "INSERT INTO " + table + " SELECT * FROM unnest($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v"},
		remove: statement{name: "abide_remove", types: []uint32{byteaArrayOID},
			sql: "DELETE FROM " + table + " WHERE k = ANY($1)"},
		notify: statement{name: "abide_notify", types: []uint32{textOID, textOID},
			sql: "SELECT pg_notify($1, $2)"},
		terminate: statement{name: "abide_terminate", types: []uint32{int8OID, int8OID},
			sql: "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND usename = current_user" +
				" AND (extract(epoch FROM xact_start) * 1000000)::int8 = $2"},
	}
}

func (s *statements) all() []*statement {
	return []*statement{&s.beginWrite, &s.beginRead, &s.commit, &s.rollback, &s.settings, &s.lock, &s.count, &s.get,
		&s.scan, &s.put, &s.remove, &s.notify, &s.terminate}
}

// conn is one connection. Not safe for concurrent use.
type conn struct {
	pg    *pgconn.PgConn
	known map[*statement]*pgconn.StatementDescription // nil behind a pooler
	// pooled says that a pooler stands between: each transaction may run on another session, so nothing may be left
	// in one.
	pooled bool
	stmts  *statements
}

// connect makes a connection and prepares it, for these statements if there are any.
func connect(ctx context.Context, config *pgconn.Config, s *statements) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*config.ConnectTimeout) // several hosts are tried one by one
	defer cancel()
	pg, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	c := &conn{pg: pg, stmts: s}
	if err := c.prepare(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// prepare finds out whether a pooler answers, which makes up a process number of its own, and otherwise sets the
// session up.
func (c *conn) prepare(ctx context.Context) error {
	result := c.pg.ExecParams(ctx, "SELECT pg_backend_pid()::int8", nil, nil, nil, []int16{1}).Read()
	if result.Err != nil {
		return result.Err
	}
	pid, err := int8Value(result.Rows[0][0])
	if err != nil {
		return err
	}
	if c.pooled = uint32(pid) != c.pg.PID(); c.pooled || c.stmts == nil {
		return nil
	}
	if _, err := c.pg.Exec(ctx, settingsSQL(false)).ReadAll(); err != nil {
		return err
	}
	c.known = map[*statement]*pgconn.StatementDescription{}
	for _, s := range c.stmts.all() {
		if c.known[s], err = c.pg.Prepare(ctx, s.name, s.sql, s.types); err != nil {
			return err
		}
	}
	return nil
}

// close ends the connection without waiting.
func (c *conn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.pg.Close(ctx)
}

// call is one statement of a round trip. row gets its rows; the values are the connection's.
type call struct {
	statement *statement
	args      [][]byte
	row       func(values [][]byte) error
}

// begun are the calls that begin a transaction.
func (c *conn) begun(begin *statement) []call {
	if c.pooled {
		return []call{{statement: begin}, {statement: &c.stmts.settings}}
	}
	return []call{{statement: begin}}
}

var binary1 = []int16{1}

// do makes all calls in one round trip. The first error ends them: those after it have not been made. tag is what
// the last one did.
func (c *conn) do(ctx context.Context, calls []call) (tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p := c.pg.StartPipeline(ctx)
	for i := range calls {
		s, args := calls[i].statement, calls[i].args
		formats := binary1
		if len(args) == 0 {
			formats = nil
		}
		if known := c.known[s]; known != nil {
			p.SendQueryStatement(known, args, formats, binary1)
		} else {
			p.SendQueryParams(s.sql, args, s.types, formats, binary1)
		}
	}
	if err := p.Sync(); err != nil {
		return "", errors.Join(err, p.Close())
	}
	for i := range calls {
		if tag, err = calls[i].read(p); err != nil {
			break
		}
	}
	if closed := p.Close(); err == nil {
		err = closed
	}
	return tag, err
}

// read reads the answer to a call.
func (c *call) read(p *pgconn.Pipeline) (tag string, err error) {
	results, err := p.GetResults()
	if err != nil {
		return "", err
	}
	rows, ok := results.(*pgconn.ResultReader)
	if !ok {
		return "", fmt.Errorf("the server answered a statement with %T", results)
	}
	for rows.NextRow() {
		if c.row != nil && err == nil {
			err = c.row(rows.Values())
		}
	}
	done, closed := rows.Close()
	if closed != nil {
		return "", closed
	}
	return done.String(), err
}
