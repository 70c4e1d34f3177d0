// Package sqlitekv is the embedded store: one SQLite file, group commit, readers on their own snapshots.
//
//   - Durability: write-ahead log with synchronous=FULL, which is set and read back. A commit is acknowledged
//     after its sync.
//   - One writer connection, owned by kv/batch; a bounded pool of reading connections, each with its own
//     snapshot; one connection that moves the log into the file off the commit path.
//   - One store per file: an operating system lock on a file beside the database keeps others out and names
//     the holder. It ends with the process, so a store opens again after kill -9 as it stands.
//   - A commit whose sync failed is unknown and stops all writing until recovery (see writer).
//
// The file holds a table of keys and values, and one for the journal and the commit counter; see schema.
package sqlitekv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"abide/kv"
	"abide/kv/batch"
)

// Defaults of Options.
const (
	// DefaultCacheBytes is what the page caches of all connections may take together. More does not help:
	// what falls out of it is in the system's cache.
	DefaultCacheBytes = 64 << 20
	// MaxCacheBytes is the largest CacheBytes: SQLite's memory is bounded for each connection, and the
	// largest share must fit it with room to work.
	MaxCacheBytes = 256 << 20
	// MinReaders and MaxReaders bound how many snapshots are open at once by default, one per processor.
	MinReaders = 4
	MaxReaders = 16
)

// writerShare is the part of the caches that the writer gets; the readers share the rest. SQLite walks through the
// writer's whole cache at the end of most commits that add pages, so a large one costs more than it saves.
const writerShare = 4

func (o *Options) writerCacheBytes() int { return o.CacheBytes / writerShare }
func (o *Options) readerCacheBytes() int { return (o.CacheBytes - o.writerCacheBytes()) / o.Readers }

// checkpointCacheBytes is the page cache of the checkpointer, which reads the log and not its cache.
const checkpointCacheBytes = 256 << 10

// Options say how a store is opened. Only Path is required.
type Options struct {
	// Path is the database file. It is made, for its owner only, if it is missing; its folder must exist.
	// Beside it stand files named like it with -wal, -shm and .lock at the end.
	Path string
	// CacheBytes bounds the page caches of all connections together; 0 means DefaultCacheBytes; at
	// most MaxCacheBytes.
	CacheBytes int
	// Readers is how many snapshots can be open at once; further ones wait. 0 means one per processor,
	// between MinReaders and MaxReaders.
	Readers int
	// QueueLimit bounds the closures that wait for the writer; 0 means batch.DefaultQueueLimit.
	QueueLimit int
	// Keys names kinds of keys in errors.
	Keys kv.KeyRegister
	// Now is the clock by which batches, closures and snapshots end, and of the lock's "since". Without it
	// they are bounded by number and bytes alone.
	Now func() time.Time
	// RunTwice runs every closure twice; see batch.Options.
	RunTwice bool

	// walPages is the length of the log at which the writer starts it over; 0 means maxWALPages.
	walPages int64
	// weaker lowers synchronous from FULL, so that a test can show that it would see the difference.
	weaker synchronous
	// vfs is the SQLite VFS to use; defaultVFS unless a test wants the disk to fail.
	vfs string
}

// setSizes replaces what is not set of the caches and readers by the defaults.
func (o *Options) setSizes() {
	if o.CacheBytes <= 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.Readers <= 0 {
		o.Readers = min(max(runtime.GOMAXPROCS(0), MinReaders), MaxReaders)
	}
}

// Store is an open database; it implements kv.Store.
type Store struct {
	*batch.Store
	writer  *writer
	readers *readers
	health  *health
	path    string
}

// driver is what batch drives: the writer, the readers' snapshots, and the probe that takes its turn among
// the batches while the store cannot write.
type driver struct {
	*writer
	turn    sync.Mutex // held during a physical transaction
	readers *readers
	health  *health
	lock    *fileLock
}

var _ batch.Driver = (*driver)(nil)

// Open opens the store at opt.Path, or makes it. ErrInUse if somebody has it open, ErrFormat if the file is
// not one that this program can open.
func Open(opt Options) (*Store, error) {
	opt.setSizes()
	if opt.walPages <= 0 {
		opt.walPages = maxWALPages
	}
	if opt.vfs == "" {
		opt.vfs = defaultVFS
	}
	if opt.CacheBytes > MaxCacheBytes {
		return nil, fmt.Errorf("sqlite: a cache of %d bytes; at most %d", opt.CacheBytes, MaxCacheBytes)
	}
	path, err := resolvePath(opt.Path)
	if err != nil {
		return nil, err
	}
	lock, err := acquireLock(path, opt.Now)
	if err != nil {
		return nil, err
	}
	store, err := openLocked(&opt, path, lock)
	if err != nil {
		return nil, errors.Join(explain(path, err), lock.release())
	}
	return store, nil
}

func openLocked(opt *Options, path string, lock *fileLock) (*Store, error) {
	// SQLite would make them readable for everybody. It is the same for the log; see bufferedWALs.
	for _, suffix := range []string{"", "-shm"} {
		if err := touch(path + suffix); err != nil {
			return nil, pathError(path+suffix, err)
		}
	}
	if err := os.Remove(path + probeSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) { // a crash left it
		return nil, pathError(path+probeSuffix, err)
	}
	w := &writer{opt: opt, path: path, openedAs: rand.Text(), restartAt: opt.walPages}
	if err := w.open(); err != nil {
		return nil, err
	}
	f, err := w.start()
	if err != nil {
		_ = w.conn.close()
		return nil, err
	}
	checkpoints, err := opt.openConn(path, checkpointing, checkpointCacheBytes)
	if err != nil {
		_ = w.conn.close()
		return nil, err
	}
	d := &driver{writer: w, readers: newReaders(opt, path), health: newHealth(), lock: lock}
	w.checkpointer, w.readers = startCheckpointer(checkpoints, d.health.note), d.readers
	go d.health.watch(d.probe)
	return &Store{
		Store: batch.New(d, batch.Options{
			Name:        storeName,
			Incarnation: f.incarnation,
			Keys:        opt.Keys,
			QueueLimit:  opt.QueueLimit,
			Now:         opt.Now,
			RunTwice:    opt.RunTwice,
		}),
		writer:  w,
		readers: d.readers,
		health:  d.health,
		path:    path,
	}, nil
}

// start makes or checks the file and prepares the writer's connection.
func (w *writer) start() (format, error) {
	f, err := w.conn.prepareFile()
	if err != nil {
		return format{}, err
	}
	if err := w.conn.prepare(writing); err != nil {
		return format{}, err
	}
	if err := w.conn.checkRoots(); err != nil {
		return format{}, err
	}
	if _, err := w.conn.checkLast(); err != nil {
		return format{}, err
	}
	if err := syncFolder(filepath.Dir(w.path)); err != nil {
		return format{}, fmt.Errorf("sqlite: the folder of the database cannot be synced: %w", err)
	}
	return f, nil
}

// touch makes an empty file for its owner, unless there is one.
func touch(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// Snapshot implements batch.Driver.
func (d *driver) Snapshot(ctx context.Context) (batch.DriverSnapshot, error) {
	return d.readers.Snapshot(ctx)
}

// Close implements batch.Driver: it moves the whole log into the file, so that the file alone is the
// database, and gives the lock back. It takes at most about the life of one snapshot.
func (d *driver) Close() error {
	d.health.close()
	err := d.readers.close()
	moved, e := d.moveAll()
	err = errors.Join(err, e, d.checkpointer.close())
	if d.conn != nil {
		// Left to itself SQLite would move the log with the last connection, and delete it even if part of what it
		// holds was lost on the way.
		if moved {
			err = errors.Join(err, d.conn.close())
		} else {
			err = errors.Join(err, d.conn.abandon())
		}
		d.conn = nil
	}
	return errors.Join(err, d.lock.release())
}

// moveAll moves the whole log into the file and reports whether it did. After a failure the log stays for whoever
// opens the store next.
func (d *driver) moveAll() (moved bool, err error) {
	p := d.checkpointer
	p.turn.Lock()
	defer p.turn.Unlock()
	if d.conn == nil || d.poisoned || p.lost.Load() {
		return false, nil
	}
	_ = d.conn.db.BusyTimeout(recoverBusyTimeout)
	_, err = p.run(d.conn, sqlite3.CHECKPOINT_TRUNCATE)
	if isBusy(err) { // a snapshot is still in use
		return false, nil
	}
	if err != nil {
		return false, failure("close", err)
	}
	return true, nil
}

// Stats describe an open store.
type Stats struct {
	batch.Stats
	FileBytes int64 // of the database file
	WALBytes  int64 // of the write-ahead log beside it
}

// Stats returns counters since Open and the sizes of the files now.
func (s *Store) Stats() Stats {
	st := Stats{Stats: s.Store.Stats()}
	if info, err := os.Stat(s.path); err == nil {
		st.FileBytes = info.Size()
	}
	if info, err := os.Stat(s.path + "-wal"); err == nil {
		st.WALBytes = info.Size()
	}
	return st
}
