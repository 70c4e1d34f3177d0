package main

import (
	"fmt"
	"log/slog"
)

// migrateCommand makes the tables of a store, apart from serving it: then a server needs no right to make tables.
//
// Its exit code is 0 if the store is there, 1 if it could not be made, 2 for a mistake in the command line.
type migrateCommand struct {
	StorageSQLitePath string `setting:"storage.sqlite.path" name:"storage-sqlite-path" default:"abide.db" placeholder:"FILE" help:"The data file of the engine sqlite."`
	Print             bool   `help:"Print the SQL that makes the tables, and touch nothing."`

	storageSettings
}

// Validate checks the settings; kong calls it.
func (c *migrateCommand) Validate() error {
	if err := checkDataFile(c.StorageSQLitePath); err != nil {
		return err
	}
	if c.Print && c.StorageType != "" && c.StoragePostgresURL == "" && c.StorageMySQLURL == "" {
		return nil // no database is needed to print
	}
	return c.storageSettings.Validate()
}

// Run makes the store, or prints how.
func (c *migrateCommand) Run(in surroundings, _ *environment) error {
	a, err := c.address(c.StorageSQLitePath)
	if c.Print {
		if err != nil { // the URL is missing, and not needed
			a = storeAddress{engine: c.StorageType, schema: c.StoragePostgresSchema}
		}
		_, err := fmt.Fprint(in.stdout, engines[a.engine].schema(a))
		return err
	}
	if err != nil {
		return err
	}
	ctx, stop := in.untilSignal()
	defer stop()
	s, err := openStore(ctx, a, newLogger(in.stderr, logLevel(slog.LevelWarn)))
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return a.hide(err)
	}
	_, err = fmt.Fprintf(in.stdout, "the tables are in %s\n", a)
	return err
}
