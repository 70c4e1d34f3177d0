package sqlitekv

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// SQLite writes each frame of the log with two system calls, its header and its page: several hundred for
// one group commit. bufferedWALs gathers what it writes in sequence and hands it over in one piece before
// anything looks at the file: before every sync, read, size, truncation and close of the same handle.
//
// That is enough, because under synchronous=FULL a commit is synced before SQLite publishes its frames to
// the other connections, so no other handle ever reads what is still gathered. A crash loses what was never
// synced, as it may in the system's own cache.
//
// Only logs are wrapped. The database file and its shared memory are the base's own.
type bufferedWALs struct{ base vfs.VFS }

// defaultVFS is the name under which SQLite finds bufferedWALs over the system's files.
const defaultVFS = "abide"

var registerVFS = sync.OnceFunc(func() {
	vfs.Register(defaultVFS, bufferedWALs{vfs.Find("os")})
})

// maxWALBuffer bounds what is gathered: a large transaction goes out in pieces of this size.
const maxWALBuffer = 512 << 10

func (v bufferedWALs) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := v.base.Open(name, flags)
	return v.wrap(name, f, flags, err, nil)
}

// OpenFilename implements vfs.VFSFilename, which the system's files need. SQLite would make a log that
// everybody can read, and makes a new one at times of its own choosing.
func (v bufferedWALs) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if flags&vfs.OPEN_WAL != 0 && flags&vfs.OPEN_CREATE != 0 {
		_ = touch(name.String()) // if that fails, so will the opening, which says why
	}
	base, ok := v.base.(vfs.VFSFilename)
	if !ok {
		return v.Open(name.String(), flags)
	}
	f, flags, err := base.OpenFilename(name, flags)
	return v.wrap(name.String(), f, flags, err, logSyncsOf(name.URIParameter(connParameter)))
}

func (v bufferedWALs) wrap(name string, f vfs.File, flags vfs.OpenFlag, err error, failed *atomic.Uint64) (vfs.File, vfs.OpenFlag, error) {
	if err != nil || flags&vfs.OPEN_WAL == 0 {
		return f, flags, err
	}
	return &walFile{File: f, syncs: shareSyncs(name), failed: failed}, flags, nil
}

// connParameter is the URI parameter by which a connection and its handle of the log know each other.
const connParameter = "conn"

// logSyncs count, for each connection, the syncs of the log that have failed through it: SQLite gives the same error
// for those of the database file.
var logSyncs struct {
	sync.Mutex
	last   uint64
	failed map[string]*atomic.Uint64
}

// countLogSyncs makes a counter for a connection, and the name for its connParameter.
func countLogSyncs() (name string, failed *atomic.Uint64) {
	logSyncs.Lock()
	defer logSyncs.Unlock()
	if logSyncs.failed == nil {
		logSyncs.failed = make(map[string]*atomic.Uint64)
	}
	logSyncs.last++
	name, failed = strconv.FormatUint(logSyncs.last, 10), &atomic.Uint64{}
	logSyncs.failed[name] = failed
	return name, failed
}

// logSyncsOf is the counter of that name; nil if there is none.
func logSyncsOf(name string) *atomic.Uint64 {
	logSyncs.Lock()
	defer logSyncs.Unlock()
	return logSyncs.failed[name]
}

func forgetLogSyncs(name string) {
	logSyncs.Lock()
	defer logSyncs.Unlock()
	delete(logSyncs.failed, name)
}

func (v bufferedWALs) Delete(name string, syncDir bool) error { return v.base.Delete(name, syncDir) }

func (v bufferedWALs) Access(name string, flags vfs.AccessFlag) (bool, error) {
	return v.base.Access(name, flags)
}

func (v bufferedWALs) FullPathname(name string) (string, error) { return v.base.FullPathname(name) }

// walSyncs is what all handles of one log share: how many of their syncs have failed. A sync that fails may take
// with it what another handle has written, and leave that handle's own sync nothing to report: the checkpointer
// syncs the log too, at any time. Linux tells every handle of a failure; here that does not rest on the system.
type walSyncs struct {
	sync.Mutex
	handles  int
	failures uint64
}

// openWALs are the logs that have open handles, by name.
var openWALs = struct {
	sync.Mutex
	byName map[string]*walSyncs
}{byName: make(map[string]*walSyncs)}

// shareSyncs returns what the handles of a log share, with one handle more.
func shareSyncs(name string) *sharedSyncs {
	openWALs.Lock()
	defer openWALs.Unlock()
	s := openWALs.byName[name]
	if s == nil {
		s = &walSyncs{}
		openWALs.byName[name] = s
	}
	s.handles++
	s.Lock()
	defer s.Unlock()
	return &sharedSyncs{name: name, of: s, seen: s.failures}
}

// sharedSyncs is one handle's part in them.
type sharedSyncs struct {
	name string
	of   *walSyncs
	seen uint64 // the failures that this handle has told of
}

var errOthersSync = errors.New("a sync of another handle has failed, which may have lost what this one wrote")

// sync does one sync at a time, and fails also if another handle's has failed since this handle's last one.
func (s *sharedSyncs) sync(do func() error) error {
	s.of.Lock()
	defer s.of.Unlock()
	err := do()
	if err != nil {
		s.of.failures++
	} else if s.seen != s.of.failures {
		err = vfs.SystemError(errOthersSync, sqlite3.IOERR_FSYNC)
	}
	s.seen = s.of.failures
	return err
}

func (s *sharedSyncs) leave() {
	openWALs.Lock()
	defer openWALs.Unlock()
	if s.of.handles--; s.of.handles == 0 {
		delete(openWALs.byName, s.name)
	}
}

// walFile is one handle of a log. Like its connection it is used by one goroutine at a time.
type walFile struct {
	vfs.File
	syncs  *sharedSyncs
	failed *atomic.Uint64 // counts the syncs that have failed; nil for nobody
	// gathered is what has been written but not handed over; it belongs at start.
	gathered []byte
	start    int64
}

func (f *walFile) WriteAt(p []byte, off int64) (int, error) {
	if off != f.start+int64(len(f.gathered)) || len(f.gathered)+len(p) > maxWALBuffer {
		if err := f.flush(); err != nil {
			return 0, err
		}
		f.start = off
	}
	f.gathered = append(f.gathered, p...)
	return len(p), nil
}

// flush hands over what is gathered. What cannot be written is dropped: the commit that it belongs to fails.
func (f *walFile) flush() error {
	if len(f.gathered) == 0 {
		return nil
	}
	_, err := f.File.WriteAt(f.gathered, f.start)
	f.start += int64(len(f.gathered))
	f.gathered = f.gathered[:0]
	switch {
	case err == nil:
		return nil
	case isDiskFull(err):
		return vfs.SystemError(err, sqlite3.FULL)
	}
	return vfs.SystemError(err, sqlite3.IOERR_WRITE)
}

func (f *walFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *walFile) Sync(flags vfs.SyncFlag) error {
	err := f.flush()
	if err == nil {
		err = f.syncs.sync(func() error { return f.File.Sync(flags) })
	}
	if err != nil && f.failed != nil {
		f.failed.Add(1)
	}
	return err
}

func (f *walFile) Size() (int64, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *walFile) Truncate(size int64) error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *walFile) Close() error {
	f.syncs.leave()
	err := f.flush()
	if closeErr := f.File.Close(); closeErr != nil {
		return closeErr
	}
	return err
}
