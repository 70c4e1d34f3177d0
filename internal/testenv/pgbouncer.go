package testenv

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// supervisePooler runs PgBouncer until standard input ends, however its parent does, as a user that is not root.
const supervisePooler = `
[ "$(id -u)" = 0 ] && user="-u postgres"
pgbouncer -q $user "$1" </dev/null >/dev/null 2>&1 &
read -r line
kill -9 $!
rm -rf "$(dirname "$1")"`

// PgBouncer starts a pooler in transaction mode before the server of a URL, and returns the URL through it. It keeps
// few connections, so that transactions of one client run on several.
func PgBouncer(t testing.TB, server string) string {
	t.Helper()
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		Missing(t, "PgBouncer is not installed (Debian's package pgbouncer)")
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "abide-testenv-")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`[databases]
* = host=%s port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
server_round_robin = 1
max_client_conn = 500
`, u.Hostname(), u.Port(), port)
	path := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", supervisePooler, "pgbouncer", path)
	life, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = life.Close()
		_ = cmd.Wait()
	})
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	err = Eventually(time.Minute, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c, err := pgconn.Connect(ctx, u.String())
		if err == nil {
			_ = c.Close(ctx)
		}
		return err
	})
	if err != nil {
		t.Fatalf("the pooler does not serve: %v", err)
	}
	return u.String()
}
