package sim

import (
	"context"
	"sync"
	"sync/atomic"
)

// Many runs the universes of count seeds from a first one on, workers at a time, each on a goroutine of its own. done
// takes every result, one at a time, in no order. It ends early with ctx, between universes. (These are the only
// goroutines of this package; no universe knows of another.)
func Many(ctx context.Context, first, count uint64, workers int, config func(seed uint64) Config, done func(Result)) {
	var next atomic.Uint64
	var mu sync.Mutex
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= count {
					return
				}
				r := Run(config(first + i))
				mu.Lock()
				done(r)
				mu.Unlock()
			}
		})
	}
	running.Wait()
}

// Add adds the counts of another universe.
func (s *Stats) Add(o Stats) {
	s.Events += o.Events
	s.Requests += o.Requests
	s.Heartbeats += o.Heartbeats
	s.Commits += o.Commits
	s.Ticks += o.Ticks
	s.Faults += o.Faults
	s.Lost += o.Lost
	s.Duplicated += o.Duplicated
	s.Delayed += o.Delayed
	s.Conflicts += o.Conflicts
	s.Unknown += o.Unknown
	s.Slow += o.Slow
	s.HintsDropped += o.HintsDropped
	s.Crashes += o.Crashes
	s.Lives += o.Lives
	s.Servers += o.Servers
	s.Pauses += o.Pauses
	s.Leaves += o.Leaves
	s.Inspections += o.Inspections
	s.Pushes += o.Pushes
	s.PushesFailed += o.PushesFailed
	s.PushKills += o.PushKills
	s.Occurrences += o.Occurrences
	s.VirtualMs += o.VirtualMs
}
