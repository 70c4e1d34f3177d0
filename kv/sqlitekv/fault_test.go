package sqlitekv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"abide/kv"
)

// faults make the disk fail. The errors are those that the system's own calls return.
type faults struct {
	mu sync.Mutex
	// walSync and dbSync fail the syncs of the log and of the database file, walWrite and dbWrite the writes.
	walSync, walWrite, dbSync, dbWrite error
	// lose makes a failing sync of the log take what was written since the last one with it, as a page cache
	// does that forgets what it could not write. Otherwise it all reached the disk, in spite of the error.
	lose bool
	// failed counts the calls that were made to fail.
	failed int
}

func (f *faults) failures() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *faults) set(change func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// faultyVFS is the system's files with faults.
type faultyVFS struct {
	vfs.VFSFilename
	faults *faults
}

func (v faultyVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := v.VFSFilename.OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	return &faultyFile{File: f, faults: v.faults, wal: flags&vfs.OPEN_WAL != 0}, flags, nil
}

type faultyFile struct {
	vfs.File
	faults *faults
	wal    bool
	// unsynced is where writes went since the last sync.
	unsynced []span
}

type span struct {
	off int64
	n   int
}

func (f *faultyFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	f.faults.mu.Lock()
	err := f.faults.dbWrite
	if f.wal {
		err = f.faults.walWrite
	}
	if err != nil {
		f.faults.failed++
	}
	f.faults.mu.Unlock()
	if err != nil {
		return 0, &fs.PathError{Op: "write", Path: "fault", Err: err}
	}
	f.unsynced = append(f.unsynced, span{off, len(p)})
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Sync(flags vfs.SyncFlag) error {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	err := f.faults.dbSync
	if f.wal {
		err = f.faults.walSync
	}
	if err == nil {
		f.unsynced = nil
		return f.File.Sync(flags)
	}
	f.faults.failed++
	if f.wal && f.faults.lose {
		for _, s := range f.unsynced {
			if _, err := f.File.WriteAt(make([]byte, s.n), s.off); err != nil {
				return err
			}
		}
	}
	f.unsynced = nil
	return err
}

// openFaulty opens a store whose disk can be made to fail.
func openFaulty(t *testing.T, path string, f *faults) *Store {
	t.Helper()
	base, ok := vfs.Find("os").(vfs.VFSFilename)
	if !ok {
		t.Fatal("the system's files cannot be opened by name")
	}
	name := "faulty " + t.Name()
	vfs.Register(name, bufferedWALs{faultyVFS{base, f}})
	t.Cleanup(func() { vfs.Unregister(name) })
	s, err := Open(Options{Path: path, Now: time.Now, vfs: "faulty%20" + t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func set(s *Store, key, value string) (kv.Position, error) {
	return s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte(key), []byte(value)) })
}

// content is everything in the store, as "key=value ".
func content(t *testing.T, s *Store) (list string) {
	t.Helper()
	err := s.View(context.Background(), func(snap kv.Snapshot) error {
		entries, err := snap.Scan(kv.Range{End: []byte{kv.ReservedPrefix}}, 100)
		for _, e := range entries {
			list += string(e.Key) + "=" + string(e.Value) + " "
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func wantContent(t *testing.T, s *Store, want string) {
	t.Helper()
	if got := content(t, s); got != want {
		t.Errorf("the store holds %q, want %q", got, want)
	}
}

// integrity asks SQLite whether the file of a closed store is whole.
func integrity(path string) error {
	c, err := (&Options{vfs: defaultVFS}).openConn(path, reading, 1<<20)
	if err != nil {
		return err
	}
	defer c.close()
	s, _, err := c.db.Prepare("PRAGMA integrity_check")
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Step(); s.ColumnText(0) != "ok" {
		return fmt.Errorf("integrity_check: %s", s.ColumnText(0))
	}
	return nil
}

func checkIntegrity(t *testing.T, path string) {
	t.Helper()
	if err := integrity(path); err != nil {
		t.Error(err)
	}
}

func TestASyncThatFailsLeavesTheCommitUnknown(t *testing.T) {
	for _, lose := range []bool{false, true} {
		name := "what was written stays"
		if lose {
			name = "what was written is lost"
		}
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.db")
			f := &faults{lose: lose}
			s := openFaulty(t, path, f)
			before, err := set(s, "a", "1")
			if err != nil {
				t.Fatal(err)
			}
			f.set(func(f *faults) { f.walSync = syscall.EIO })
			at, err := set(s, "b", "2")
			var known *kv.Error
			if !errors.Is(err, kv.ErrCommitUnknown) || !errors.As(err, &known) || known.Token == "" || !at.IsZero() {
				t.Fatalf("a commit whose sync failed: %v, %v", at, err)
			}
			wantContent(t, s, "a=1 ") // reading goes on
			if _, err := set(s, "c", "3"); !errors.Is(err, kv.ErrUnavailable) {
				t.Errorf("a commit before recovery: %v", err)
			}
			if outcome, _, err := s.Resolve(context.Background(), known.Token); outcome != kv.OutcomeUnknown || !errors.Is(err, kv.ErrUnavailable) {
				t.Errorf("resolved before recovery: %v, %v", outcome, err)
			}
			f.set(func(f *faults) { f.walSync = nil })
			for range 2 {
				if outcome, at, err := s.Resolve(context.Background(), known.Token); outcome != kv.OutcomeNotCommitted || !at.IsZero() || err != nil {
					t.Errorf("resolved: %v, %v, %v", outcome, at, err)
				}
			}
			after, err := set(s, "d", "4")
			if err != nil || after.Compare(before) <= 0 || after.Sequence() == before.Sequence()+1 {
				t.Errorf("the next commit: %v after %v, %v; the unknown one's position must not be used again", after, before, err)
			}
			// Later commits do not change the answer.
			if outcome, _, _ := s.Resolve(context.Background(), known.Token); outcome != kv.OutcomeNotCommitted {
				t.Errorf("resolved later: %v", outcome)
			}
			wantContent(t, s, "a=1 d=4 ")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			checkIntegrity(t, path)
			s = openFaulty(t, path, f)
			wantContent(t, s, "a=1 d=4 ")
			if outcome, _, err := s.Resolve(context.Background(), known.Token); outcome != kv.OutcomeUnknown || err != nil {
				t.Errorf("resolved by another opening: %v, %v", outcome, err)
			}
		})
	}
}

// Recovery needs the database file as well: while that cannot be synced, nothing is acknowledged, and the commit whose
// own sync has failed is shown to nobody, although the log may hold it: nothing has made it durable.
func TestRecoveryWaitsForTheFile(t *testing.T) {
	f := &faults{}
	s := openFaulty(t, filepath.Join(t.TempDir(), "a.db"), f)
	if _, err := set(s, "a", "1"); err != nil {
		t.Fatal(err)
	}
	f.set(func(f *faults) { f.walSync, f.dbSync = syscall.EIO, syscall.EIO })
	_, err := set(s, "b", "2")
	var unknown *kv.Error
	if !errors.Is(err, kv.ErrCommitUnknown) || !errors.As(err, &unknown) {
		t.Fatal(err)
	}
	f.set(func(f *faults) { f.walSync = nil })
	for range 3 {
		if _, err := set(s, "c", "3"); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("while the file cannot be synced: %v", err)
		}
		err := s.View(context.Background(), func(snap kv.Snapshot) error {
			value, err := snap.Get([]byte("b"))
			if value != nil {
				t.Errorf("a commit that is not durable is read: %q", value)
			}
			return err
		})
		if err != nil && !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("a read while the file cannot be synced: %v", err)
		}
	}
	f.set(func(f *faults) { f.dbSync = nil })
	if _, err := set(s, "c", "3"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	want := "a=1 c=3 "
	if outcome, _, err := s.Resolve(context.Background(), unknown.Token); err != nil || outcome == kv.OutcomeUnknown {
		t.Errorf("resolved: %v, %v", outcome, err)
	} else if outcome == kv.OutcomeCommitted {
		want = "a=1 b=2 c=3 "
	}
	wantContent(t, s, want)
}

// Where no commit is pending, reading goes on although the file cannot be synced; and the store comes back by itself.
func TestReadingGoesOnWhileTheFileCannotBeSynced(t *testing.T) {
	f := &faults{}
	path := filepath.Join(t.TempDir(), "a.db")
	s := openFaulty(t, path, f)
	if _, err := set(s, "a", "1"); err != nil {
		t.Fatal(err)
	}
	f.set(func(f *faults) { f.dbSync = syscall.EIO })
	s.writer.checkpointer.checkpoint()
	if s.Writable() == nil {
		t.Error("a store whose file cannot be synced calls itself writable")
	}
	for range 3 {
		if _, err := set(s, "b", "2"); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("while the file cannot be synced: %v", err)
		}
		wantContent(t, s, "a=1 ")
	}
	f.set(func(f *faults) { f.dbSync = nil })
	for s.Writable() != nil { // the probe needs no traffic
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := set(s, "b", "2"); err != nil {
		t.Error(err)
	}
	wantContent(t, s, "a=1 b=2 ")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	checkIntegrity(t, path)
}

// An image of the files between the failed sync and recovery is what a crash leaves. It holds the unknown
// commit or not, and is whole in both cases.
func TestCrashAfterAnUnknownCommit(t *testing.T) {
	for _, lose := range []bool{false, true} {
		folder := t.TempDir()
		path := filepath.Join(folder, "a.db")
		f := &faults{lose: lose}
		s := openFaulty(t, path, f)
		if _, err := set(s, "a", "1"); err != nil {
			t.Fatal(err)
		}
		f.set(func(f *faults) { f.walSync = syscall.EIO })
		if _, err := set(s, "b", "2"); !errors.Is(err, kv.ErrCommitUnknown) {
			t.Fatal(err)
		}
		image := filepath.Join(t.TempDir(), "b.db")
		for _, suffix := range []string{"", "-wal"} {
			file, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(image+suffix, file, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f.set(func(f *faults) { f.walSync = nil })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		crashed := openFaulty(t, image, &faults{})
		want := "a=1 b=2 "
		if lose {
			want = "a=1 "
		}
		wantContent(t, crashed, want)
		if _, err := set(crashed, "c", "3"); err != nil {
			t.Error(err)
		}
		if err := crashed.Close(); err != nil {
			t.Error(err)
		}
		checkIntegrity(t, image)
	}
}

func TestAFullDiskCommitsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	f := &faults{}
	s := openFaulty(t, path, f)
	before, err := set(s, "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	f.set(func(f *faults) { f.walWrite, f.dbWrite = syscall.ENOSPC, syscall.ENOSPC })
	for range 3 {
		if _, err := set(s, "b", "2"); !errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrCommitUnknown) {
			t.Errorf("with a full disk: %v", err)
		}
		// More than the page cache holds spills into the log before the commit.
		_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
			value := make([]byte, kv.MaxValueBytes-8)
			for i := range 60 {
				if err := tx.Put([]byte{byte(i)}, value); err != nil {
					return err
				}
			}
			return nil
		})
		if !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("a large transaction with a full disk: %v", err)
		}
		wantContent(t, s, "a=1 ")
	}
	f.set(func(f *faults) { f.walWrite, f.dbWrite = nil, nil })
	after, err := set(s, "c", "3")
	if err != nil || after.Sequence() != before.Sequence()+1 {
		t.Errorf("with room again: %v, %v", after, err)
	}
	wantContent(t, s, "a=1 c=3 ")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	checkIntegrity(t, path)
}

// A checkpoint that fails costs nothing: the log is still there.
func TestAFailingCheckpointLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	f := &faults{}
	s := openFaulty(t, path, f)
	f.set(func(f *faults) { f.dbWrite = syscall.EIO })
	for _, key := range []string{"a", "b"} {
		if _, err := set(s, key, "1"); err != nil {
			t.Error(err)
		}
		s.writer.checkpointer.checkpoint()
	}
	wantContent(t, s, "a=1 b=1 ")
	f.set(func(f *faults) { f.dbWrite = nil })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	checkIntegrity(t, path)
	s = openFaulty(t, path, f)
	wantContent(t, s, "a=1 b=1 ")
}

// The file is opened anew only when nobody reads; who reads meanwhile is not cut off.
func TestReopeningWaitsForSnapshots(t *testing.T) {
	f := &faults{}
	s := openFaulty(t, filepath.Join(t.TempDir(), "a.db"), f)
	if _, err := set(s, "a", "1"); err != nil {
		t.Fatal(err)
	}
	f.set(func(f *faults) { f.dbSync = syscall.EIO })
	s.writer.checkpointer.checkpoint()
	f.set(func(f *faults) { f.dbSync = nil })
	err := s.View(context.Background(), func(snap kv.Snapshot) error {
		if _, err := set(s, "b", "2"); !errors.Is(err, kv.ErrUnavailable) || !errors.Is(err, errSnapshotsOpen) {
			t.Errorf("a commit while a snapshot is open: %v", err)
		}
		value, err := snap.Get([]byte("a"))
		if string(value) != "1" {
			t.Errorf("the snapshot reads %q", value)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := set(s, "b", "2"); err != nil {
		t.Error(err)
	}
	wantContent(t, s, "a=1 b=2 ")
}

func TestClosingOnABrokenDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	f := &faults{}
	s := openFaulty(t, path, f)
	if _, err := set(s, "a", "1"); err != nil {
		t.Fatal(err)
	}
	f.set(func(f *faults) {
		f.walSync, f.dbSync, f.walWrite, f.dbWrite = syscall.EIO, syscall.EIO, syscall.EIO, syscall.EIO
	})
	if _, err := set(s, "b", "2"); !errors.Is(err, kv.ErrCommitUnknown) {
		t.Fatal(err)
	}
	if _, err := set(s, "c", "3"); !errors.Is(err, kv.ErrUnavailable) {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // the log is left as it is; nothing acknowledged is only in memory
		t.Errorf("close: %v", err)
	}
	f.set(func(f *faults) { f.walSync, f.dbSync, f.walWrite, f.dbWrite = nil, nil, nil, nil })
	s = openFaulty(t, path, f)
	wantContent(t, s, "a=1 ")
	if _, err := set(s, "c", "3"); err != nil {
		t.Error(err)
	}
}
