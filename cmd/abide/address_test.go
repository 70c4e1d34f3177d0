package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"abide/kv"
)

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]storeAddress{
		"abide.db":     {engine: engineSQLite, place: "abide.db"},
		"/data/a b.db": {engine: engineSQLite, place: "/data/a b.db"},
		"postgres://u:p@h:5432/d?sslmode=require":       {engine: enginePostgres, place: "postgres://u:p@h:5432/d?sslmode=require"},
		"PostgreSQL://h/d":                              {engine: enginePostgres, place: "PostgreSQL://h/d"},
		"postgres://":                                   {engine: enginePostgres, place: "postgres://"},
		"postgres://h/d?schema=My%20Schema":             {engine: enginePostgres, place: "postgres://h/d", schema: "My Schema"},
		"postgres://h/d?a=%5B&schema=x&b=c":             {engine: enginePostgres, place: "postgres://h/d?a=%5B&b=c", schema: "x"},
		"mysql://u@h/d?schema=x":                        {engine: engineMySQL, place: "mysql://u@h/d?schema=x"},
		"mysql://u:p[a]ss/w@h:3306/d?tls=true&schema=1": {engine: engineMySQL, place: "mysql://u:p[a]ss/w@h:3306/d?tls=true&schema=1"},
	} {
		got, err := parseAddress(text)
		if err != nil || got != want {
			t.Errorf("%s: %#v, %v, want %#v", text, got, err, want)
		}
	}
	for _, text := range []string{"", ":memory:", "file:x.db", "redis://h", "postgres://h/d?schema=%zz"} {
		if a, err := parseAddress(text); err == nil {
			t.Errorf("%q is %#v", text, a)
		}
	}
}

// TestSecretsAreHidden holds texts that people and logs see against the secrets in an address.
func TestSecretsAreHidden(t *testing.T) {
	for text, shown := range map[string]string{
		"postgres://u:se[cr]et@h/d?sslmode=require":      "postgres://u:***@h/d?sslmode=require",
		"postgres://u:se%5Bcr%5Det@h/d":                  "postgres://u:***@h/d",
		"postgres://u:s3cr@et@h/d":                       "postgres://u:***@h/d",
		"postgres://u@h/d":                               "postgres://u@h/d",
		"postgres://h/d?password=se[cr]et&user=u":        "postgres://h/d?password=***&user=u",
		"postgres://h/d?user=u&sslpassword=se%5Bcr%5Det": "postgres://h/d?user=u&sslpassword=***",
		"mysql://u:se[cr]et/w@h/d":                       "mysql://u:***@h/d",
		"postgres://u:se[cr]et@h/d?schema=x":             "postgres://u:***@h/d schema x",
		"postgres://u:s@[]:/%?# x@h/d":                   "postgres://u:***@h/d",
		"postgres://u:se?cret@h/d?schema=x":              "postgres://u:***@h/d schema x",
		"postgres://h/d?password=se[cr]et@x&user=u":      "postgres://h/d?password=***&user=u",
		"mysql://u:s@cr?e=t@h/d":                         "mysql://u:***@h/d",
	} {
		a, err := parseAddress(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := a.String(); got != shown {
			t.Errorf("%s is shown as %s, want %s", text, got, shown)
		}
		cause := &kv.Error{Is: kv.ErrUnavailable, Detail: "at " + a.place + " with password se[cr]et and se%5Bcr%5Det and s3cr@et"}
		hidden := a.hide(fmt.Errorf("cannot connect: %w", cause))
		if !errors.Is(hidden, kv.ErrUnavailable) {
			t.Errorf("%s: %v is no longer what it was", text, hidden)
		}
		for _, secret := range secrets(a.place) {
			if strings.Contains(hidden.Error(), secret) {
				t.Errorf("%s: the error shows %q: %v", text, secret, hidden)
			}
		}
		if len(secrets(a.place)) == 0 && shown != a.place {
			t.Errorf("%s has no secrets", text)
		}
	}
}

// TestSecretsOfCommandLinesAreHidden holds sentences about a command line that is not understood against the passwords in it.
func TestSecretsOfCommandLinesAreHidden(t *testing.T) {
	for text, shown := range map[string]string{
		"unexpected argument postgres://u:s@[]:%41 x@h/d?schema=x":         "unexpected argument postgres://u:***@h/d?schema=x",
		"unexpected argument mysql://u:secret@h/d, and postgres://v:w@i/e": "unexpected argument mysql://u:***@i/e",
		"unexpected argument http://localhost:8001, and user@host":         "unexpected argument http://localhost:8001, and user@host",
		"unexpected argument http://u:s3cret@h/w/x and more":               "unexpected argument http://u:***@h/w/x and more",
		`poll://any@a b: the part is any, as in poll://any@group/worker`:   `poll://any@a b: the part is any, as in poll://any@group/worker`,
		"unexpected argument postgres://h/d?password=a b":                  "unexpected argument postgres://h/d?password=***",
		"no such thing as http://localhost:8001 there":                     "no such thing as http://localhost:8001 there",
	} {
		if got := withoutPasswords(text); got != shown {
			t.Errorf("%s\nis shown as %s\nwant        %s", text, got, shown)
		}
	}
}

// TestURLsOfServersHideTheirPasswords: with some SDKs the token is the password in the server's URL. (docs/auth.md)
func TestURLsOfServersHideTheirPasswords(t *testing.T) {
	for _, args := range [][]string{
		{"promises", "get", "x", "--deadline", "10s", "-S", "http://u:s3cret@127.0.0.1:1"},
		{"promises", "get", "x", "-S", "http://u:s3cret@127.0.0.1:1/?q"},
		{"promises", "get", "x", "-S", "ftp://u:s3cret@h"},
		{"promises", "get", "x", "-S", "http://u:s3cret x@h"},
		{"ready", "--url", "http://u:s3cret@127.0.0.1:1"},
		{"ready", "--url", "http://u:s3cret x@h"},
		{"verify", "http://u:s3cret@127.0.0.1:1"},
		{"wait", "x", "-S", "http://u:s3cret@127.0.0.1:1"},
		{"tree", "x", "-S", "http://u:s3cret@127.0.0.1:1"},
	} {
		if r := runWith(nil, args...); r.code == exitOK || r.stderr == "" || strings.Contains(r.stdout+r.stderr, "s3cret") {
			t.Errorf("%q: exit %d, %s%s", args, r.code, r.stdout, r.stderr)
		}
	}
}

func TestStorageSettings(t *testing.T) {
	pg, my := "postgres://h/d", "mysql://h/d"
	for _, c := range []struct {
		settings storageSettings
		engine   string
		place    string
	}{
		{storageSettings{}, engineSQLite, "x.db"},
		{storageSettings{StoragePostgresURL: pg}, enginePostgres, pg},
		{storageSettings{StorageMySQLURL: my}, engineMySQL, my},
		{storageSettings{StorageType: engineMySQL, StorageMySQLURL: my, StoragePostgresURL: pg}, engineMySQL, my},
		{storageSettings{StorageType: engineSQLite, StoragePostgresURL: pg}, engineSQLite, "x.db"},
	} {
		a, err := c.settings.address("x.db")
		if err != nil || a.engine != c.engine || a.place != c.place {
			t.Errorf("%+v: %#v, %v", c.settings, a, err)
		}
	}
	a, err := (&storageSettings{StoragePostgresURL: pg + "?schema=a", StoragePostgresSchema: "b", StoragePostgresListenURL: "postgres://l", StoragePostgresPoolSize: 3, AcceptDataLoss: true}).address("")
	want := storeAddress{engine: enginePostgres, place: pg, schema: "b", listenURL: "postgres://l", poolSize: 3, acceptDataLoss: true}
	if err != nil || a != want {
		t.Errorf("%#v, %v", a, err)
	}
	for says, s := range map[string]storageSettings{
		"--storage-type":         {StoragePostgresURL: pg, StorageMySQLURL: my},
		"--storage-postgres-url": {StorageType: enginePostgres},
		"--storage-mysql-url":    {StorageType: engineMySQL, StoragePostgresURL: pg},
	} {
		if a, err := s.address("x"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %#v, %v", s, a, err)
		}
	}
}

// TestDevIgnoresTheEnvironmentForItsStore gives dev the variables of a production server.
func TestDevIgnoresTheEnvironmentForItsStore(t *testing.T) {
	t.Chdir(t.TempDir())
	r := startIn(t, []string{"RESONATE_STORAGE__TYPE=mysql", "ABIDE_STORAGE__POSTGRES__URL=postgres://127.0.0.1:1/production"}, "dev", "--server-port", "0")
	if out := r.stdout.String(); !strings.Contains(out, devFile) {
		t.Errorf("it serves %s", out)
	}
	if code := r.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
	if help := runWith(nil, "dev", "--help").stdout; strings.Contains(help, "ABIDE_STORAGE__") {
		t.Error("the help names variables that dev does not read")
	}
}
