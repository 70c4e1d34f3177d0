package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"abide/internal/loops"
	"abide/protocol"
)

// world is a Core among workers, clients and a store that all do whatever they like. It keeps a model of
// who was sent what, and when, and compares.
type world struct {
	t     *rapid.T
	core  *Core
	box   *memOutbox
	nowMs int64
	limit Limits

	conns   []*peer // open ones
	jobs    []*openJob
	tasks   []*worldTask
	unblock int

	listeners map[string]string  // the address of each unblock
	sends     map[string][]*send // by message: the dispatch of a task, or an unblock
	hints     []lateHint
	late      map[string]bool // messages whose hint came when they had been sent already
}

// lateHint is a hint that arrives some time after its commit.
type lateHint struct {
	key  string
	give func()
}

// peer is the worker's end of a connection.
type peer struct {
	id         ConnID
	group, pid string
	unflushed  []*send
	closedMs   int64 // 0: open
}

type worldTask struct {
	id       string
	version  int64
	address  string
	dispatch int
	pending  bool // else claimed
	received bool // some worker has seen this version
}

// send is one time that a message was taken to be written.
type send struct {
	to      *peer
	flushMs int64 // 0: not yet
}

type openJob struct {
	job    *Job
	result Result
	ran    bool
}

var worldAddresses = []string{
	"poll://any@g", "poll://any@g/a", "poll://any@h", "poll://uni@g/a", "poll://uni@g/b", "poll://uni@h/a", "poll://uni@g",
	"poll://any@w/poll", "poll://uni@w/poll",
}

func newWorld(t *rapid.T) *world {
	l := Limits{
		MaxConnections: 4,
		MaxExecutes:    rapid.IntRange(1, 6).Draw(t, "MaxExecutes"),
		MaxUnblocks:    rapid.IntRange(1, 6).Draw(t, "MaxUnblocks"),
		BufferBytes:    rapid.SampledFrom([]int{1, 600, 1 << 20}).Draw(t, "BufferBytes"),
		WriteBytes:     rapid.SampledFrom([]int{1, 1 << 20}).Draw(t, "WriteBytes"),
		MaxHints:       rapid.SampledFrom([]int{2, 1000}).Draw(t, "MaxHints"),
		HoldMs:         rapid.SampledFrom([]int64{200, 3000}).Draw(t, "HoldMs"),
	}
	return &world{t: t, core: NewCore(l), box: newMemOutbox(), nowMs: 1, limit: l.withDefaults(),
		sends: map[string][]*send{}, late: map[string]bool{}, listeners: map[string]string{}}
}

func (w *world) dispatchKey(x *worldTask) string {
	return fmt.Sprintf("%s@%d#%d", x.id, x.version, x.dispatch)
}

// queue dispatches a task.
func (w *world) queue(x *worldTask) {
	x.pending, x.received = true, false
	x.dispatch++
	e := Execute{"w", x.id, x.version, x.address, nil}
	w.box.queue(e)
	w.hint(w.dispatchKey(x), func() { w.core.HintExecute(w.nowMs, e) })
}

// hint gives a hint at once, or later, or never.
func (w *world) hint(key string, give func()) {
	switch rapid.IntRange(0, 2).Draw(w.t, "hinted") {
	case 0:
		give()
	case 1:
		w.hints = append(w.hints, lateHint{key, give})
	}
}

func (w *world) giveHint(*rapid.T) {
	if len(w.hints) == 0 {
		return
	}
	h := w.hints[0]
	w.hints = w.hints[1:]
	w.late[h.key] = w.late[h.key] || len(w.sends[h.key]) > 0
	h.give()
}

func (w *world) create(*rapid.T) {
	x := &worldTask{id: fmt.Sprintf("t%03d", len(w.tasks)), address: rapid.SampledFrom(worldAddresses).Draw(w.t, "address")}
	w.tasks = append(w.tasks, x)
	w.queue(x)
}

func (w *world) createUnblock(*rapid.T) {
	w.unblock++
	u := Unblock{"w", fmt.Sprintf("p%03d", w.unblock), rapid.SampledFrom(worldAddresses).Draw(w.t, "address"), protocol.Promise{}}
	u.Promise.ID = u.ID
	w.box.queueUnblock(u)
	w.listeners[u.ID] = u.Address
	w.hint(w.unblockOf(u.ID), func() { w.core.HintUnblock(w.nowMs, "w", UnblockRef{u.ID, u.Address}) })
}

func pick[T any](w *world, from []T, ok func(T) bool, label string) (T, bool) {
	var fit []T
	for _, x := range from {
		if ok(x) {
			fit = append(fit, x)
		}
	}
	if len(fit) == 0 {
		var none T
		return none, false
	}
	return rapid.SampledFrom(fit).Draw(w.t, label), true
}

func (w *world) claim(*rapid.T) {
	x, ok := pick(w, w.tasks, func(x *worldTask) bool { return x.pending && x.received }, "claimed")
	if !ok {
		return
	}
	w.box.claim("w", x.id)
	x.pending = false
	if rapid.Bool().Draw(w.t, "hinted") {
		w.core.HintClaimed(w.nowMs, "w", x.id, x.version)
	}
	x.version++
}

func (w *world) release(*rapid.T) {
	if x, ok := pick(w, w.tasks, func(x *worldTask) bool { return !x.pending }, "released"); ok {
		w.queue(x)
	}
}

// retry queues a task whose execute was delivered and not claimed.
func (w *world) retry(*rapid.T) {
	x, ok := pick(w, w.tasks, func(x *worldTask) bool {
		return x.pending && w.box.executes[executeEntry{"w", x.id}] == nil
	}, "retried")
	if ok {
		w.queue(x)
	}
}

func (w *world) connect(*rapid.T) {
	name := rapid.SampledFrom([][2]string{
		{"g", "a"}, {"g", "b"}, {"g", "c"}, {"g", "a"}, {"h", "a"}, {"h", "b"}, {"w", "poll"},
	}).Draw(w.t, "name")
	p := &peer{group: name[0], pid: name[1]}
	id, err := w.core.Connect(w.nowMs, "w", p.group, p.pid)
	older := slices.IndexFunc(w.conns, func(q *peer) bool { return q.group == p.group && q.pid == p.pid })
	if err != nil {
		if older >= 0 || len(w.conns) < w.limit.MaxConnections {
			w.t.Fatalf("refused: %v", err)
		}
		return
	}
	if older >= 0 {
		old := w.conns[older]
		w.conns = slices.Delete(w.conns, older, older+1)
		old.closedMs = w.nowMs
		if _, status := w.core.Output(w.nowMs, old.id, nil); status != Closed {
			w.t.Fatalf("the older connection of %s is in status %d", p.pid, status)
		}
	}
	p.id = id
	w.conns = append(w.conns, p)
}

func (w *world) disconnect(*rapid.T) {
	p, ok := pick(w, w.conns, func(*peer) bool { return true }, "disconnected")
	if !ok {
		return
	}
	w.conns = slices.DeleteFunc(w.conns, func(q *peer) bool { return q == p })
	p.closedMs = w.nowMs
	w.core.Disconnect(w.nowMs, p.id)
}

// output takes what waits for one connection, if its last batch is flushed.
func (w *world) output(*rapid.T) {
	if p, ok := pick(w, w.conns, func(p *peer) bool { return len(p.unflushed) == 0 }, "writer"); ok {
		w.write(p)
	}
}

func (w *world) write(p *peer) {
	var copies []bool // a frame does not show what it is
	for f := w.core.conns[p.id].out.front; f != nil; f = f.links[linkQueue].next {
		copies = append(copies, f.copy)
	}
	messages, status := w.core.Output(w.nowMs, p.id, nil)
	if status != Open {
		w.t.Fatalf("connection %d of %s/%s is in status %d", p.id, p.group, p.pid, status)
	}
	for i, m := range messages {
		if m.Promise != nil {
			address := w.listeners[m.Promise.ID]
			w.addressed(p, address, m.Promise.ID)
			if !copies[i] {
				w.sent(p, w.unblockOf(m.Promise.ID))
			} else if !wholeWorkspace(address) {
				w.t.Fatalf("a copy of %s for %s went to %s/%s", m.Promise.ID, address, p.group, p.pid)
			}
			continue
		}
		i := slices.IndexFunc(w.tasks, func(x *worldTask) bool { return x.id == m.Task.ID })
		x := w.tasks[i]
		w.addressed(p, x.address, x.id)
		if !x.pending || x.version != m.Task.Version {
			continue // claimed since the check; the worker will get a 409
		}
		x.received = true
		w.sent(p, w.dispatchKey(x))
	}
}

// unblockOf returns the key of an unblock in sends. Its entry may be gone if it was read before.
func (w *world) unblockOf(id string) string { return "unblock " + id }

// sent records that a message went to p and complains if it was on its way already.
func (w *world) sent(p *peer, key string) {
	for _, s := range w.sends[key] {
		broke := s.to.closedMs > 0 && (s.flushMs == 0 || s.to.closedMs < s.flushMs+w.limit.WindowMs)
		doubted := w.late[key] && s.flushMs > 0 && s.flushMs+w.limit.WindowMs <= w.nowMs
		if !broke && !doubted {
			w.t.Fatalf("%s was sent to %s/%s (connection %d, flushed at %d) and again to connection %d at %d",
				key, s.to.group, s.to.pid, s.to.id, s.flushMs, p.id, w.nowMs)
		}
	}
	s := &send{to: p}
	w.sends[key] = append(w.sends[key], s)
	p.unflushed = append(p.unflushed, s)
}

func (w *world) addressed(p *peer, address, id string) {
	if !mayTake(p, address) {
		w.t.Fatalf("%s for %s went to %s/%s", id, address, p.group, p.pid)
	}
}

func wholeWorkspace(address string) bool {
	return address == "poll://any@w/poll" || address == "poll://uni@w/poll"
}

// mayTake reports whether a message for the address may go to p.
func mayTake(p *peer, address string) bool {
	a, err := protocol.ParseAddress(address)
	return err == nil && (wholeWorkspace(address) || a.Group == p.group && (a.Cast == protocol.CastAny || a.ID == p.pid))
}

func (w *world) flush(*rapid.T) {
	p, ok := pick(w, w.conns, func(p *peer) bool { return len(p.unflushed) > 0 }, "flushed")
	if ok {
		w.flushed(p)
	}
}

func (w *world) flushed(p *peer) {
	w.core.Flushed(w.nowMs, p.id)
	for _, s := range p.unflushed {
		s.flushMs = w.nowMs
	}
	p.unflushed = nil
}

func (w *world) passTime(*rapid.T) {
	w.nowMs += rapid.SampledFrom([]int64{1, 30, 300, 999, 1000, 1100}).Draw(w.t, "ms")
}

func (w *world) take(*rapid.T) {
	cl := Class(rapid.IntRange(0, int(Classes)-1).Draw(w.t, "class"))
	if j := w.core.Take(w.nowMs, cl); j != nil {
		w.jobs = append(w.jobs, &openJob{job: j})
	}
}

// step moves one job on: the store reads or writes at one moment, the answer arrives at another.
func (w *world) step(*rapid.T) {
	if len(w.jobs) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.jobs)-1).Draw(w.t, "job")
	o := w.jobs[i]
	if !o.ran {
		w.runJob(o, rapid.IntRange(0, 4).Draw(w.t, "fails") == 0)
		return
	}
	w.jobs = slices.Delete(w.jobs, i, i+1)
	w.core.Done(w.nowMs, o.job, o.result)
}

func (w *world) runJob(o *openJob, fails bool) {
	o.ran = true
	if fails {
		o.result = Result{Err: errors.New("store failed")}
		return
	}
	if o.job.Class == Report {
		w.checkReport(o.job)
	}
	o.result = o.job.Run(context.Background(), w.box)
}

// checkReport complains about a report of what was not delivered.
func (w *world) checkReport(j *Job) {
	delivered := func(key string) {
		for _, s := range w.sends[key] {
			until := s.flushMs + w.limit.WindowMs
			if s.flushMs > 0 && until <= w.nowMs && (s.to.closedMs == 0 || s.to.closedMs >= until) {
				return
			}
		}
		w.t.Fatalf("%s is reported, but was not delivered", key)
	}
	for _, e := range j.executes {
		i := slices.IndexFunc(w.tasks, func(x *worldTask) bool { return x.id == e.ID })
		if x := w.tasks[i]; x.pending && x.version == e.Version {
			delivered(w.dispatchKey(x))
		}
	}
	for _, u := range j.unblocks {
		delivered(w.unblockOf(u.ID))
	}
}

// work runs all that is due, without a failure.
func (w *world) work(*rapid.T) {
	for cl := range Classes {
		for j := w.core.Take(w.nowMs, cl); j != nil; j = w.core.Take(w.nowMs, cl) {
			o := &openJob{job: j}
			w.runJob(o, false)
			w.core.Done(w.nowMs, j, o.result)
			checkCore(w.t, w.core)
		}
	}
}

func (w *world) reachable(address string) bool {
	return slices.ContainsFunc(w.conns, func(p *peer) bool { return mayTake(p, address) })
}

// idle reports whether nothing is left to deliver and nothing in flight.
func (w *world) idle() bool {
	for _, q := range w.box.executes {
		if w.reachable(q.address) {
			return false
		}
	}
	for k := range w.box.unblocks {
		if w.reachable(k.address) {
			return false
		}
	}
	return len(w.core.flights[0])+len(w.core.flights[1]) == 0
}

// checkSlots complains if a worker has more unclaimed executes than it may. Not counted are those whose
// hold may be over, and those whose dispatch is in doubt for a late hint and may be begun anew.
func (w *world) checkSlots() {
	unclaimed := map[*peer]int{}
	for _, x := range w.tasks {
		key := w.dispatchKey(x)
		sends := w.sends[key]
		if !x.pending || len(sends) == 0 {
			continue
		}
		s := sends[len(sends)-1]
		delivered := s.flushMs > 0 && s.flushMs+w.limit.WindowMs <= w.nowMs
		over := delivered && s.flushMs+w.limit.WindowMs+w.limit.HoldMs <= w.nowMs
		if s.to.closedMs > 0 || over || delivered && w.late[key] {
			continue
		}
		if unclaimed[s.to]++; unclaimed[s.to] > w.limit.MaxExecutes {
			w.t.Fatalf("%s/%s has %d unclaimed executes, limit %d", s.to.group, s.to.pid, unclaimed[s.to], w.limit.MaxExecutes)
		}
	}
}

// settle lets everything come to rest and complains about what can be delivered and was not.
func (w *world) settle() {
	for _, p := range slices.Clone(w.conns) { // a write may have failed for lack of a flush
		if len(p.unflushed) > 0 {
			w.flushed(p)
		}
	}
	for len(w.jobs) > 0 {
		o := w.jobs[0]
		w.jobs = w.jobs[1:]
		if !o.ran {
			w.runJob(o, false)
		}
		w.core.Done(w.nowMs, o.job, o.result)
	}
	// The longest that it may take: backoff, then each message a window and a hold after the one before it.
	messages := len(w.box.executes) + len(w.box.unblocks)
	end := w.nowMs + 2*loops.MaxCallPauseMs + int64(messages+2)*(2*w.limit.WindowMs+w.limit.HoldMs)
	for ; w.nowMs < end && !w.idle(); w.nowMs += 100 {
		w.work(nil)
		for _, p := range w.conns {
			w.write(p)
			w.flushed(p)
		}
		w.checkSlots()
	}
	for k, q := range w.box.executes {
		if w.reachable(q.address) {
			w.t.Fatalf("%s for %s was not delivered", k.id, q.address)
		}
	}
	for k := range w.box.unblocks {
		if w.reachable(k.address) {
			w.t.Fatalf("%s for %s was not delivered", k.id, k.address)
		}
	}
	if n := len(w.core.flights[0]) + len(w.core.flights[1]); n > 0 {
		w.t.Fatalf("%d messages are still in flight", n)
	}
}

// Whatever workers, clients and the store do: a message goes only to whom it is for; it is not sent again
// while it is on its way or after it was delivered, unless its stream broke in time or it was dispatched
// anew; it is reported only if it was delivered; no limit is passed, and no worker has more unclaimed executes than
// it may at any time; and in the end nothing is left that could have been delivered.
func TestDeliveryProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"create":  w.create,
			"unblock": w.createUnblock,
			"hint":    w.giveHint,
			"claim":   w.claim,
			"release": w.release,
			"retry":   w.retry,
			"connect": w.connect,
			"break":   w.disconnect,
			"output":  w.output,
			"output2": w.output,
			"flush":   w.flush,
			"flush2":  w.flush,
			"time":    w.passTime,
			"take":    w.take,
			"take2":   w.take,
			"step":    w.step,
			"step2":   w.step,
			"step3":   w.step,
			"work":    w.work,
			"": func(t *rapid.T) {
				checkCore(t, w.core)
				w.checkSlots()
			},
		})
		w.settle()
	})
}
