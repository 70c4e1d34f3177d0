package sqlitekv_test

import (
	"path/filepath"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/kvtest"
	"abide/kv/sqlitekv"
)

func TestConformance(t *testing.T) {
	for name, twice := range map[string]bool{"once": false, "closures run twice": true} {
		t.Run(name, func(t *testing.T) {
			var path string
			reopen := func(t *testing.T) kv.Store {
				s, err := sqlitekv.Open(sqlitekv.Options{Path: path, Now: time.Now, RunTwice: twice})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			kvtest.Run(t, kvtest.Harness{
				Open: func(t *testing.T) kv.Store {
					path = filepath.Join(t.TempDir(), "store.db")
					return reopen(t)
				},
				Reopen: reopen,
			})
		})
	}
}
