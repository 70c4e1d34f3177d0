package main

import (
	"errors"
	"fmt"
	"os"

	"abide/internal/cli"
	"abide/kv/sqlitekv"
)

// backupCommand copies a data file as it is at one instant, while its server runs.
//
// Its exit code is 0 if the backup is complete and on disk, 1 if it could not be made, 2 for a mistake in the command line.
type backupCommand struct {
	From string `arg:"" help:"The data file. Its server may run."`
	To   string `arg:"" help:"The file to make. It must not be there yet."`
}

// Validate checks the arguments; kong calls it.
func (c *backupCommand) Validate() error {
	if c.From == "" || c.To == "" {
		return errors.New("give the path of the data file, and that of the file to make")
	}
	for _, name := range []string{c.From, c.To} {
		a, err := parseAddress(name)
		if err != nil {
			return err
		}
		if a.engine != engineSQLite {
			return fmt.Errorf("%s is a database: back it up with its own tools, such as pg_dump or mariadb-dump", a)
		}
	}
	return nil
}

// Run makes the backup.
func (c *backupCommand) Run(in surroundings) error {
	ctx, stop := in.untilSignal()
	defer stop()
	if err := sqlitekv.Backup(ctx, c.From, c.To); err != nil {
		return err
	}
	info, err := os.Stat(c.To)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(in.stdout, "%s is a backup of %s, %d bytes; abide check --replay %s looks whether it is sound\n",
		cli.Printable(c.To), cli.Printable(c.From), info.Size(), cli.Printable(c.To))
	return err
}
