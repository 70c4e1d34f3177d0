package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"abide/internal/loops"
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
	loops       [Classes]loops.Loop
	panics      uint64
	lastPanic   string

	cancel  context.CancelFunc // ends the loops
	running sync.WaitGroup
	streams sync.WaitGroup
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
		d.loops[cl] = loops.New("delivery: "+cl.String(), d.log, o.NowMs())
	}
	for cl := range Classes { // all of them are there before one runs: each wakes the others
		l := &d.loops[cl]
		d.running.Go(func() { l.Run(ctx, func() (func(), int64) { return d.take(ctx, cl, l) }) })
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
		d.loops[cl].Wake(d.core.NextMs(cl))
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
	err := loops.WaitFor(ctx, &d.streams, "worker streams did not end in time")
	d.cancel()
	return errors.Join(err, loops.WaitFor(ctx, &d.running, "calls to the outbox did not end in time"))
}

// take returns the next work of a loop, or how long it may sleep unless it is woken.
func (d *Deliverer) take(ctx context.Context, cl Class, l *loops.Loop) (work func(), waitMs int64) {
	d.step(func(c *Core, nowMs int64) {
		l.Round(nowMs)
		if job := c.Take(nowMs, cl); job != nil {
			work = func() { d.do(ctx, l, job) }
			return
		}
		waitMs = l.Sleep(nowMs, c.NextMs(cl), d.limits.PollMs)
	})
	return work, waitMs
}

// do runs a job and takes in what came of it.
func (d *Deliverer) do(ctx context.Context, l *loops.Loop, job *Job) {
	var r Result
	err := loops.Call(ctx, d.limits.CallTimeoutMs, func(ctx context.Context) error {
		r = job.Run(ctx, d.options.Outbox)
		return r.Err
	})
	r.Err = err
	d.step(func(c *Core, nowMs int64) {
		l.Called(nowMs, job.Workspace, err)
		c.Done(nowMs, job, r)
	})
}

// Health returns how its loops are doing.
func (d *Deliverer) Health() loops.ShellHealth {
	d.mu.Lock()
	defer d.mu.Unlock()
	return loops.HealthOf(d.loops[:], d.options.NowMs(), d.panics, d.lastPanic)
}

// Stats returns the counters and what is held now.
func (d *Deliverer) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.Stats()
}
