package crash

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/mysqlkv"
	"abide/kv/pgkv"
)

// On a database a server that dies leaves its rows behind, and another one takes over without being told.

// openDatabase opens the store at a URL. Nothing bounds its batches but their sizes, as on the file.
func openDatabase(t *testing.T, url string) kv.Store {
	t.Helper()
	var s kv.Store
	var err error
	if strings.HasPrefix(url, "postgres") {
		s, err = pgkv.Open(t.Context(), pgkv.Options{URL: url, Keys: keyspace.Register()})
	} else {
		s, err = mysqlkv.Open(t.Context(), mysqlkv.Options{URL: url, Keys: keyspace.Register()})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestAServerOfADatabaseDiesAfterATransaction is TestAProcessDiesAfterEveryTransaction for every transaction in the
// long variants, else for some. The dead server's connections stay, as those of a machine without power do.
func TestAServerOfADatabaseDiesAfterATransaction(t *testing.T) {
	for _, kind := range testenv.Databases() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			whole := begin(t, openDatabase(t, testenv.Database(t, kind)), "whole", &wall{}, 0)
			whole.live()
			want := whole.result()
			if !strings.Contains(want, root+" resolved") {
				t.Fatalf("the workflow ends with\n%s", want)
			}
			step := 1
			if os.Getenv("ABIDE_LONG") == "" {
				step = whole.store.commits/5 + 1 // five deaths
			}
			for dieAt := 1; dieAt <= whole.store.commits; dieAt += step {
				t.Run(fmt.Sprint(dieAt), func(t *testing.T) {
					url := testenv.Database(t, kind)
					first := begin(t, openDatabase(t, url), "first", &wall{}, dieAt)
					first.live()
					if !first.store.dead() {
						t.Error("the server has not died")
					}
					second := begin(t, openDatabase(t, url), "second", first.clock, 0)
					second.live()
					if got := second.result(); got != want {
						t.Errorf("the end is\n%s\nwant\n%s", got, want)
					}
				})
			}
		})
	}
}
