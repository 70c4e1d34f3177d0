package pgkv_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/pgkv"
)

// as is a URL with another user.
func as(t *testing.T, server, user, password string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

func mustExec(t *testing.T, server, sql string) {
	t.Helper()
	if err := testenv.Exec(server, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// A role that may do nothing but serve the store, in a schema that somebody else has made from what Schema returns.
func TestLeastPrivilege(t *testing.T) {
	onOne(t, newest, func(t *testing.T, version string) {
		const schema = `My "own" Schema`
		server, role := testenv.Postgres(t, version), testenv.Name()
		mustExec(t, server, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'p[a]ss'", role))
		t.Cleanup(func() { mustExec(t, server, fmt.Sprintf("DROP OWNED BY %s; DROP ROLE %s", role, role)) })
		opt := pgkv.Options{URL: as(t, server, role, "p[a]ss"), Schema: schema, Now: time.Now}
		_, err := pgkv.Open(context.Background(), opt)
		if err == nil || !strings.Contains(err.Error(), "migrate --print") {
			t.Fatalf("a role that may not make the schema: %v", err)
		}
		mustExec(t, server, pgkv.Schema(schema))
		mustExec(t, server, pgkv.Schema(schema)) // changes nothing
		mustExec(t, server, fmt.Sprintf(`GRANT USAGE ON SCHEMA "My ""own"" Schema" TO %s; GRANT SELECT, INSERT, UPDATE, DELETE ON "My ""own"" Schema".kv TO %s`, role, role))
		s := open(t, opt)
		var l ledger
		if err := l.run(s); err != nil {
			t.Error(err)
		}
		l.check(t, s, s)
	})
}

func TestOpenRefuses(t *testing.T) {
	onOne(t, oldest, func(t *testing.T, version string) {
		for name, tc := range map[string]struct{ sql, says string }{
			"commits that are not durable":   {"ALTER ROLE %[1]s SET synchronous_commit = off", "synchronous_commit is off"},
			"a format that it does not know": {`UPDATE abide.kv SET v = '\x000000630000006300000001' WHERE k = '\xff66'`, "has format 99"},
			"a table of somebody else's":     {"DELETE FROM abide.kv", "not a store"},
			"a table with other columns":     {"ALTER TABLE abide.kv RENAME k TO kk", "cannot be read"},
			"a counter that does not decode": {`UPDATE abide.kv SET v = '\x00' WHERE k = '\xff7a'`, "damaged"},
			"a role that may not read it":    {"REVOKE SELECT ON abide.kv FROM %[1]s", "cannot be read"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server, role := testenv.Postgres(t, version), testenv.Name()
				mustExec(t, server, pgkv.Schema(""))
				mustExec(t, server, fmt.Sprintf(`CREATE ROLE %[1]s LOGIN; GRANT USAGE ON SCHEMA abide TO %[1]s; GRANT SELECT, INSERT, UPDATE, DELETE ON abide.kv TO %[1]s`, role))
				t.Cleanup(func() { mustExec(t, server, fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role)) })
				opt := pgkv.Options{URL: as(t, server, role, ""), Now: time.Now}
				if err := open(t, opt).Close(); err != nil {
					t.Fatal(err)
				}
				sql := tc.sql
				if strings.Contains(sql, "%[1]s") {
					sql = fmt.Sprintf(sql, role)
				}
				mustExec(t, server, sql)
				_, err := pgkv.Open(context.Background(), opt)
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Fatalf("%v, want it to say %q", err, tc.says)
				}
				if name == "commits that are not durable" {
					opt.AcceptDataLoss = true
					if d := open(t, opt).Durability(); d != tc.says {
						t.Errorf("the durability is %q", d)
					}
				}
			})
		}
	})
}

// A newer server has changed the format while this one runs: it stops writing, and says why.
func TestFormatChangesMeanwhile(t *testing.T) {
	server := testenv.Postgres(t, newest)
	s := open(t, pgkv.Options{URL: server})
	var l ledger
	if err := l.run(s); err != nil {
		t.Fatal(err)
	}
	mustExec(t, server, `CREATE TABLE before AS SELECT * FROM abide.kv; UPDATE abide.kv SET v = '\x000000630000006300000001' WHERE k = '\xff66'`)
	if err := l.run(s); !errors.Is(err, kv.ErrUnavailable) || !strings.Contains(err.Error(), "format 99") {
		t.Errorf("a write: %v", err)
	}
	if err := s.Writable(); err == nil {
		t.Error("the store says that it can write")
	}
	mustExec(t, server, `UPDATE abide.kv SET v = before.v FROM before WHERE before.k = kv.k AND kv.k = '\xff66'`)
	if err := testenv.Eventually(time.Minute, s.Writable); err != nil {
		t.Error(err)
	}
	if err := l.run(s); err != nil {
		t.Error(err)
	}
	l.check(t, s, s)
}

// A standby cannot be written: writes are refused, reads are answered.
func TestReadOnlyServer(t *testing.T) {
	server := testenv.Postgres(t, oldest)
	s := open(t, pgkv.Options{URL: server})
	if d := s.Durability(); d != "durable" || !s.Shared() {
		t.Errorf("the durability is %q, shared: %v", d, s.Shared())
	}
	var l ledger
	if err := l.run(s); err != nil {
		t.Fatal(err)
	}
	mustExec(t, server, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '25006'; END $$;"+
		"CREATE TRIGGER refuse BEFORE INSERT ON abide.kv FOR EACH STATEMENT EXECUTE FUNCTION refuse()")
	if err := l.run(s); !errors.Is(err, kv.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a write: %v", err)
	}
	mustExec(t, server, "DROP TRIGGER refuse ON abide.kv")
	if err := l.run(s); err != nil {
		t.Error(err)
	}
	l.check(t, s, s)
}

// Rows of servers that are gone do not pile up for ever.
func TestForgottenWriters(t *testing.T) {
	server := testenv.Postgres(t, oldest)
	mustExec(t, server, pgkv.Schema("")+
		`INSERT INTO abide.kv SELECT '\xff77' || int8send(n), int8send(n) FROM generate_series(1, 2500) AS n`)
	s := open(t, pgkv.Options{URL: server})
	var l ledger
	if err := l.run(s); err != nil {
		t.Error(err)
	}
	mustExec(t, server, `DO $$ BEGIN
		IF (SELECT count(*) FROM abide.kv WHERE k >= '\xff77' AND k < '\xff78') <> 1001 THEN RAISE 'other rows are left'; END IF;
		IF (SELECT count(*) FROM abide.kv WHERE k >= '\xff77' AND k < '\xff78' AND v > int8send(1500)) <> 1000 THEN RAISE 'the wrong rows are left'; END IF;
		END $$`)
	l.check(t, s, s)
}
