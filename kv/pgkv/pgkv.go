// Package pgkv is the store on PostgreSQL 15 or newer: one table, group commit, and any number of servers that
// write to it as equals.
//
//   - One writing connection for each server. A physical transaction locks the counter's row first, so there is one
//     at a time in the whole store and sequence numbers are in the order of commits; requests of a server share one
//     (kv/batch), which is two round trips.
//   - Snapshots are REPEATABLE READ transactions on a pool of their own, which wait for no writer.
//   - A commit whose answer was lost is looked for before anybody is answered: every commit leaves its number in a
//     row of its server.
//   - Connections are made again for ever. A database that is not the one it was is refused.
//   - Signals reach the other servers by NOTIFY.
//
// What a person who operates it needs to know is in docs/storage-postgres.md; why it is so, in
// docs/decisions/0020-sql-group-commit.md.
package pgkv

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"abide/kv"
	"abide/kv/batch"
)

// minServerVersion is the oldest server that is supported, as server_version_num says it.
const minServerVersion = 150000

// Options say how a store is opened. Only URL is required.
type Options struct {
	// URL is where the database is: a URL, or keywords and values, as libpq reads them, and what PG* variables add. A
	// pooler in transaction mode may be in between.
	URL string
	// ListenURL is where notifications come from, which a pooler does not pass on; "" means URL.
	ListenURL string
	// Schema is the schema of the table, of any characters; "" means DefaultSchema. It is made if it is not there
	// and the role may.
	Schema string
	// Readers is how many snapshots can be open at once; 0 means the URL's pool_max_conns, or DefaultReaders. At
	// most 1,000.
	Readers int
	// QueueLimit bounds the closures that wait for the writer; 0 means batch.DefaultQueueLimit.
	QueueLimit int
	// Keys names kinds of keys in errors.
	Keys kv.KeyRegister
	// Now is the clock by which batches, closures and snapshots end and latencies are measured. Without it they are
	// bounded by number and bytes alone.
	Now func() time.Time
	// AcceptDataLoss opens the store on a server that acknowledges commits before they are durable.
	AcceptDataLoss bool
	// Existing refuses a schema without a store instead of making one, with ErrFormat.
	Existing bool
	// Log takes what an operator should know; nil logs nothing.
	Log *slog.Logger
	// RunTwice runs every closure twice; see batch.Options.
	RunTwice bool
}

// shared is what the writer, the readers and the listener have in common.
type shared struct {
	config *pgconn.Config
	stmts  *statements
	store  uint64        // tells this store from others; see counter
	seen   atomic.Uint64 // the largest sequence number that is known to have been committed
	clock  func() time.Time
	log    *slog.Logger
	stats  *stats
	health *health
	// backoff is the writer's.
	backoff backoff
}

func (s *shared) now() time.Time {
	if s.clock == nil {
		return time.Time{}
	}
	return s.clock()
}

// since is the time since an instant, 0 without a clock.
func (s *shared) since(t time.Time) time.Duration { return s.now().Sub(t) }

// Store is an open store; it implements kv.Store.
type Store struct {
	*batch.Store
	writer     *writer
	readers    *readers
	durability string
}

// remote is what batch drives.
type remote struct {
	*writer
	readers  *readers
	listener *listener
	closed   sync.Once
}

var _ batch.Remote = (*remote)(nil)

// Open opens the store in a schema, and makes the schema if it is not there. ErrFormat if it is not one that this
// program can open.
func Open(ctx context.Context, opt Options) (*Store, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	config, pool, err := parseURL(opt.URL)
	if err != nil {
		return nil, err
	}
	listen := config
	if opt.ListenURL != "" {
		if listen, _, err = parseURL(opt.ListenURL); err != nil {
			return nil, fmt.Errorf("the URL for listening: %w", err)
		}
	}
	if opt.Readers == 0 {
		opt.Readers = pool
	}
	if opt.Readers == 0 {
		opt.Readers = DefaultReaders
	}
	if opt.Readers < 0 || opt.Readers > maxConnections {
		return nil, fmt.Errorf("postgres: %d readers; it must be 1 to %d", opt.Readers, maxConnections)
	}
	found, err := inspect(ctx, config, opt)
	if err != nil {
		return nil, err
	}
	s := &shared{config: config, stmts: newStatements(tableName(opt.Schema)), store: found.counter.store,
		clock: opt.Now, log: opt.Log, stats: &stats{}, health: newHealth()}
	s.observe(found.counter.sequence)
	return start(s, listen, found, opt), nil
}

func start(s *shared, listen *pgconn.Config, found inspected, opt Options) *Store {
	var id [8]byte
	_, _ = rand.Read(id[:])
	w := &writer{shared: s, id: binary.BigEndian.Uint64(id[:])}
	w.resolveWithin.Store(int64(resolveTimeout))
	r := &remote{writer: w, readers: newReaders(s, opt.Readers)}
	r.listener = &listener{shared: s, config: listen, self: w.id}
	store := &Store{writer: w, readers: r.readers, durability: found.durability}
	store.Store = batch.NewRemote(r, batch.Options{
		Name:        storeName,
		Incarnation: found.format.incarnation,
		Keys:        opt.Keys,
		QueueLimit:  opt.QueueLimit,
		Now:         opt.Now,
		RunTwice:    opt.RunTwice,
	})
	r.listener.hint = store.Hint
	r.listener.start()
	go s.health.watch(w.probe)
	return store
}

// Snapshot implements batch.Remote.
func (r *remote) Snapshot(ctx context.Context) (batch.RemoteSnapshot, error) {
	return r.readers.Snapshot(ctx)
}

// Close implements batch.Remote.
func (r *remote) Close() error {
	r.closed.Do(func() {
		r.listener.close()
		r.health.close()
		r.turn.Lock()
		defer r.turn.Unlock()
		r.disconnect()
		r.readers.close()
	})
	return nil
}

// Shared reports that other servers may write to the same store.
func (s *Store) Shared() bool { return true }

// Durability says how durable an acknowledged commit is: "durable", or what the server does instead, with
// Options.AcceptDataLoss. It is looked at when the store is opened.
func (s *Store) Durability() string { return s.durability }

// inspected is what was found where a store is to be opened.
type inspected struct {
	format     format
	counter    counter
	durability string
}

// inspect looks at the server and the schema, and makes the schema if it is not there.
func inspect(ctx context.Context, config *pgconn.Config, opt Options) (inspected, error) {
	c, err := connect(ctx, config, nil)
	if err != nil {
		return inspected{}, fmt.Errorf("postgres: %w", err)
	}
	defer c.close()
	var found inspected
	if found.durability, err = inspectServer(ctx, c, opt.AcceptDataLoss); err != nil {
		return inspected{}, err
	}
	if err := makeSchema(ctx, c, opt.Schema, opt.Existing); err != nil {
		return inspected{}, err
	}
	formatRow, counterRow, err := c.ownRows(ctx, tableName(opt.Schema))
	if err != nil {
		return inspected{}, fmt.Errorf("postgres: the table %s cannot be read: %w", tableName(opt.Schema), redacted{err})
	}
	if found.format, err = parseFormat(formatRow); err != nil {
		return inspected{}, fmt.Errorf("postgres: schema %s: %w", quoteName(schemaName(opt.Schema)), err)
	}
	if found.counter, err = parseCounter(counterRow); err != nil {
		return inspected{}, err
	}
	return found, c.forgetWriters(ctx, tableName(opt.Schema))
}

// maxWriterRows is how many rows of writers are kept, at least: those that committed last.
const maxWriterRows = 1000

// forgetWriters removes the rows of servers that have been gone for long, once there are many. It does so under the
// lock, where none of them commits.
func (c *conn) forgetWriters(ctx context.Context, table string) error {
	values, err := c.strings1(ctx, "SELECT count(*) > $1::int8 FROM "+table+" WHERE k >= $2::bytea AND k < $3::bytea",
		[]byte(strconv.Itoa(2*maxWriterRows)), hexBytes(writerKey(0)), hexBytes(writersEnd))
	if err == nil && values[0] == "t" {
		_, err = c.pg.Exec(ctx, fmt.Sprintf(`BEGIN; SELECT FROM %[1]s WHERE k = '%[2]s' FOR UPDATE;
			DELETE FROM %[1]s WHERE k >= '%[3]s' AND k < '%[4]s' AND k NOT IN
				(SELECT k FROM %[1]s WHERE k >= '%[3]s' AND k < '%[4]s' ORDER BY v DESC LIMIT %[5]d);
			COMMIT`, table, hexBytes(counterKey), hexBytes(writerKey(0)), hexBytes(writersEnd), maxWriterRows)).ReadAll()
	}
	if err != nil {
		return fmt.Errorf("postgres: the rows of servers that are gone cannot be removed: %w", redacted{err})
	}
	return nil
}

// hexBytes is a bytea as SQL's text.
func hexBytes(b []byte) []byte { return fmt.Appendf(nil, "\\x%x", b) }

// strings1 runs a query that answers with one row and returns its values as text.
func (c *conn) strings1(ctx context.Context, sql string, args ...[]byte) ([]string, error) {
	result := c.pg.ExecParams(ctx, sql, args, nil, nil, nil).Read()
	if result.Err != nil {
		return nil, result.Err
	}
	if len(result.Rows) != 1 {
		return nil, fmt.Errorf("%d rows, want one", len(result.Rows))
	}
	var values []string
	for _, v := range result.Rows[0] {
		values = append(values, string(v))
	}
	return values, nil
}

// inspectServer refuses servers that are too old, and those that acknowledge what is not durable.
func inspectServer(ctx context.Context, c *conn, acceptDataLoss bool) (durability string, err error) {
	values, err := c.strings1(ctx, `SELECT current_setting('server_version_num'), current_setting('server_version'),
		current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')`)
	if err != nil {
		return "", fmt.Errorf("postgres: the server's settings cannot be read: %w", err)
	}
	var version int
	if _, err := fmt.Sscan(values[0], &version); err != nil || version < minServerVersion {
		return "", fmt.Errorf("postgres: the server is version %s; 15 or newer is needed", values[1])
	}
	for i, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if values[2+i] != "off" {
			continue
		}
		if !acceptDataLoss {
			return "", fmt.Errorf("postgres: %s is off: the server acknowledges what a crash can lose. Switch it on for this role and database, or accept the loss of data", name)
		}
		durability = name + " is off"
	}
	if durability == "" {
		durability = "durable"
	}
	return durability, nil
}

// makeSchema makes what is not there. A role that may not is no hindrance where everything is.
func makeSchema(ctx context.Context, c *conn, schema string, existing bool) error {
	values, err := c.strings1(ctx, "SELECT to_regclass($1) IS NOT NULL", []byte(tableName(schema)))
	if err != nil {
		return fmt.Errorf("postgres: cannot look for the table %s: %w", tableName(schema), redacted{err})
	}
	switch {
	case values[0] == "t":
		return nil
	case existing:
		return fmt.Errorf("%w: there is no table %s", ErrFormat, tableName(schema))
	}
	// Servers that start at once would otherwise meet in the catalogue.
	_, err = c.pg.Exec(ctx, "BEGIN; SELECT pg_advisory_xact_lock(hashtext('abide'), hashtext('schema')); "+Schema(schema)+"COMMIT").ReadAll()
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "42501" {
		return fmt.Errorf("postgres: the table %s is not there and the role may not make it: have somebody who may run what `abide migrate --print` prints: %w",
			tableName(schema), redacted{err})
	}
	if err != nil {
		return fmt.Errorf("postgres: the table %s cannot be made: %w", tableName(schema), redacted{err})
	}
	return nil
}

// ownRows reads the format and the counter.
func (c *conn) ownRows(ctx context.Context, table string) (formatRow, counterRow []byte, err error) {
	result := c.pg.ExecParams(ctx, "SELECT (SELECT v FROM "+table+" WHERE k = $1), (SELECT v FROM "+table+" WHERE k = $2)",
		[][]byte{formatKey, counterKey}, []uint32{byteaOID, byteaOID}, []int16{1}, []int16{1}).Read()
	if result.Err != nil {
		return nil, nil, result.Err
	}
	return result.Rows[0][0], result.Rows[0][1], nil
}
