package main

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"abide/internal/testenv"
	"abide/protocol"
)

// dumpTools are a database's own tools, as docs/operations.md names them: what prints a dump, and what reads one.
type dumpTools struct{ dump, restore func(u *url.URL) []string }

func mysqlArgs(tool string, u *url.URL, more ...string) []string {
	args := []string{tool, "--protocol=tcp", "--host=" + u.Hostname(), "--port=" + u.Port(), "--user=" + u.User.Username()}
	return append(append(args, more...), strings.Trim(u.Path, "/"))
}

var dumpToolsOf = map[string]dumpTools{
	"postgres": {
		dump:    func(u *url.URL) []string { return []string{"pg_dump", "--schema=abide", u.String()} },
		restore: func(u *url.URL) []string { return []string{"psql", "--quiet", "--set=ON_ERROR_STOP=1", u.String()} },
	},
	"mysql": {
		dump: func(u *url.URL) []string {
			return mysqlArgs("mariadb-dump", u, "--single-transaction", "--hex-blob")
		},
		restore: func(u *url.URL) []string { return mysqlArgs("mariadb", u) },
	},
}

// TestDumpOfADatabase dumps a database while a server writes to it, restores the dump into another one, and serves that.
func TestDumpOfADatabase(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres-15", testenv.MariaDB10} {
		t.Run(kind, func(t *testing.T) {
			from, to := testenv.Database(t, kind), testenv.Database(t, kind)
			source, err := url.Parse(from)
			if err != nil {
				t.Fatal(err)
			}
			target, err := url.Parse(to)
			if err != nil {
				t.Fatal(err)
			}
			tools := dumpToolsOf[source.Scheme]
			for _, args := range [][]string{tools.dump(source), tools.restore(target)} {
				if _, err := exec.LookPath(args[0]); err != nil {
					t.Skipf("%s, which comes with the database's client, is not installed", args[0])
				}
			}
			r := start(t, serveOn(from)...)
			c := r.client(t)
			create := func(id string) error {
				_, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50})
				return err
			}
			for i := range 50 {
				if err := create(fmt.Sprint("before", i)); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			wrote := make(chan error, 1)
			go func() {
				var err error
				for i := 0; err == nil && ctx.Err() == nil; i++ {
					err = create(fmt.Sprint("during", i))
				}
				wrote <- err
			}()
			args := tools.dump(source)
			dump, err := exec.CommandContext(t.Context(), args[0], args[1:]...).Output()
			stop()
			if err := <-wrote; err != nil {
				t.Errorf("the server during the dump: %v", err)
			}
			if err != nil {
				t.Fatalf("%v: %v", args, err)
			}
			if code := r.stop(t); code != exitOK {
				t.Errorf("exit %d", code)
			}
			args = tools.restore(target)
			restore := exec.CommandContext(t.Context(), args[0], args[1:]...)
			restore.Stdin = strings.NewReader(string(dump))
			if out, err := restore.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			if got := runWith(nil, "check", "--replay", to); got.code != exitOK {
				t.Errorf("%+v", got)
			}
			restored := start(t, serveOn(to)...)
			if _, err := restored.client(t).PromiseGet(t.Context(), "before49"); err != nil {
				t.Error(err)
			}
			if code := restored.stop(t); code != exitOK {
				t.Errorf("exit %d", code)
			}
		})
	}
}
