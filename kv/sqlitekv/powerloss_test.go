package sqlitekv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"abide/kv"
)

// disk remembers of every file what has been synced and what has only been written, so that it can say what
// a loss of power at this very moment might leave: all that was synced, and of the rest any sectors.
type disk struct {
	vfs.VFSFilename
	mu    sync.Mutex
	rand  *rand.Rand
	files map[string]*diskContent
	// moment is called after every write, truncation and sync, with the lock held.
	moment func()
}

type diskContent struct {
	synced  []byte
	pending []diskWrite
}

// diskWrite is a write, or a truncation to off if data is nil.
type diskWrite struct {
	off  int64
	data []byte
}

const sectorBytes = 512

func (w diskWrite) apply(content []byte, keep func() bool) []byte {
	if w.data == nil {
		if keep() {
			content = content[:min(int(w.off), len(content))]
		}
		return content
	}
	for start := 0; start < len(w.data); start += sectorBytes {
		part := w.data[start:min(start+sectorBytes, len(w.data))]
		if !keep() {
			continue
		}
		off := int(w.off) + start
		if end := off + len(part); end > len(content) {
			content = append(content, make([]byte, end-len(content))...)
		}
		copy(content[off:], part)
	}
	return content
}

// image is what each file might hold after a loss of power now.
func (d *disk) image() map[string][]byte {
	image := make(map[string][]byte)
	share := d.rand.IntN(3) // of what was not synced: nothing, half, everything
	for path, c := range d.files {
		content := bytes.Clone(c.synced)
		for _, w := range c.pending {
			content = w.apply(content, func() bool { return d.rand.IntN(2) < share })
		}
		image[path] = content
	}
	return image
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := d.VFSFilename.OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	path := name.String()
	if d.files[path] == nil {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, flags, err
		}
		d.files[path] = &diskContent{synced: content}
	}
	return &diskFile{File: f, disk: d, content: d.files[path]}, flags, nil
}

// Delete is taken to be durable at once: a store syncs its folder before it is used.
func (d *disk) Delete(name string, syncFolder bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, name)
	return d.VFSFilename.Delete(name, syncFolder)
}

type diskFile struct {
	vfs.File
	disk    *disk
	content *diskContent
}

func (f *diskFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

// change makes one change and remembers it.
func (f *diskFile) change(w diskWrite) {
	f.content.pending = append(f.content.pending, w)
	f.disk.moment()
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	n, err := f.File.WriteAt(p, off)
	f.change(diskWrite{off, bytes.Clone(p)})
	return n, err
}

func (f *diskFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.File.Truncate(size)
	f.change(diskWrite{off: size})
	return err
}

func (f *diskFile) Sync(vfs.SyncFlag) error { // the real one would only cost time
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	for _, w := range f.content.pending {
		f.content.synced = w.apply(f.content.synced, func() bool { return true })
	}
	f.content.pending = nil
	f.disk.moment()
	return nil
}

// crash is a possible state of the files, with the number of transactions that had been acknowledged.
type crash struct {
	files        map[string][]byte
	acknowledged int64
}

// crashes runs a store with a short log, so that it is moved and started over all the time, and returns
// states in which a loss of power might have left it.
func crashes(t *testing.T, seed uint64, path string) []crash {
	t.Helper()
	base, ok := vfs.Find("os").(vfs.VFSFilename)
	if !ok {
		t.Fatal("the system's files cannot be opened by name")
	}
	var acknowledged atomic.Int64
	var found []crash
	d := &disk{VFSFilename: base, rand: rand.New(rand.NewPCG(seed, 3)), files: map[string]*diskContent{}, moment: func() {}}
	name := fmt.Sprintf("disk%d", seed)
	vfs.Register(name, bufferedWALs{d})
	defer vfs.Unregister(name)
	s, err := Open(Options{Path: path, vfs: name, walPages: 40, CacheBytes: 400 << 10})
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.moment = func() {
		if len(found) < 60 && d.rand.IntN(12) == 0 {
			found = append(found, crash{d.image(), acknowledged.Load()})
		}
	}
	d.mu.Unlock()
	r := rand.New(rand.NewPCG(seed, 4))
	for n := range int64(200) {
		if err := transfer(s, r, n+1); err != nil {
			t.Fatal(err)
		}
		acknowledged.Store(n + 1)
		if n%7 == 0 {
			s.writer.checkpointer.hurry()
		}
	}
	d.mu.Lock()
	d.moment = func() {}
	d.mu.Unlock()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return found
}

const accounts = 50

// transfer moves something between two accounts, whose sum stays zero, and leaves n as the number of the
// last transfer. Some write more than the writer's cache holds, so that pages reach the log before the commit.
func transfer(s *Store, r *rand.Rand, n int64) error {
	from, to, padding := r.IntN(accounts), r.IntN(accounts), r.IntN(3000)
	large := r.IntN(20) == 0
	_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		move := func(account int, amount int64) error {
			key := fmt.Appendf(nil, "account %d", account)
			value, err := tx.Get(key)
			if err != nil {
				return err
			}
			var balance int64
			_, _ = fmt.Sscan(string(value), &balance)
			return tx.Put(key, fmt.Appendf(nil, "%d %0*d", balance+amount, padding, 0))
		}
		if large {
			for i := range 20 {
				if err := tx.Put(fmt.Appendf(nil, "large %d", i), make([]byte, 20_000)); err != nil {
					return err
				}
			}
		}
		return errors.Join(move(from, -n), move(to, n), tx.Put([]byte("last"), fmt.Appendf(nil, "%d", n)),
			tx.Append([]byte("p"), fmt.Appendf(nil, "%d", n)))
	})
	return err
}

func TestLossOfPower(t *testing.T) {
	for seed := range uint64(3) {
		path := filepath.Join(t.TempDir(), "a.db")
		found := crashes(t, seed, path)
		if len(found) < 20 {
			t.Fatalf("seed %d: only %d crashes", seed, len(found))
		}
		for i, c := range found {
			folder := t.TempDir()
			for from, content := range c.files {
				if err := os.WriteFile(filepath.Join(folder, filepath.Base(from)), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			checkAfterCrash(t, fmt.Sprintf("seed %d, crash %d", seed, i), filepath.Join(folder, "a.db"), c.acknowledged)
		}
	}
}

// checkAfterCrash demands every acknowledged transfer, at most one more, and each of them whole.
func checkAfterCrash(t *testing.T, what, path string, acknowledged int64) {
	t.Helper()
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	var sum, last, journal int64
	err = s.View(context.Background(), func(snap kv.Snapshot) error {
		value, err := snap.Get([]byte("last"))
		if err != nil {
			return err
		}
		_, _ = fmt.Sscan(string(value), &last)
		entries, err := snap.Scan(kv.Range{Start: []byte("account "), End: []byte("account!")}, accounts+1)
		for _, e := range entries {
			var balance int64
			_, _ = fmt.Sscan(string(e.Value), &balance)
			sum += balance
		}
		records, journalErr := snap.Journal([]byte("p"), kv.EntryPosition{}, kv.MaxScanRows)
		journal = int64(len(records))
		return errors.Join(err, journalErr)
	})
	if err != nil || sum != 0 || journal != last || last < acknowledged || last > acknowledged+1 {
		t.Errorf("%s: %d acknowledged, %d stored, %d in the journal, the sum is %d, %v", what, acknowledged, last, journal, sum, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	checkIntegrity(t, path)
}
