// Package testenv gives tests what stands around the code that they test: real database servers, and a network
// between them and their clients that can be made to fail. A database server is private to a test binary: on
// 127.0.0.1, on a free port, in a folder of its own, with durable settings; it ends when the binary does, however
// that ends.
package testenv

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed engines/postgres.sh
var postgresScript string

// PostgresVersions are those that tests run on: the oldest that is supported, and the newest.
var PostgresVersions = []string{"15", "18"}

// PostgresServer is a running server. URL is that of its superuser in the database postgres.
type PostgresServer struct {
	URL     string
	process *supervised // nil for one that was there already
}

// Postgres gives a test a database of its own, on the server that this binary keeps for the version, and drops it
// afterwards. The URL is that of a superuser. ABIDE_TEST_POSTGRES_<version>_URL names a server to use instead.
func Postgres(t testing.TB, version string) string {
	t.Helper()
	server, err := keptPostgres(version)
	if errors.Is(err, errNotInstalled) {
		Missing(t, "PostgreSQL %s is not installed: internal/testenv/engines/postgres.sh install %s %s", version, version, cacheFolder())
	}
	if err != nil {
		t.Fatal(err)
	}
	name := Name()
	server.exec(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { server.exec(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	return InDatabase(t, server.URL, name)
}

// StartPostgres gives a test a server of its own, which it may kill.
func StartPostgres(t testing.TB, version string) *PostgresServer {
	t.Helper()
	server, err := startPostgres(version)
	if errors.Is(err, errNotInstalled) {
		Missing(t, "PostgreSQL %s is not installed", version)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.process.stdin.Close() })
	return server
}

// Kill ends the server and all its processes by SIGKILL; Start starts it again.
func (s *PostgresServer) Kill() error { return s.process.tell("kill") }

// Start starts a server that was killed.
func (s *PostgresServer) Start() error { return s.process.tell("start") }

// InDatabase is a URL with another database.
func InDatabase(t testing.TB, server, name string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// exec runs a statement on a connection of its own.
func (s *PostgresServer) exec(t testing.TB, sql string) {
	t.Helper()
	if err := Exec(s.URL, sql); err != nil {
		t.Errorf("%s: %v", sql, err)
	}
}

// Exec runs a statement on a connection of its own to a PostgreSQL server.
func Exec(server, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql).ReadAll()
	return err
}

var kept struct {
	mu      sync.Mutex
	servers map[string]*PostgresServer
	errs    map[string]error
}

// keptPostgres is the binary's server of a version.
func keptPostgres(version string) (*PostgresServer, error) {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.servers == nil {
		kept.servers, kept.errs = map[string]*PostgresServer{}, map[string]error{}
	}
	if kept.servers[version] == nil && kept.errs[version] == nil {
		if u := os.Getenv("ABIDE_TEST_POSTGRES_" + version + "_URL"); u != "" {
			kept.servers[version] = &PostgresServer{URL: u}
		} else {
			kept.servers[version], kept.errs[version] = startPostgres(version)
		}
	}
	return kept.servers[version], kept.errs[version]
}

func startPostgres(version string) (*PostgresServer, error) {
	path, err := script("postgres.sh", postgresScript)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command(path, "find", version, cacheFolder()).Output()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("PostgreSQL %s: %w", version, errNotInstalled), os.RemoveAll(filepath.Dir(path)))
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(filepath.Dir(path), "postgres")
	// The server's user must get through to its folder.
	if err := os.Chmod(filepath.Dir(path), 0o711); err != nil {
		return nil, err
	}
	process, err := superviseScript(filepath.Join(dir, "log"), path, "serve", dir, strconv.Itoa(port), strings.TrimSpace(string(out)))
	if err != nil {
		return nil, err
	}
	return &PostgresServer{URL: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), process: process}, nil
}
