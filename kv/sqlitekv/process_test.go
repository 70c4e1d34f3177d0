package sqlitekv_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"abide/kv/sqlitekv"
)

// startChild starts the process, waits until it has opened the store and written, and returns it.
func startChild(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd, lines := spawn(t, path)
	if !lines.Scan() {
		t.Fatal("the process printed nothing")
	}
	go func() { // so that it can go on
		for lines.Scan() {
		}
	}()
	return cmd
}

// spawn starts the process and returns it with the lines that it prints.
func spawn(t *testing.T, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childPath+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

func TestAnotherProcessIsRefusedAndNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	cmd := startChild(t, path)
	_, err := sqlitekv.Open(sqlitekv.Options{Path: path})
	host, _ := os.Hostname()
	if !errors.Is(err, sqlitekv.ErrInUse) {
		t.Fatalf("error %v", err)
	}
	for _, part := range []string{fmt.Sprintf("process %d ", cmd.Process.Pid), host, "since ", path} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message %q does not name %q", err, part)
		}
	}
}

// A file has one writer, however its path is spelled. (G4)
func TestEverySpellingIsTheSameStore(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a.db")
	s := open(t, path)
	t.Chdir(folder)
	spellings := []string{path, "a.db", "./a.db", folder + "/./x/../a.db"}
	if runtime.GOOS != "windows" { // where links need a privilege
		for name, target := range map[string]string{"link.db": path, "folder": folder, "relative.db": "a.db"} {
			if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
		spellings = append(spellings, "link.db", "folder/a.db", "folder/link.db", "relative.db")
	}
	for _, spelling := range spellings {
		if _, err := sqlitekv.Open(sqlitekv.Options{Path: spelling}); !errors.Is(err, sqlitekv.ErrInUse) {
			t.Errorf("%s: %v", spelling, err)
		}
	}
	put(t, s, "k", "v")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, spelling := range spellings {
		s := open(t, spelling)
		if v := get(t, s, "k"); v != "v" {
			t.Errorf("%s: the value is %q", spelling, v)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFileWithTwoNamesIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not tell how many names a file has")
	}
	folder := t.TempDir()
	path, other := filepath.Join(folder, "a.db"), filepath.Join(folder, "b.db")
	s := open(t, path)
	put(t, s, "k", "v")
	if err := os.Link(path, other); err != nil {
		t.Skipf("this file system has no hard links: %v", err)
	}
	if _, err := sqlitekv.Open(sqlitekv.Options{Path: other}); err == nil || !strings.Contains(err.Error(), "2 names") {
		t.Errorf("the second name of an open file: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if v := get(t, open(t, other), "k"); v != "v" {
		t.Errorf("under the name that is left the value is %q", v)
	}
}

func TestPathsThatCannotBeOpened(t *testing.T) {
	folder := t.TempDir()
	garbage := filepath.Join(folder, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is no database ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"no path":           "",
		"no folder":         filepath.Join(folder, "missing", "a.db"),
		"a folder":          folder,
		"not a database":    garbage,
		"a file as folder":  filepath.Join(garbage, "a.db"),
		"a name of no file": filepath.Join(folder, "nul\x00.db"),
	} {
		if s, err := sqlitekv.Open(sqlitekv.Options{Path: path}); err == nil {
			t.Errorf("%s: opened", name)
			_ = s.Close()
		}
	}
	for _, name := range []string{"with space.db", "percent%20.db", "what?.db", "hash#.db", "file:x.db", "ünï.db"} {
		if runtime.GOOS == "windows" && strings.ContainsAny(name, "?:") {
			continue
		}
		path := filepath.Join(folder, name)
		s := open(t, path)
		put(t, s, "k", "v")
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFilesAreTheOwnersOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	folder := t.TempDir()
	s := open(t, filepath.Join(folder, "a.db"))
	put(t, s, "k", "v")
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 4 {
		t.Errorf("%d files, want the database and its -wal, -shm and .lock", len(entries))
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o", e.Name(), mode)
		}
	}
}

func TestAClosedStoreIsOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s := open(t, path)
	put(t, s, "k", "v")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "b.db")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path + "-wal"); err == nil && info.Size() > 0 {
		t.Errorf("a log of %d bytes is left", info.Size())
	}
	if v := get(t, open(t, copied), "k"); v != "v" {
		t.Errorf("a copy of the file alone holds %q", v)
	}
}
