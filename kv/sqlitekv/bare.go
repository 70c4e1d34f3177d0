package sqlitekv

import (
	"errors"
	"path/filepath"
	"slices"

	"abide/kv"
	"abide/kv/batch"
)

// Bare is a file of the same layout driven by prepared statements alone: no contract, no group commit, no snapshot
// pool, the driver's own VFS. It exists to be measured against; it has no lock, and its files are no stores.
// Not safe for concurrent use.
type Bare struct{ writer, reader *conn }

// bareAutoCheckpointPages is SQLite's own default: it moves the log inside the commit that finds it so long.
const bareAutoCheckpointPages = 1000

// OpenBare makes or opens the file at path, with the page caches that a store's writer and one of its readers have, and as
// durable.
func OpenBare(opt Options) (*Bare, error) {
	opt.setSizes()
	opt.vfs = "os"
	if err := touch(opt.Path); err != nil {
		return nil, pathError(opt.Path, err)
	}
	path, err := filepath.Abs(opt.Path)
	if err != nil {
		return nil, err
	}
	b := &Bare{}
	if b.writer, err = opt.openConn(path, writing, opt.writerCacheBytes()); err != nil {
		return nil, err
	}
	if _, err = b.writer.prepareFile(); err == nil {
		err = b.writer.prepare(writing)
	}
	if err == nil {
		err = b.writer.db.WALAutoCheckpoint(bareAutoCheckpointPages)
	}
	if err == nil {
		b.reader, err = opt.openConn(path, reading, opt.readerCacheBytes())
	}
	if err == nil {
		err = b.reader.prepare(reading)
	}
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// Write puts entries in one durable transaction.
func (b *Bare) Write(entries []kv.Entry) error {
	if err := b.writer.begin.Exec(); err != nil {
		return failure("begin", err)
	}
	for _, e := range entries {
		if err := b.writer.apply(&batch.Write{Key: e.Key, Value: e.Value}); err != nil {
			_ = b.writer.rollback.Exec()
			return failure("put", err)
		}
	}
	return b.writer.commit.Exec()
}

// Get reads keys in one read transaction and returns how many there were. It keeps no value.
func (b *Bare) Get(keys [][]byte) (found int, err error) {
	get := b.reader.keys.get
	err = b.read(func() error {
		for _, key := range keys {
			if err := get.BindBlob(1, key); err != nil {
				return err
			}
			if get.Step() && get.ColumnRawBlob(0) != nil {
				found++
			}
			if err := get.Reset(); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// Scan reads the first limit entries of r in one read transaction and returns how many there were. It keeps none.
func (b *Bare) Scan(r kv.Range, limit int) (rows int, err error) {
	scan := b.reader.keys.scan
	err = b.read(func() error {
		if err := errors.Join(scan.BindBlob(1, r.Start), scan.BindBlob(2, r.End)); err != nil {
			return err
		}
		for rows < limit && scan.Step() && scan.ColumnRawBlob(0) != nil && scan.ColumnRawBlob(1) != nil {
			rows++
		}
		return scan.Reset()
	})
	return rows, err
}

func (b *Bare) read(fn func() error) error {
	if err := b.reader.begin.Exec(); err != nil {
		return failure("begin", err)
	}
	err := fn()
	if e := b.reader.commit.Exec(); err == nil {
		err = e
	}
	return err
}

// Close releases the file.
func (b *Bare) Close() error {
	var failure error
	for _, c := range slices.Backward([]*conn{b.writer, b.reader}) {
		if c == nil {
			continue
		}
		if err := c.close(); err != nil {
			failure = err
		}
	}
	return failure
}
