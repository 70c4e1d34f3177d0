//go:build unix

package main

import (
	"math"
	"syscall"
)

// maxOpenFiles is how many files the process may have open; Go has raised it to what the system allows.
func maxOpenFiles() (n int, known bool) {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0, false
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)), true
}
