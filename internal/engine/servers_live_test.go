package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/memkv"
	"abide/protocol"
)

// mortal is a store's handle that can be cut off for good, as by the death of its process.
type mortal struct {
	kv.Store
	dead atomic.Bool
}

func (m *mortal) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	if m.dead.Load() {
		return kv.Position{}, &kv.Error{Is: kv.ErrClosed}
	}
	return m.Store.Update(ctx, h, fn)
}

func (m *mortal) View(ctx context.Context, fn func(kv.Snapshot) error) error {
	if m.dead.Load() {
		return &kv.Error{Is: kv.ErrClosed}
	}
	return m.Store.View(ctx, fn)
}

// liveServer is a server in real time.
type liveServer struct {
	engine   *Engine
	delivery *deliver.Deliverer
	handle   *mortal
}

func startLive(t *testing.T, disk *memkv.Store, id string) *liveServer {
	t.Helper()
	s := &liveServer{handle: &mortal{Store: disk.Handle()}}
	var err error
	s.engine, err = Open(context.Background(), s.handle, Options{ServerID: id, Shared: true, LeaseMs: 1000, RetryTimeoutMs: 2000, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s.delivery = deliver.New(deliver.Options{
		Outbox: s.engine.Outbox(), Roster: s.engine.Roster(), ServerURL: func(string) string { return "" },
		NowMs: func() int64 { return time.Since(begun).Milliseconds() },
	})
	s.engine.Start(s.delivery)
	return s
}

// stop ends a server's goroutines; one that is dead does not take its leave.
func (s *liveServer) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = s.delivery.Stop(ctx)
	_ = s.engine.Stop(ctx)
}

// liveWorker takes its messages from the servers in turn, and sends its requests to any of them.
type liveWorker struct {
	pid     string
	servers []*liveServer
	done    *atomic.Int64
	claims  *sync.Map // task -> *atomic.Int64
}

func (w *liveWorker) run(ctx context.Context) {
	for at := rand.IntN(len(w.servers)); ctx.Err() == nil; at++ {
		s := w.servers[at%len(w.servers)]
		if s.handle.dead.Load() {
			continue
		}
		if cn, err := s.delivery.Connect("default", "g", w.pid); err == nil {
			w.read(ctx, s, cn)
			cn.Close()
		}
	}
}

// read reads a stream until it ends or its server dies.
func (w *liveWorker) read(ctx context.Context, s *liveServer, cn *deliver.Connection) {
	for ctx.Err() == nil && !s.handle.dead.Load() {
		frames, status := cn.Take(nil)
		cn.Flushed()
		for _, m := range tasksIn(frames) {
			w.work(ctx, m)
		}
		if status != deliver.Open {
			return
		}
		select {
		case <-cn.Wake():
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// work claims a task at one server and fulfils it at another.
func (w *liveWorker) work(ctx context.Context, id string) {
	any := func() *Engine { return w.servers[rand.IntN(len(w.servers))].engine }
	reply := any().Do(ctx, "default", &protocol.TaskAcquire{ID: id, Version: 0, PID: w.pid, TTL: 60_000}, nil)
	for reply.Status == protocol.StatusUnavailable && ctx.Err() == nil {
		reply = any().Do(ctx, "default", &protocol.TaskAcquire{ID: id, Version: 0, PID: w.pid, TTL: 60_000}, nil)
	}
	if reply.Status != protocol.StatusOK {
		return
	}
	count, _ := w.claims.LoadOrStore(id, &atomic.Int64{})
	count.(*atomic.Int64).Add(1)
	fulfill := &protocol.TaskFulfill{ID: id, Version: 1, Action: protocol.PromiseSettle{ID: id, State: protocol.Resolved}}
	for ctx.Err() == nil {
		if reply := any().Do(ctx, "default", fulfill, nil); reply.Status == protocol.StatusOK {
			w.done.Add(1)
			return
		}
	}
}

// tasksIn lists the tasks of execute frames.
func tasksIn(frames []byte) (ids []string) {
	const key = `"task":{"id":"`
	text := string(frames)
	for i := 0; i+len(key) <= len(text); i++ {
		if text[i:i+len(key)] == key {
			rest := text[i+len(key):]
			for j := range rest {
				if rest[j] == '"' {
					ids = append(ids, rest[:j])
					break
				}
			}
		}
	}
	return ids
}

// Three servers in real time, none of which hears of the others' commits; workers ask any of them. One dies with the
// streams that it has. Every task is claimed once and ends. (K17, G13, D2)
func TestThreeServersInRealTime(t *testing.T) {
	const tasks = 150
	disk := memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register()})
	defer disk.Close()
	var servers []*liveServer
	for i := range 3 {
		servers = append(servers, startLive(t, disk, fmt.Sprint("live", i)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	var done atomic.Int64
	var claims sync.Map
	var running sync.WaitGroup
	for i := range 6 {
		w := &liveWorker{pid: fmt.Sprint("w", i), servers: servers, done: &done, claims: &claims}
		running.Go(func() { w.run(ctx) })
	}
	target := protocol.Tags{}.With(protocol.TagTarget, "poll://any@g")
	for i := range tasks {
		if i == tasks/2 {
			servers[2].handle.dead.Store(true)
		}
		create := &protocol.PromiseCreate{ID: fmt.Sprint("t", i), TimeoutAt: 1 << 50, Tags: target}
		for servers[rand.IntN(3)].engine.Do(ctx, "default", create, nil).Status != protocol.StatusOK && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	for done.Load() < tasks && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	running.Wait()
	for _, s := range servers {
		s.stop()
	}
	if n := done.Load(); n != tasks {
		t.Errorf("%d of %d tasks are done", n, tasks)
	}
	claims.Range(func(id, count any) bool {
		if n := count.(*atomic.Int64).Load(); n != 1 {
			t.Errorf("%s was claimed %d times", id, n)
		}
		return true
	})
}
