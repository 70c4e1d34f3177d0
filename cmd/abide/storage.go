package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"abide/internal/copy"
	"abide/kv"
)

// storageSettings are the settings of stores that are no files. What the path of the file is called is for each
// subcommand to say.
type storageSettings struct {
	StorageType string `setting:"storage.type" words:"sqlite,postgres,mysql" placeholder:"ENGINE" help:"Storage engine: sqlite, postgres or mysql (which is MariaDB too); by default the one whose URL is given, else sqlite."`

	StoragePostgresURL       string `setting:"storage.postgres.url" secret:"" name:"storage-postgres-url" placeholder:"URL" help:"The PostgreSQL database, as postgres://user@host:5432/database; what it leaves out is taken from PG* variables."`
	StoragePostgresListenURL string `setting:"storage.postgres.listen_url" secret:"" name:"storage-postgres-listen-url" placeholder:"URL" help:"The same database past a pooler that passes no notifications; by default --storage-postgres-url."`
	StoragePostgresSchema    string `setting:"storage.postgres.schema" name:"storage-postgres-schema" placeholder:"NAME" help:"Schema of the tables; by default abide."`
	StoragePostgresPoolSize  int    `setting:"storage.postgres.pool_size" name:"storage-postgres-pool-size" default:"10" placeholder:"N" help:"Connections that read at once."`

	StorageMySQLURL      string `setting:"storage.mysql.url" secret:"" name:"storage-mysql-url" placeholder:"URL" help:"The MySQL or MariaDB database, as mysql://user@host:3306/database."`
	StorageMySQLPoolSize int    `setting:"storage.mysql.pool_size" name:"storage-mysql-pool-size" default:"10" placeholder:"N" help:"Connections that read at once."`

	AcceptDataLoss bool `setting:"storage.accept_data_loss" name:"accept-data-loss" help:"Run on a database that may lose acknowledged writes in a crash, because it was set so; /ready says it."`
}

// maxPoolSize bounds the pools: each connection is a process of PostgreSQL.
const maxPoolSize = 1000

// Validate checks the values.
func (s *storageSettings) Validate() error {
	if s.StorageType != "" && !slices.Contains(engineNames(), s.StorageType) {
		return fmt.Errorf("--storage-type is %q: use one of %s", s.StorageType, strings.Join(engineNames(), ", "))
	}
	for flag, n := range map[string]int{"storage-postgres-pool-size": s.StoragePostgresPoolSize, "storage-mysql-pool-size": s.StorageMySQLPoolSize} {
		if n < 1 || n > maxPoolSize {
			return fmt.Errorf("--%s is %d: it must be from 1 to %d", flag, n, maxPoolSize)
		}
	}
	for _, u := range []struct{ flag, text, engine string }{
		{"storage-postgres-url", s.StoragePostgresURL, enginePostgres},
		{"storage-postgres-listen-url", s.StoragePostgresListenURL, enginePostgres},
		{"storage-mysql-url", s.StorageMySQLURL, engineMySQL},
	} {
		if u.text == "" {
			continue
		}
		if a, err := parseAddress(u.text); err != nil || a.engine != u.engine {
			return fmt.Errorf("--%s must begin with %s://", u.flag, u.engine) // what it is instead may be a secret
		}
	}
	_, err := s.address("x")
	return err
}

// address is the store that the settings name, with file as that of SQLite.
func (s *storageSettings) address(file string) (storeAddress, error) {
	engine := s.StorageType
	if engine == "" {
		switch {
		case s.StoragePostgresURL != "" && s.StorageMySQLURL != "":
			return storeAddress{}, errors.New("there are a --storage-postgres-url and a --storage-mysql-url: say which with --storage-type")
		case s.StoragePostgresURL != "":
			engine = enginePostgres
		case s.StorageMySQLURL != "":
			engine = engineMySQL
		default:
			engine = engineSQLite
		}
	}
	a := storeAddress{engine: engine, place: file, acceptDataLoss: s.AcceptDataLoss}
	var err error
	switch engine {
	case enginePostgres:
		if a, err = s.database(s.StoragePostgresURL, "storage-postgres-url"); err != nil {
			return a, err
		}
		a.poolSize, a.listenURL = s.StoragePostgresPoolSize, s.StoragePostgresListenURL
		if s.StoragePostgresSchema != "" {
			a.schema = s.StoragePostgresSchema
		}
	case engineMySQL:
		if a, err = s.database(s.StorageMySQLURL, "storage-mysql-url"); err != nil {
			return a, err
		}
		a.poolSize = s.StorageMySQLPoolSize
	}
	return a, nil
}

func (s *storageSettings) database(text, flag string) (storeAddress, error) {
	if text == "" {
		return storeAddress{}, fmt.Errorf("--storage-type %s needs --%s", s.StorageType, flag)
	}
	a, err := parseAddress(text)
	a.acceptDataLoss = s.AcceptDataLoss
	return a, err
}

// dataStore is a store that a server runs on.
type dataStore interface {
	kv.Store
	kv.Importer
	// Writable reports why nothing can be written now; nil if it can.
	Writable() error
}

func engineNames() []string { return slices.Sorted(maps.Keys(engines)) }

// openStore opens the store at an address, or makes it. A store that a copy has not filled to its end is refused.
func openStore(ctx context.Context, a storeAddress, log *slog.Logger) (dataStore, error) {
	s, err := openUnfinished(ctx, a, log)
	if err != nil {
		return nil, err
	}
	pending, err := copy.Pending(ctx, s)
	if err == nil && pending != "" {
		err = fmt.Errorf("%s is not complete: %s; run abide copy again with the same arguments, or empty it", a, pending)
	}
	if err != nil {
		return nil, errors.Join(a.hide(err), s.Close())
	}
	return s, nil
}

// openUnfinished opens the store at an address, or makes it, also if a copy has not filled it to its end.
func openUnfinished(ctx context.Context, a storeAddress, log *slog.Logger) (dataStore, error) {
	engine, ok := engines[a.engine]
	if !ok {
		return nil, fmt.Errorf("this version has no engine %s", a.engine)
	}
	s, err := engine.open(ctx, a, log)
	if err != nil {
		return nil, fmt.Errorf("cannot open the %s %s: %w", a.noun(), a, a.hide(err))
	}
	return s, nil
}

// noun is what a person calls such a store.
func (a storeAddress) noun() string {
	if a.engine == engineSQLite {
		return "data file"
	}
	return "database"
}

// openExisting is openStore for what reads a store that somebody has made: one that is not there is not made.
func openExisting(ctx context.Context, a storeAddress, log *slog.Logger) (dataStore, error) {
	if err := a.exists(); err != nil {
		return nil, err
	}
	a.existing = true
	return openStore(ctx, a, log)
}

// exists says what is wrong with a file that should be there.
func (a storeAddress) exists() error {
	if a.engine != engineSQLite {
		return nil
	}
	info, err := os.Stat(a.place)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no file %s", a.place)
	case err != nil:
		return fmt.Errorf("cannot look at %s: %w", a.place, err)
	case info.Mode().IsRegular() && info.Size() == 0:
		return fmt.Errorf("%s is empty: no server has ever kept data in it", a.place)
	}
	return nil
}
