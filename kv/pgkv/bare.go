package pgkv

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Bare is a connection that commits single rows into a table of its own: no contract, no group commit. It exists to be
// measured against. Not safe for concurrent use.
type Bare struct {
	pg    *pgconn.PgConn
	table string
}

// OpenBare connects to Options.URL and makes the table, in the schema that the role's search path begins with.
func OpenBare(ctx context.Context, opt Options) (*Bare, error) {
	config, _, err := parseURL(opt.URL)
	if err != nil {
		return nil, err
	}
	pg, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	b := &Bare{pg: pg, table: quoteName("abide_bare_" + strings.ToLower(rand.Text()[:12]))}
	_, err = pg.Exec(ctx, "CREATE TABLE "+b.table+" (k bytea PRIMARY KEY, v bytea NOT NULL)").ReadAll()
	if err == nil {
		_, err = pg.Prepare(ctx, bareStatement, "INSERT INTO "+b.table+" VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v", nil)
	}
	if err != nil {
		_ = b.Close(ctx)
		return nil, fmt.Errorf("postgres: a table to measure the database with: %w", err)
	}
	return b, nil
}

const bareStatement = "abide_bare"

// Put puts one row in one durable transaction: one round trip.
func (b *Bare) Put(ctx context.Context, key, value []byte) error {
	binary := []int16{1}
	return b.pg.ExecPrepared(ctx, bareStatement, [][]byte{key, value}, binary, nil).Read().Err
}

// Close removes the table and disconnects.
func (b *Bare) Close(ctx context.Context) error {
	_, err := b.pg.Exec(ctx, "DROP TABLE IF EXISTS "+b.table).ReadAll()
	if e := b.pg.Close(ctx); err == nil {
		err = e
	}
	return err
}
