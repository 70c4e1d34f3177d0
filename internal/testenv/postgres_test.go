package testenv_test

import (
	"testing"
	"time"

	"abide/internal/testenv"
)

func TestPostgres(t *testing.T) {
	for _, version := range testenv.PostgresVersions {
		t.Run(version, func(t *testing.T) {
			if err := testenv.Exec(testenv.Postgres(t, version), "CREATE TABLE a (b int)"); err != nil {
				t.Error(err)
			}
			// The next test has a database of its own.
			if err := testenv.Exec(testenv.Postgres(t, version), "CREATE TABLE a (b int)"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKilledPostgres(t *testing.T) {
	s := testenv.StartPostgres(t, testenv.PostgresVersions[0])
	if err := testenv.Exec(s.URL, "CREATE TABLE a (b int)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := testenv.Exec(s.URL, "SELECT 1"); err == nil {
		t.Error("a killed server answers")
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	err := testenv.Eventually(time.Minute, func() error { return testenv.Exec(s.URL, "SELECT b FROM a") })
	if err != nil {
		t.Error(err)
	}
}
