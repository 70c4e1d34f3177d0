package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/protocol"
)

func testOptions(o Outbox) Options {
	start := time.Now()
	return Options{
		Outbox:    o,
		ServerURL: func(workspace string) string { return "http://server/w/" + workspace },
		NowMs:     func() int64 { return time.Since(start).Milliseconds() },
		Limits:    Limits{WindowMs: 60, GatherMs: 5, HoldMs: 200, PollMs: 30, CallTimeoutMs: 200},
	}
}

func newDeliverer(t *testing.T, o Outbox) *Deliverer {
	d := New(testOptions(o))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return d
}

// reader is the writer's side of a connection: it collects frames.
type reader struct {
	cn   *Connection
	done chan struct{}
	mu   sync.Mutex
	got  []string
}

func read(t *testing.T, d *Deliverer, workspace, group, pid string) *reader {
	t.Helper()
	cn, err := d.Connect(workspace, group, pid)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{cn: cn, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer cn.Close()
		for {
			frames, status := cn.Take(nil)
			if len(frames) > 0 {
				r.mu.Lock()
				r.got = append(r.got, strings.SplitAfter(strings.TrimSuffix(string(frames), "\n\n"), "\n\n")...)
				r.mu.Unlock()
				cn.Flushed()
				continue
			}
			if status != Open {
				return
			}
			<-cn.Wake()
		}
	}()
	return r
}

func (r *reader) frames() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got...)
}

// eventually waits for something that happens soon; only if it never does it takes long.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never happened: %s", what)
}

func TestDelivererSendsClaimsAndReports(t *testing.T) {
	box := newMemOutbox()
	d := newDeliverer(t, box)
	r := read(t, d, "w", "g", "a")
	for i := range 100 {
		e := Execute{"w", fmt.Sprintf("t%02d", i), 3, "poll://any@g", nil}
		box.queue(e)
		d.HintExecute(e)
	}
	eventually(t, "100 frames", func() bool { return len(r.frames()) >= 100 })
	// Hints and a scan may share the work, so there is no order, and what stays unclaimed may come twice.
	want := `data: {"kind":"execute","head":{"serverUrl":"http://server/w/w"},"data":{"task":{"id":"t00","version":3}}}`
	if got := r.frames(); !slices.ContainsFunc(got, func(s string) bool { return strings.TrimSpace(s) == want }) {
		t.Errorf("frames %s hold no\n%s", got, want)
	}
	for i := range 50 {
		id := fmt.Sprintf("t%02d", i)
		box.claim("w", id)
		d.HintClaimed("w", id, 3)
	}
	eventually(t, "the other 50 are reported", func() bool { n, _ := box.left(); return n == 0 })
	s := d.Stats()
	if m := s.Messages[kindExecute]; m.Sent < 100 || m.Claimed+m.Delivered < 100 || m.Claimed > 50 {
		t.Errorf("stats %+v", m)
	}
}

func TestDelivererSendsUnblocks(t *testing.T) {
	box := newMemOutbox()
	d := newDeliverer(t, box)
	u := Unblock{"w", "p", "poll://uni@g/a", protocol.Promise{ID: "grün", State: protocol.Resolved, Value: protocol.Value(`{"data":"é"}`)}}
	box.queueUnblock(u)
	r := read(t, d, "w", "g", "a")
	eventually(t, "the unblock arrives", func() bool { return len(r.frames()) >= 1 })
	frame := r.frames()[0]
	if !strings.HasPrefix(frame, `data: {"kind":"unblock","head":{},"data":{"promise":{"id":"gr\u00fcn"`) {
		t.Errorf("frame %s", frame)
	}
	for i := range len(frame) {
		if frame[i] > 126 {
			t.Fatalf("byte %x in %s", frame[i], frame)
		}
	}
	eventually(t, "it is reported", func() bool { _, n := box.left(); return n == 0 })
}

// breaking is an outbox in which calls panic, hang, or fail.
type breaking struct {
	*memOutbox
	mode atomic.Value // "", "panic", "hang", "fail"
}

func (b *breaking) CheckExecutes(ctx context.Context, w string, hinted []Execute) ([]Execute, error) {
	if err := b.broken(ctx); err != nil {
		return nil, err
	}
	return b.memOutbox.CheckExecutes(ctx, w, hinted)
}

func (b *breaking) Executes(ctx context.Context, asks []Ask) ([]ExecutePage, error) {
	if err := b.broken(ctx); err != nil {
		return nil, err
	}
	return b.memOutbox.Executes(ctx, asks)
}

func (b *breaking) broken(ctx context.Context) error {
	switch b.mode.Load() {
	case "panic":
		panic("outbox")
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "fail":
		return errors.New("disk full")
	}
	return nil
}

func TestDelivererSurvivesABreakingOutbox(t *testing.T) {
	for _, mode := range []string{"panic", "hang", "fail"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			box := &breaking{memOutbox: newMemOutbox()}
			d := newDeliverer(t, box)
			r := read(t, d, "w", "g", "a")
			box.mode.Store(mode)
			e := Execute{"w", "t", 0, "poll://any@g", nil}
			box.queue(e)
			d.HintExecute(e)
			failed := func() bool {
				h := d.Health()
				return h.Loops[CheckExecutes].Error != "" && h.Loops[ScanExecutes].Failing
			}
			eventually(t, "health shows the failures", failed)
			if got := r.frames(); len(got) != 0 {
				t.Fatalf("got %v", got)
			}
			box.mode.Store("")
			eventually(t, "the message arrives after all", func() bool { return len(r.frames()) >= 1 })
			eventually(t, "health is good", func() bool { return !d.Health().Loops[ScanExecutes].Failing })
			if h := d.Health(); h.Panics != 0 {
				t.Errorf("health %+v", h)
			}
		})
	}
}

func TestHealthShowsAHangingCall(t *testing.T) {
	box := &breaking{memOutbox: newMemOutbox()}
	o := testOptions(box)
	o.Limits.CallTimeoutMs = 1 << 30
	d := New(o)
	box.mode.Store("hang")
	r := read(t, d, "w", "g", "a")
	eventually(t, "a loop is stuck, and the others are not", func() bool {
		h := d.Health()
		return h.StuckMs() > 10*o.Limits.PollMs && h.Loops[Report].IdleMs <= 5*o.Limits.PollMs
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.Stop(ctx); err != nil { // ends the call by its context
		t.Error(err)
	}
	<-r.done
}

func TestDelivererBeginsAnewAfterAnInternalPanic(t *testing.T) {
	box := newMemOutbox()
	d := newDeliverer(t, box)
	r := read(t, d, "w", "g", "a")
	e := Execute{"w", "t", 0, "poll://any@g", nil}
	box.queue(e)
	d.HintExecute(e)
	eventually(t, "the message arrives", func() bool { return len(r.frames()) >= 1 })
	d.step(func(*Core, int64) { panic("bug") })
	<-r.done // its stream has ended
	again := read(t, d, "w", "g", "a")
	eventually(t, "the message arrives again", func() bool { return len(again.frames()) >= 1 })
	if h := d.Health(); h.Panics != 1 || h.Panic != "bug" {
		t.Errorf("health %+v", h)
	}
}

func TestStopEndsStreamsAndLoops(t *testing.T) {
	d := New(testOptions(newMemOutbox()))
	r := read(t, d, "w", "g", "a")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	<-r.done
	if _, err := d.Connect("w", "g", "a"); !errors.Is(err, ErrDraining) {
		t.Errorf("connect: %v", err)
	}
	d.HintExecute(Execute{"w", "t", 0, "poll://any@g", nil}) // late, and harmless
	if n := d.Stats().Connections; n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestStopIsBounded(t *testing.T) {
	d := New(testOptions(newMemOutbox()))
	cn, err := d.Connect("w", "g", "a") // whose writer does not react
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := d.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "streams") {
		t.Errorf("got %v", err)
	}
	cn.Close()
	cn.Close()
}

func TestDelivererUnderConcurrentUse(t *testing.T) {
	box := newMemOutbox()
	d := newDeliverer(t, box)
	const clients, each = 4, 200
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				e := Execute{"w", fmt.Sprintf("t%d.%d", c, i), 0, "poll://any@g", nil}
				box.queue(e)
				d.HintExecute(e)
				ref := UnblockRef{e.ID, "poll://any@g/b"}
				box.queueUnblock(Unblock{"w", ref.ID, ref.Address, protocol.Promise{ID: ref.ID}})
				d.HintUnblock("w", ref)
				if i%3 == 0 {
					box.claim("w", e.ID)
					d.HintClaimed("w", e.ID, 0)
				}
				if i%50 == 0 {
					d.Stats()
					d.Health()
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 30 {
			r := read(t, d, "w", "g", string(rune('a'+i%2)))
			time.Sleep(2 * time.Millisecond)
			if i%3 == 0 {
				r.cn.Close()
			}
		}
	})
	wg.Wait()
	read(t, d, "w", "g", "a")
	read(t, d, "w", "g", "b")
	eventually(t, "everything is delivered or claimed", func() bool { e, u := box.left(); return e+u == 0 })
}

func BenchmarkDispatch(b *testing.B) {
	box := newMemOutbox()
	o := testOptions(box)
	o.Limits = Limits{}
	d := New(o)
	cn, err := d.Connect("w", "g", "a")
	if err != nil {
		b.Fatal(err)
	}
	defer cn.Close()
	var buf []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := Execute{"w", fmt.Sprint("task-with-an-id-of-usual-length-", i), 0, "poll://any@g", nil}
		box.queue(e)
		d.HintExecute(e)
		for {
			frames, _ := cn.Take(buf[:0])
			if len(frames) > 0 {
				buf = frames
				break
			}
			<-cn.Wake()
		}
		cn.Flushed()
		box.claim("w", e.ID)
		d.HintClaimed("w", e.ID, 0)
	}
}
