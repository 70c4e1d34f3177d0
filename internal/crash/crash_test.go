// Package crash kills whole servers, below the protocol's surface and above a real file.
package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/internal/engine"
	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
	"abide/kv/sqlitekv"
	"abide/protocol"
)

const workspace = "default"

// wall is a clock that moves only when told. Like the client, it outlives servers.
type wall struct {
	now  time.Duration
	told bool // the client has been told that the root is settled
}

func (w *wall) Wall() time.Time                                { return time.UnixMilli(1_000_000).Add(w.now) }
func (w *wall) Mono() time.Duration                            { return w.now }
func (w *wall) Sleep(_ context.Context, d time.Duration) error { w.now += d; return nil }

// mortal is a store whose process dies right after a commit: nobody hears of that commit, and nothing more is
// done. One goroutine uses it.
type mortal struct {
	kv.Store
	commits int
	dieAt   int // the commit after which it dies; 0 for never
}

var errDead = fmt.Errorf("the process is dead: %w", kv.ErrClosed)

func (m *mortal) dead() bool { return m.dieAt > 0 && m.commits >= m.dieAt }

func (m *mortal) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	if m.dead() {
		return kv.Position{}, errDead
	}
	at, err := m.Store.Update(ctx, h, fn)
	if !at.IsZero() {
		m.commits++
	}
	if m.dead() {
		return kv.Position{}, errDead
	}
	return at, err
}

func (m *mortal) View(ctx context.Context, fn func(kv.Snapshot) error) error {
	if m.dead() {
		return errDead
	}
	return m.Store.View(ctx, fn)
}

// life is one process: a store, an engine, and the work done through it.
type life struct {
	t      *testing.T
	store  *mortal
	engine *engine.Engine
	layout keyspace.Layout
	clock  *wall
	// moved says that a pass has changed something.
	moved bool
}

// openFile opens a store that the end of the test closes.
func openFile(t *testing.T, path string) kv.Store {
	t.Helper()
	s, err := sqlitekv.Open(sqlitekv.Options{Path: path, Keys: keyspace.Register()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// begin starts a server on a store. A process that dies while it opens the engine is a life without one.
func begin(t *testing.T, s kv.Store, id string, clock *wall, dieAt int) *life {
	t.Helper()
	var err error
	l := &life{t: t, store: &mortal{Store: s, dieAt: dieAt}, clock: clock, layout: keyspace.Layout{Shards: 1}}
	l.engine, err = engine.Open(context.Background(), l.store, engine.Options{ServerID: id, Source: clock, Log: slog.New(slog.DiscardHandler)})
	if err != nil && !l.store.dead() {
		t.Fatal(err)
	}
	return l
}

// do sends a request. A status that is not among want fails the test, unless the process is dead.
func (l *life) do(req protocol.Request, want ...int) protocol.Reply {
	l.t.Helper()
	reply := l.engine.Do(context.Background(), workspace, req, nil)
	if !l.store.dead() && !slices.Contains(want, reply.Status) {
		l.t.Fatalf("%s: status %d (%s), want one of %d", req.Kind(), reply.Status, reply.Message, want)
	}
	return reply
}

// must fails the test, unless the process is dead.
func (l *life) must(err error) {
	l.t.Helper()
	if err != nil && !l.store.dead() {
		l.t.Fatal(err)
	}
}

const (
	root    = "order"
	forever = 1 << 50
	ttlMs   = 20_000
	// idle is how far the clock moves when there is nothing to do.
	idle = 10 * time.Second
	// end is when everything is over: schedule, timers and all.
	end = 400 * time.Second
)

func tags(pairs ...string) (t protocol.Tags) {
	for i := 0; i < len(pairs); i += 2 {
		t = t.With(pairs[i], pairs[i+1])
	}
	return t
}

func value(text string) protocol.Value { return protocol.Value(`{"headers":{},"data":"` + text + `"}`) }

// outset is what the client asks for. It asks again after a crash: every request of it may be repeated.
func (l *life) outset() {
	l.do(&protocol.PromiseCreate{ID: root, TimeoutAt: forever, Param: value("3 books"), Tags: tags(protocol.TagTarget, "poll://any@workers")}, 200)
	l.do(&protocol.PromiseRegisterListener{Awaited: root, Address: "poll://uni@clients/me"}, 200)
	l.do(&protocol.ScheduleCreate{ID: "daily", Cron: "*/2 * * * *", PromiseID: "report.{{.timestamp}}", PromiseTimeout: 1000}, 200, 409)
}

// pass lets everybody do what there is to do once: workers, client and timers.
func (l *life) pass() {
	l.moved = false
	l.workers()
	if !l.store.dead() {
		l.client()
	}
	if !l.store.dead() {
		l.timers()
	}
	if !l.moved && l.clock.now < end {
		l.clock.now += idle
	}
}

// workers take what is queued for them and run it. They keep nothing in their heads.
func (l *life) workers() {
	out, ctx := l.engine.Outbox(), context.Background()
	queued, err := out.Executes(ctx, []deliver.Ask{{Destination: deliver.Destination{Workspace: workspace, Group: "workers"}, Limit: 10}})
	if l.must(err); err != nil {
		return
	}
	for _, m := range queued[0].Executes {
		l.moved = true
		l.must(out.ExecutesDelivered(ctx, workspace, []deliver.Execute{m}))
		reply := l.do(&protocol.TaskAcquire{ID: m.ID, Version: m.Version, PID: "worker", TTL: ttlMs}, 200)
		if l.store.dead() {
			return
		}
		l.run(reply.Body.(protocol.ClaimBody).Task)
		if l.store.dead() {
			return
		}
	}
}

// run is the function behind a task.
func (l *life) run(task protocol.Task) {
	if task.ID != root {
		l.fulfil(task, "done: "+task.ID)
		return
	}
	for {
		var pending, results []string
		for _, child := range []protocol.PromiseCreate{
			{ID: root + ".pack", TimeoutAt: forever, Tags: tags(protocol.TagTarget, "poll://any@workers")},
			{ID: root + ".pause", TimeoutAt: 1_200_000, Tags: tags("resonate:timer", "true")},
			{ID: root + ".payment", TimeoutAt: forever},
			{ID: root + ".late", TimeoutAt: 1_060_000},
		} {
			reply := l.do(&protocol.TaskFence{ID: task.ID, Version: task.Version, Create: &child}, 200)
			if l.store.dead() {
				return
			}
			p := reply.Body.(protocol.FenceBody).Action.Body.(protocol.PromiseBody).Promise
			if p.State == protocol.Pending {
				pending = append(pending, p.ID)
				continue
			}
			text, _ := p.Value.Data()
			results = append(results, fmt.Sprintf("%s %s %s", p.ID, p.State, text))
		}
		if len(pending) == 0 {
			l.fulfil(task, strings.Join(results, ", "))
			return
		}
		if reply := l.do(&protocol.TaskSuspend{ID: task.ID, Version: task.Version, Awaited: pending}, 200, 300); reply.Status != 300 {
			return // suspended, or dead
		}
	}
}

func (l *life) fulfil(task protocol.Task, text string) {
	l.do(&protocol.TaskFulfill{ID: task.ID, Version: task.Version,
		Action: protocol.PromiseSettle{ID: task.ID, State: protocol.Resolved, Value: value(text)}}, 200)
}

// client pays when it is asked to, and takes the message that ends its wait.
func (l *life) client() {
	reply := l.do(&protocol.PromiseGet{ID: root + ".payment"}, 200, 404)
	if p, ok := reply.Body.(protocol.PromiseBody); ok && p.Promise.State == protocol.Pending {
		l.moved = true
		l.do(&protocol.PromiseSettle{ID: root + ".payment", State: protocol.Resolved, Value: value("paid")}, 200)
	}
	out, ctx := l.engine.Outbox(), context.Background()
	messages, err := out.Unblocks(ctx, []deliver.Ask{{Destination: deliver.Destination{Workspace: workspace, Group: "clients", PID: "me"}, Limit: 10}})
	if l.must(err); err != nil {
		return
	}
	for _, m := range messages[0].Unblocks {
		l.moved, l.clock.told = true, true
		l.must(out.UnblocksDelivered(ctx, workspace, []deliver.UnblockRef{{ID: m.ID, Address: m.Address}}))
	}
}

// timers fires what is due, as the loop does, and sweeps.
func (l *life) timers() {
	ctx := context.Background()
	steps, _, err := l.engine.Tick(ctx, l.engine.Now())
	l.must(err)
	for _, s := range steps {
		l.moved = true
		l.must(l.engine.Fire(ctx, s))
	}
}

// live works until the root is settled and the client told, or the process is dead. Then it lets the clock run to
// its end.
func (l *life) live() {
	if l.engine == nil {
		return
	}
	l.outset()
	for range 2000 {
		atEnd := l.clock.now >= end
		l.pass()
		if l.store.dead() || (atEnd && !l.moved) {
			return
		}
		if l.clock.told && l.settled() {
			l.clock.now = max(l.clock.now, end)
		}
	}
	l.t.Fatal("the workflow does not end")
}

func (l *life) settled() bool {
	p, ok := l.do(&protocol.PromiseGet{ID: root}, 200, 404).Body.(protocol.PromiseBody)
	return ok && p.Promise.State != protocol.Pending
}

// result is everything that anybody could have been told, in the end: states and values, not when and how often.
func (l *life) result() string {
	var b strings.Builder
	list := l.do(&protocol.PromiseSearch{Limit: 100}, 200).Body.(protocol.PromisesBody).Promises
	slices.SortFunc(list, func(a, b protocol.Promise) int { return strings.Compare(a.ID, b.ID) })
	for _, p := range list {
		fmt.Fprintf(&b, "%s %s %s %s\n", p.ID, p.State, p.Param, p.Value)
	}
	for _, t := range l.do(&protocol.TaskSearch{Limit: 100}, 200).Body.(protocol.TasksBody).Tasks {
		fmt.Fprintf(&b, "task %s %s\n", t.ID, t.State)
	}
	if _, err := store.Check(context.Background(), l.store, l.layout, l.engine.Now(), func(p store.Problem) {
		l.t.Errorf("the store breaks an invariant: %s", p)
	}); err != nil {
		l.t.Error(err)
	}
	return b.String()
}

// remains copies what a killed process leaves on disk: the file and its log. Every commit of it is synced, so
// what the file system has is what a new process finds.
func remains(t *testing.T, path string) (copied string) {
	t.Helper()
	copied = filepath.Join(t.TempDir(), "x.db")
	for _, suffix := range []string{"", "-wal"} {
		from, err := os.Open(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		to, err := os.Create(copied + suffix)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(to, from)
		if err := errors.Join(err, from.Close(), to.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

// A process is killed after every single transaction of a workflow, another one takes over, and the end is the
// same.
func TestAProcessDiesAfterEveryTransaction(t *testing.T) {
	t.Parallel()
	whole := begin(t, openFile(t, filepath.Join(t.TempDir(), "x.db")), "server", &wall{}, 0)
	whole.live()
	want := whole.result()
	if !strings.Contains(want, root+" resolved") || strings.Count(want, "\n") < 8 {
		t.Fatalf("the workflow ends with\n%s", want)
	}
	for dieAt := 1; dieAt <= whole.store.commits; dieAt++ {
		t.Run(fmt.Sprint(dieAt), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "x.db")
			first := begin(t, openFile(t, path), "server", &wall{}, dieAt)
			first.live()
			if !first.store.dead() {
				t.Error("the process has not died")
			}
			second := begin(t, openFile(t, remains(t, path)), "server", first.clock, 0)
			second.live()
			if got := second.result(); got != want {
				t.Errorf("the end is\n%s\nwant\n%s", got, want)
			}
		})
	}
}
