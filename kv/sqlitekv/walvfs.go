package sqlitekv

import (
	"sync"

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
	return v.wrap(v.base.Open(name, flags))
}

// OpenFilename implements vfs.VFSFilename, which the system's files need. SQLite would make a log that
// everybody can read, and makes a new one at times of its own choosing.
func (v bufferedWALs) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if flags&vfs.OPEN_WAL != 0 && flags&vfs.OPEN_CREATE != 0 {
		_ = touch(name.String()) // if that fails, so will the opening, which says why
	}
	if base, ok := v.base.(vfs.VFSFilename); ok {
		return v.wrap(base.OpenFilename(name, flags))
	}
	return v.wrap(v.base.Open(name.String(), flags))
}

func (v bufferedWALs) wrap(f vfs.File, flags vfs.OpenFlag, err error) (vfs.File, vfs.OpenFlag, error) {
	if err != nil || flags&vfs.OPEN_WAL == 0 {
		return f, flags, err
	}
	return &walFile{File: f}, flags, nil
}

func (v bufferedWALs) Delete(name string, syncDir bool) error { return v.base.Delete(name, syncDir) }

func (v bufferedWALs) Access(name string, flags vfs.AccessFlag) (bool, error) {
	return v.base.Access(name, flags)
}

func (v bufferedWALs) FullPathname(name string) (string, error) { return v.base.FullPathname(name) }

// walFile is one handle of a log. Like its connection it is used by one goroutine at a time.
type walFile struct {
	vfs.File
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
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.Sync(flags)
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
	err := f.flush()
	if closeErr := f.File.Close(); closeErr != nil {
		return closeErr
	}
	return err
}
