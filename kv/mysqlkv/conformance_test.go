package mysqlkv

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/kvtest"
)

func TestConformance(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testConformance(t, kind)
		})
	}
}

func testConformance(t *testing.T, kind string) {
	var url string
	var proxy *testenv.Proxy
	var last *Store
	open := func(t testing.TB, c kvtest.Config) kv.Store {
		opt := Options{URL: url, Keys: c.Keys, Now: c.Now}
		if opt.Now == nil {
			opt.Now = time.Now
		}
		last = openStore(t, opt)
		return last
	}
	lookFor := func(d time.Duration) { last.engine.writer.resolveWithin.Store(int64(d)) }
	h := kvtest.Harness{
		Open: func(t testing.TB, c kvtest.Config) kv.Store {
			if url = testenv.MySQL(t, kind); c.Failing {
				proxy, url = throughProxy(t, url)
			}
			return open(t, c)
		},
		Reopen:  open,
		Second:  open,
		Imports: true,
		FailCommits: func(fail bool) {
			if proxy.Decide(nil); fail {
				proxy.Decide(onCommit(testenv.CutBefore))
			}
		},
		UnknownCommits: func(on, lost bool) {
			fate := testenv.CutAnswer
			if lost {
				fate = testenv.CutBefore
			}
			proxy.Decide(nil)
			lookFor(maxResolveTime) // the machine may be busy
			if on {
				lookFor(100 * time.Millisecond)
				proxy.Decide(unresolved(onCommit(fate)))
			}
		},
		Operations: 600,
	}
	if os.Getenv("ABIDE_LONG") == "1" {
		h.Operations, h.Seed = 100_000, 1000
	}
	kvtest.Run(t, h)
}

// openStore opens a store for a test that closes it.
func openStore(t testing.TB, opt Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// throughProxy puts a proxy before the server of a URL. Nothing is encrypted, so that it can see what it decides on.
func throughProxy(t testing.TB, url string) (*testenv.Proxy, string) {
	t.Helper()
	rest, _ := strings.CutPrefix(url, "mysql://root@")
	address, database, _ := strings.Cut(rest, "/")
	p := testenv.NewProxy(t, address)
	return p, "mysql://root@" + p.Address + "/" + database + "?ssl-mode=disabled"
}

// onCommit is the fate of what ends in a commit.
func onCommit(fate testenv.Fate) func([]byte) testenv.Fate {
	return func(piece []byte) testenv.Fate {
		if bytes.HasSuffix(piece, []byte(";COMMIT;")) {
			return fate
		}
		return testenv.Pass
	}
}

// unresolved keeps a store from finding out what became of its commits.
func unresolved(fate func([]byte) testenv.Fate) func([]byte) testenv.Fate {
	return func(piece []byte) testenv.Fate {
		if bytes.Contains(piece, append([]byte("SELECT k,v FROM "+byKey+" WHERE k>='"), writerKeys...)) {
			return testenv.CutBefore
		}
		return fate(piece)
	}
}
