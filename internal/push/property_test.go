package push

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"abide/internal/deliver"
)

// world is a Core among clients, destinations and a store that do whatever they like, and what it must not do.
type world struct {
	t     *rapid.T
	core  *Core
	box   *memOutbox
	limit Limits
	conc  int
	nowMs int64

	jobs  []*openJob
	sends []*Send
	tasks []*worldTask
	made  int
	late  []func() // hints that come later

}

type openJob struct {
	job    *Job
	ran    bool
	result Result
}

type worldTask struct {
	id      string
	version int64
	address string
	pending bool
}

var worldAddresses = []string{"http://a/1", "http://a/2", "http://b/", "http://c/", "http://nowhere/", "poll://uni@g"}

func newWorld(t *rapid.T) *world {
	l := Limits{
		MaxOutstanding: rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "MaxOutstanding"),
		MaxFlights:     rapid.SampledFrom([]int{4, 20, 1000}).Draw(t, "MaxFlights"),
	}
	w := &world{t: t, box: newMemOutbox(), limit: l.withDefaults(), conc: rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "concurrency"), nowMs: 1}
	w.box.page = rapid.SampledFrom([]int{1, 3, 0}).Draw(t, "page")
	w.core = NewCore(l, served(lanes{concurrency: w.conc}))
	return w
}

// hint gives a hint at once, or later, or never.
func (w *world) hint(give func()) {
	switch rapid.IntRange(0, 2).Draw(w.t, "hinted") {
	case 0:
		give()
	case 1:
		w.late = append(w.late, give)
	}
}

func (w *world) queue(x *worldTask) {
	x.pending = true
	e := execute(x.id, x.version, x.address)
	w.box.queue(e)
	w.hint(func() { w.core.HintExecute(w.nowMs, e) })
}

func (w *world) create(*rapid.T) {
	x := &worldTask{id: fmt.Sprintf("t%03d", len(w.tasks)), address: rapid.SampledFrom(worldAddresses).Draw(w.t, "address")}
	w.tasks = append(w.tasks, x)
	w.queue(x)
}

func (w *world) settlePromise(*rapid.T) {
	w.made++
	id, address := fmt.Sprintf("p%03d", w.made), rapid.SampledFrom(worldAddresses).Draw(w.t, "address")
	w.box.queueUnblock("w", id, address)
	w.hint(func() { w.core.HintUnblock(w.nowMs, "w", deliver.UnblockRef{ID: id, Address: address}) })
}

func (w *world) giveHint(*rapid.T) {
	if len(w.late) > 0 {
		give := w.late[0]
		w.late = w.late[1:]
		give()
	}
}

// touch claims a pending task, or has a claimed one come back at the next version or the same.
func (w *world) touch(*rapid.T) {
	if len(w.tasks) == 0 {
		return
	}
	x := rapid.SampledFrom(w.tasks).Draw(w.t, "task")
	if x.pending {
		x.pending = false
		w.box.claim("w", x.id)
		version := x.version
		w.hint(func() { w.core.HintClaimed(w.nowMs, "w", x.id, version) })
		return
	}
	x.version += rapid.Int64Range(0, 1).Draw(w.t, "more")
	w.queue(x)
}

func (w *world) take(*rapid.T) {
	cl := Class(rapid.IntRange(0, int(Classes)-1).Draw(w.t, "class"))
	if slices.ContainsFunc(w.jobs, func(j *openJob) bool { return j.job.Class == cl }) {
		return
	}
	if j := w.core.Take(w.nowMs, cl); j != nil {
		w.jobs = append(w.jobs, &openJob{job: j})
	}
	w.begin()
}

// work makes every call that is due, one after the other.
func (w *world) work(*rapid.T) {
	for len(w.jobs) > 0 {
		w.run(nil)
		w.done(nil)
	}
	for range 3 {
		for cl := range Classes {
			if j := w.core.Take(w.nowMs, cl); j != nil {
				w.core.Done(w.nowMs, j, j.Run(context.Background(), w.box))
			}
		}
	}
	w.begin()
}

func (w *world) run(*rapid.T) {
	for _, j := range w.jobs {
		if !j.ran {
			j.ran = true
			if rapid.IntRange(0, 9).Draw(w.t, "fails") == 0 {
				j.result = Result{Err: errDown}
			} else {
				j.result = j.job.Run(context.Background(), w.box)
			}
			return
		}
	}
}

func (w *world) done(*rapid.T) {
	for i, j := range w.jobs {
		if j.ran {
			w.jobs = slices.Delete(w.jobs, i, i+1)
			w.core.Done(w.nowMs, j.job, j.result)
			w.begin()
			return
		}
	}
}

// begin takes the sends that were begun, and checks them.
func (w *world) begin() {
	for _, s := range w.core.TakeSends() {
		for _, other := range w.sends {
			if other.flight.key() == s.flight.key() {
				w.t.Fatalf("%+v is sent twice at once", s)
			}
		}
		w.sends = append(w.sends, s)
	}
	perLane := map[string]int{}
	for _, s := range w.sends {
		perLane[s.flight.lane.key.name]++
	}
	for lane, n := range perLane {
		if n > w.conc {
			w.t.Fatalf("%d sends at once to %s, where %d are allowed", n, lane, w.conc)
		}
	}
	if len(w.sends) > w.limit.MaxOutstanding || len(w.core.flights) > w.limit.MaxFlights {
		w.t.Fatalf("%d sends, %d in memory", len(w.sends), len(w.core.flights))
	}
}

func (w *world) end(*rapid.T) {
	if len(w.sends) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.sends)-1).Draw(w.t, "send")
	s := w.sends[i]
	err := rapid.SampledFrom([]error{nil, nil, errDown, errDown, ErrRefused, ErrStale, &LaterError{errDown, 5000}}).Draw(w.t, "answer")
	w.sends = slices.Delete(w.sends, i, i+1)
	w.core.Sent(w.nowMs, s, err)
	w.begin()
}

func (w *world) wait(*rapid.T) {
	w.nowMs += rapid.SampledFrom([]int64{1, 100, 1000, 30_000}).Draw(w.t, "ms")
}

// finish lets everything work, and wants every message delivered that anybody can take.
func (w *world) finish() {
	for range 40_000 {
		w.giveHint(nil)
		for _, s := range slices.Clone(w.sends) {
			w.sends = w.sends[1:]
			w.core.Sent(w.nowMs, s, nil)
		}
		for _, j := range slices.Clone(w.jobs) {
			if !j.ran {
				j.result = j.job.Run(context.Background(), w.box)
			}
			w.jobs = w.jobs[1:]
			w.core.Done(w.nowMs, j.job, j.result)
		}
		for cl := range Classes {
			if j := w.core.Take(w.nowMs, cl); j != nil {
				w.jobs = append(w.jobs, &openJob{job: j})
			}
		}
		w.begin()
		if len(w.jobs)+len(w.sends) == 0 {
			w.nowMs += 100
			if w.deliverable() == 0 && len(w.core.flights) == 0 {
				break
			}
		}
	}
	if n := w.deliverable(); n > 0 || len(w.core.flights) > 0 || w.core.busy != 0 {
		w.t.Fatalf("%d messages are never sent; %d in memory, %d slots", n, len(w.core.flights), w.core.busy)
	}
	for _, l := range w.core.lanes {
		if l.flights != 0 || l.inFlight != 0 || l.claimed != 0 || l.line.Len() != 0 {
			w.t.Fatalf("%+v counts wrongly", l)
		}
	}
}

// deliverable counts what is queued to addresses that are served.
func (w *world) deliverable() (n int) {
	for _, e := range w.box.executes {
		if w.core.routeOf(e.Address).lane != "" {
			n++
		}
	}
	for k := range w.box.unblocks {
		if w.core.routeOf(k.address).lane != "" {
			n++
		}
	}
	return n
}

// Whatever happens in whatever order: no message is sent twice at once, no bound is passed, and when everything works again
// everything is delivered.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"create": w.create, "settle": w.settlePromise, "hint": w.giveHint, "touch": w.touch, "take": w.take, "take more": w.take, "run": w.run,
			"done": w.done, "end": w.end, "wait": w.wait, "work": w.work, "work more": w.work, "touch more": w.touch,
		})
		w.finish()
	})
}
