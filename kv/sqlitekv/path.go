package sqlitekv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ncruces/go-sqlite3"

	"abide/kv"
)

// resolvePath is the one name of a database file: absolute and free of symbolic links, whatever spelling
// leads to it. The file may be missing, its folder may not.
func resolvePath(path string) (string, error) {
	if path == "" {
		return "", errors.New("sqlite: no path for the database file")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlite: %s: %w", path, err)
	}
	if _, err := os.Lstat(absolute); err == nil {
		resolved, err := filepath.EvalSymlinks(absolute)
		if err != nil {
			return "", fmt.Errorf("sqlite: the database path leads nowhere: %w", err)
		}
		if info, err := os.Stat(resolved); err == nil {
			if !info.Mode().IsRegular() {
				return "", fmt.Errorf("sqlite: %s is %s, not a file; choose another path", resolved, kindOf(info))
			}
			// Each name would have a lock and a log of its own: what is committed under one is missing, or
			// undone, under the other.
			if n := names(info); n > 1 {
				return "", fmt.Errorf("sqlite: %s has %d names (hard links), and so would have as many logs: remove the others, "+
					"or copy the file and open the copy", resolved, n)
			}
		}
		return resolved, nil
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(absolute))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("sqlite: the folder %s does not exist: make it, or choose another path: %w", filepath.Dir(absolute), err)
	}
	if err != nil {
		return "", pathError(absolute, err)
	}
	return filepath.Join(folder, filepath.Base(absolute)), nil
}

func kindOf(info fs.FileInfo) string {
	if info.IsDir() {
		return "a folder"
	}
	return "a device, pipe or socket"
}

// pathError says what is in the way of opening a file of the store, and what to do about it.
func pathError(path string, err error) error {
	switch {
	case isDiskFull(err):
		return fmt.Errorf("sqlite: there is no room left on the disk of %s: make room, or choose another path: %w", path, err)
	case isReadOnly(err):
		return fmt.Errorf("sqlite: %s is on a file system that is mounted read-only: choose another path: %w", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("sqlite: no permission to write %s: this process needs to read and write the file, and to make files "+
			"beside it in its folder; change the permissions, the user, or the path: %w", path, err)
	}
	return fmt.Errorf("sqlite: %s cannot be opened: %w", path, err)
}

// explain makes of a failure of SQLite to open the file at path what a person can act on. Other errors stay as
// they are.
func explain(path string, err error) error {
	switch {
	case errors.Is(err, sqlite3.NOTADB):
		return fmt.Errorf("%w: %s is not an SQLite database (or its first page is destroyed); choose another path: %w",
			ErrFormat, path, sqlite3.NOTADB)
	case errors.Is(err, sqlite3.CORRUPT):
		if has, wants := sizes(path); has < wants {
			return &kv.Error{Is: kv.ErrCorrupt, Store: storeName, Op: "open", Err: err,
				Detail: fmt.Sprintf("%s is cut off: it has %d bytes of %d; put back a copy of it", path, has, wants)}
		}
		return &kv.Error{Is: kv.ErrCorrupt, Store: storeName, Op: "open", Err: err,
			Detail: fmt.Sprintf("put back a copy of %s, or keep it and start with another path", path)}
	case errors.Is(err, sqlite3.FULL), isDiskFull(err):
		return pathError(path, errors.Join(errDiskFull, err))
	case errors.Is(err, sqlite3.READONLY):
		return pathError(path, errors.Join(fs.ErrPermission, err))
	}
	return err
}

// headerBytes is the length of the header that every SQLite file begins with.
const headerBytes = 100

// sizes tells how long a database file is, and how long its own header says it is; both 0 if that cannot be
// told. The layout of the header is SQLite's file format: page size at 16, number of pages at 28.
func sizes(path string) (has, wants int64) {
	file, err := os.Open(path)
	if err != nil {
		return 0, 0
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, 0
	}
	header := make([]byte, headerBytes)
	if n, _ := file.ReadAt(header, 0); n < headerBytes {
		return info.Size(), headerBytes
	}
	if !bytes.HasPrefix(header, []byte("SQLite format 3\x00")) {
		return 0, 0
	}
	page := int64(binary.BigEndian.Uint16(header[16:]))
	if page == 1 { // stands for 65,536, which has no room there
		page = 1 << 16
	}
	return info.Size(), page * int64(binary.BigEndian.Uint32(header[28:]))
}
