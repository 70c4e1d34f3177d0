package mysqlkv

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Bare is a connection that commits single rows into a table of its own: no contract, no group commit. It exists to be
// measured against. Not safe for concurrent use.
type Bare struct {
	conn  driver.Conn
	put   driver.Stmt
	table string
}

// OpenBare connects to Options.URL and makes the table.
func OpenBare(ctx context.Context, opt Options) (*Bare, error) {
	a, err := parseURL(opt.URL)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(a.config)
	if err != nil {
		return nil, err
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	b := &Bare{conn: conn, table: "abide_bare_" + strings.ToLower(rand.Text()[:12])}
	err = b.exec(ctx, "CREATE TABLE "+b.table+" (k VARBINARY(2700) NOT NULL PRIMARY KEY, v MEDIUMBLOB NOT NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC")
	if err == nil {
		b.put, err = conn.Prepare("INSERT INTO " + b.table + " VALUES (?, ?) ON DUPLICATE KEY UPDATE v = VALUES(v)")
	}
	if err != nil {
		_ = b.Close(ctx)
		return nil, fmt.Errorf("mysql: a table to measure the database with: %w", err)
	}
	return b, nil
}

func (b *Bare) exec(ctx context.Context, sql string) error {
	_, err := b.conn.(driver.ExecerContext).ExecContext(ctx, sql, nil)
	return err
}

// Put puts one row in one durable transaction: one round trip.
func (b *Bare) Put(ctx context.Context, key, value []byte) error {
	_, err := b.put.(driver.StmtExecContext).ExecContext(ctx, []driver.NamedValue{{Ordinal: 1, Value: key}, {Ordinal: 2, Value: value}})
	return err
}

// Close removes the table and disconnects.
func (b *Bare) Close(ctx context.Context) error {
	err := b.exec(ctx, "DROP TABLE IF EXISTS "+b.table)
	if b.put != nil {
		_ = b.put.Close()
	}
	if e := b.conn.Close(); err == nil {
		err = e
	}
	return err
}
