package sqlitekv

import (
	"errors"

	"github.com/ncruces/go-sqlite3"

	"abide/kv"
)

// storeName is the name of this engine in errors.
const storeName = "sqlite"

var (
	// ErrInUse: another process, or another store of this one, has the database open. The message names it.
	ErrInUse = errors.New("the database is in use")
	// ErrFormat: the file is not a database of this program, or a newer one wrote it.
	ErrFormat = errors.New("the file cannot be opened by this version")
)

// failure maps an error of SQLite that came before a commit: nothing was committed.
func failure(op string, err error) error {
	return &kv.Error{Is: identity(err), Store: storeName, Op: op, Err: err}
}

// identity says which of the contract's errors an error of SQLite is.
func identity(err error) error {
	var code sqlite3.ErrorCode
	if !errors.As(err, &code) {
		return kv.ErrUnavailable
	}
	switch code {
	case sqlite3.BUSY, sqlite3.LOCKED, sqlite3.INTERRUPT:
		return kv.ErrConflict
	case sqlite3.CORRUPT, sqlite3.NOTADB, sqlite3.FORMAT:
		return kv.ErrCorrupt
	case sqlite3.IOERR:
		if errors.Is(err, sqlite3.IOERR_CORRUPTFS) || errors.Is(err, sqlite3.IOERR_DATA) ||
			errors.Is(err, sqlite3.IOERR_SHORT_READ) {
			return kv.ErrCorrupt
		}
	}
	return kv.ErrUnavailable
}

// isBusy reports whether a lock of another connection was in the way.
func isBusy(err error) bool {
	return errors.Is(err, sqlite3.BUSY) || errors.Is(err, sqlite3.LOCKED)
}
