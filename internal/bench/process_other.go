//go:build !linux

package bench

import (
	"errors"
	"time"
)

var errNoProc = errors.New("another process's CPU time and memory are read on linux only")

// processCPU is not measured here.
func processCPU(int) (time.Duration, error) { return 0, errNoProc }

// processPeakMemory is not measured here.
func processPeakMemory(int) (int64, error) { return 0, errNoProc }

// processMemory is not measured here.
func processMemory(int) (int64, error) { return 0, errNoProc }
