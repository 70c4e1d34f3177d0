package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"abide/internal/trace"
)

// Options are what a Deliverer is made from.
type Options struct {
	Outbox Outbox
	// Roster makes this one of several servers on the outbox's store; nil if it is the only one.
	Roster Roster
	// ServerURL returns what an execute of a workspace carries as head.serverUrl: where its worker should
	// send its requests. Called without locks, once per connection.
	ServerURL func(workspace string) string
	// NowMs is a clock in milliseconds that does not jump, such as the time since the start.
	NowMs  func() int64
	Logger *slog.Logger
	Limits Limits
	// Tracer records deliveries of tasks whose traces are sampled; nil records none.
	Tracer *trace.Tracer
}

// Deliverer runs a Core in real time: one goroutine per class of store calls, and the writer of each
// connection (Connection) wherever its stream lives. All methods are safe for concurrent use; the hints never
// block on anything but a short lock.
//
// Nothing that a store call or a decision does ends it. A call that panics counts as failed. A panic in the
// Core itself leaves the memory of what is in flight in doubt, so that memory is thrown away: all streams
// are ended, the workers connect again within a second or two, and the outbox says what is to be sent.
type Deliverer struct {
	options Options
	limits  Limits
	log     *slog.Logger

	mu          sync.Mutex
	core        *Core
	connections map[ConnID]*Connection
	loops       [Classes]loop
	panics      uint64
	lastPanic   string

	cancel  context.CancelFunc // ends the loops
	running sync.WaitGroup
	streams sync.WaitGroup
}

// loop is the state of the goroutine of one class.
type loop struct {
	wake       chan struct{}
	idle       bool
	wakeAtMs   int64 // while idle
	progressMs int64 // last time that it came round
	calls      uint64
	failing    bool
	lastError  string
}

var _ Hints = (*Deliverer)(nil)

// New starts delivery. Stop ends it.
func New(o Options) *Deliverer {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Deliverer{
		options:     o,
		limits:      o.Limits.withDefaults(),
		log:         o.Logger,
		core:        NewCore(o.Limits),
		connections: map[ConnID]*Connection{},
		cancel:      cancel,
	}
	if o.Roster != nil {
		d.core.Share(o.Roster)
		d.limits.PollMs = d.core.limits.PollMs
	}
	for cl := range Classes {
		l := &d.loops[cl]
		l.wake = make(chan struct{}, 1)
		l.progressMs = o.NowMs()
		d.running.Go(func() { d.run(ctx, cl, l) })
	}
	return d
}

// step runs f on the core, then wakes whoever got something to do.
func (d *Deliverer) step(f func(c *Core, nowMs int64)) {
	d.mu.Lock()
	defer d.endStep()
	f(d.core, d.options.NowMs())
}

func (d *Deliverer) endStep() {
	if p := recover(); p != nil {
		d.rebuild(p)
	}
	for _, id := range d.core.Woken() {
		if cn := d.connections[id]; cn != nil {
			signal(cn.wake)
		}
	}
	for cl := range Classes {
		l := &d.loops[cl]
		if l.idle && d.core.NextMs(cl) < l.wakeAtMs {
			l.idle = false
			signal(l.wake)
		}
	}
	d.mu.Unlock()
}

// rebuild replaces the core after a panic inside it.
func (d *Deliverer) rebuild(p any) {
	d.panics++
	d.lastPanic = fmt.Sprint(p)
	d.log.Error("delivery: internal error; all worker streams are ended and delivery begins anew",
		"panic", d.lastPanic, "stack", string(debug.Stack()))
	fresh := NewCore(d.limits)
	fresh.lastConn, fresh.draining, fresh.stats = d.core.lastConn, d.core.draining, d.core.stats
	if d.options.Roster != nil {
		fresh.Share(d.options.Roster)
	}
	d.core = fresh
	for _, cn := range d.connections {
		signal(cn.wake) // its next Take finds it unknown
	}
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// HintExecute implements Hints.
func (d *Deliverer) HintExecute(e Execute) {
	d.step(func(c *Core, nowMs int64) { c.HintExecute(nowMs, e) })
}

// HintClaimed implements Hints.
func (d *Deliverer) HintClaimed(workspace, id string, version int64) {
	d.step(func(c *Core, nowMs int64) { c.HintClaimed(nowMs, workspace, id, version) })
}

// HintUnblock implements Hints.
func (d *Deliverer) HintUnblock(workspace string, ref UnblockRef) {
	d.step(func(c *Core, nowMs int64) { c.HintUnblock(nowMs, workspace, ref) })
}

// Drain refuses new connections from now on and ends the streams, each after what is buffered for it.
func (d *Deliverer) Drain() {
	d.step(func(c *Core, nowMs int64) { c.Drain(nowMs) })
}

// Stop is Drain, then waits until the streams have ended and the loops have stopped, or until ctx is over;
// that error says which of the two had not.
func (d *Deliverer) Stop(ctx context.Context) error {
	d.Drain()
	err := waitFor(ctx, &d.streams, "worker streams did not end in time")
	d.cancel()
	return errors.Join(err, waitFor(ctx, &d.running, "calls to the outbox did not end in time"))
}

func waitFor(ctx context.Context, wg *sync.WaitGroup, late string) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", late, ctx.Err())
	}
}

// run takes the jobs of one class, one after the other.
func (d *Deliverer) run(ctx context.Context, cl Class, l *loop) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		job, waitMs := d.take(cl, l)
		if job != nil {
			r := d.call(ctx, job)
			d.done(cl, l, job, r)
			continue
		}
		timer.Reset(time.Duration(waitMs) * time.Millisecond)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// take returns the loop's next job, or how long it may sleep unless it is woken. It comes round once a poll
// interval at least, so that its health shows that it lives.
func (d *Deliverer) take(cl Class, l *loop) (job *Job, waitMs int64) {
	d.step(func(c *Core, nowMs int64) {
		l.progressMs, l.idle = nowMs, false
		if job = c.Take(nowMs, cl); job == nil {
			l.idle = true
			l.wakeAtMs = min(max(c.NextMs(cl), nowMs+1), nowMs+d.limits.PollMs)
			waitMs = l.wakeAtMs - nowMs
		}
	})
	return job, max(waitMs, 1)
}

// call runs a job with a deadline; a panic in the outbox is an error like others.
func (d *Deliverer) call(ctx context.Context, job *Job) (r Result) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(d.limits.CallTimeoutMs)*time.Millisecond)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			r = Result{Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	return job.Run(ctx, d.options.Outbox)
}

func (d *Deliverer) done(cl Class, l *loop, job *Job, r Result) {
	stopped := errors.Is(r.Err, context.Canceled)
	d.step(func(c *Core, nowMs int64) {
		l.progressMs = nowMs
		l.calls++
		// One line when the calls begin to fail and one when they work again, not one per call.
		if r.Err != nil && !stopped {
			if l.lastError = r.Err.Error(); !l.failing {
				d.log.Warn("delivery: call to the outbox failed; retrying", "call", cl.String(), "workspace", job.Workspace, "error", l.lastError)
			}
		} else if l.failing {
			d.log.Info("delivery: calls to the outbox work again", "call", cl.String())
		}
		l.failing = r.Err != nil && !stopped
		c.Done(nowMs, job, r)
	})
}

// LoopHealth is how one of delivery's loops is doing.
type LoopHealth struct {
	Name string
	// IdleMs is how long ago it last came round: at most about a poll interval, plus the time of a
	// call. More than that and a call hangs.
	IdleMs  int64
	Calls   uint64
	Failing bool   // the last call failed
	Error   string // of the last failed call; empty if none ever failed
}

// Health is how delivery is doing.
type Health struct {
	Loops [Classes]LoopHealth
	// Panics counts internal errors after which delivery began anew; Panic is the last one.
	Panics uint64
	Panic  string
}

// Health returns the present state.
func (d *Deliverer) Health() (h Health) {
	d.mu.Lock()
	defer d.mu.Unlock()
	nowMs := d.options.NowMs()
	for cl := range Classes {
		l := &d.loops[cl]
		h.Loops[cl] = LoopHealth{cl.String(), nowMs - l.progressMs, l.calls, l.failing, l.lastError}
	}
	h.Panics, h.Panic = d.panics, d.lastPanic
	return h
}

// StuckMs is the longest IdleMs of all loops: what a readiness check compares with its limit.
func (h Health) StuckMs() int64 {
	longest := int64(math.MinInt64)
	for _, l := range h.Loops {
		longest = max(longest, l.IdleMs)
	}
	return longest
}

// Stats returns the counters and what is held now.
func (d *Deliverer) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.Stats()
}
