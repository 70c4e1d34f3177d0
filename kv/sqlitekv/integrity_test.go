package sqlitekv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"abide/kv"
)

func openFilled(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		for i := range 2000 {
			if err := tx.Put(fmt.Appendf(nil, "key %06d", i*7919%2000), make([]byte, 200)); err != nil {
				return err
			}
		}
		return tx.Append([]byte("p"), []byte("entry"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := kv.Compact(context.Background(), s, []byte("p"), kv.EntryPosition{Commit: kv.NewPosition(firstIncarnation, 1)}); err != nil {
		t.Fatal(err)
	}
	return s
}

func findings(s *Store) (found []string, err error) {
	err = s.CheckFile(context.Background(), func(f string) { found = append(found, f) })
	return found, err
}

func TestCheckFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := openFilled(t, path)
	if found, err := findings(s); err != nil || len(found) != 0 {
		t.Errorf("a good file: %q, %v", found, err)
	}
	for sql, says := range map[string]string{
		`INSERT INTO kv VALUES (x'FF6A', x'00')`:         "1 rows of the store's own key space",
		`INSERT INTO journal VALUES (x'41', x'00')`:      "1 rows of the table of the journal are not",
		`INSERT INTO journal VALUES (x'FF30', x'00')`:    "1 rows of the table of the journal are no entry",
		`UPDATE journal SET v = x'00' WHERE k = x'FF7A'`: "counter",
	} {
		if err := s.writer.conn.db.Exec("SAVEPOINT damage; " + sql); err != nil {
			t.Fatal(err)
		}
		var found []string
		if err := s.writer.conn.checkFile(func(f string) { found = append(found, f) }); err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || !strings.Contains(found[0], says) {
			t.Errorf("%s: %q", sql, found)
		}
		if err := s.writer.conn.db.Exec("ROLLBACK TO damage; RELEASE damage"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.CheckFile(ctx, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a caller that has gone: %v", err)
	}
	if found, err := findings(s); err != nil || len(found) != 0 {
		t.Errorf("in the end: %q, %v", found, err)
	}
	s.Close()
	if _, err := findings(s); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
}

// Wherever a page of the file is overwritten, the check says so, or the file does not open.
func TestCheckFileFindsDamagedPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := openFilled(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pages := len(whole) / pageBytes
	if pages < 100 {
		t.Fatalf("only %d pages", pages)
	}
	for page := 0; page < pages; page += 9 {
		damaged := append([]byte(nil), whole...)
		for i := page * pageBytes; i < page*pageBytes+200; i++ {
			damaged[i] ^= 0x5A
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Options{Path: path})
		if err != nil {
			continue
		}
		if found, err := findings(s); err == nil && len(found) == 0 {
			t.Errorf("page %d of %d is destroyed and nothing is found", page+1, pages)
		}
		s.Close()
	}
}
