package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"abide/internal/deliver"
	"abide/internal/loops"
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
	loops     [Classes]loops.Loop
	panics    uint64
	lastPanic string

	cancel     context.CancelFunc // ends the loops
	running    sync.WaitGroup
	sendsUntil context.Context // ends the sends
	cutSends   context.CancelFunc
	sends      sync.WaitGroup
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
		p.loops[cl] = loops.New("push: "+cl.String(), p.log, o.NowMs())
	}
	for cl := range Classes { // all of them are there before one runs: each wakes the others
		l := &p.loops[cl]
		p.running.Go(func() { l.Run(ctx, func() (func(), int64) { return p.take(ctx, cl, l) }) })
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
		p.loops[cl].Wake(p.core.NextMs(cl))
	}
	p.mu.Unlock()
	for _, n := range notices {
		if n.Omitted > 0 {
			p.log.Warn("push: more destinations have begun to fail, or work again, than are told", "left_out", n.Omitted)
		}
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
		named := *s.Promise
		named.Param, named.Value = nil, nil
		m.Promise, s.Promise = &named, nil // a request may be open for minutes, and the record may be large
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
	errs = append(errs, loops.WaitFor(ctx, &p.sends, "sends did not end in time"))
	if left := p.await(ctx, func(_, reports int) int { return reports }); left > 0 {
		errs = append(errs, fmt.Errorf("%d messages were accepted, and could not be taken out of the outbox: they are sent again", left))
	}
	p.cancel()
	errs = append(errs, loops.WaitFor(ctx, &p.running, "calls to the outbox did not end in time"))
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

// take returns the next work of a loop, or how long it may sleep unless it is woken.
func (p *Pusher) take(ctx context.Context, cl Class, l *loops.Loop) (work func(), waitMs int64) {
	self, live := p.options.Outbox.Servers()
	p.step(func(c *Core, nowMs int64) {
		c.Servers(self, live)
		l.Round(nowMs)
		if job := c.Take(nowMs, cl); job != nil {
			work = func() { p.do(ctx, l, job) }
			return
		}
		waitMs = l.Sleep(nowMs, c.NextMs(cl), c.pollMs())
	})
	return work, waitMs
}

// do runs a job and takes in what came of it.
func (p *Pusher) do(ctx context.Context, l *loops.Loop, job *Job) {
	var r Result
	err := loops.Call(ctx, p.limits.CallTimeoutMs, func(ctx context.Context) error {
		r = job.Run(ctx, p.options.Outbox)
		return r.Err
	})
	r.Err = err
	p.step(func(c *Core, nowMs int64) {
		l.Called(nowMs, job.Workspace, err)
		c.Done(nowMs, job, r)
	})
}

// Health returns how its loops are doing.
func (p *Pusher) Health() loops.ShellHealth {
	p.mu.Lock()
	defer p.mu.Unlock()
	return loops.HealthOf(p.loops[:], p.options.NowMs(), p.panics, p.lastPanic)
}

// Stats returns the counters and what is held now.
func (p *Pusher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.Stats()
}
