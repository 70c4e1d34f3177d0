package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"abide/internal/deliver"
	"abide/internal/engine"
	"abide/kv"
)

// The server's settings: as short as the storm needs them, in the proportions of the defaults.
const (
	retryTimeout = 4 * time.Second
	pollInterval = time.Second
	// unblockExpiry is longer than any listener that is connected at all is away.
	unblockExpiry = 50 * time.Second
	// pushExpiry is the same where listeners are at targets, behind which there may be a long line.
	pushExpiry = 100 * time.Second
	// journalEntries is how much of the journal is kept.
	journalEntries = 150
	// sweepEvery is how often the slow sweep takes a page. The real one takes one a second.
	sweepEvery = 3 * time.Second
	// restartPause is how long a server that could not start waits before it is started again.
	restartPause = 500 * time.Millisecond
	// passPause is the pause of a loop after a failed pass.
	passPause = 100 * time.Millisecond
)

// server is one server: a life after another on the same disk.
type server struct {
	world *world
	index int
	up    bool
	life  int // numbers its lives; whatever belongs to an earlier one does nothing any more

	store   kv.Store      // the disk as this server opens it
	offset  time.Duration // of its wall clock
	served  int64         // the largest instant at which it has answered anything, epoch ms
	downFor time.Duration // how long it stays down when it dies
	asleep  time.Duration // until then it does nothing
	hear    func([]kv.Signal)

	handle *handle
	engine *engine.Engine
	detach func()

	passing  bool // a pass of the timer loop is under way
	timerGen int  // of the next pass: those planned before are void

	outbox  deliver.Outbox
	core    *deliver.Core
	classes [deliver.Classes]classLoop
	streams []*stream // by number
	pusher  *pusher   // nil for none
}

// classLoop is one of delivery's loops.
type classLoop struct {
	idle   bool
	gen    int
	wakeAt int64 // while idle, ms
}

// serverTime is the clock of one life.
type serverTime struct {
	server *server
	life   int
}

func (t serverTime) Wall() time.Time {
	return time.UnixMilli(epoch).Add(t.server.world.now + t.server.offset)
}

func (t serverTime) Mono() time.Duration { return t.server.world.now }

func (t serverTime) Sleep(_ context.Context, d time.Duration) error {
	t.server.world.pass(d)
	return nil
}

func (s *server) nowMs() int64 { return s.world.now.Milliseconds() }

// unblockExpiry is how long unblock messages wait.
func (w *world) unblockExpiry() time.Duration {
	if w.listensByPush {
		return pushExpiry
	}
	return unblockExpiry
}

// boot begins a life.
func (s *server) boot() {
	w := s.world
	s.life++
	life := s.life
	s.handle = &handle{world: w, server: s, disk: w.disk, store: s.store}
	started := w.starting()
	e, err := engine.Open(context.Background(), s.handle, engine.Options{
		RetryTimeoutMs:  retryTimeout.Milliseconds(),
		PollIntervalMs:  pollInterval.Milliseconds(),
		LeaseMs:         leaseFor.Milliseconds(),
		Shared:          w.shared(),
		ServerID:        fmt.Sprintf("server%d", s.index),
		UnblockExpiryMs: w.unblockExpiry().Milliseconds(),
		JournalEntries:  journalEntries,
		Source:          serverTime{s, life},
		Log:             slog.New(&watchfulLog{world: w}),
		Sequential:      true,
	})
	if s.life != life { // it died over it
		return
	}
	if err != nil {
		w.log("server %d cannot start: %v", s.index, err)
		s.handle.dead = true
		w.after(restartPause, func() { s.bootAgain(life) })
		return
	}
	w.log("server %d is up, life %d", s.index, life)
	started(e.Now())
	w.trouble(0)
	w.stats.Lives++
	s.engine = e
	s.outbox = watchedOutbox{e.Outbox(), s, life}
	if w.config.Outbox != nil {
		s.outbox = w.config.Outbox(s.outbox)
	}
	s.core = deliver.NewCore(w.config.Delivery)
	if w.shared() {
		s.core.Share(e.Roster())
	}
	s.streams = nil
	s.classes = [deliver.Classes]classLoop{}
	s.passing = false
	s.pusher = newPusher(s, life)
	s.detach = e.Attach(s)
	s.up = true
	s.planTimers(0)
	s.after(sweepEvery, func() { s.sweep(life) })
	if w.shared() {
		w.after(0, func() { s.keepPlace(life) })
	}
	for cl := range deliver.Classes {
		s.planClass(cl, 0)
	}
	if s.pusher != nil {
		s.pusher.start()
	}
	w.audit(s)
}

func (s *server) bootAgain(life int) {
	if s.life == life && !s.up {
		s.boot()
	}
}

// crash ends a life at once, in the middle of whatever it is doing, and plans the next one.
func (s *server) crash() {
	s.world.log("server %d dies", s.index)
	s.world.stats.Crashes++
	s.goDown()
}

// goDown ends a life and plans the next one.
func (s *server) goDown() {
	w := s.world
	w.trouble(s.downFor)
	s.handle.dead = true
	s.up = false
	s.life++
	if s.detach != nil {
		s.detach()
		s.detach = nil
	}
	for _, st := range s.streams {
		st.serverDied()
	}
	s.streams, s.pusher = nil, nil
	life := s.life
	w.after(s.downFor, func() { s.bootAgain(life) })
}

// planTimers plans the next pass of the timer loop.
func (s *server) planTimers(sleep time.Duration) {
	s.timerGen++
	gen, life := s.timerGen, s.life
	s.after(sleep, func() {
		if s.life == life && s.timerGen == gen && !s.passing {
			s.timers(life)
		}
	})
}

// timers is one pass of the timer loop.
func (s *server) timers(life int) {
	s.passing = true
	sleep, err := s.engine.TimerPass(context.Background())
	if s.life != life {
		return
	}
	s.passing = false
	s.world.stats.Ticks++
	if err != nil {
		s.world.log("timers: %v", err)
		sleep = passPause
	}
	s.planTimers(sleep)
}

// sweep is one pass of the slow sweep, and one of the journal's retention.
func (s *server) sweep(life int) {
	if s.life != life {
		return
	}
	err := s.engine.Sweep(context.Background())
	if s.life != life {
		return
	}
	if err != nil {
		s.world.log("sweep: %v", err)
	}
	if _, err = s.engine.Retain(context.Background()); err != nil {
		s.world.log("retention: %v", err)
	}
	if s.life == life {
		s.after(sweepEvery, func() { s.sweep(life) })
	}
}

// planClass plans the next round of one of delivery's loops.
func (s *server) planClass(cl deliver.Class, in time.Duration) {
	l := &s.classes[cl]
	l.gen++
	gen, life := l.gen, s.life
	s.after(in, func() {
		if s.life == life && l.gen == gen {
			s.round(cl, life)
		}
	})
}

// round takes a job of a class; with none, the loop sleeps until it is woken.
func (s *server) round(cl deliver.Class, life int) {
	w, l := s.world, &s.classes[cl]
	l.idle = false
	now := s.nowMs()
	job := s.core.Take(now, cl)
	if job == nil {
		l.idle = true
		l.wakeAt = min(max(s.core.NextMs(cl), now+1), now+pollInterval.Milliseconds())
		s.planClass(cl, time.Duration(l.wakeAt-now)*time.Millisecond)
		return
	}
	s.after(between(w.chaos, 0, 200*time.Microsecond), func() {
		if s.life != life {
			return
		}
		result := job.Run(context.Background(), s.outbox)
		if s.life != life {
			return
		}
		s.after(between(w.chaos, 0, 200*time.Microsecond), func() {
			if s.life != life {
				return
			}
			if result.Err != nil {
				w.log("deliver, %s: %v", cl, result.Err)
			}
			s.core.Done(s.nowMs(), job, result)
			s.planClass(cl, 0)
		})
	})
}

// poke lets the loops notice what an event has brought them.
func (s *server) poke() {
	if !s.up {
		return
	}
	if s.engine.Woken() && !s.passing {
		s.planTimers(0)
	}
	for _, id := range s.core.Woken() {
		if st := s.stream(id); st != nil {
			st.planWrite()
		}
	}
	for cl := range deliver.Classes {
		l := &s.classes[cl]
		if !l.idle {
			continue
		}
		if next := s.core.NextMs(cl); next != math.MaxInt64 && next < l.wakeAt {
			l.idle = false
			s.planClass(cl, 0)
		}
	}
	if s.pusher != nil {
		s.pusher.poke()
	}
}

// HintExecute implements deliver.Hints.
func (s *server) HintExecute(e deliver.Execute) {
	s.core.HintExecute(s.nowMs(), e)
	s.pusher.hintExecute(e)
}

// HintClaimed implements deliver.Hints.
func (s *server) HintClaimed(workspace, id string, version int64) {
	s.core.HintClaimed(s.nowMs(), workspace, id, version)
	s.pusher.hintClaimed(workspace, id, version)
}

// HintUnblock implements deliver.Hints.
func (s *server) HintUnblock(workspace string, ref deliver.UnblockRef) {
	s.core.HintUnblock(s.nowMs(), workspace, ref)
	s.pusher.hintUnblock(workspace, ref)
}

// watchfulLog takes what the server logs. What is logged as an error is one, unless the world has made it.
type watchfulLog struct{ world *world }

// Enabled implements slog.Handler.
func (*watchfulLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

// Handle implements slog.Handler.
func (l *watchfulLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "commit outcome unknown" {
		return nil
	}
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	l.world.fail("the server logs an error: %s", text)
	return nil
}

// WithAttrs implements slog.Handler.
func (l *watchfulLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *watchfulLog) WithGroup(string) slog.Handler { return l }
