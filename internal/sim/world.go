package sim

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// world is one simulated universe. Everything in it runs on one goroutine.
type world struct {
	config  Config
	now     time.Duration // virtual time since the beginning; never goes back
	events  eventQueue
	seq     uint64 // numbers events, so that those of one instant have an order
	depth   int    // of events that run inside another's store call
	trace   io.Writer
	failure error

	net   *rand.Rand // messages: their delays and losses
	chaos *rand.Rand // the store's faults
	play  *rand.Rand // what workers and clients choose while they run

	disk          *disk
	servers       []*server
	workers       []*worker
	hosts         []*host // targets of push; none in most universes
	pushing       pushing
	listensByPush bool // clients hear of ends at targets too
	clients       []*client
	program       *Program
	nodes         map[string]*Node // of the program; only looked up
	plan          *Plan
	ledger        *ledger
	follower      *follower
	passes        int           // how often time has passed in slow calls
	troubleUntil  time.Duration // until then the server may be late
	layout        fleet         // of servers
	furthest      int64         // the largest reading of any server's clock, epoch ms, where several share the store
	apart         int64         // how far the clocks of two servers have been apart at most, ms
	weather       weather
	calm          bool // faults have stopped
	over          bool // everything has come to its end
	exempt        int  // above 0, the store's calls meet no faults
	stats         Stats
	failures      map[string]int // runs of flows that have failed; only looked up
}

// epoch is the wall clock's reading at the beginning, in epoch milliseconds: 2026-01-01 00:00 UTC.
const epoch = 1_767_225_600_000

// Streams of random numbers, so that the same program meets another plan, and the other way round.
const (
	streamProgram = iota + 1
	streamPlan
	streamNet
	streamChaos
	streamPlay
	streamFleet
	streamLayout
	streamPush
	streamPushPlan
	streamTargets
)

func newRand(seed uint64, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// event is something that happens at an instant.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// eventQueue is a heap of events by time, then by when they were made.
type eventQueue []event

// The methods of heap.Interface.

func (q eventQueue) Len() int { return len(q) }

func (q eventQueue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}

func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *eventQueue) Push(x any) { *q = append(*q, x.(event)) }

func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

// after makes do happen once d has passed.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{at: w.now + max(d, 0), seq: w.seq, do: do})
}

// step lets the next event happen if it comes no later than limit; false if there is none.
func (w *world) step(limit time.Duration) bool {
	if w.failure != nil || len(w.events) == 0 || w.events[0].at > limit {
		return false
	}
	e := heap.Pop(&w.events).(event)
	w.now = max(w.now, e.at)
	w.stats.Events++
	e.do()
	for _, s := range w.servers {
		s.poke()
	}
	w.compareClocks()
	w.follow()
	if w.stats.Events%inspectEvery == 0 {
		w.inspect()
	}
	return true
}

// pass lets time go by inside an event, for as long as a slow call takes: others act meanwhile. Calls that begin while
// another is slow are not slow themselves.
func (w *world) pass(d time.Duration) {
	if w.depth > 0 {
		return
	}
	w.depth++
	w.passes++
	end := w.now + d
	for w.step(end) {
	}
	w.now = max(w.now, end)
	w.depth--
}

// fail records the first thing that is wrong; nothing happens after it.
func (w *world) fail(format string, args ...any) {
	if w.failure != nil {
		return
	}
	w.failure = fmt.Errorf("at %s, event %d: %s", w.clock(), w.stats.Events, fmt.Sprintf(format, args...))
	w.log("FAILED: %v", w.failure)
}

// tracing reports whether anybody reads the trace.
func (w *world) tracing() bool { return w.trace != nil }

// log writes one line of the trace.
func (w *world) log(format string, args ...any) {
	if w.trace == nil {
		return
	}
	fmt.Fprintf(w.trace, "%s ", w.clock())
	fmt.Fprintf(w.trace, format, args...)
	_, _ = io.WriteString(w.trace, "\n")
}

func (w *world) clock() string { return fmt.Sprintf("%9.3fms", float64(w.now.Microseconds())/1000) }

// chance is true with probability p.
func chance(r *rand.Rand, p float64) bool { return p > 0 && r.Float64() < p }

// between is a duration from low to below high.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}
