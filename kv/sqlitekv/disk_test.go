package sqlitekv

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// disk remembers of every file what has been synced and what has only been written, so that it can say what
// a loss of power at this very moment might leave: all that was synced, and of the rest any sectors.
//
// It can fail, as disks under a page cache do: after a sync that failed, what was written since the last one is
// clean in the cache, so that everybody still reads it and no later sync writes it, but the disk has only some
// of its sectors.
type disk struct {
	vfs.VFSFilename
	mu    sync.Mutex
	rand  *rand.Rand
	files map[string]*diskContent
	// moment is called after every write, truncation and sync, with the lock held.
	moment func()
	// failing is how many of 1,000 writes and syncs fail.
	failing int
	// failSync names the files whose syncs fail meanwhile; nil for none.
	failSync func(path string) bool
	// trouble counts down the operations after a failure in which moments are denser.
	trouble int
	// failedSyncs and failedWrites count.
	failedSyncs, failedWrites int
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

// apply makes the change as far as keep, which is asked for each sector, allows.
func (w diskWrite) apply(content []byte, keep func() bool) []byte {
	if w.data == nil {
		if keep() {
			content = content[:min(int(w.off), len(content))]
		}
		return content
	}
	for start := 0; start < len(w.data); {
		// Sectors are those of the disk, not of the write.
		end := min(len(w.data), start+sectorBytes-(int(w.off)+start)%sectorBytes)
		if keep() {
			off := int(w.off) + start
			if need := off + end - start; need > len(content) {
				content = append(content, make([]byte, need-len(content))...)
			}
			copy(content[off:], w.data[start:end])
		}
		start = end
	}
	return content
}

// some draws how much of what was not synced stays (nothing, half, everything), and then decides for each sector.
func (d *disk) some() func() bool {
	share := d.rand.IntN(3)
	return func() bool { return d.rand.IntN(2) < share }
}

// image is what each file might hold after a loss of power now.
func (d *disk) image() map[string][]byte {
	image := make(map[string][]byte)
	keep := d.some()
	for path, c := range d.files {
		content := bytes.Clone(c.synced)
		for _, w := range c.pending {
			content = w.apply(content, keep)
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
	return &diskFile{File: f, disk: d, path: path, content: d.files[path]}, flags, nil
}

// Delete is taken to be durable at once: a store syncs its folder before it is used.
func (d *disk) Delete(name string, syncFolder bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, name)
	return d.VFSFilename.Delete(name, syncFolder)
}

// fails draws whether the next operation does.
func (d *disk) fails() bool {
	if d.failing == 0 || d.rand.IntN(1000) >= d.failing {
		return false
	}
	d.trouble = 60
	return true
}

type diskFile struct {
	vfs.File
	disk    *disk
	path    string
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
	if f.disk.fails() {
		f.disk.failedWrites++
		cause := []error{syscall.EIO, syscall.ENOSPC}[f.disk.rand.IntN(2)]
		part := p[:f.disk.rand.IntN(len(p)+1)]
		if _, err := f.File.WriteAt(part, off); err != nil {
			return 0, err
		}
		f.change(diskWrite{off, append([]byte{}, part...)})
		return 0, &fs.PathError{Op: "write", Path: "fault", Err: cause}
	}
	n, err := f.File.WriteAt(p, off)
	f.change(diskWrite{off, append([]byte{}, p...)})
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
	keep, err := func() bool { return true }, error(nil)
	if f.disk.fails() || (f.disk.failSync != nil && f.disk.failSync(f.path)) {
		f.disk.failedSyncs++
		keep, err = f.disk.some(), syscall.EIO
	}
	for _, w := range f.content.pending {
		f.content.synced = w.apply(f.content.synced, keep)
	}
	f.content.pending = nil
	f.disk.moment()
	return err
}

// register makes the disk a VFS until it is unregistered; with the log buffered as in production, or not.
func (d *disk) register(buffered bool) (name string) {
	d.VFSFilename = vfs.Find("os").(vfs.VFSFilename)
	name = fmt.Sprintf("disk%p", d)
	if buffered {
		vfs.Register(name, bufferedWALs{d})
	} else {
		vfs.Register(name, d)
	}
	return name
}

// lazyVFS is the system's files without the syncs, for looking at what crashes left.
type lazyVFS struct{ vfs.VFSFilename }

func (v lazyVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := v.VFSFilename.OpenFilename(name, flags)
	return &lazyFile{f}, flags, err
}

type lazyFile struct{ vfs.File }

func (f *lazyFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }
func (f *lazyFile) Sync(vfs.SyncFlag) error        { return nil }

var registerLazy = sync.OnceValue(func() string {
	const name = "lazy"
	vfs.Register(name, bufferedWALs{lazyVFS{vfs.Find("os").(vfs.VFSFilename)}})
	return name
})

// The disk itself keeps what was synced, whatever happens afterwards, and may lose the rest.
func TestDisk(t *testing.T) {
	d := &disk{rand: rand.New(rand.NewPCG(1, 1)), files: map[string]*diskContent{}, moment: func() {}}
	below := &memoryFile{}
	c := &diskContent{}
	d.files["a"] = c
	f := &diskFile{File: below, disk: d, content: c}
	write := func(s string, off int64) {
		t.Helper()
		if _, err := f.WriteAt([]byte(s), off); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Repeat("a", 2000), 100)
	if err := f.Sync(0); err != nil {
		t.Fatal(err)
	}
	write(strings.Repeat("b", 2000), 100)
	seen := map[string]bool{}
	for range 200 {
		image := d.image()["a"]
		for at := 512; at < 2048; at += 512 {
			if s := string(image[at : at+512]); strings.Trim(s, "a") != "" && strings.Trim(s, "b") != "" {
				t.Fatalf("a sector is torn: %q", s)
			}
		}
		seen[string(image)] = true
	}
	if len(seen) < 16 {
		t.Errorf("only %d different images", len(seen))
	}
	d.failing = 1000
	if err := f.Sync(0); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	d.failing = 0
	if err := f.Sync(0); err != nil {
		t.Fatal(err)
	}
	// Whatever the disk has now, it has for good, and the cache shows what was written.
	after := string(d.image()["a"])
	for range 20 {
		if string(d.image()["a"]) != after {
			t.Fatal("what a sync that failed has left is still in motion")
		}
	}
	if !strings.Contains(string(below.content), strings.Repeat("b", 2000)) {
		t.Error("the cache has forgotten what was written")
	}
}
