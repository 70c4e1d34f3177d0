package sqlitekv

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// The lock is on one byte far behind the content: locked bytes cannot be read by others, and the content is
// there to be read by them.
var lockedByte = windows.Overlapped{OffsetHigh: 1 << 20}

// lockFile takes the exclusive lock or returns errLocked at once. The lock belongs to the open file, so a
// second store of the same process is refused as well.
func lockFile(f *os.File) error {
	at := lockedByte
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return errLocked
	}
	return err
}

func unlockFile(f *os.File) error {
	at := lockedByte
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
}

// syncFolder does nothing: Windows keeps names durable with the files.
func syncFolder(string) error { return nil }

// isDiskFull reports whether the file system has no room left for the process.
func isDiskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

// isReadOnly reports whether the file system takes no writes at all.
func isReadOnly(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }

// names is how many hard links a file has; Windows does not tell with the rest.
func names(os.FileInfo) uint64 { return 1 }
