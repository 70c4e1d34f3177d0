package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"abide/internal/bench"
	"abide/kv"
	"abide/kv/mysqlkv"
	"abide/kv/pgkv"
	"abide/kv/sqlitekv"
)

// storageFlags are the flags of an own server that name the database of the storage flags; none for a file.
func (c *benchCommand) storageFlags(a storeAddress) []string {
	switch a.engine {
	case enginePostgres:
		flags := []string{"--storage-type", enginePostgres, "--storage-postgres-url", a.place, "--storage-postgres-pool-size", fmt.Sprint(a.poolSize)}
		if a.listenURL != "" {
			flags = append(flags, "--storage-postgres-listen-url", a.listenURL)
		}
		if a.schema != "" {
			flags = append(flags, "--storage-postgres-schema", a.schema)
		}
		return flags
	case engineMySQL:
		return []string{"--storage-type", engineMySQL, "--storage-mysql-url", a.place, "--storage-mysql-pool-size", fmt.Sprint(a.poolSize)}
	}
	return nil
}

// engineCommit tells the run which database its own server runs on, and gives what commits one row in the same engine
// without the server, and what releases that.
func (c *benchCommand) engineCommit(ctx context.Context, config *bench.Config) (commit func(context.Context) error, release func(), err error) {
	a, err := c.address("")
	if err != nil {
		return nil, nil, err
	}
	config.Own.Storage = c.storageFlags(a)
	if a.acceptDataLoss {
		config.Own.Flags = append(config.Own.Flags, "--accept-data-loss")
	}
	put, release, err := openBare(ctx, a, config.Own.Folder)
	if err != nil {
		return nil, nil, a.hide(err)
	}
	n, value := uint64(0), make([]byte, max(8, c.Size))
	return func(ctx context.Context) error {
		n++
		const odd = 0x9E3779B97F4A7C15 // spreads the keys
		binary.BigEndian.PutUint64(value, n)
		return put(ctx, binary.BigEndian.AppendUint64(nil, n*odd), value)
	}, release, nil
}

// openBare opens the engine of a store without the contract, on a file or a table of its own that release removes. It
// is closed whatever becomes of it: what it holds is worth nothing.
func openBare(ctx context.Context, a storeAddress, folder string) (put func(ctx context.Context, key, value []byte) error, release func(), err error) {
	switch a.engine {
	case enginePostgres:
		b, err := pgkv.OpenBare(ctx, pgkv.Options{URL: a.place})
		if err != nil {
			return nil, nil, err
		}
		return b.Put, func() { _ = b.Close(context.WithoutCancel(ctx)) }, nil
	case engineMySQL:
		b, err := mysqlkv.OpenBare(ctx, mysqlkv.Options{URL: a.place})
		if err != nil {
			return nil, nil, err
		}
		return b.Put, func() { _ = b.Close(context.WithoutCancel(ctx)) }, nil
	}
	folder, err = os.MkdirTemp(folder, "bench-bare-")
	if err != nil {
		return nil, nil, err
	}
	b, err := sqlitekv.OpenBare(sqlitekv.Options{Path: filepath.Join(folder, "bare.db")})
	if err != nil {
		_ = os.RemoveAll(folder)
		return nil, nil, err
	}
	put = func(_ context.Context, key, value []byte) error { return b.Write([]kv.Entry{{Key: key, Value: value}}) }
	return put, func() { _ = b.Close(); _ = os.RemoveAll(folder) }, nil
}
