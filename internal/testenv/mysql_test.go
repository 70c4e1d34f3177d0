package testenv_test

import (
	"testing"

	"abide/internal/testenv"
)

func TestMySQL(t *testing.T) {
	for _, kind := range testenv.MySQLKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if a, b := testenv.MySQL(t, kind), testenv.MySQL(t, kind); a == b {
				t.Errorf("two tests share the database %s", a)
			}
		})
	}
}

func TestKilledMySQL(t *testing.T) {
	for _, kind := range testenv.MySQLKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testenv.StartMySQL(t, kind)
			if err := s.Exec("CREATE DATABASE kept"); err != nil {
				t.Fatal(err)
			}
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := s.Exec("SELECT 1"); err == nil {
				t.Error("a killed server answers")
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			if err := s.Exec("DROP DATABASE kept"); err != nil {
				t.Error(err)
			}
		})
	}
}
