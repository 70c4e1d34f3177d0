package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"abide/internal/deliver"
	"abide/internal/trace"
	"abide/protocol"
)

// Options are what a Pusher is made from.
type Options struct {
	Outbox     Outbox
	Transports []Served
	// ServerURL returns what an execute of a workspace carries as head.serverUrl. Called without locks.
	ServerURL func(workspace string) string
	// NowMs is a clock in milliseconds that does not jump, such as the time since the start.
	NowMs  func() int64
	Logger *slog.Logger
	Limits Limits
	// Tracer records deliveries of tasks whose traces are sampled; nil records none.
	Tracer *trace.Tracer
}

// Pusher runs a Core in real time: one goroutine per class of store calls, and one per message that is on its way. All
// methods are safe for concurrent use; the hints never block on anything but a short lock.
//
// Nothing that a store call, a transport or a decision does ends it. A call that panics counts as failed. A panic in the
// Core itself leaves the memory of what is on its way in doubt, so that memory is thrown away, and the outbox says what is
// to be sent: some messages are then sent twice.
type Pusher struct {
	options Options
	limits  Limits
	log     *slog.Logger
	tasks   atomic.Int64 // how many the core knows: most claims are of others

	mu        sync.Mutex
	core      *Core
	loops     [Classes]loop
	panics    uint64
	lastPanic string

	cancel     context.CancelFunc // ends the loops
	running    sync.WaitGroup
	sendsUntil context.Context // ends the sends
	cutSends   context.CancelFunc
	sends      sync.WaitGroup
}

// loop is the state of the goroutine of one class.
type loop struct {
	wake       chan struct{}
	idle       bool
	wakeAtMs   int64 // while idle
	progressMs int64 // last time that it came round
	failing    bool
	lastError  string
}

var _ deliver.Hints = (*Pusher)(nil)

// New starts to push. Stop ends it.
func New(o Options) *Pusher {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pusher{options: o, limits: o.Limits.withDefaults(), log: o.Logger, core: NewCore(o.Limits, o.Transports), cancel: cancel}
	p.sendsUntil, p.cutSends = context.WithCancel(context.Background())
	for cl := range Classes {
		l := &p.loops[cl]
		l.wake = make(chan struct{}, 1)
		l.progressMs = o.NowMs()
		p.running.Go(func() { p.run(ctx, cl, l) })
	}
	return p
}

// step runs f on the core, then starts the sends that came of it, and wakes whoever got something to do.
func (p *Pusher) step(f func(c *Core, nowMs int64)) {
	p.mu.Lock()
	defer p.endStep()
	f(p.core, p.options.NowMs())
}

func (p *Pusher) endStep() {
	if r := recover(); r != nil {
		p.rebuild(r)
	}
	for _, s := range p.core.TakeSends() {
		core := p.core
		p.sends.Go(func() { p.send(core, s) })
	}
	notices := p.core.TakeNotices()
	p.tasks.Store(int64(len(p.core.tasks)))
	for cl := range Classes {
		l := &p.loops[cl]
		if l.idle && p.core.NextMs(cl) < l.wakeAtMs {
			l.idle = false
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
	}
	p.mu.Unlock()
	for _, n := range notices {
		if n.Failing {
			p.log.Warn("push: messages to a destination are not accepted; they stay queued and are sent again", "transport", n.Transport, "destination", n.Lane, "error", n.Error)
		} else {
			p.log.Info("push: a destination accepts messages again", "transport", n.Transport, "destination", n.Lane)
		}
	}
}

// rebuild replaces the core after a panic inside it.
func (p *Pusher) rebuild(cause any) {
	p.panics++
	p.lastPanic = fmt.Sprint(cause)
	p.log.Error("push: internal error; it begins anew, and some messages may be sent twice", "panic", p.lastPanic, "stack", string(debug.Stack()))
	fresh := NewCore(p.limits, p.options.Transports)
	fresh.draining, fresh.stats = p.core.draining, p.core.stats
	p.core = fresh
}

// send gives one message to its transport.
func (p *Pusher) send(core *Core, s *Send) {
	err := p.try(s)
	p.step(func(c *Core, nowMs int64) {
		if c == core {
			c.Sent(nowMs, s, err)
		}
	})
}

// try makes the call; a panic in a transport is an error like others.
func (p *Pusher) try(s *Send) (err error) {
	defer func() {
		if r := recover(); r != nil {
			p.log.Error("push: a transport panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error of the transport: %v", r)
		}
	}()
	m := Message{Workspace: s.Workspace, Address: s.Address, Promise: s.Promise, Attempt: s.Attempt}
	if s.Kind == KindExecute {
		m.Task = protocol.TaskRef{ID: s.ID, Version: s.Version}
		span := p.begin(s)
		defer func() { endSpan(span, err) }()
		if m.Trace = s.Trace; span.Recorded() {
			m.Trace = span.Trace()
		}
		m.Body = protocol.AppendTracedExecute(nil, p.options.ServerURL(s.Workspace), m.Task, m.Trace)
	} else {
		m.Body = protocol.AppendUnblock(nil, *s.Promise)
	}
	return s.Transport.Send(p.sendsUntil, m)
}

// begin begins the span of a send of an execute: nothing, unless the trace of its task is recorded.
func (p *Pusher) begin(s *Send) trace.Span {
	if !s.Trace.Sampled() {
		return trace.Span{}
	}
	span := p.options.Tracer.Begin("push execute", trace.Producer, s.Trace, time.Time{})
	span.Text("abide.workspace", s.Workspace)
	span.Int("abide.attempt", int64(s.Attempt))
	if a, err := protocol.ParseAddress(s.Address); err == nil {
		span.Text("abide.scheme", a.Scheme)
	}
	return span
}

// endSpan ends the span of a send. What the error says may name hosts, and is not for it.
func endSpan(span trace.Span, err error) {
	switch {
	case errors.Is(err, ErrStale):
		span.Text("abide.outcome", "stale")
	case errors.Is(err, ErrRefused):
		span.Fail("refused")
	case err != nil:
		span.Fail("not accepted")
	}
	span.End(time.Time{})
}

// polled reports whether an address is for workers that poll, without parsing it: those are most.
func polled(address string) bool { return strings.HasPrefix(address, "poll://") }

// HintExecute implements deliver.Hints.
func (p *Pusher) HintExecute(e deliver.Execute) {
	if !polled(e.Address) {
		p.step(func(c *Core, nowMs int64) { c.HintExecute(nowMs, e) })
	}
}

// HintClaimed implements deliver.Hints.
func (p *Pusher) HintClaimed(workspace, id string, version int64) {
	if p.tasks.Load() > 0 {
		p.step(func(c *Core, nowMs int64) { c.HintClaimed(nowMs, workspace, id, version) })
	}
}

// HintUnblock implements deliver.Hints.
func (p *Pusher) HintUnblock(workspace string, ref deliver.UnblockRef) {
	if !polled(ref.Address) {
		p.step(func(c *Core, nowMs int64) { c.HintUnblock(nowMs, workspace, ref) })
	}
}

// stopPoll is how often Stop looks whether what it waits for is done.
const stopPoll = 10 * time.Millisecond

// Stop begins no send from now on, and waits for those on their way and for their reports. What has not been answered when
// sendsUntil ends is cut off, and is sent again by whoever serves the store next; when ctx ends, nothing is waited for any
// more. The error says what was cut off. sendsUntil should end some time before ctx, so that what was accepted by then is
// reported.
func (p *Pusher) Stop(ctx, sendsUntil context.Context) error {
	p.step(func(c *Core, nowMs int64) { c.Drain(nowMs) })
	for _, t := range p.options.Transports {
		if i, ok := t.Transport.(Interrupter); ok {
			i.Interrupt()
		}
	}
	var errs []error
	if left := p.await(sendsUntil, func(sends, _ int) int { return sends }); left > 0 {
		errs = append(errs, fmt.Errorf("%d messages were on their way and are sent again", left))
	}
	p.cutSends()
	errs = append(errs, waitFor(ctx, &p.sends, "sends did not end in time"))
	if left := p.await(ctx, func(_, reports int) int { return reports }); left > 0 {
		errs = append(errs, fmt.Errorf("%d messages were accepted, and could not be taken out of the outbox: they are sent again", left))
	}
	p.cancel()
	errs = append(errs, waitFor(ctx, &p.running, "calls to the outbox did not end in time"))
	for _, t := range p.options.Transports {
		errs = append(errs, t.Transport.Close(ctx))
	}
	return errors.Join(errs...)
}

// await waits until nothing of what is unfinished is left, or ctx ends.
func (p *Pusher) await(ctx context.Context, of func(sends, reports int) int) (left int) {
	for {
		p.mu.Lock()
		left = of(p.core.Unfinished())
		p.mu.Unlock()
		if left == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(stopPoll):
		}
	}
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
func (p *Pusher) run(ctx context.Context, cl Class, l *loop) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		job, waitMs := p.take(cl, l)
		if job != nil {
			r := p.call(ctx, job)
			p.done(l, job, r)
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

// take returns the loop's next job, or how long it may sleep unless it is woken. It comes round once a poll interval at
// least, so that its health shows that it lives.
func (p *Pusher) take(cl Class, l *loop) (job *Job, waitMs int64) {
	self, live := p.options.Outbox.Servers()
	p.step(func(c *Core, nowMs int64) {
		c.Servers(self, live)
		l.progressMs, l.idle = nowMs, false
		if job = c.Take(nowMs, cl); job == nil {
			l.idle = true
			l.wakeAtMs = min(max(c.NextMs(cl), nowMs+1), nowMs+c.pollMs())
			waitMs = l.wakeAtMs - nowMs
		}
	})
	return job, max(waitMs, 1)
}

// call runs a job with a deadline; a panic in the outbox is an error like others.
func (p *Pusher) call(ctx context.Context, job *Job) (r Result) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.limits.CallTimeoutMs)*time.Millisecond)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			r = Result{Err: fmt.Errorf("panic: %v\n%s", cause, debug.Stack())}
		}
	}()
	return job.Run(ctx, p.options.Outbox)
}

func (p *Pusher) done(l *loop, job *Job, r Result) {
	stopped := errors.Is(r.Err, context.Canceled)
	p.step(func(c *Core, nowMs int64) {
		l.progressMs = nowMs
		// One line when the calls begin to fail and one when they work again, not one per call.
		if r.Err != nil && !stopped {
			if l.lastError = r.Err.Error(); !l.failing {
				p.log.Warn("push: call to the outbox failed; retrying", "call", job.Class.String(), "workspace", job.Workspace, "error", l.lastError)
			}
		} else if l.failing {
			p.log.Info("push: calls to the outbox work again", "call", job.Class.String())
		}
		l.failing = r.Err != nil && !stopped
		c.Done(nowMs, job, r)
	})
}

// LoopHealth is how one of push's loops is doing.
type LoopHealth struct {
	Name string
	// IdleMs is how long ago it last came round: at most about a poll interval, plus the time of a call.
	IdleMs  int64
	Failing bool   // the last call failed
	Error   string // of the last failed call; empty if none ever failed
}

// Health is how push is doing.
type Health struct {
	Loops [Classes]LoopHealth
	// Panics counts internal errors after which push began anew; Panic is the last one.
	Panics uint64
	Panic  string
}

// Health returns the present state.
func (p *Pusher) Health() (h Health) {
	p.mu.Lock()
	defer p.mu.Unlock()
	nowMs := p.options.NowMs()
	for cl := range Classes {
		l := &p.loops[cl]
		h.Loops[cl] = LoopHealth{cl.String(), nowMs - l.progressMs, l.failing, l.lastError}
	}
	h.Panics, h.Panic = p.panics, p.lastPanic
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
func (p *Pusher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.Stats()
}
