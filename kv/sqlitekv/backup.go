package sqlitekv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// partialSuffix is the end of a backup's name until it is complete.
const partialSuffix = ".partial"

// Backup writes what the store at from holds at one instant into a new file at to, which is a store by itself, and syncs it.
// The store may be served meanwhile, by this or by another process: nobody waits, but its log cannot start over until the
// backup ends. The source is read and nothing of it is changed, its log included. An error of fs.ErrExist if there is a file
// at to, ErrFormat if from is no store that this program knows. When ctx ends, so does the backup, and its file is removed.
func Backup(ctx context.Context, from, to string) error {
	path, err := resolvePath(from)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil { // opening would make it
		return pathError(path, err)
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("sqlite: a backup goes into a new file, and %s is one already: choose another name: %w", to, os.ErrExist)
	}
	opt := Options{vfs: "os"}
	opt.setSizes()
	source, err := opt.openConn(path, checkpointing, opt.readerCacheBytes())
	if err != nil {
		return explain(path, err)
	}
	if _, err = source.readFormat(); err != nil {
		err = explain(path, err)
	} else {
		err = source.copyInto(ctx, to+partialSuffix)
	}
	// What SQLite does with the last connection, moving the log, is for whoever serves the file.
	if err = errors.Join(err, source.abandon()); err == nil {
		err = publish(to+partialSuffix, to)
	}
	if err != nil {
		_ = os.Remove(to + partialSuffix)
	}
	return err
}

// copyInto writes one snapshot into the file at to, in place of what is there.
func (c *conn) copyInto(ctx context.Context, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) { // what broke off
		return pathError(to, err)
	}
	if err := touch(to); err != nil { // SQLite would make it readable for everybody
		return pathError(to, err)
	}
	c.db.SetInterrupt(ctx)
	err := c.db.Exec(`VACUUM INTO '` + strings.ReplaceAll(to, "'", "''") + `'`)
	c.db.SetInterrupt(context.Background())
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, sqlite3.FULL), isDiskFull(err):
		return pathError(to, errors.Join(errDiskFull, err))
	}
	return failure("backup", err)
}

// publish syncs a file and gives it its name.
func publish(partial, to string) error {
	f, err := os.OpenFile(partial, os.O_RDWR, 0)
	if err != nil {
		return pathError(partial, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sqlite: %s cannot be synced: %w", partial, err)
	}
	if err := os.Rename(partial, to); err != nil {
		return pathError(to, err)
	}
	return syncFolder(filepath.Dir(to))
}
