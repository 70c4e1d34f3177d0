package pgkv_test

import (
	"context"
	"os"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/kvtest"
	"abide/kv/pgkv"
)

// onEach runs a test on each version.
func onEach(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range testenv.PostgresVersions {
		t.Run("PostgreSQL "+version, func(t *testing.T) { test(t, version) })
	}
}

// open opens a store that is closed with the test.
func open(t testing.TB, opt pgkv.Options) *pgkv.Store {
	t.Helper()
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s, err := pgkv.Open(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, version string) {
		for name, twice := range map[string]bool{"once": false, "closures run twice": true} {
			if !long() && os.Getenv("ABIDE_REQUIRE_ENGINES") != "1" && twice != (version == testenv.PostgresVersions[1]) {
				continue // where a person waits, each version runs it one way
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel() // most of the time they wait for the disk
				url := testenv.Postgres(t, version)
				var schema string
				reopen := func(t testing.TB, c kvtest.Config) kv.Store {
					return open(t, pgkv.Options{URL: url, Schema: schema, Keys: c.Keys, Now: c.Now, RunTwice: twice})
				}
				h := kvtest.Harness{
					Open: func(t testing.TB, c kvtest.Config) kv.Store {
						schema = testenv.Name()
						return reopen(t, c)
					},
					Reopen:     reopen,
					Second:     reopen,
					Imports:    true,
					Operations: 1500,
				}
				if long() {
					h.Operations, h.Seed = 100_000, 1000
				}
				kvtest.Run(t, h)
			})
		}
	})
}
