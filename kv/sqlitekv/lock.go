package sqlitekv

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// fileLock keeps every other store away from a database. It is a lock of the operating system on a file
// beside the database, so it ends with the process, however that ends; what the file says is only for the
// message that another one gets. The file is never removed: whoever had it open could lock a file that
// nobody else sees.
type fileLock struct{ file *os.File }

// holder is what a lock file says about the process that has the lock.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since,omitzero"`
}

// String is how messages name the holder.
func (h holder) String() string {
	s := fmt.Sprintf("process %d on host %q", h.PID, h.Host)
	if !h.Since.IsZero() {
		s += " since " + h.Since.Format(time.RFC3339)
	}
	return s
}

// maxHolderBytes is how much of a lock file is read.
const maxHolderBytes = 4096

// errLocked is what the operating system's lock functions return when somebody else has the lock.
var errLocked = errors.New("locked")

// acquireLock locks the database at path, which is free of symbolic links. ErrInUse if somebody else has it.
func acquireLock(path string, now func() time.Time) (*fileLock, error) {
	lockPath := path + ".lock"
	file, err := os.OpenFile(lockPath, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, pathError(lockPath, err)
	}
	if err := lockFile(file); err != nil {
		defer file.Close()
		if !errors.Is(err, errLocked) {
			return nil, fmt.Errorf("sqlite: %s cannot be locked: %w", lockPath, err)
		}
		return nil, fmt.Errorf("%w: %s is held by %s; stop that process or choose another path",
			ErrInUse, path, readHolder(file))
	}
	h := holder{PID: os.Getpid(), Host: "unknown"}
	if name, err := os.Hostname(); err == nil {
		h.Host = name
	}
	if now != nil {
		h.Since = now().UTC().Truncate(time.Second)
	}
	if err := writeHolder(file, h); err != nil {
		file.Close()
		return nil, pathError(lockPath, err)
	}
	return &fileLock{file}, nil
}

// readHolder says who has the lock, as far as the file tells: its writer may be between locking and writing.
func readHolder(file *os.File) string {
	content, err := io.ReadAll(io.NewSectionReader(file, 0, maxHolderBytes))
	var h holder
	if err != nil || json.Unmarshal(content, &h) != nil || h.PID == 0 {
		return "another process that has just started"
	}
	return h.String()
}

func writeHolder(file *os.File, h holder) error {
	content, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(append(content, '\n'), 0)
	return err
}

// release gives the lock back. The file stays, empty.
func (l *fileLock) release() error {
	err := l.file.Truncate(0)
	return errors.Join(err, unlockFile(l.file), l.file.Close())
}
