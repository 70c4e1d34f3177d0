package pgkv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"abide/kv"
)

const storeName = "postgres"

// failure gives an error of the driver or the server its identity: nothing was committed. What a lost COMMIT came
// to is not for it to say; see writer.Commit.
func failure(op string, err error) error {
	var known *kv.Error
	if errors.As(err, &known) {
		return err
	}
	is, detail := kv.ErrUnavailable, ""
	var server *pgconn.PgError
	if errors.As(err, &server) {
		detail, is = identity(server)
	}
	return &kv.Error{Is: is, Store: storeName, Op: op, Detail: detail, Err: redacted{err}}
}

// identity says what an error of the server means, by its SQLSTATE, and what to do about it.
func identity(e *pgconn.PgError) (detail string, is error) {
	switch e.Code {
	case "40001", "40P01", "55P03": // serialization, deadlock, lock timeout
		return "", kv.ErrConflict
	case "57014":
		return "a statement took longer than its timeout", kv.ErrUnavailable
	case "25006":
		return "the server is read-only: it is a standby, or default_transaction_read_only is on", kv.ErrUnavailable
	case "42501":
		return "the role may not use the table: see docs/storage-postgres.md for what it needs", kv.ErrUnavailable
	case "42P01", "3F000":
		return "the table is not there: the database may be another one than before", kv.ErrUnavailable
	case "53100":
		return "the server's disk is full", kv.ErrUnavailable
	}
	switch {
	case strings.HasPrefix(e.Code, "XX") && e.Code != "XX000":
		return "the server reports damaged data", kv.ErrCorrupt
	case strings.HasPrefix(e.Code, "53"):
		return "the server has no more connections, memory or space", kv.ErrUnavailable
	}
	return "", kv.ErrUnavailable
}

// cause names the kind of an error for the counters: SQLSTATE, or what happened to the connection.
func cause(err error) string {
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server):
		return server.Code
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "connection"
}

// isServerError reports whether the server itself refused, and the connection lives.
func isServerError(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Severity != "FATAL" && server.Severity != "PANIC"
}

// redacted keeps an error's chain and leaves keys and values, which the server likes to quote in its details, out
// of its text.
type redacted struct{ error }

func (r redacted) Error() string {
	var server *pgconn.PgError
	if errors.As(r.error, &server) {
		return fmt.Sprintf("%s (SQLSTATE %s)", server.Message, server.Code)
	}
	return r.error.Error()
}

func (r redacted) Unwrap() error { return r.error }
