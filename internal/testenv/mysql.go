package testenv

import (
	"context"
	"database/sql"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// The servers of MySQL's protocol that tests run on.
const (
	MariaDB10 = "mariadb-10.11"
	MySQL8    = "mysql-8.0"
)

// MySQLKinds are all of them.
var MySQLKinds = []string{MariaDB10, MySQL8}

//go:embed engines/mariadb.sh
var mariadbScript string

//go:embed engines/mysql.sh
var mysqlScript string

// servingScript is what both source.
//
//go:embed engines/serving.sh
var servingScript string

var mysqlScripts = map[string]string{MariaDB10: mariadbScript, MySQL8: mysqlScript}

// MySQLServer is a running server. Its user root needs no password.
type MySQLServer struct {
	// Address is where it listens, 127.0.0.1:PORT.
	Address string
	// Socket is the path of its unix socket; "" for one that was there already.
	Socket  string
	process *supervised // nil for one that was there already
}

// MySQL gives a test a database of its own, mysql://root@127.0.0.1:PORT/NAME, on the server that this binary keeps
// for the kind, and drops it afterwards. ABIDE_TEST_<KIND>_ADDRESS, as in ABIDE_TEST_MARIADB_10_11_ADDRESS, names a
// server to use instead, HOST:PORT.
func MySQL(t testing.TB, kind string) string {
	t.Helper()
	return KeptMySQL(t, kind).Database(t)
}

var keptMySQL struct {
	mu      sync.Mutex
	servers map[string]*MySQLServer
	errs    map[string]error
}

// KeptMySQL is the server that this binary keeps for a kind. Nobody may kill it.
func KeptMySQL(t testing.TB, kind string) *MySQLServer {
	t.Helper()
	keptMySQL.mu.Lock()
	defer keptMySQL.mu.Unlock()
	if keptMySQL.servers == nil {
		keptMySQL.servers, keptMySQL.errs = map[string]*MySQLServer{}, map[string]error{}
	}
	if keptMySQL.servers[kind] == nil && keptMySQL.errs[kind] == nil {
		variable := "ABIDE_TEST_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(kind)) + "_ADDRESS"
		if address := os.Getenv(variable); address != "" {
			keptMySQL.servers[kind] = &MySQLServer{Address: address}
		} else {
			keptMySQL.servers[kind], keptMySQL.errs[kind] = startMySQL(t, kind)
		}
	}
	return keptMySQL.servers[kind].started(t, kind, keptMySQL.errs[kind])
}

// StartMySQL gives a test a server of its own, which it may kill.
func StartMySQL(t testing.TB, kind string) *MySQLServer {
	t.Helper()
	s, err := startMySQL(t, kind)
	s = s.started(t, kind, err)
	t.Cleanup(func() { _ = s.process.stdin.Close() })
	return s
}

// started ends a test without a server.
func (s *MySQLServer) started(t testing.TB, kind string, err error) *MySQLServer {
	t.Helper()
	if errors.Is(err, errNotInstalled) {
		name, _, _ := strings.Cut(kind, "-")
		Missing(t, "%s is not installed: internal/testenv/engines/%s.sh install %s", kind, name, cacheFolder())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func startMySQL(t testing.TB, kind string) (*MySQLServer, error) {
	path, err := script("serve.sh", mysqlScripts[kind])
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "serving.sh"), []byte(servingScript), 0o600); err != nil {
		return nil, err
	}
	if err := exec.Command(path, "find", cacheFolder()).Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, errNotInstalled)
	}
	port := strconv.Itoa(FreePort(t))
	dir := filepath.Join(filepath.Dir(path), "server")
	process, err := superviseScript(filepath.Join(dir, "log"), path, "serve", dir, port, cacheFolder())
	if err != nil {
		return nil, err
	}
	return &MySQLServer{Address: "127.0.0.1:" + port, Socket: filepath.Join(dir, "m.sock"), process: process}, nil
}

// Kill ends the server by SIGKILL; Start starts it again.
func (s *MySQLServer) Kill() error { return s.process.tell("kill") }

// Start starts a server that was killed, and returns when it answers.
func (s *MySQLServer) Start() error { return s.process.tell("start") }

// Database makes an empty database for t, drops it afterwards, and returns its URL.
func (s *MySQLServer) Database(t testing.TB) string {
	t.Helper()
	name := Name()
	if err := s.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Exec("DROP DATABASE " + name) }) // a test may have killed the server
	return fmt.Sprintf("mysql://root@%s/%s", s.Address, name)
}

// Exec runs statements as root, one after the other, on a connection of its own.
func (s *MySQLServer) Exec(statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Logger = "tcp", s.Address, "root", &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
