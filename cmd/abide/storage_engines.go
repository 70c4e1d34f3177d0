package main

import (
	"context"
	"log/slog"
	"time"

	"abide/internal/keyspace"
	"abide/internal/metrics"
	"abide/kv/batch"
	"abide/kv/mysqlkv"
	"abide/kv/pgkv"
	"abide/kv/sqlitekv"
)

// engines are the storage engines, by the names that --storage-type has for them. This is the only place that imports
// them, but for what measures one.
var engines = map[string]storageEngine{
	engineSQLite: {
		open:    openSQLite,
		schema:  func(storeAddress) string { return sqlitekv.Schema() },
		figures: sqliteFigures,
	},
	enginePostgres: {
		open:    openPostgres,
		schema:  func(a storeAddress) string { return pgkv.Schema(a.schema) },
		figures: postgresFigures,
	},
	engineMySQL: {
		open:    openMySQL,
		schema:  func(storeAddress) string { return mysqlkv.Schema() },
		figures: mysqlFigures,
	},
}

// storageEngine is what cmd knows of an engine.
type storageEngine struct {
	open func(ctx context.Context, a storeAddress, log *slog.Logger) (dataStore, error)
	// schema is the DDL that makes an empty store.
	schema func(storeAddress) string
	// figures reads what the store counts.
	figures func(dataStore) metrics.Store
}

func openSQLite(_ context.Context, a storeAddress, _ *slog.Logger) (dataStore, error) {
	s, err := sqlitekv.Open(sqlitekv.Options{Path: a.place, Keys: keyspace.Register(), Now: time.Now})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openPostgres(ctx context.Context, a storeAddress, log *slog.Logger) (dataStore, error) {
	s, err := pgkv.Open(ctx, pgkv.Options{
		URL: a.place, ListenURL: a.listenURL, Schema: a.schema, Readers: a.poolSize,
		Keys: keyspace.Register(), Now: time.Now, AcceptDataLoss: a.acceptDataLoss, Existing: a.existing, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openMySQL(ctx context.Context, a storeAddress, log *slog.Logger) (dataStore, error) {
	s, err := mysqlkv.Open(ctx, mysqlkv.Options{
		URL: a.place, Readers: a.poolSize, Keys: keyspace.Register(), Now: time.Now, AcceptDataLoss: a.acceptDataLoss, Existing: a.existing, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func sqliteFigures(s dataStore) metrics.Store {
	st := s.(*sqlitekv.Store).Stats()
	return metrics.Store{Engine: engineSQLite, Durable: true, Batch: st.Stats, FileBytes: st.FileBytes, LogBytes: st.WALBytes}
}

func postgresFigures(s dataStore) metrics.Store {
	st := s.(*pgkv.Store).Stats()
	figures := remoteFigures(enginePostgres, s, st.Stats, st.RemoteStats)
	figures.Remote.Hints, figures.Remote.Listening = st.Hints, st.Listening
	return figures
}

func mysqlFigures(s dataStore) metrics.Store {
	st := s.(*mysqlkv.Store).Stats()
	return remoteFigures(engineMySQL, s, st.Stats, st.RemoteStats)
}

// remoteFigures are those that every database has.
func remoteFigures(engine string, s dataStore, st batch.Stats, remote batch.RemoteStats) metrics.Store {
	return metrics.Store{Engine: engine, Durable: weakness(s) == "", Batch: st, FileBytes: -1, LogBytes: -1, Remote: &metrics.Remote{
		WriteTrips: remote.WriteTrips, ReadTrips: remote.ReadTrips, Failures: remote.Failures,
		LockWaits: remote.LockWait.Count, LockWait: time.Duration(remote.LockWait.SumMicros) * time.Microsecond,
		Connects: remote.Connects, Resolved: remote.Resolved, Readers: remote.Readers, Reading: remote.Reading, ReaderWaits: remote.ReaderWaits,
	}}
}

// durable is what the engines answer that keep every acknowledged write.
const durable = "durable"

// weakness says how a store is less than durable, which the operator has accepted; empty for one that is not.
func weakness(s dataStore) string {
	of, ok := s.(interface{ Durability() string })
	if !ok {
		return ""
	}
	if how := of.Durability(); how != durable {
		return how
	}
	return ""
}
