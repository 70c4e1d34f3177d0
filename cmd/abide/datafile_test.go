package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// dataFile makes a data file that a server has used, and returns its path.
func dataFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	if code := start(t, serveArgs(path)...).stop(t); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	return path
}

// change runs SQL on a file that nobody serves.
func change(t *testing.T, path, sql string) {
	t.Helper()
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec(sql); err != nil {
		t.Fatal(err)
	}
}

// TestDataFilesThatCannotBeServed wants one line that says what is wrong with which file and what to do, and the
// exit code of a failure.
func TestDataFilesThatCannotBeServed(t *testing.T) {
	good := dataFile(t)
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sql := func(name, sql string) string {
		path := write(name, content)
		change(t, path, sql)
		return path
	}
	flipped := append([]byte(nil), content...)
	for i := 4096; i < 8192; i++ {
		flipped[i] ^= 0xA5
	}
	for _, c := range []struct {
		name, path string
		says       []string
	}{
		{"a missing folder", filepath.Join(folder, "missing", "x.db"), []string{"does not exist", "missing", "choose another path"}},
		{"a folder", folder, []string{"a folder, not a file", "choose another path"}},
		{"a file as a folder", filepath.Join(good, "x.db"), []string{"x.db", "not a directory"}},
		{"text", write("text.db", []byte(strings.Repeat("a diary, not a database\n", 300))), []string{"text.db", "not an SQLite database"}},
		{"a short text", write("short.db", []byte("hello\n")), []string{"short.db", "not an SQLite database"}},
		{"a file cut off in a page", write("cut.db", content[:len(content)-100]), []string{"cut.db", "cut off", "copy"}},
		{"a file cut off at a page", write("pages.db", content[:len(content)-4096]), []string{"pages.db", "cut off", "copy"}},
		{"a file cut off in its first page", write("first.db", content[:200]), []string{"first.db", "cut off", "copy"}},
		{"a damaged root page", write("flipped.db", flipped), []string{"flipped.db", "damaged", "copy"}},
		{"another program's database", sql("other.db", "PRAGMA application_id = 7"), []string{"another program"}},
		{"a newer format", sql("newer.db", "UPDATE format SET version = 9, min_reader = 8"), []string{"format 9", "format 8", "use a newer version"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, _ := os.ReadFile(c.path)
			r := runWith(nil, serveArgs(c.path)...)
			if line := lastLine(r.stderr); r.code != exitFailure || !strings.HasPrefix(line, "Fatal: cannot open the data file") || r.stdout != "" {
				t.Errorf("exit %d, stderr %q", r.code, r.stderr)
			}
			for _, part := range c.says {
				if !strings.Contains(lastLine(r.stderr), part) {
					t.Errorf("the message %q does not say %q", lastLine(r.stderr), part)
				}
			}
			if after, _ := os.ReadFile(c.path); string(after) != string(before) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestAFormatThatIsOnlyNewerIsServed(t *testing.T) {
	path := dataFile(t)
	change(t, path, "UPDATE format SET version = 9")
	if code := start(t, serveArgs(path)...).stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func TestAnotherSpellingIsTheSameFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	start(t, serveArgs(path)...)
	folder := filepath.Dir(path)
	t.Chdir(folder)
	spellings := []string{"x.db", "./x.db", filepath.Join(folder, "..", filepath.Base(folder)) + "/./x.db"}
	if err := os.Symlink(path, filepath.Join(folder, "y.db")); err == nil { // needs a privilege on Windows
		spellings = append(spellings, "y.db")
	}
	for _, spelling := range spellings {
		r := runWith(nil, serveArgs(spelling)...)
		if r.code != exitFailure || !strings.Contains(r.stderr, "in use") || !strings.Contains(r.stderr, "is held by process") {
			t.Errorf("%s: exit %d, stderr %q", spelling, r.code, r.stderr)
		}
	}
}

// ready asks whether the server is ready, and why not.
func ready(t *testing.T, url string) (status int, why string) {
	t.Helper()
	response, err := http.Get(url + "/ready")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
