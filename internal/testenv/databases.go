package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// postgresKind begins the name of a PostgreSQL among the Databases.
const postgresKind = "postgres-"

// Databases are the database servers that a test runs on which wants the same of each, as in postgres-15: all of
// PostgresVersions and MySQLKinds in the long variants (ABIDE_LONG) and where engines are required
// (ABIDE_REQUIRE_ENGINES). Where a person waits, one of each protocol is enough.
func Databases() []string {
	if os.Getenv("ABIDE_LONG") == "" && os.Getenv("ABIDE_REQUIRE_ENGINES") != "1" {
		return []string{postgresKind + PostgresVersions[0], MySQLKinds[0]}
	}
	var out []string
	for _, version := range PostgresVersions {
		out = append(out, postgresKind+version)
	}
	return slices.Concat(out, MySQLKinds)
}

// Database gives a test an empty database of a kind of the Databases, and returns its URL: it is Postgres or MySQL.
func Database(t testing.TB, kind string) string {
	t.Helper()
	if version, is := strings.CutPrefix(kind, postgresKind); is {
		return Postgres(t, version)
	}
	return MySQL(t, kind)
}
