package push

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/protocol"
)

// calls is a transport that does what the test says.
type calls struct {
	lanes
	send   func(ctx context.Context, m Message) error
	mu     sync.Mutex
	got    map[string]int
	bodies []string
	closed bool
}

func (c *calls) Send(ctx context.Context, m Message) error {
	c.mu.Lock()
	id := m.Task.ID
	if m.Promise != nil {
		id = m.Promise.ID
	}
	c.got[id]++
	c.bodies = append(c.bodies, string(m.Body))
	c.mu.Unlock()
	if c.send == nil {
		return nil
	}
	return c.send(ctx, m)
}

func (c *calls) Close(context.Context) error { c.closed = true; return nil }

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, times := range c.got {
		n += times
	}
	return n
}

func newPusher(t *testing.T, box Outbox, c *calls) *Pusher {
	t.Helper()
	c.got = map[string]int{}
	started := time.Now()
	p := New(Options{
		Outbox: box, Transports: served(c), ServerURL: func(workspace string) string { return "http://server/w/" + workspace },
		NowMs: func() int64 { return time.Since(started).Milliseconds() }, Limits: Limits{PollMs: 20, RetryMsFirst: 20},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = p.Stop(ctx, ctx)
	})
	return p
}

// until waits for something to come true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never comes true that %s", what)
		}
	}
}

func TestMessagesAreSent(t *testing.T) {
	box, c := newMemOutbox(), &calls{}
	p := newPusher(t, box, c)
	const messages = 300
	for i := range messages {
		e := execute(fmt.Sprint("t", i), 1, fmt.Sprintf("http://h%d/", i%7))
		box.queue(e)
		if i%2 == 0 {
			p.HintExecute(e)
		}
		box.queueUnblock("w", fmt.Sprint("p", i), "http://h/")
		if i%3 == 0 {
			p.HintUnblock("w", deliver.UnblockRef{ID: fmt.Sprint("p", i), Address: "http://h/"})
		}
	}
	until(t, "all are delivered", func() bool { return box.left() == 0 })
	until(t, "all are forgotten", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		sends, reports := p.core.Unfinished()
		return sends+reports == 0
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) != 2*messages {
		t.Errorf("%d of %d messages", len(c.got), 2*messages)
	}
	for id, n := range c.got {
		if n != 1 {
			t.Errorf("%s is sent %d times", id, n)
		}
	}
	for _, body := range c.bodies {
		m, err := protocol.DecodeMessage([]byte(body))
		if err != nil || m.Kind == protocol.MessageExecute && !strings.Contains(body, `"serverUrl":"http://server/w/w"`) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// A transport that panics, an outbox that panics and a core that panics end nothing.
func TestPanics(t *testing.T) {
	box, c := newMemOutbox(), &calls{}
	var once sync.Once
	c.send = func(context.Context, Message) (err error) {
		once.Do(func() { panic("transport") })
		return nil
	}
	var first sync.Once
	box.fail = func(op string) error {
		if op == "check" {
			first.Do(func() { panic("outbox") })
		}
		return nil
	}
	p := newPusher(t, box, c)
	box.queue(execute("t", 0, "http://a/"))
	until(t, "it is delivered", func() bool { return box.left() == 0 })
	p.step(func(*Core, int64) { panic("core") })
	box.queue(execute("u", 0, "http://a/"))
	until(t, "it is delivered", func() bool { return box.left() == 0 })
	if h := p.Health(); h.Panics != 1 || h.Panic != "core" || h.StuckMs() > 60_000 {
		t.Errorf("%+v", h)
	}
}

// A stop waits for what is on its way; what hangs is cut off at the deadline and stays queued (scenario D13).
func TestStop(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		box, c := newMemOutbox(), &calls{}
		release := make(chan struct{})
		c.send = func(ctx context.Context, _ Message) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		p := newPusher(t, box, c)
		for i := range 1000 {
			box.queue(execute(fmt.Sprintf("t%03d", i), 0, fmt.Sprintf("http://h%d/", i%10)))
		}
		until(t, "some are on their way", func() bool { return c.count() >= 10 })
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		sends, cancelSends := context.WithTimeout(ctx, 100*time.Millisecond)
		if !hangs {
			close(release)
			cancelSends()
			sends, cancelSends = context.WithTimeout(ctx, time.Minute)
		}
		err := p.Stop(ctx, sends)
		if (err != nil) != hangs || (sends.Err() != nil) != hangs || ctx.Err() != nil || !c.closed {
			t.Errorf("hangs %v: %v, at its deadlines %v and %v", hangs, err, sends.Err(), ctx.Err())
		}
		sent := c.count()
		want := 1000
		if !hangs {
			want -= sent
		}
		if box.left() != want {
			t.Errorf("hangs %v: %d sent, %d left", hangs, sent, box.left())
		}
		time.Sleep(20 * time.Millisecond)
		if c.count() != sent {
			t.Error("a stopped pusher sends")
		}
		cancelSends()
		cancel()
	}
}

// Whoever dies between the send and its answer leaves the message to the next, which sends it again; what was accepted and
// reported is not (two servers on one outbox, one after the other).
func TestDeath(t *testing.T) {
	box, dead := newMemOutbox(), &calls{}
	dead.send = func(ctx context.Context, m Message) error {
		if m.Task.ID == "answered" {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	p := newPusher(t, box, dead)
	box.queue(execute("answered", 0, "http://a/"))
	until(t, "one is delivered", func() bool { return box.left() == 0 })
	box.queue(execute("open", 0, "http://a/"))
	until(t, "one is open", func() bool { return dead.count() == 2 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = p.Stop(ctx, ctx) // what a kill looks like: nothing is waited for

	next := &calls{}
	newPusher(t, box, next)
	until(t, "the next has delivered it", func() bool { return box.left() == 0 })
	next.mu.Lock()
	defer next.mu.Unlock()
	if next.got["open"] != 1 || next.got["answered"] != 0 {
		t.Errorf("%v", next.got)
	}
}

// A call to the outbox that hangs shows in the health, and ends at its deadline.
func TestHealth(t *testing.T) {
	box, c := newMemOutbox(), &calls{}
	p := newPusher(t, box, c)
	until(t, "it looks", func() bool { box.mu.Lock(); defer box.mu.Unlock(); return box.calls["queues"] > 2 })
	box.mu.Lock()
	box.fail = func(string) error { return errors.New("away") }
	box.mu.Unlock()
	until(t, "a loop fails", func() bool {
		h := p.Health()
		return h.Loops[ScanExecutes].Failing && h.Loops[ScanExecutes].Error == "away"
	})
	box.mu.Lock() // the outbox does not answer
	until(t, "a loop is stuck", func() bool { return p.Health().StuckMs() > 100 })
	box.fail = nil
	box.mu.Unlock()
	until(t, "it goes on", func() bool { return p.Health().StuckMs() < 100 && !p.Health().Loops[ScanExecutes].Failing })
}
