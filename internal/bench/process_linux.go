package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// ticksPerSecond is the unit of times in /proc: fixed at 100 on every architecture that is built for, by
// the kernel's promise to user space.
const ticksPerSecond = 100

// processCPU is the CPU time that the process has used so far, in user and system, all threads.
func processCPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; what follows it does not.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12 // fields 14 and 15 of the whole line
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat has an unexpected form", pid)
	}
	var ticks int64
	for _, field := range []int{user, system} {
		n, err := strconv.ParseInt(string(fields[field]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// processPeakMemory is the most that the process has had resident, in bytes.
func processPeakMemory(pid int) (int64, error) { return processStatus(pid, "VmHWM:") }

// processMemory is what the process has resident now, in bytes.
func processMemory(pid int) (int64, error) { return processStatus(pid, "VmRSS:") }

// processStatus is one of the sizes in /proc/PID/status, in bytes.
func processStatus(pid int, name string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		value, found := bytes.CutPrefix(line, []byte(name))
		if !found {
			continue
		}
		kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
		return kib * 1024, err
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", pid, name)
}
