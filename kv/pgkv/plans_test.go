package pgkv

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"abide/internal/testenv"
)

// Every statement goes by the index, in a table that nobody has analysed, a large one, and one whose statistics say
// that it is empty.
func TestPlans(t *testing.T) {
	for _, version := range testenv.PostgresVersions {
		t.Run(version, func(t *testing.T) {
			config, _, err := parseURL(testenv.Postgres(t, version))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			pg, err := pgconn.ConnectConfig(ctx, config)
			if err != nil {
				t.Fatal(err)
			}
			defer pg.Close(ctx)
			run := func(sql string) string {
				t.Helper()
				results, err := pg.Exec(ctx, sql).ReadAll()
				if err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
				var lines []string
				for _, row := range results[len(results)-1].Rows {
					lines = append(lines, string(row[0]))
				}
				return strings.Join(lines, "\n")
			}
			run(Schema(""))
			run(settingsSQL(false))
			s := newStatements(tableName(""))
			for _, state := range []string{
				"SELECT 1",
				"INSERT INTO abide.kv SELECT int4send(n), '' FROM generate_series(1, 20000) AS n",
				"ANALYZE abide.kv",
				"DELETE FROM abide.kv; VACUUM abide.kv; ANALYZE abide.kv; INSERT INTO abide.kv SELECT int4send(n), '' FROM generate_series(1, 20000) AS n",
			} {
				for _, sql := range strings.Split(state, "; ") {
					run(sql)
				}
				for _, stmt := range []struct {
					*statement
					args string
				}{
					{&s.lock, `('\x01')`}, {&s.count, `('\x01')`}, {&s.get, `('{a,b,c}')`}, {&s.remove, `('{a,b}')`},
					{&s.scan, `('{a,b}', '{c,d}', '{10,20}')`},
				} {
					run("DEALLOCATE ALL")
					types := map[uint32]string{byteaOID: "bytea", byteaArrayOID: "bytea[]", int4ArrayOID: "int4[]"}
					var names []string
					for _, oid := range stmt.types {
						names = append(names, types[oid])
					}
					run("PREPARE plan (" + strings.Join(names, ", ") + ") AS " + stmt.sql)
					plan := run("EXPLAIN EXECUTE plan " + stmt.args)
					if !strings.Contains(plan, "Index") || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Sort") ||
						strings.Contains(plan, "Hash") || strings.Contains(plan, "JIT") {
						t.Errorf("after %q, %s is planned as\n%s", state, stmt.name, plan)
					}
				}
			}
		})
	}
}
