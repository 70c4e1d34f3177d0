package pgkv_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"abide/internal/testenv"
	"abide/kv/pgkv"
)

// A database that ends idle sessions does not end the one that listens: while it is down signals are lost.
func TestListeningOutlivesIdleSessions(t *testing.T) {
	onOne(t, newest, func(t *testing.T, version string) {
		server, name := testenv.Postgres(t, version), testenv.Name()
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		query.Set("application_name", name)
		query.Set("idle_session_timeout", "200")
		u.RawQuery = query.Encode()
		s := open(t, pgkv.Options{URL: u.String()})
		listening := func() error {
			if !s.Stats().Listening {
				return errors.New("the store does not listen")
			}
			return nil
		}
		if err := testenv.Eventually(time.Minute, listening); err != nil {
			t.Fatal(err)
		}
		before := listenerOf(t, server, name)
		time.Sleep(time.Second) // five times what an idle session has; a database that is later makes the test pass, not fail
		if after := listenerOf(t, server, name); before == "" || after != before {
			t.Errorf("the session that listens was %s and is %s", before, after)
		}
	})
}

// listenerOf is the process number of the session that listens under a name; empty for none.
func listenerOf(t *testing.T, server, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgconn.Connect(ctx, server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	r := c.ExecParams(ctx, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND query LIKE '%LISTEN%'", [][]byte{[]byte(name)}, nil, nil, nil).Read()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if len(r.Rows) == 0 {
		return ""
	}
	return string(r.Rows[0][0])
}
