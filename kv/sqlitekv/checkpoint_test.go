package sqlitekv

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"abide/kv"
)

// The log starts over when it has reached its bound, whatever readers do: many short ones, one that pages slowly
// through everything, or several that overlap so that the log is never free of them.
func TestTheLogIsBounded(t *testing.T) {
	const bound = 100 // pages
	look := func(s *Store, hold time.Duration) {
		_ = s.View(context.Background(), func(snap kv.Snapshot) error {
			_, err := snap.Get([]byte("k"))
			time.Sleep(hold)
			return err
		})
	}
	for name, readers := range map[string][]func(*Store){
		"short snapshots": {func(s *Store) { look(s, 0); time.Sleep(200 * time.Microsecond) }},
		"a slow scan in pages": {func(s *Store) {
			from := []byte{}
			for more := true; more; {
				_ = s.View(context.Background(), func(snap kv.Snapshot) error {
					page, err := snap.Scan(kv.Range{Start: from, End: []byte{kv.ReservedPrefix}}, 10)
					time.Sleep(5 * time.Millisecond) // in the snapshot: the worst place
					if more = len(page) == 10; more {
						from = append(page[9].Key, 0)
					}
					return err
				})
			}
		}},
		"snapshots that overlap": {
			func(s *Store) { look(s, 20*time.Millisecond) },
			func(s *Store) { look(s, 23*time.Millisecond) },
			func(s *Store) { look(s, 29*time.Millisecond) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openAt(t, Options{Path: filepath.Join(t.TempDir(), "a.db"), walPages: bound})
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for _, read := range readers {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							read(s)
						}
					}
				})
			}
			value := make([]byte, 10*pageBytes)
			largest := int64(0)
			for i := range 300 {
				value[0] = byte(i)
				if _, err := set(s, fmt.Sprint("k", i%50), string(value)); err != nil {
					t.Fatal(err)
				}
				largest = max(largest, s.Stats().WALBytes)
			}
			close(stop)
			wg.Wait()
			// More than 3,000 pages went through it. One commit's pages come on top.
			if most := int64(walStop+1) * bound * (pageBytes + 24); largest > most {
				t.Errorf("the log had %d bytes; its bound is %d, which it may pass %d times", largest, bound*pageBytes, walStop)
			}
		})
	}
}

// syncCounting counts the syncs of all files.
type syncCounting struct {
	vfs.VFSFilename
	syncs *atomic.Int64
}

func (v syncCounting) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := v.VFSFilename.OpenFilename(name, flags)
	return &syncCounted{f, v.syncs}, flags, err
}

type syncCounted struct {
	vfs.File
	syncs *atomic.Int64
}

func (f *syncCounted) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

func (f *syncCounted) Sync(flags vfs.SyncFlag) error {
	f.syncs.Add(1)
	time.Sleep(5 * time.Millisecond) // as a disk takes, so that the next writers can gather even on a slow processor
	return f.File.Sync(flags)
}

// Many writers share a sync, those of the checkpoints included.
func TestSyncsAreShared(t *testing.T) {
	var syncs atomic.Int64
	vfs.Register("counting", bufferedWALs{syncCounting{vfs.Find("os").(vfs.VFSFilename), &syncs}})
	t.Cleanup(func() { vfs.Unregister("counting") })
	s := openAt(t, Options{Path: filepath.Join(t.TempDir(), "a.db"), vfs: "counting"})
	const writers, each = 64, 60
	before := syncs.Load()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := set(s, fmt.Sprint(w), fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := syncs.Load() - before; n*10 > writers*each {
		t.Errorf("%d syncs for %d transactions; at most one for ten", n, writers*each)
	}
}
