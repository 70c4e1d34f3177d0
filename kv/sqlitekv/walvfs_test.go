package sqlitekv

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"
	"pgregory.net/rapid"
)

// memoryFile is a file in memory. Only what a log uses is there.
type memoryFile struct {
	vfs.File
	content []byte
	writes  int
	synced  []byte // the content at the last sync
	fail    error  // of writes
	unsync  error  // of syncs
	closed  bool
}

func (m *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	if m.fail != nil {
		return 0, m.fail
	}
	m.writes++
	if end := int(off) + len(p); end > len(m.content) {
		m.content = append(m.content, make([]byte, end-len(m.content))...)
	}
	return copy(m.content[off:], p), nil
}

func (m *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(m.content)) {
		return 0, io.EOF
	}
	n := copy(p, m.content[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (m *memoryFile) Sync(vfs.SyncFlag) error {
	if m.unsync == nil {
		m.synced = bytes.Clone(m.content)
	}
	return m.unsync
}
func (m *memoryFile) Size() (int64, error) { return int64(len(m.content)), nil }
func (m *memoryFile) Close() error         { m.closed = true; return nil }
func (m *memoryFile) Truncate(n int64) error {
	m.content = append(m.content[:min(int(n), len(m.content))], make([]byte, max(0, int(n)-len(m.content)))...)
	return nil
}

// Whatever is done to the file through the buffer shows as if there were none: to the handle itself at once,
// to the disk with the next sync.
func TestBufferedLogIsAFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plain, below := &memoryFile{}, &memoryFile{}
		buffered := &walFile{File: below, syncs: shareSyncs("rapid")}
		next := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			switch rapid.SampledFrom([]string{"append", "append", "append", "write", "read", "sync", "size", "truncate"}).Draw(t, "operation") {
			case "append":
				p := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "bytes")
				_, _ = plain.WriteAt(p, next)
				if n, err := buffered.WriteAt(p, next); n != len(p) || err != nil {
					t.Fatalf("write: %d, %v", n, err)
				}
				next += int64(len(p))
			case "write":
				p, off := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "bytes"), rapid.Int64Range(0, 300).Draw(t, "off")
				_, _ = plain.WriteAt(p, off)
				if n, err := buffered.WriteAt(p, off); n != len(p) || err != nil {
					t.Fatalf("write: %d, %v", n, err)
				}
				next = off + int64(len(p))
			case "read":
				off := rapid.Int64Range(0, 300).Draw(t, "off")
				want, got := make([]byte, 30), make([]byte, 30)
				n, err := plain.ReadAt(want, off)
				m, gotErr := buffered.ReadAt(got, off)
				if n != m || err != gotErr || !bytes.Equal(want, got) {
					t.Fatalf("read at %d: %x, %v, want %x, %v", off, got[:m], gotErr, want[:n], err)
				}
			case "sync":
				_ = plain.Sync(0)
				if err := buffered.Sync(0); err != nil || !bytes.Equal(below.synced, plain.synced) {
					t.Fatalf("sync: %v, %x on disk, want %x", err, below.synced, plain.synced)
				}
			case "size":
				want, _ := plain.Size()
				if got, err := buffered.Size(); got != want || err != nil {
					t.Fatalf("size: %d, %v, want %d", got, err, want)
				}
			case "truncate":
				n := rapid.Int64Range(0, 200).Draw(t, "size")
				_, _ = plain.Truncate(n), buffered.Truncate(n)
			}
		}
		if err := buffered.Close(); err != nil || !bytes.Equal(below.content, plain.content) || !below.closed {
			t.Fatalf("after closing, %v: %x, want %x", err, below.content, plain.content)
		}
	})
}

func TestBufferedLogWritesOnce(t *testing.T) {
	below := &memoryFile{}
	f := &walFile{File: below, syncs: shareSyncs(t.Name())}
	frame := make([]byte, pageBytes)
	for i := range 64 {
		off := int64(i * (24 + pageBytes))
		for _, err := range []error{second(f.WriteAt(frame[:24], off)), second(f.WriteAt(frame, off+24))} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Sync(0); err != nil || below.writes != 1 {
		t.Errorf("64 frames were written in %d pieces, %v", below.writes, err)
	}
	for i := range 400 { // far more than is gathered
		if err := second(f.WriteAt(frame, int64(i*pageBytes))); err != nil || len(f.gathered) > maxWALBuffer {
			t.Fatalf("%d bytes gathered, %v", len(f.gathered), err)
		}
	}
}

func second(_ int, err error) error { return err }

func TestBufferedLogReportsWhatFailed(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO, errors.New("unheard of")} {
		below := &memoryFile{fail: cause}
		f := &walFile{File: below, syncs: shareSyncs(t.Name())}
		if _, err := f.WriteAt([]byte("lost"), 0); err != nil {
			t.Errorf("%v: a write that is only gathered fails: %v", cause, err)
		}
		if err := f.Sync(0); err == nil {
			t.Errorf("%v: the sync succeeds", cause)
		}
		below.fail = nil
		if err := f.Sync(0); err != nil || len(below.content) != 0 {
			t.Errorf("%v: %d bytes of a commit that failed were written later, %v", cause, len(below.content), err)
		}
	}
}

// A sync that fails in one handle fails in every other one, once: what they wrote may be gone with it.
func TestEveryHandleHearsOfAFailedSync(t *testing.T) {
	below := &memoryFile{}
	open := func() *walFile { return &walFile{File: below, syncs: shareSyncs(t.Name())} }
	writer, checkpointer := open(), open()
	for round := range 3 {
		if err := second(writer.WriteAt([]byte("commit"), 0)); err != nil {
			t.Fatal(err)
		}
		below.unsync = syscall.EIO
		if err := checkpointer.Sync(0); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		below.unsync = nil
		if err := writer.Sync(0); err == nil || err.Error() != errOthersSync.Error() {
			t.Errorf("round %d: a sync after another handle's has failed: %v", round, err)
		}
		if err := errors.Join(writer.Sync(0), checkpointer.Sync(0), open().Sync(0)); err != nil {
			t.Errorf("round %d: the failure is told twice: %v", round, err)
		}
	}
	if err := errors.Join(writer.Close(), checkpointer.Close()); err != nil {
		t.Error(err)
	}
}
