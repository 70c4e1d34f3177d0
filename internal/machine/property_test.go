package machine_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/protocol"
)

var (
	seedFlag       = flag.Uint64("seed", 0, "replay the random history of this seed alone")
	historiesFlag  = flag.Int("histories", 24, "how many random histories to run")
	operationsFlag = flag.Int("operations", 200, "how many operations a random history has")
)

// TestRandomHistories runs random operations of every kind on few ids under a virtual clock. Internal steps are
// fired in any order, late, twice, long after they were due, or not at all. After each operation the whole store
// is checked, and what has been answered or stored is held against what was before: timeout always wins, a
// settled record never changes, a version changes by a claim alone. At the end the history is played again, and
// must come to the same answers and the same state: time is an input. Run one again with -seed.
func TestRandomHistories(t *testing.T) {
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		seeds = nil
		for range *historiesFlag {
			seeds = append(seeds, rand.Uint64N(math.MaxUint32)+1)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			h := newHistory(t, seed)
			for range *operationsFlag {
				h.operate()
			}
			h.replay()
		})
	}
}

// history is one random run.
type history struct {
	*world
	rand    *rand.Rand
	ids     []string
	timers  map[timer]bool // every timer that ever stood
	answers map[string]protocol.Promise
	rows    map[string][]byte // object records as stored after the last operation
	steps   []recorded
	crowded bool // there has been a crowd: one is enough, its messages stay for good
}

// recorded is one operation as it was done.
type recorded struct {
	name   string
	now    int64
	do     func(w *world) string // returns what it was answered
	answer string
}

func newHistory(t *testing.T, seed uint64) *history {
	r := rand.New(rand.NewPCG(seed, 0))
	pool := []string{"r", "r.1", "r:1", "r.1.2", "r:1.2", "s", "s-1", "a/b", "a b", "..", ".", ":x", "😀", "x\ny", "é", "e\u0301",
		strings.Repeat("k", protocol.MaxIDBytes), "{{.id}}", `q"'\`}
	r.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	h := &history{
		world: newQuickWorld(t), rand: r, ids: pool[:7+r.IntN(5)],
		timers: map[timer]bool{}, answers: map[string]protocol.Promise{}, rows: map[string][]byte{},
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, s := range h.steps[max(0, len(h.steps)-25):] {
			t.Logf("at %d %s -> %.300s", s.now, s.name, s.answer)
		}
		t.Logf("replay with: go test ./internal/machine -run TestRandomHistories -seed %d -operations %d", seed, *operationsFlag)
	})
	return h
}

func pick[T any](h *history, of ...T) T { return of[h.rand.IntN(len(of))] }

func (h *history) id() string { return pick(h, h.ids...) }

// other is another id than the given one.
func (h *history) other(id string) string {
	for {
		if o := h.id(); o != id {
			return o
		}
	}
}

func (h *history) operate() {
	h.t.Helper()
	h.passTime()
	step := recorded{now: h.now}
	switch n := h.rand.IntN(100); {
	case n < 22:
		step.name, step.do = h.internal()
	case n < 27:
		id, version := h.id(), h.version()
		step.name = fmt.Sprintf("delivered %q v%d", id, version)
		step.do = func(w *world) (answer string) {
			w.update(func(op *machine.Op) error {
				did, err := op.Delivered(id, version)
				answer = fmt.Sprint(did)
				return err
			})
			return answer
		}
	case n < 29 && !h.crowded:
		step.name, step.do = h.crowd()
	default:
		req := h.request()
		step.name = fmt.Sprintf("%s %+v", req.Kind(), req)
		step.do = func(w *world) string { return w.answer(req, h.watch(w)) }
	}
	before := h.rows
	h.steps = append(h.steps, step)
	last := &h.steps[len(h.steps)-1]
	last.answer = step.do(h.world)
	h.check()
	h.observe(before, last)
}

// passTime moves the clock: often not at all, sometimes exactly to the next timer, now and then far.
func (h *history) passTime() {
	switch n := h.rand.IntN(20); {
	case n < 9:
	case n < 13:
		h.now += h.rand.Int64N(60)
	case n < 17:
		var next int64 = math.MaxInt64
		for t := range h.timers {
			if t.dueAt > h.now {
				next = min(next, t.dueAt)
			}
		}
		if next < h.now+100_000 {
			h.now = next - h.rand.Int64N(2)
		}
	case n < 19:
		h.now += h.rand.Int64N(3000)
	default:
		h.now += 30_000 + h.rand.Int64N(60_000)
	}
}

// internal is one internal step: one that is due, one that stood at some time, or one that never did.
func (h *history) internal() (string, func(w *world) string) {
	candidates := h.due()
	if len(candidates) == 0 || h.rand.IntN(4) == 0 {
		for t := range h.timers {
			candidates = append(candidates, t)
		}
		slices.SortFunc(candidates, func(a, b timer) int {
			return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
		})
	}
	if len(candidates) == 0 || h.rand.IntN(10) == 0 {
		candidates = []timer{{kind: pick(h, keyspace.TimerKinds...), id: h.id()}}
	}
	t := pick(h, candidates...)
	return fmt.Sprintf("%s %q", timerNames[t.kind], t.id), func(w *world) string {
		did, more := w.fire(t)
		return fmt.Sprint(did, more)
	}
}

// crowd is so many listeners at once on one promise that its settlement leaves a drain obligation.
func (h *history) crowd() (string, func(w *world) string) {
	id := h.id()
	h.crowded = true
	return fmt.Sprintf("crowd on %q", id), func(w *world) (answer string) {
		w.update(func(op *machine.Op) error {
			for i := range 270 {
				reply, err := op.Apply(&protocol.PromiseRegisterListener{Awaited: id, Address: fmt.Sprint("poll://uni@crowd/", i)})
				if err != nil {
					return err
				}
				answer = fmt.Sprint(reply.Status, " ", reply.Message)
			}
			return nil
		})
		return answer
	}
}

func (h *history) tags() protocol.Tags {
	var t protocol.Tags
	for _, tag := range [][2]string{
		{protocol.TagTarget, pick(h, "poll://any@g", "poll://uni@g/w", "http://example.com/x")},
		{protocol.TagTimer, pick(h, "true", "false")},
		{protocol.TagExternal, "true"},
		{protocol.TagOrigin, h.id()}, {protocol.TagBranch, h.id()}, {protocol.TagParent, h.id()},
		{"own", pick(h, "1", "2", "")},
	} {
		if h.rand.IntN(3) == 0 {
			t = t.With(tag[0], tag[1])
		}
	}
	return t
}

func (h *history) timeoutAt() int64 {
	return max(0, h.now+pick[int64](h, -5, 0, 1, 10, 200, 1000, 5000, 40_000, 1e12))
}

func (h *history) promiseCreate(id string) protocol.PromiseCreate {
	c := protocol.PromiseCreate{ID: id, TimeoutAt: h.timeoutAt(), Tags: h.tags()}
	if h.rand.IntN(3) == 0 {
		c.Param = payload(pick(h, 0, 10, 1100, 70_000))
	}
	if machine.IsTargeted(c.Tags) && h.rand.IntN(4) == 0 {
		if at := h.now + h.rand.Int64N(400) - 50; at >= 0 && at < c.TimeoutAt {
			c.Tags = c.Tags.With(protocol.TagDelay, fmt.Sprint(at))
		}
	}
	return c
}

func (h *history) targeted(id string) protocol.PromiseCreate {
	return protocol.PromiseCreate{ID: id, TimeoutAt: h.timeoutAt(), Tags: target.With(protocol.TagBranch, h.id())}
}

func (h *history) settle(id string) protocol.PromiseSettle {
	s := protocol.PromiseSettle{ID: id, State: pick(h, protocol.Resolved, protocol.Rejected, protocol.RejectedCanceled)}
	if h.rand.IntN(3) == 0 {
		s.Value = payload(pick(h, 5, 1500))
	}
	return s
}

func (h *history) version() int64 { return pick[int64](h, 0, 1, 1, 2, 2, 3, 4) }

// ref names a task, mostly as it is now, so that most requests find what they are about.
func (h *history) ref(state protocol.TaskState) (id string, version int64) {
	if h.rand.IntN(8) > 0 {
		for _, id := range h.rand.Perm(len(h.ids)) {
			row := h.rows[h.ids[id]]
			if row == nil {
				continue
			}
			if o := h.object(h.ids[id], row); o.Task != nil && o.Task.State == state {
				return o.ID, o.Task.Version
			}
		}
	}
	return h.id(), h.version()
}

func (h *history) ttl() int64 { return pick[int64](h, 1, 50, 500, 2000, math.MaxInt64) }

func (h *history) awaited(task string) (ids []string) {
	for range 1 + h.rand.IntN(4) {
		ids = append(ids, h.other(task))
	}
	return ids
}

func (h *history) request() protocol.Request {
	switch h.rand.IntN(23) {
	case 0, 1, 2, 3:
		c := h.promiseCreate(h.id())
		return &c
	case 4:
		s := h.settle(h.id())
		return &s
	case 5, 6:
		awaited := h.id()
		return &protocol.PromiseRegisterCallback{Awaited: awaited, Awaiter: h.other(awaited)}
	case 7:
		return &protocol.PromiseRegisterListener{Awaited: h.id(), Address: pick(h, "poll://uni@g/w", "poll://any@g", "https://example.com/")}
	case 8, 9:
		return &protocol.TaskCreate{PID: pick(h, "w", "v"), TTL: h.ttl(), Action: h.targeted(h.id())}
	case 10, 11:
		id, version := h.ref(protocol.TaskPending)
		return &protocol.TaskAcquire{ID: id, Version: version, PID: pick(h, "w", "v"), TTL: h.ttl()}
	case 12:
		return h.fence()
	case 13:
		id, version := h.ref(protocol.TaskAcquired)
		return &protocol.TaskHeartbeat{PID: pick(h, "w", "v"), Tasks: pick(h, nil, []protocol.TaskRef{{ID: id, Version: version}, {ID: h.id(), Version: h.version()}})}
	case 14, 15, 16:
		id, version := h.ref(protocol.TaskAcquired)
		return &protocol.TaskSuspend{ID: id, Version: version, Awaited: h.awaited(id)}
	case 17:
		id, version := h.ref(protocol.TaskAcquired)
		return &protocol.TaskFulfill{ID: id, Version: version, Action: h.settle(id)}
	case 18:
		id, version := h.ref(protocol.TaskAcquired)
		return &protocol.TaskRelease{ID: id, Version: version}
	case 19:
		return &protocol.TaskHalt{ID: h.id()}
	case 20:
		id, _ := h.ref(protocol.TaskHalted)
		return &protocol.TaskContinue{ID: id}
	case 21:
		return h.schedule()
	}
	return h.read()
}

func (h *history) fence() protocol.Request {
	id, version := h.ref(protocol.TaskAcquired)
	f := &protocol.TaskFence{ID: id, Version: version}
	if inner := h.other(id); h.rand.IntN(2) == 0 {
		c := h.promiseCreate(inner)
		f.Create = &c
	} else {
		s := h.settle(inner)
		f.Settle = &s
	}
	return f
}

func (h *history) schedule() protocol.Request {
	if h.rand.IntN(4) == 0 {
		return &protocol.ScheduleDelete{ID: pick(h, "one", "two")}
	}
	return &protocol.ScheduleCreate{
		ID: pick(h, "one", "two"), Cron: pick(h, "* * * * *", "*/7 * * * * *", "0 0 1 1 * 1970", "0 0 31 2 *"),
		PromiseID: pick(h, h.id(), "{{.id}}.{{.timestamp}}"), PromiseTimeout: pick[int64](h, 0, 1000, 90_000, math.MaxInt64),
		PromiseParam: payload(pick(h, 3, 2000)), PromiseTags: h.tags(),
	}
}

func (h *history) read() protocol.Request {
	switch h.rand.IntN(6) {
	case 0:
		return &protocol.TaskGet{ID: h.id()}
	case 1:
		return &protocol.TaskSearch{State: pick(h, "", protocol.TaskPending, protocol.TaskSuspended, protocol.TaskFulfilled), Limit: 1 + h.rand.IntN(5)}
	case 2:
		return &protocol.PromiseSearch{State: pick(h, "", protocol.Pending, protocol.Resolved, protocol.RejectedTimedout),
			Tags: pick(h, nil, tags("own", "1"), tags(protocol.TagOrigin, h.id()), tags(protocol.TagBranch, h.id())), Limit: 1 + h.rand.IntN(5)}
	case 3:
		return &protocol.ScheduleGet{ID: pick(h, "one", "two")}
	}
	return &protocol.PromiseGet{ID: h.id()}
}

// watch is what to do with every promise that an answer of w shows: nothing in a replay.
func (h *history) watch(w *world) func(protocol.Promise) {
	if w != h.world {
		return func(protocol.Promise) {}
	}
	return h.saw
}

// answer performs a request and returns its reply as text, giving saw every promise in it.
func (w *world) answer(req protocol.Request, saw func(protocol.Promise)) string {
	w.t.Helper()
	var reply protocol.Reply
	run := func(op *machine.Op) (err error) {
		if beat, ok := req.(*protocol.TaskHeartbeat); ok {
			reply, err = w.heartbeat(op, beat)
		} else {
			reply, err = op.Apply(req)
		}
		return err
	}
	if machine.Writes(req.Kind()) {
		w.update(run)
	} else {
		w.view(run)
	}
	for _, p := range shown(reply.Body) {
		saw(p)
	}
	if reply.Body == nil {
		return fmt.Sprint(reply.Status, " ", reply.Message)
	}
	return fmt.Sprint(reply.Status, " ", string(reply.Body.AppendJSON(nil)))
}

// shown lists the promises that a body shows.
func shown(body protocol.Body) []protocol.Promise {
	switch b := body.(type) {
	case protocol.PromiseBody:
		return []protocol.Promise{b.Promise}
	case protocol.ClaimBody:
		return append([]protocol.Promise{b.Promise}, b.Preload...)
	case protocol.PreloadBody:
		return b.Preload
	case protocol.FenceBody:
		return append(shown(b.Action.Body), b.Preload...)
	case protocol.PromisesBody:
		return b.Promises
	}
	return nil
}

// saw holds a promise in an answer against the answers before.
func (h *history) saw(p protocol.Promise) {
	h.t.Helper()
	if p.State == protocol.Pending && p.TimeoutAt <= h.now {
		h.t.Fatalf("%q is shown as pending at %d, past its deadline %d", p.ID, h.now, p.TimeoutAt)
	}
	if known, ok := h.answers[p.ID]; ok && !bytes.Equal(known.AppendJSON(nil), p.AppendJSON(nil)) {
		h.t.Fatalf("%q was answered as\n%.500s\nand now as\n%.500s", p.ID, known.AppendJSON(nil), p.AppendJSON(nil))
	}
	if p.State != protocol.Pending {
		h.answers[p.ID] = p
	}
}

// observe holds what is stored against what was stored before the operation.
func (h *history) observe(before map[string][]byte, last *recorded) {
	h.t.Helper()
	h.rows = map[string][]byte{}
	for _, entry := range h.scan(everything) {
		row, err := keyspace.ParseRow(entry.Key, entry.Value)
		if err != nil {
			h.t.Fatal(err)
		}
		switch row.Kind {
		case "object":
			h.rows[row.ID] = entry.Value
		case "timer":
			t, _ := keyspace.ParseTimer(entry.Key)
			h.timers[timer{t.Kind, t.ID, t.DueAt}] = true
		}
	}
	for id, was := range before {
		is := h.rows[id]
		if bytes.Equal(was, is) {
			continue
		}
		if is == nil {
			h.t.Fatalf("%q is gone", id)
		}
		h.compare(h.object(id, was), h.object(id, is), last)
	}
}

func (h *history) compare(was, is *machine.Object, last *recorded) {
	h.t.Helper()
	if was.State != protocol.Pending {
		h.t.Fatalf("%q was settled and has changed:\n%s\n%s", was.ID, describe(was), describe(is))
	}
	if was.TimeoutAt != is.TimeoutAt || was.CreatedAt != is.CreatedAt || !slices.Equal(was.Tags, is.Tags) || (was.Waited && !is.Waited) {
		h.t.Fatalf("what never changes has changed:\n%s\n%s", describe(was), describe(is))
	}
	if was.Task == nil || was.Task.Version == is.Task.Version {
		return
	}
	claims := strings.HasPrefix(last.name, "task.acquire ") || strings.HasPrefix(last.name, "task.create ")
	if !claims || !strings.HasPrefix(last.answer, "200 ") || is.Task.Version != was.Task.Version+1 || is.Task.State != protocol.TaskAcquired {
		h.t.Fatalf("a version has changed without a claim:\n%s\n%s", describe(was), describe(is))
	}
}

// replay plays the history into a second world: the same answers, the same state. (B6)
func (h *history) replay() {
	h.t.Helper()
	again := newQuickWorld(h.t)
	for _, step := range h.steps {
		again.now = step.now
		if got := step.do(again); got != step.answer {
			h.t.Fatalf("%s at %d was answered %.300s and in the replay %.300s", step.name, step.now, step.answer, got)
		}
	}
	if d := difference(h.dump(), again.dump()); d != "" {
		h.t.Fatalf("the replay came to another state:\n%s", d)
	}
	if !maps.EqualFunc(rowsOf(h.world), rowsOf(again), bytes.Equal) {
		h.t.Fatal("the replay came to other bytes")
	}
}

func rowsOf(w *world) map[string][]byte {
	rows := map[string][]byte{}
	for _, entry := range w.scan(everything) {
		rows[string(entry.Key)] = entry.Value
	}
	return rows
}
