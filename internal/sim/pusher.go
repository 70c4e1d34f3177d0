package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"abide/internal/deliver"
	"abide/internal/push"
	"abide/protocol"
)

// Push's settings: as short as the storm needs them, in the proportions of the defaults.
const (
	pushRetryFirst = 500 * time.Millisecond
	pushRetryMax   = 4 * time.Second
	pushLaterMax   = 5 * time.Second
	pushTakeOver   = 3 * time.Second
	// pushTimeout is how long a server waits for the answer of a target.
	pushTimeout = 5 * time.Second
	// drainFor is how long a server that takes its leave waits for answers, and drainLook how often it looks.
	drainFor  = 2 * time.Second
	drainLook = 20 * time.Millisecond
)

// pusher is the push of one life of a server. It is the real step core, on the real queues of the engine; what push.Pusher
// does with goroutines is events here, and a send ends at a target instead of a Transport.
type pusher struct {
	server  *server
	life    int
	core    *push.Core
	outbox  push.Outbox
	watch   *pushWatch
	classes [push.Classes]classLoop
	stopped bool // it begins no send any more
}

// targets is the transport of the simulation: lanes are real, sends are not made through it.
type targets struct{ concurrency int }

var errNoTransport = errors.New("the simulation sends by itself")

// Lane, Send, Concurrency and Close implement push.Transport.

func (targets) Lane(_ protocol.Address, text string) (string, error) { return hostOf(text), nil }

func (targets) Send(context.Context, push.Message) error { return errNoTransport }

func (t targets) Concurrency(string) int { return t.concurrency }

func (targets) Close(context.Context) error { return nil }

// hostOf is the scheme and the host of an address.
func hostOf(address string) string {
	rest, _ := strings.CutPrefix(address, "http://")
	host, _, _ := strings.Cut(rest, "/")
	return "http://" + host
}

// newPusher begins to push; nil where no address is a target's.
func newPusher(s *server, life int) *pusher {
	w := s.world
	if len(w.hosts) == 0 {
		return nil
	}
	p := &pusher{server: s, life: life, watch: newPushWatch(w)}
	p.core = push.NewCore(push.Limits{
		MaxOutstanding: w.pushing.outstanding,
		MaxFlights:     w.pushing.flights,
		PollMs:         pollInterval.Milliseconds(),
		RetryMsFirst:   pushRetryFirst.Milliseconds(),
		RetryMsMax:     pushRetryMax.Milliseconds(),
		MaxLaterMs:     pushLaterMax.Milliseconds(),
		TakeOverMs:     pushTakeOver.Milliseconds(),
	}, []push.Served{{Name: "http", Schemes: []string{"http"}, Transport: targets{w.pushing.concurrency}}})
	p.outbox = pushOutbox{s.engine.Addresses(), watchedOutbox{s.engine.Outbox(), s, life}, p.watch}
	if w.config.Addresses != nil {
		p.outbox = w.config.Addresses(p.outbox)
	}
	return p
}

// over reports whether the life has ended.
func (p *pusher) over() bool { return p.server.life != p.life }

// start begins the loops.
func (p *pusher) start() {
	for cl := range push.Classes {
		p.plan(cl, 0)
	}
}

// plan plans the next round of a loop.
func (p *pusher) plan(cl push.Class, in time.Duration) {
	l := &p.classes[cl]
	l.gen++
	gen := l.gen
	p.server.after(in, func() {
		if !p.over() && l.gen == gen {
			p.round(cl)
		}
	})
}

// round takes a job of a class; with none, the loop sleeps until it is woken.
func (p *pusher) round(cl push.Class) {
	w, l := p.server.world, &p.classes[cl]
	l.idle = false
	now := p.server.nowMs()
	p.core.Servers(p.outbox.Servers())
	job := p.core.Take(now, cl)
	p.begin()
	if job == nil {
		l.idle = true
		l.wakeAt = min(max(p.core.NextMs(cl), now+1), now+pollInterval.Milliseconds())
		p.plan(cl, time.Duration(l.wakeAt-now)*time.Millisecond)
		return
	}
	p.server.after(between(w.chaos, 0, 200*time.Microsecond), func() {
		if p.over() {
			return
		}
		result := job.Run(context.Background(), p.outbox)
		if p.over() {
			return
		}
		p.server.after(between(w.chaos, 0, 2*time.Millisecond), func() {
			if p.over() {
				return
			}
			if result.Err != nil {
				w.log("push, %s: %v", cl, result.Err)
			}
			p.core.Done(p.server.nowMs(), job, result)
			p.begin()
			p.plan(cl, 0)
		})
	})
}

// poke lets the loops notice what an event has brought them.
func (p *pusher) poke() {
	for cl := range push.Classes {
		l := &p.classes[cl]
		if !l.idle {
			continue
		}
		if next := p.core.NextMs(cl); next != math.MaxInt64 && next < l.wakeAt {
			l.idle = false
			p.plan(cl, 0)
		}
	}
}

// begin begins the sends that the core wants.
func (p *pusher) begin() {
	for _, s := range p.core.TakeSends() {
		p.send(s)
	}
	for _, n := range p.core.TakeNotices() {
		p.server.world.log("push: %s, failing %t: %s", n.Lane, n.Failing, n.Error)
	}
}

// drain begins no send any more, waits a while for those on their way and for their reports, and goes on.
func (p *pusher) drain(then func()) {
	p.stopped = true
	p.core.Drain(p.server.nowMs())
	p.await(p.server.world.now+drainFor, then)
}

func (p *pusher) await(until time.Duration, then func()) {
	if p.over() {
		return
	}
	if sends, reports := p.core.Unfinished(); sends+reports == 0 || p.server.world.now >= until {
		then()
		return
	}
	p.server.after(drainLook, func() { p.await(until, then) })
}

// pushed reports whether an address is for push, as push.Pusher does.
func pushed(address string) bool { return !strings.HasPrefix(address, "poll://") }

func (p *pusher) hintExecute(e deliver.Execute) {
	if p != nil && pushed(e.Address) {
		p.core.HintExecute(p.server.nowMs(), e)
	}
}

func (p *pusher) hintClaimed(workspace, id string, version int64) {
	if p != nil {
		p.watch.claimed(id, version)
		p.core.HintClaimed(p.server.nowMs(), workspace, id, version)
	}
}

func (p *pusher) hintUnblock(workspace string, ref deliver.UnblockRef) {
	if p != nil && pushed(ref.Address) {
		p.core.HintUnblock(p.server.nowMs(), workspace, ref)
	}
}

// request is one send on its way to a target and back.
type request struct {
	pusher  *pusher
	send    *push.Send
	host    *host
	ended   bool // its server knows what came of it
	claimed bool // whoever got it has claimed the task
}

var errNoAnswer = fmt.Errorf("no answer: %w", context.DeadlineExceeded)

// send sends one message.
func (p *pusher) send(s *push.Send) {
	w := p.server.world
	r := &request{pusher: p, send: s, host: w.hostAt(s.Address)}
	w.stats.Pushes++
	if w.tracing() {
		w.log("server %d pushes the %s of %q, version %d, to %s, attempt %d", p.server.index, s.Kind, s.ID, s.Version, s.Address, s.Attempt)
	}
	p.watch.begins(p, s)
	r.host.open = append(r.host.open, r)
	p.server.after(pushTimeout, func() { r.end(errNoAnswer) })
	if chance(w.net, r.host.weather.p(ForbidPushes)) {
		p.server.after(time.Millisecond, func() { r.end(push.ErrRefused) })
		return
	}
	if !w.lost() {
		w.after(w.latency(), func() { r.host.receive(r) })
	}
	if chance(w.net, w.weather.p(Duplicate)) {
		w.stats.Duplicated++
		w.after(w.latency(), func() { r.host.receive(r) })
	}
}

// answer sends the target's answer back: nil if it has accepted the message.
func (r *request) answer(err error) {
	w := r.host.world
	if chance(w.net, r.host.weather.p(LosePushAnswers)) || w.lost() {
		return
	}
	r.pusher.server.after(w.latency(), func() { r.end(err) })
}

// end tells the server what came of the request.
func (r *request) end(err error) {
	p := r.pusher
	if r.ended {
		return
	}
	r.ended = true
	r.host.open = slices.DeleteFunc(r.host.open, func(other *request) bool { return other == r })
	if p.over() {
		return
	}
	if err != nil {
		p.server.world.stats.PushesFailed++
	}
	now := p.server.nowMs()
	p.watch.ends(now, r, err)
	p.core.Sent(now, r.send, err)
	p.begin()
}
