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

// thorough reports whether every test runs on every version: in the long variants, and where engines are required.
// Where a person waits, one version is enough for most.
func thorough() bool { return long() || os.Getenv("ABIDE_REQUIRE_ENGINES") == "1" }

// onOne runs a test on one version, on each if tests are to be thorough.
func onOne(t *testing.T, version string, test func(t *testing.T, version string)) {
	if thorough() {
		onEach(t, test)
		return
	}
	test(t, version)
}

// The versions that onOne is given.
var oldest, newest = testenv.PostgresVersions[0], testenv.PostgresVersions[len(testenv.PostgresVersions)-1]

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
			if !thorough() && twice != (version == newest) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel() // most of the time they wait for the disk
				server := testenv.Postgres(t, version)
				proxy, between := through(t, server)
				h := harness(pgkv.Options{URL: server, RunTwice: twice}, proxy, between, atCommit)
				h.Operations = 1500
				if long() {
					h.Operations, h.Seed = 100_000, 1000
				}
				kvtest.Run(t, h)
			})
		}
	})
}

// harness is the suite's, of stores in schemas of their own. Where commits are to fail, they are reached at between,
// through a proxy that sees a commit at the pieces that at finds.
func harness(opt pgkv.Options, proxy *testenv.Proxy, between string, at func(func() testenv.Fate) func([]byte) testenv.Fate) kvtest.Harness {
	var schema string
	var last *pgkv.Store
	reopen := func(t testing.TB, c kvtest.Config) kv.Store {
		opt := opt
		opt.Schema, opt.Keys, opt.Now = schema, c.Keys, c.Now
		if c.Failing {
			opt.URL = between
		}
		last = open(t, opt)
		last.LookFor(20 * time.Second) // the machine may be busy
		return last
	}
	return kvtest.Harness{
		Open: func(t testing.TB, c kvtest.Config) kv.Store {
			schema = testenv.Name()
			return reopen(t, c)
		},
		Reopen: reopen,
		Second: reopen,
		FailCommits: func(fail bool) {
			proxy.Decide(nil)
			if fail {
				proxy.Decide(at(func() testenv.Fate { return testenv.CutBefore }))
			}
		},
		UnknownCommits: func(on, lost bool) {
			proxy.Decide(nil)
			if on {
				last.LookFor(100 * time.Millisecond)
				proxy.Decide(at(func() testenv.Fate {
					proxy.Refuse(true) // so that it cannot be looked for
					if lost {
						return testenv.CutBefore
					}
					return testenv.CutAfter
				}))
				return
			}
			proxy.Refuse(false)
			last.LookFor(20 * time.Second)
			_ = testenv.Eventually(time.Minute, last.Writable) // if it stays so, the suite says it
		},
		Imports: true,
	}
}
