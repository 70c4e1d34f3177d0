package mysqlkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
)

// parts are the server's address and the database of a URL of testenv.
func parts(url string) (address, database string) {
	rest, _ := strings.CutPrefix(url, "mysql://root@")
	address, database, _ = strings.Cut(rest, "/")
	return address, database
}

func exec(t *testing.T, s *testenv.MySQLServer, statements ...string) {
	t.Helper()
	if err := s.Exec(statements...); err != nil {
		t.Fatal(err)
	}
}

// tryOpen opens and closes a store.
func tryOpen(opt Options) error {
	s, err := Open(context.Background(), opt)
	if err == nil {
		err = s.Close()
	}
	return err
}

// A user that may only read and write the table opens a store whose table somebody else has made. Its password holds
// what URLs are made of.
func TestRoles(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := testenv.KeptMySQL(t, kind)
			address, database := parts(server.Database(t))
			user := testenv.Name()
			exec(t, server, "CREATE TABLE "+database+".other (a int)", fmt.Sprintf("CREATE USER %s IDENTIFIED BY '[p]@:%%{}'", user),
				fmt.Sprintf("GRANT SELECT ON %s.other TO %s", database, user))
			url := "mysql://" + user + ":[p]@:%{}@" + address + "/" + database
			if err := tryOpen(Options{URL: url}); err == nil || !strings.Contains(err.Error(), "abide migrate --print") {
				t.Errorf("without a table, and the right to make it: %v", err)
			}
			exec(t, server, strings.Replace(strings.TrimSuffix(strings.TrimSpace(Schema()), ";"), table, database+"."+table, 1))
			for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
				exec(t, server, fmt.Sprintf("GRANT %s ON %s.%s TO %s", right, database, table, user))
			}
			s := openStore(t, Options{URL: url, Now: time.Now})
			if o := addOnce(t, s, "a"); o != kv.OutcomeCommitted {
				t.Errorf("the outcome is %v", o)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if server.Socket != "" {
				if err := tryOpen(Options{URL: "mysql://root@localhost/" + database + "?socket=" + server.Socket}); err != nil {
					t.Errorf("through the socket: %v", err)
				}
			}
			if err := tryOpen(Options{URL: "mysql://" + user + ":wrong@" + address + "/" + database}); err == nil || strings.Contains(err.Error(), "wrong") {
				t.Errorf("with a wrong password: %v", err)
			}
		})
	}
}

// A server that becomes read-only, as the primary of before a failover does, is left, and asked again until somebody writes.
func TestServerBecomesReadOnly(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := testenv.StartMySQL(t, kind)
			address, database := parts(server.Database(t))
			// root may write in spite of read_only.
			exec(t, server, "CREATE USER abide", fmt.Sprintf("GRANT ALL ON %s.* TO abide", database))
			s := openStore(t, Options{URL: "mysql://abide@" + address + "/" + database, Now: time.Now})
			defer s.Close()
			exec(t, server, "SET GLOBAL read_only=1")
			before := s.Stats().Connects
			if _, err := s.Update(context.Background(), kv.Hints{}, counting("a")); !errors.Is(err, kv.ErrUnavailable) {
				t.Errorf("on a server that has become read-only: %v", err)
			}
			if s.Writable() == nil {
				t.Error("the store calls itself writable")
			}
			if err := testenv.Eventually(time.Minute, func() error {
				if s.Stats().Connects == before {
					return errors.New("the store stays with the server that has become read-only")
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			exec(t, server, "SET GLOBAL read_only=0")
			if err := testenv.Eventually(time.Minute, s.Writable); err != nil {
				t.Error(err)
			}
			if o := addOnce(t, s, "b"); o != kv.OutcomeCommitted {
				t.Errorf("the outcome is %v", o)
			}
			if got := s.Stats().Failures["read-only"]; got == 0 {
				t.Errorf("failures by cause: %v", s.Stats().Failures)
			}
		})
	}
}

// A server whose settings lose commits is refused, unless that is accepted, and then the store says so.
func TestWeakServer(t *testing.T) {
	settings := map[string][]string{
		testenv.MariaDB10: {"innodb_flush_log_at_trx_commit"},
		testenv.MySQL8:    {"innodb_flush_log_at_trx_commit", "sync_binlog"},
	}
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := testenv.StartMySQL(t, kind)
			url := server.Database(t)
			for _, name := range settings[kind] {
				exec(t, server, "SET GLOBAL "+name+"=0")
				if err := tryOpen(Options{URL: url}); !errors.Is(err, ErrDurability) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v", name, err)
				}
				s := openStore(t, Options{URL: url, AcceptDataLoss: true})
				if d := s.Durability(); !strings.Contains(d, name) {
					t.Errorf("%s: the store says %q", name, d)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				exec(t, server, "SET GLOBAL "+name+"=1")
			}
			s := openStore(t, Options{URL: url})
			if d := s.Durability(); d != "durable" {
				t.Errorf("the store says %q", d)
			}
			// It makes durable what was committed while the server was weak.
			if o := addOnce(t, s, "durable"); o != kv.OutcomeCommitted {
				t.Errorf("the outcome is %v", o)
			}
			// A server that becomes weaker is refused when it is connected to again.
			exec(t, server, "SET GLOBAL innodb_flush_log_at_trx_commit=2")
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			exec(t, server, "SET GLOBAL innodb_flush_log_at_trx_commit=2")
			if _, err := s.Update(context.Background(), kv.Hints{}, counting("a")); !errors.Is(err, kv.ErrUnavailable) || !errors.Is(err, ErrDurability) {
				t.Errorf("on a server that has become weaker: %v", err)
			}
			exec(t, server, "SET GLOBAL innodb_flush_log_at_trx_commit=1", "SET GLOBAL read_only=1")
			if err := s.Writable(); err == nil {
				t.Error("the store calls itself writable")
			}
			if err := testenv.Eventually(time.Minute, func() error {
				_, err := s.Update(context.Background(), kv.Hints{}, counting("a"))
				if err == nil || !strings.Contains(err.Error(), "read-only") {
					return fmt.Errorf("on a read-only server: %w", err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			if err := tryOpen(Options{URL: url}); err == nil || !strings.Contains(err.Error(), "read-only") {
				t.Errorf("opening on a read-only server: %v", err)
			}
			exec(t, server, "SET GLOBAL read_only=0")
			if err := testenv.Eventually(time.Minute, s.Writable); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	server := testenv.KeptMySQL(t, testenv.MariaDB10)
	url := server.Database(t)
	_, database := parts(url)
	if err := tryOpen(Options{URL: url}); err != nil {
		t.Fatal(err)
	}
	set := func(key, value []byte) {
		t.Helper()
		exec(t, server, fmt.Sprintf("REPLACE INTO %s.%s VALUES (x'%x', x'%x')", database, table, key, value))
	}
	f := format{version: 7, minReader: formatVersion, incarnation: 3}
	set(formatKey, f.encode())
	s := openStore(t, Options{URL: url})
	if at, err := s.Update(context.Background(), kv.Hints{}, counting("a")); err != nil || at.Incarnation() != 3 {
		t.Errorf("%v, %v", at, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	f.minReader = formatVersion + 1
	set(formatKey, f.encode())
	if err := tryOpen(Options{URL: url}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "use a newer version") {
		t.Errorf("a newer format: %v", err)
	}
	set(formatKey, []byte("x"))
	if err := tryOpen(Options{URL: url}); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("a damaged format: %v", err)
	}
	exec(t, server, fmt.Sprintf("DELETE FROM %s.%s WHERE k=x'%x'", database, table, formatKey))
	if err := tryOpen(Options{URL: url}); !errors.Is(err, ErrFormat) {
		t.Errorf("no format, and rows: %v", err)
	}
	exec(t, server, fmt.Sprintf("DROP TABLE %s.%s", database, table),
		fmt.Sprintf("CREATE TABLE %s.%s (k VARBINARY(900) PRIMARY KEY, v MEDIUMBLOB) ENGINE=MyISAM", database, table))
	if err := tryOpen(Options{URL: url}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "engine myisam") {
		t.Errorf("another engine: %v", err)
	}
	if err := tryOpen(Options{URL: url + "none"}); err == nil || !strings.Contains(err.Error(), "Unknown database") {
		t.Errorf("no database: %v", err)
	}
	if err := tryOpen(Options{URL: url, Readers: -1}); err == nil {
		t.Error("-1 readers were accepted")
	}
}

// Many stores that are opened at once on an empty database are one store.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	url := testenv.MySQL(t, testenv.MariaDB10)
	opened := make(chan *Store)
	const many = 8
	for range many {
		go func() {
			s, err := Open(context.Background(), Options{URL: url, Now: time.Now})
			if err != nil {
				t.Error(err)
			}
			opened <- s
		}()
	}
	committed := 0
	for i := range many {
		if s := <-opened; s != nil {
			if addOnce(t, s, fmt.Sprint(i)) == kv.OutcomeCommitted {
				committed++
			}
			defer s.Close()
			if i == many-1 {
				wantCounted(t, s, committed)
			}
		}
	}
	if committed != many {
		t.Errorf("%d of %d committed", committed, many)
	}
}

// What is larger than a packet is sent in several, and still committed as one.
func TestLargeBatches(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := testenv.StartMySQL(t, kind)
			exec(t, server, fmt.Sprintf("SET GLOBAL max_allowed_packet=%d", minPacketBytes))
			s := openStore(t, Options{URL: server.Database(t)})
			defer s.Close()
			value := func(i int) []byte { return []byte(strings.Repeat("\x00'\\"+string(rune('a'+i)), kv.MaxValueBytes/4)) }
			longKey := func(i int) []byte { return []byte(fmt.Sprintf("%05d", i) + strings.Repeat("\x00", kv.MaxKeyBytes-5)) }
			const values, keys = 12, 150
			_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
				var errs []error
				for i := range values {
					errs = append(errs, tx.Put(fmt.Appendf(nil, "v%d", i), value(i%26)))
				}
				return errors.Join(errs...)
			})
			if err != nil {
				t.Fatal(err)
			}
			var all [][]byte
			for i := range keys {
				all = append(all, longKey(i))
			}
			_, err = s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
				got, err := tx.GetMany(all)
				for i, key := range all {
					if got != nil && got[i] != nil {
						err = errors.Join(err, fmt.Errorf("key %d is there", i))
					}
					err = errors.Join(err, tx.Put(key, nil))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			err = s.View(context.Background(), func(v kv.Snapshot) error {
				entries, err := v.Scan(kv.Range{Start: []byte("v"), End: []byte("w")}, values+1)
				if len(entries) != values {
					err = errors.Join(err, fmt.Errorf("%d values", len(entries)))
				}
				got, err2 := v.GetMany(all)
				for i := range got {
					if got[i] == nil {
						err = errors.Join(err, fmt.Errorf("key %d is not there", i))
					}
				}
				got2, err3 := v.Get([]byte("v11"))
				if string(got2) != string(value(11)) {
					err = errors.Join(err, errors.New("a value is not as it was put"))
				}
				return errors.Join(err, err2, err3)
			})
			if err != nil {
				t.Error(err)
			}
			_, err = s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
				var errs []error
				for _, key := range all {
					errs = append(errs, tx.Delete(key))
				}
				return errors.Join(errs...)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// The early MySQL 8.0 of the tests makes its own authority and certificate, which names no host.
func TestTLS(t *testing.T) {
	t.Parallel()
	if !slices.Contains(kinds(), testenv.MySQL8) {
		t.Skip("where a person waits, MySQL is not started; ABIDE_REQUIRE_ENGINES=1 runs it")
	}
	server := testenv.KeptMySQL(t, testenv.MySQL8)
	url := server.Database(t)
	encrypted := func(parameters string) (bool, error) {
		s, err := Open(context.Background(), Options{URL: url + "?" + parameters})
		if err != nil {
			return false, err
		}
		defer s.Close()
		s.engine.turn.Lock()
		defer s.engine.turn.Unlock()
		cipher := ""
		err = s.engine.session.run("SHOW SESSION STATUS LIKE 'Ssl_cipher'", func(row []driver.Value) error {
			cipher = string(column(row, 1))
			return nil
		})
		return cipher != "", err
	}
	for parameters, want := range map[string]bool{"": true, "ssl-mode=PREFERRED": true, "ssl-mode=REQUIRED": true, "ssl-mode=DISABLED": false} {
		if got, err := encrypted(parameters); got != want || err != nil {
			t.Errorf("%q: encrypted %v, %v", parameters, got, err)
		}
	}
	if _, err := encrypted("ssl-mode=verify_ca"); err == nil || !strings.Contains(err.Error(), "x509") {
		t.Errorf("an authority that nobody knows: %v", err)
	}
	if server.Socket == "" {
		return // another machine's files
	}
	ca := filepath.Join(filepath.Dir(server.Socket), "data", "ca.pem")
	if got, err := encrypted("ssl-mode=verify_ca&ssl-ca=" + ca); !got || err != nil {
		t.Errorf("the authority is known: encrypted %v, %v", got, err)
	}
	if _, err := encrypted("ssl-mode=verify_identity&ssl-ca=" + ca); err == nil || !strings.Contains(err.Error(), "x509") {
		t.Errorf("a certificate of no host: %v", err)
	}
	maria := testenv.MySQL(t, testenv.MariaDB10)
	if err := tryOpen(Options{URL: maria + "?ssl-mode=required"}); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("a server without TLS: %v", err)
	}
}
