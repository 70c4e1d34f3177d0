package trace

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Bounds of what waits for the collector.
const (
	// maxQueued is how many spans wait; one more is dropped. A span takes about a KiB.
	maxQueued = 4096
	// maxBatch is how many are sent at once.
	maxBatch = 512
	// sendInterval is how long the first of them waits for company.
	sendInterval = 5 * time.Second
	// sendTimeout bounds one sending, with its repetitions.
	sendTimeout = 15 * time.Second
)

// pipe takes ended spans to an exporter, on a goroutine of its own. Whoever ends a span waits for nothing. It is an
// sdk.SpanProcessor, instead of the SDK's own, for the counts of what was dropped, and so that a collector that fails is told
// of once and not with every batch.
type pipe struct {
	exporter sdk.SpanExporter
	log      *slog.Logger

	queue    chan sdk.ReadOnlySpan
	full     chan struct{} // holds a token once a batch is there
	stopping chan struct{}
	ended    chan struct{}
	once     sync.Once
	sending  context.Context // ends when a stop has no time left
	cut      context.CancelFunc

	exported, failed, dropped atomic.Uint64
	failing                   bool
}

var _ sdk.SpanProcessor = (*pipe)(nil)

func newPipe(exporter sdk.SpanExporter, log *slog.Logger) *pipe {
	p := &pipe{exporter: exporter, log: log, queue: make(chan sdk.ReadOnlySpan, maxQueued), full: make(chan struct{}, 1),
		stopping: make(chan struct{}), ended: make(chan struct{})}
	p.sending, p.cut = context.WithCancel(context.Background())
	go p.run()
	return p
}

// OnStart implements sdk.SpanProcessor.
func (p *pipe) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements sdk.SpanProcessor. It never blocks.
func (p *pipe) OnEnd(s sdk.ReadOnlySpan) {
	select {
	case <-p.stopping:
		p.dropped.Add(1)
		return
	default:
	}
	select {
	case p.queue <- s:
	default:
		p.dropped.Add(1)
	}
	if len(p.queue) >= maxBatch {
		select {
		case p.full <- struct{}{}:
		default:
		}
	}
}

// ForceFlush implements sdk.SpanProcessor. Nobody calls it: a stop sends all.
func (p *pipe) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdk.SpanProcessor: it sends what waits until ctx ends.
func (p *pipe) Shutdown(ctx context.Context) error {
	p.once.Do(func() { close(p.stopping) })
	defer p.cut()
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.cut() // the sending under way
		return fmt.Errorf("%d spans were not sent: %w", len(p.queue), ctx.Err())
	}
	return p.exporter.Shutdown(ctx)
}

func (p *pipe) stats() Stats {
	return Stats{Exported: p.exported.Load(), Failed: p.failed.Load(), Dropped: p.dropped.Load(), Queued: len(p.queue)}
}

// run sends a batch whenever one is full or has waited long enough.
func (p *pipe) run() {
	defer close(p.ended)
	look := time.NewTicker(sendInterval)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-p.full:
		case <-p.stopping:
			for len(p.queue) > 0 && p.sending.Err() == nil {
				p.send()
			}
			return
		}
		for more := true; more; more = len(p.queue) >= maxBatch && p.sending.Err() == nil {
			p.send()
		}
	}
}

// send sends one batch, if anything waits.
func (p *pipe) send() {
	batch := make([]sdk.ReadOnlySpan, 0, min(len(p.queue), maxBatch))
	for len(batch) < cap(batch) {
		batch = append(batch, <-p.queue) // nobody else takes
	}
	if len(batch) == 0 {
		return
	}
	err := p.export(batch)
	if err == nil {
		p.exported.Add(uint64(len(batch)))
	} else {
		p.failed.Add(uint64(len(batch)))
	}
	switch {
	case err != nil && !p.failing:
		p.log.Warn("traces cannot be sent; spans are dropped until they can", "error", err)
	case err == nil && p.failing:
		p.log.Info("traces are sent again")
	}
	p.failing = err != nil
}

// export makes an error of a panic: nothing in the exporter may end the sending for good.
func (p *pipe) export(batch []sdk.ReadOnlySpan) (err error) {
	ctx, cancel := context.WithTimeout(p.sending, sendTimeout)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v\n%s", fault, debug.Stack())
		}
	}()
	return p.exporter.ExportSpans(ctx, batch)
}
