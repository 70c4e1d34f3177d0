// Package children knows the processes that this one has started, and reaps the orphans that were handed to it: where a
// server is the first process of a container, every process whose parent has ended becomes its child, and stays in the table
// of processes for as long as nobody asks how it ended. What scripts leave behind would fill that table in time.
//
// Whoever starts a process here waits for it, and must not find its status taken. So orphans are waited for one by one, by
// their ids, and never those that the Register knows to be this process's own. A process that another package has started
// by itself is not known; who starts one waits for it at once, so what is reaped is only what has been found ended twice,
// a whole interval apart.
package children

import (
	"context"
	"log/slog"
	"os/exec"
	"sync"
	"time"
)

// Interval is how often Run looks for orphans. One is reaped within twice that.
const Interval = 5 * time.Second

// Register knows which children this process has started and not yet waited for. The zero value is ready to use. It is safe for
// concurrent use; a nil one starts processes as well and knows none.
type Register struct {
	starting sync.RWMutex // held for reading while a process is being started, for writing while orphans are looked for

	mu  sync.Mutex
	own map[int]int // by process id: starts that are not waited for; two for a moment, when an id is used anew
	// ended are the orphans that the last look has found ended, with the time of their start, which tells a process from a later one of the same id.
	ended map[int]uint64
}

// Start starts cmd. When there is no error, the caller must Wait for it with the function returned, and not with cmd's own.
func (r *Register) Start(cmd *exec.Cmd) (wait func() error, err error) {
	if r == nil {
		return cmd.Wait, cmd.Start()
	}
	r.starting.RLock()
	defer r.starting.RUnlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	r.count(pid, 1)
	return func() error {
		defer r.count(pid, -1)
		return cmd.Wait()
	}, nil
}

func (r *Register) count(pid, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own == nil {
		r.own = map[int]int{}
	}
	if r.own[pid] += by; r.own[pid] == 0 {
		delete(r.own, pid)
	}
}

// Run reaps orphans until ctx ends, if there may be any: where this process is the first of its system, or was told to adopt
// those of its descendants. Elsewhere it returns at once.
func (r *Register) Run(ctx context.Context, log *slog.Logger) {
	if !adopts() {
		return
	}
	ticks := time.NewTicker(Interval)
	defer ticks.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		n, err := r.Look()
		if n > 0 {
			log.Debug("orphans were reaped", "processes", n)
		}
		if err != nil && !failing {
			log.Warn("processes that scripts leave behind cannot be found; start the server with an init process", "error", err)
		}
		failing = err != nil
	}
}

// Look reaps the orphans that the last Look has found ended already, and tells how many. An error: the table of processes cannot be
// read. Looks of one Register follow one another with an Interval between them.
func (r *Register) Look() (reaped int, err error) {
	r.starting.Lock()
	defer r.starting.Unlock()
	found, err := endedChildren()
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.ended
	r.ended = map[int]uint64{}
	for pid, started := range found {
		if r.own[pid] > 0 {
			continue
		}
		if before, known := last[pid]; known && before == started && reap(pid) {
			reaped++
			continue
		}
		r.ended[pid] = started
	}
	return reaped, nil
}
