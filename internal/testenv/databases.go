package testenv

import (
	"slices"
	"strings"
	"testing"
)

// postgresKind begins the name of a PostgreSQL among the Databases.
const postgresKind = "postgres-"

// Databases are all the database servers that tests run on, PostgreSQL's versions and MySQLKinds, as in postgres-15.
func Databases() []string {
	var out []string
	for _, version := range PostgresVersions {
		out = append(out, postgresKind+version)
	}
	return slices.Concat(out, MySQLKinds)
}

// Database is Postgres or MySQL: it gives a test an empty database of one of the Databases, and returns its URL.
func Database(t testing.TB, kind string) string {
	t.Helper()
	if version, is := strings.CutPrefix(kind, postgresKind); is {
		return Postgres(t, version)
	}
	return MySQL(t, kind)
}
