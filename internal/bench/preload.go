package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxPreloadFailures is how many failed operations a preload repeats before it gives up.
const maxPreloadFailures = 100

// preloadName and preloadPrefix name the preloading clients and their ids, so that Get can name them again.
func preloadName(i int) string { return fmt.Sprintf("p%03d", i) }

func preloadPrefix(run string, i int) string { return "bench-" + run + "-" + preloadName(i) + "-" }

// preload creates and settles the promises that the run wants to be there.
func (r *runner) preload(ctx context.Context) error {
	total := r.config.Preload
	if r.config.Mode == Get {
		total = max(total, defaultGetSet)
	}
	if total == 0 {
		return nil
	}
	start := time.Now()
	if err := r.preloadAll(ctx, total); err != nil {
		return fmt.Errorf("the preload failed: %w", err)
	}
	took := time.Since(start).Milliseconds()
	r.report.Preload = total
	r.report.Objects = int64(total)
	r.plan.getSet = total
	r.report.Preloading = &Preloading{
		Ms:              took,
		ObjectsPerSec:   perSecond(int64(total), took),
		PeakMemoryBytes: r.peakMemory("preloading.peakMemoryBytes"),
	}
	return nil
}

func (r *runner) preloadAll(ctx context.Context, total int) error {
	shared := r.plan
	shared.mode = Lifecycle
	return fill(ctx, &shared, total, (*client).lifecycle, func(done int64) { r.progress("preloading, %d of %d", done, total) })
}

// fill has preloaders make total promises, each with one call of operate, which may be repeated. Once a second progress
// is told how many there are.
func fill(ctx context.Context, shared *plan, total int, operate func(*client) error, progress func(done int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done, failures atomic.Int64
	var running sync.WaitGroup
	for i := range preloaders {
		share := total / preloaders
		if i < total%preloaders {
			share++
		}
		running.Go(func() {
			c := newClient(shared, preloadName(i), func() bool { return false }, nil)
			defer c.close()
			for c.made < int64(share) && ctx.Err() == nil {
				c.conn.limit(time.Now().Add(operationTimeout))
				before := c.made
				if err := operate(c); err != nil {
					c.made = before // all its requests may be repeated
					if failures.Add(1) > maxPreloadFailures {
						cancel(err)
					}
					continue
				}
				done.Add(1)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	for {
		select {
		case <-ended:
			return context.Cause(ctx)
		case <-time.After(time.Second):
			progress(done.Load())
		}
	}
}
