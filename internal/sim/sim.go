package sim

import (
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"abide/internal/deliver"
	"abide/internal/push"
	"abide/kv"
)

// Config is one universe. Only Seed is needed.
type Config struct {
	Seed uint64
	// Program and Plan replace those that the seed makes; nil for those.
	Program *Program
	Plan    *Plan
	// Model also compares every answer with that of the reference model, which takes about as long again. The model knows
	// one clock: of several servers it watches only as long as theirs agree.
	Model bool
	// Trace takes a line for everything that happens; nil for none.
	Trace io.Writer
	// Servers is how many servers there are on the store, 1 to 3; 0 for what the seed chooses.
	Servers int
	// Push is whether some tasks and listeners are at targets that are pushed to.
	Push Choice
	// Delivery are the limits of the server's delivery; the zero value for what the seed chooses.
	Delivery deliver.Limits
	// Wrap replaces the disk by a worse one; nil for none.
	Wrap func(kv.Store) kv.Store
	// Outbox replaces what delivery reads and writes; nil for none.
	Outbox func(deliver.Outbox) deliver.Outbox
	// Addresses replaces what push reads and writes; nil for none.
	Addresses func(push.Outbox) push.Outbox
}

// SeedPlan is the plan that the seed makes for as many servers as the universe has, and its targets.
func (c Config) SeedPlan() *Plan { return newPlan(c.Seed, c.fleet().servers, c.pushes()) }

// Stats are what happened in one universe.
type Stats struct {
	Events       int
	Requests     int // that reached a server, heartbeats included
	Heartbeats   int
	Commits      int
	Ticks        int // passes of the timer loop
	Faults       int // of the plan
	Lost         int // messages
	Duplicated   int
	Delayed      int
	Conflicts    int
	Unknown      int
	Slow         int
	HintsDropped int // or late
	Crashes      int
	Lives        int // of servers
	Servers      int
	Pauses       int // of servers that went on afterwards
	Leaves       int // of servers that took their leave
	Inspections  int
	Pushes       int   // messages that were sent to targets
	PushesFailed int   // of them, those that were not accepted, as far as their servers know
	PushKills    int   // of servers, between a claim and the answer
	Occurrences  int   // of schedules
	VirtualMs    int64 // from the beginning to the end
}

// Result is what came of one universe.
type Result struct {
	Seed  uint64
	Stats Stats
	Err   error // what was wrong; nil for nothing
}

// maxEvents bounds a universe that does not come to an end.
const maxEvents = 300_000

// Run lets one universe happen, on the caller's goroutine. Several may happen at once, each on its own.
func Run(c Config) (result Result) {
	w := newWorld(c)
	defer func() {
		if p := recover(); p != nil {
			w.fail("panic: %v\n%s", p, debug.Stack())
		}
		w.stats.VirtualMs = w.now.Milliseconds()
		result = Result{Seed: c.Seed, Stats: w.stats, Err: w.failure}
	}()
	w.begin()
	for w.step(time.Duration(1<<63-1)) && !w.over {
		if w.stats.Events > maxEvents {
			w.fail("more than %d events", maxEvents)
		}
	}
	if w.failure == nil && !w.over {
		w.fail("nothing happens any more")
	}
	if w.failure == nil {
		w.finish()
	}
	return result
}

func newWorld(c Config) *world {
	w := &world{
		config: c, trace: c.Trace, program: c.Program, plan: c.Plan, failures: map[string]int{},
		net: newRand(c.Seed, streamNet), chaos: newRand(c.Seed, streamChaos), play: newRand(c.Seed, streamPlay),
	}
	w.disk = newDisk(c.Wrap, chance(w.play, 0.1))
	w.lay(c)
	if w.program == nil {
		w.program = NewProgram(c.Seed)
	}
	w.furnish(c)
	w.nodes = w.program.index()
	if w.plan == nil {
		w.plan = c.SeedPlan()
	}
	if w.config.Delivery == (deliver.Limits{}) && chance(w.play, 0.3) {
		w.config.Delivery = deliver.Limits{MaxExecutes: 1 + w.play.IntN(3), MaxUnblocks: 1 + w.play.IntN(2), MaxHints: 1, WriteBytes: 1}
	}
	if w.config.Delivery.HoldMs == 0 { // as the binary sets it
		w.config.Delivery.HoldMs = retryTimeout.Milliseconds()
	}
	w.ledger = newLedger(w)
	w.follower = newFollower(c.Model && !w.program.Large && !w.layout.skewed) // the model knows no bounds of a preload in bytes
	return w
}

// begin makes everybody and their plans.
func (w *world) begin() {
	w.populate()
	for i, group := range append(groups, groups...) {
		k := &worker{world: w, index: i, group: group}
		k.habits = habits{fenced: i != 3, emptied: i == 1 && chance(w.play, 0.5), stable: i == 2}
		w.workers = append(w.workers, k)
		k.boot()
	}
	w.employ()
	for i := range 2 {
		c := &client{world: w, pid: fmt.Sprintf("client%d", i)}
		w.clients = append(w.clients, c)
		c.boot()
	}
	half := &Program{}
	other := &Program{}
	for i, root := range w.program.Roots {
		if i%2 == 0 {
			half.Roots = append(half.Roots, root)
		} else {
			other.Roots = append(other.Roots, root)
		}
	}
	w.clients[0].plan(half)
	w.clients[1].plan(other)
	o := &operator{client: client{world: w, pid: "operator"}}
	o.plan(w.program)
	w.schedule(w.plan)
}

// node is what a worker runs for a task; promises that a schedule has made have no steps.
func (w *world) node(id string) *Node {
	if n := w.nodes[id]; n != nil {
		return n
	}
	return &Node{ID: id, Kind: Flow}
}

// wallMs is the true time d from now, as workers and clients know it.
func (w *world) wallMs(d time.Duration) int64 { return epoch + (w.now + d).Milliseconds() }

// failuresLeft reports whether a run of a flow is to fail, and counts it.
func (w *world) failuresLeft(n *Node) bool {
	if w.failures[n.ID] >= n.Fails {
		return false
	}
	w.failures[n.ID]++
	return true
}
