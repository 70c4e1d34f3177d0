package children

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"unsafe"
)

// getChildSubreaper is PR_GET_CHILD_SUBREAPER of prctl.
const getChildSubreaper = 37

// adopts reports whether the orphans of this process's descendants become its children.
func adopts() bool {
	if os.Getpid() == 1 {
		return true
	}
	var adopts int32
	_, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, getChildSubreaper, uintptr(unsafe.Pointer(&adopts)), 0)
	return failed == 0 && adopts != 0
}

// Fields of /proc/PID/stat behind the name, which is in parentheses and may hold anything.
const (
	statState   = 0
	statParent  = 1
	statStarted = 19
)

// endedChildren are this process's children that have ended and were not waited for, with the times of their starts in
// ticks since the machine's.
func endedChildren() (map[int]uint64, error) {
	self := os.Getpid()
	if text, err := os.Readlink("/proc/self"); err != nil || text != strconv.Itoa(self) {
		return nil, errors.Join(errors.New("/proc is not this system's"), err)
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("/proc: %w", err)
	}
	found := map[int]uint64{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it is gone
		}
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) <= statStarted || string(fields[statState]) != "Z" || string(fields[statParent]) != strconv.Itoa(self) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		started, err2 := strconv.ParseUint(string(fields[statStarted]), 10, 64)
		if err == nil && err2 == nil {
			found[pid] = started
		}
	}
	return found, nil
}

// reap takes a child that has ended from the table of processes.
func reap(pid int) bool {
	got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	return err == nil && got == pid
}
