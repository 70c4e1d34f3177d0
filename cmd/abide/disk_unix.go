//go:build linux || darwin || freebsd

package main

import (
	"path/filepath"
	"syscall"
)

// diskFree is the space that is left where a data file lies, in bytes; negative for a database, and if it cannot be told.
func diskFree(a storeAddress) int64 {
	if a.engine != engineSQLite {
		return -1
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(a.place), &s); err != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
