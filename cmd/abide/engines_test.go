package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"abide/internal/testenv"
	"abide/protocol"
)

func serveOn(url string, more ...string) []string {
	flag := "--storage-mysql-url"
	if strings.HasPrefix(url, "postgres") {
		flag = "--storage-postgres-url"
	}
	return append([]string{"serve", "--server-bind", "127.0.0.1", "--server-port", "0", "--observability-metrics-port", "0", flag, url}, more...)
}

// TestServeOnDatabases serves, is stopped, and serves again, beside a second server.
func TestServeOnDatabases(t *testing.T) {
	t.Parallel()
	for _, kind := range testenv.Databases() {
		t.Run(kind, func(t *testing.T) {
			url := testenv.Database(t, kind)
			for range 2 { // the first look makes no store that the second one finds
				if r := runWith(nil, "check", url); r.code != exitFailure || !strings.Contains(r.stderr, "there is no table") {
					t.Errorf("check of an empty database: %+v", r)
				}
			}
			port := testenv.FreePort(t)
			first := start(t, serveOn(url, "--observability-metrics-port", fmt.Sprint(port))...)
			if _, err := first.client(t).PromiseCreate(t.Context(), protocol.PromiseCreate{ID: "p", TimeoutAt: 1 << 50}); err != nil {
				t.Fatal(err)
			}
			second := start(t, serveOn(url)...)
			if p, err := second.client(t).PromiseGet(t.Context(), "p"); err != nil || p.State != protocol.Pending {
				t.Errorf("%+v %v", p, err)
			}
			if status, body := fetch(t, first.url+"/ready"); status != http.StatusOK || body != "{\"ready\":true}\n" {
				t.Errorf("/ready: %d %q", status, body)
			}
			_, text := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
			for _, want := range []string{`abide_store_info{durable="true",engine="` + strings.SplitN(url, ":", 2)[0] + `"} 1`,
				"abide_store_pool_connections_max 10", `abide_store_round_trips_total{of="write"}`} {
				if !strings.Contains(text, "\n"+want) {
					t.Errorf("not in the scrape: %s", want)
				}
			}
			if strings.Contains(text, "abide_database_bytes") {
				t.Error("the scrape has a size of files that are the database's")
			}
			for _, r := range []*running{first, second} {
				if code := r.stop(t); code != exitOK {
					t.Errorf("exit %d", code)
				}
			}
			if r := runWith(nil, "check", url, "--replay"); r.code != exitOK {
				t.Errorf("check: %+v", r)
			}
		})
	}
}

// TestCopyBetweenEngines goes round all of them and ends in a file that is like the first one.
func TestCopyBetweenEngines(t *testing.T) {
	t.Parallel()
	places := []string{testenv.Postgres(t, "15"), testenv.MySQL(t, testenv.MariaDB10)}
	from := usedFile(t)
	first := copyJSON(t, exitOK, from, places[0])
	if again := copyJSON(t, exitFailure, from, places[0]); !strings.Contains(again.Error, "not empty") {
		t.Errorf("into the copy: %s", again.Error)
	}
	second := copyJSON(t, exitOK, places[0], places[1])
	last := copyJSON(t, exitOK, places[1], filepath.Join(t.TempDir(), "back.db"))
	for _, report := range []copyReport{second, last} {
		if fmt.Sprint(report.Kinds) != fmt.Sprint(first.Kinds) {
			t.Errorf("on the way from %s: %v, at the beginning %v", report.From, report.Kinds, first.Kinds)
		}
	}
	if first.Position[:8] >= second.Position[:8] || second.Position[:8] >= last.Position[:8] {
		t.Errorf("incarnations do not rise: %s, %s, %s", first.Position, second.Position, last.Position)
	}
	checkJSON(t, exitOK, last.To, "--replay")

	server := start(t, serveOn(places[0])...)
	if busy := copyJSON(t, exitFailure, places[0], filepath.Join(t.TempDir(), "busy.db")); !strings.Contains(busy.Error, "a server runs on") ||
		!strings.Contains(busy.Error, fmt.Sprint(os.Getpid())) {
		t.Errorf("while a server runs: %s", busy.Error)
	}
	if code := server.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// TestPostgresByALesserRole makes the tables as one role and serves as another, which may not.
func TestPostgresByALesserRole(t *testing.T) {
	t.Parallel()
	super := testenv.Postgres(t, "15")
	role, password := testenv.Name(), "se[cr]et/9"
	postgresExec(t, super, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD '%s'`, role, password))
	t.Cleanup(func() { postgresExec(t, super, fmt.Sprintf(`DROP OWNED BY %s; DROP ROLE %s`, role, role)) })
	u, err := url.Parse(super)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	schema := "My Tables"
	args := serveOn(u.String(), "--storage-postgres-schema", schema)
	if r := runWith(nil, args...); r.code != exitFailure || !strings.HasPrefix(lastLine(r.stderr), "Fatal: cannot open the database") {
		t.Errorf("without tables: exit %d, %s", r.code, r.stderr)
	}
	printed := runWith(nil, "migrate", "--print", "--storage-type", "postgres", "--storage-postgres-schema", schema)
	if printed.code != exitOK || !strings.Contains(printed.stdout, "CREATE TABLE") {
		t.Fatalf("%+v", printed)
	}
	postgresExec(t, super, printed.stdout)
	postgresExec(t, super, fmt.Sprintf(`GRANT USAGE ON SCHEMA "%s" TO %s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "%s" TO %s`, schema, role, schema, role))
	r := start(t, args...)
	if _, err := r.client(t).PromiseCreate(t.Context(), protocol.PromiseCreate{ID: "p", TimeoutAt: 1 << 50}); err != nil {
		t.Error(err)
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	wrong := *u
	wrong.User = url.UserPassword(role, "no-such-secret")
	refused := runWith(nil, serveOn(wrong.String())...)
	for _, text := range []string{r.stdout.String(), r.stderr.String(), refused.stdout, refused.stderr} {
		for _, secret := range []string{password, url.QueryEscape(password), url.PathEscape(password), "no-such-secret"} {
			if strings.Contains(text, secret) {
				t.Errorf("a password is shown: %s", text)
			}
		}
	}
}

// TestADatabaseThatMayLoseWrites is refused, unless the operator accepts it, and then says so.
func TestADatabaseThatMayLoseWrites(t *testing.T) {
	t.Parallel()
	super := testenv.Postgres(t, "15")
	u, err := url.Parse(super)
	if err != nil {
		t.Fatal(err)
	}
	postgresExec(t, super, fmt.Sprintf(`ALTER DATABASE %s SET synchronous_commit = off`, strings.Trim(u.Path, "/")))
	if r := runWith(nil, serveOn(super)...); r.code != exitFailure || !strings.Contains(lastLine(r.stderr), "synchronous_commit") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
	r := start(t, serveOn(super, "--accept-data-loss")...)
	if status, body := fetch(t, r.url+"/ready"); status != http.StatusOK || !strings.Contains(body, "synchronous_commit") {
		t.Errorf("/ready: %d %q", status, body)
	}
}

// postgresExec runs SQL on a PostgreSQL server.
func postgresExec(t testing.TB, url, sql string) {
	t.Helper()
	ctx := context.Background() // also when the test has ended
	c, err := pgconn.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, sql).ReadAll(); err != nil {
		t.Fatalf("%v in %s", err, sql)
	}
}
