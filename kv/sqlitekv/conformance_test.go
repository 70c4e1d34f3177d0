package sqlitekv

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/vfs"

	"abide/kv"
	"abide/kv/kvtest"
)

func TestConformance(t *testing.T) {
	for name, twice := range map[string]bool{"once": false, "closures run twice": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time they wait for the disk
			var path string
			disk := &faults{}
			faultyName := registerFaulty(t, name, disk)
			open := func(t testing.TB, c kvtest.Config) kv.Store {
				opt := Options{Path: path, Keys: c.Keys, Now: c.Now, RunTwice: twice}
				if opt.Now == nil {
					opt.Now = time.Now
				}
				if c.Failing {
					opt.vfs = faultyName
				}
				s, err := Open(opt)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			h := kvtest.Harness{
				Open: func(t testing.TB, c kvtest.Config) kv.Store {
					path = filepath.Join(t.TempDir(), "store.db")
					return open(t, c)
				},
				Reopen: open,
				FailCommits: func(fail bool) {
					disk.set(func(f *faults) {
						if f.walWrite = nil; fail {
							f.walWrite = syscall.ENOSPC
						}
					})
				},
				UnknownCommits: func(on, lost bool) {
					disk.set(func(f *faults) {
						if f.walSync, f.lose = nil, lost; on {
							f.walSync = syscall.EIO
						}
					})
				},
				Imports:    true,
				Operations: 1500, // each transaction waits for the disk
			}
			if os.Getenv("ABIDE_LONG") == "1" {
				h.Operations, h.Seed = 100_000, 1000
			}
			kvtest.Run(t, h)
		})
	}
}

// registerFaulty makes a VFS whose files can be made to fail and returns its name for a URI.
func registerFaulty(t *testing.T, name string, f *faults) string {
	t.Helper()
	base, ok := vfs.Find("os").(vfs.VFSFilename)
	if !ok {
		t.Fatal("the system's files cannot be opened by name")
	}
	name = "conformance-" + strings.ReplaceAll(name, " ", "-")
	vfs.Register(name, bufferedWALs{faultyVFS{base, f}})
	t.Cleanup(func() { vfs.Unregister(name) })
	return name
}
