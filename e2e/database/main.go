// Command database makes and drops what a store of an end-to-end test lives in on a database server: a database of
// MySQL or MariaDB; on PostgreSQL a schema, which the server under test makes itself.
//
//	database create mysql://root@127.0.0.1:3306/ NAME
//	database drop postgres://postgres@127.0.0.1:5432/postgres NAME
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// patience is how long a statement may take, the connection included.
const patience = 30 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "database:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 || args[0] != "create" && args[0] != "drop" {
		return errors.New("usage: database create|drop URL NAME")
	}
	verb, server, name := strings.ToUpper(args[0]), args[1], args[2]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if strings.HasPrefix(server, "mysql:") {
		return execMySQL(ctx, server, verb+" DATABASE `"+strings.ReplaceAll(name, "`", "``")+"`")
	}
	schema := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	if verb == "DROP" {
		schema = "IF EXISTS " + schema + " CASCADE"
	}
	conn, err := pgconn.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, verb+" SCHEMA "+schema).ReadAll()
	return err
}

func execMySQL(ctx context.Context, server, statement string) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
	c.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}
