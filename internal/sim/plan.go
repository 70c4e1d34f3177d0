package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// FaultKind is one way in which things go wrong.
type FaultKind int

// What can go wrong. Those with a duration hold for a while and hit what happens meanwhile with a probability; the
// others happen once.
const (
	LoseMessages    FaultKind = iota // requests and answers vanish
	Duplicate                        // requests and frames come twice
	Delay                            // messages and hints take far longer, and overtake each other
	CutStreams                       // streams to workers break, some over what is written to them, and both sides soon notice
	MuteStream                       // one stream swallows its frames before anybody notices
	KillWorker                       // a worker dies and comes back after a while
	KillServer                       // the server dies at its N-th transaction from now, before or after the commit
	Conflicts                        // transactions meet others and are tried again
	Unknown                          // the outcome of commits is unknown: they took place, or did not
	SlowCalls                        // calls of the store take a while, in which others act
	DropHints                        // nobody hears of commits, or too late
	ClockStep                        // the server's wall clock jumps
	DiskFull                         // nothing can be written
	StoreDown                        // nothing can be read or written
	PauseServer                      // one of several servers does nothing for a while, often for longer than its lease, and goes on
	LeaveServer                      // one of several servers takes its leave, and comes back
	RefusePushes                     // a target answers 500
	ThrottlePushes                   // a target answers 429, and says when it wants the message
	HangPushes                       // a target does not answer
	ForbidPushes                     // what goes to a target is denied by a rule, until the settings change
	LosePushAnswers                  // nobody hears what a target answers
	KillAtClaim                      // a server dies when a task is claimed whose request it has not heard the end of
	faultKinds                       // how many there are
)

var faultNames = [faultKinds]string{
	"lose messages", "duplicate", "delay", "cut streams", "mute stream", "kill worker", "kill server", "conflicts",
	"unknown outcomes", "slow calls", "drop hints", "clock step", "disk full", "store down", "pause server", "leave server",
	"refuse pushes", "throttle pushes", "hang pushes", "forbid pushes", "lose push answers", "kill at claim",
}

// String names the kind as traces show it.
func (k FaultKind) String() string { return faultNames[k] }

// Fault is one thing that goes wrong.
type Fault struct {
	Kind FaultKind
	At   time.Duration // since the beginning
	For  time.Duration // how long it holds, or how long who died stays away; of a clock step: how far, either way
	P    float64       // how probable it is while it holds; of a dying server: below 0.5 before the commit
	Who  int           // which worker, stream or target, modulo how many there are; which transaction from now, of KillServer
}

// String is the fault in one line.
func (f Fault) String() string {
	return fmt.Sprintf("%s at %s for %s, p %.2f, who %d", f.Kind, f.At, f.For, f.P, f.Who)
}

// Plan is what goes wrong in one universe, in order of time, and when it is over: from Calm on nothing goes wrong.
type Plan struct {
	Faults []Fault
	Calm   time.Duration
}

// String lists the faults, one a line.
func (p *Plan) String() string {
	var b strings.Builder
	for i, f := range p.Faults {
		fmt.Fprintf(&b, "%3d %s\n", i, f)
	}
	return b.String()
}

// Bounds of a plan.
const (
	faultsMin = 10
	faultsMax = 24
	// stormFor is how long things go wrong. The program's work begins within the first two thirds of it.
	stormFor = 24 * time.Second
	// clockStepMax is how far one step of the clock goes.
	clockStepMax = 12 * time.Second
)

// NewPlan makes the faults of a seed, for as many servers as the seed chooses, and for targets if it chooses any.
func NewPlan(seed uint64) *Plan { return Config{Seed: seed}.SeedPlan() }

// newPlan makes the faults of a seed for a number of servers, with targets or without.
func newPlan(seed uint64, servers int, targets bool) *Plan {
	r := newRand(seed, streamPlan)
	p := &Plan{Calm: stormFor}
	kinds := RefusePushes // those of targets come besides
	if servers == 1 {
		kinds = PauseServer
	}
	for range faultsMin + r.IntN(faultsMax-faultsMin+1) {
		p.Faults = append(p.Faults, newFault(r, kinds))
	}
	if chance(r, 0.3) {
		p.Faults = append(p.Faults, comesTogether(r)...)
	}
	if targets {
		p.Faults = append(p.Faults, pushFaults(seed)...)
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	return p
}

func newFault(r *rand.Rand, kinds FaultKind) Fault {
	f := Fault{
		Kind: FaultKind(r.IntN(int(kinds))),
		At:   between(r, 0, stormFor*9/10),
		For:  between(r, 100*time.Millisecond, 4*time.Second),
		P:    r.Float64(),
		Who:  r.IntN(64),
	}
	switch f.Kind {
	case LoseMessages, Duplicate, Delay, Conflicts, Unknown, SlowCalls:
		f.P *= 0.5
	case PauseServer:
		f.For = between(r, 100*time.Millisecond, 3*leaseFor)
	case KillWorker, KillServer, LeaveServer:
		f.For = between(r, 10*time.Millisecond, 3*time.Second)
	case ClockStep:
		f.For = between(r, -clockStepMax, clockStepMax)
		if chance(r, 0.5) {
			f.For /= 20
		}
	case DiskFull, StoreDown:
		f.For = between(r, 50*time.Millisecond, 2*time.Second)
		f.P = 1
	}
	return f
}

// comesTogether is what a bad day looks like: the disk fills up, somebody restarts the server, and its clock comes back
// wrong.
func comesTogether(r *rand.Rand) []Fault {
	at := between(r, 0, stormFor*2/3)
	full := between(r, 300*time.Millisecond, 2*time.Second)
	return []Fault{
		{Kind: DiskFull, At: at, For: full, P: 1},
		{Kind: ClockStep, At: at + full - time.Millisecond, For: -between(r, 2*time.Second, clockStepMax)},
		{Kind: KillServer, At: at + full - time.Millisecond, For: between(r, 10*time.Millisecond, time.Second)},
	}
}

// weather is what goes wrong at the moment.
type weather struct {
	active [faultKinds][]float64 // the probabilities of the faults that hold
}

// p is how probable a fault of a kind is now.
func (h *weather) p(k FaultKind) float64 {
	if len(h.active[k]) == 0 {
		return 0
	}
	return slices.Max(h.active[k])
}

// schedule makes the plan happen.
func (w *world) schedule(p *Plan) {
	for _, f := range p.Faults {
		if f.At < p.Calm {
			w.after(f.At, func() { w.strike(f) })
		}
	}
	w.after(p.Calm, w.calmDown)
}

// strike is one fault that happens, or begins.
func (w *world) strike(f Fault) {
	w.stats.Faults++
	w.log("fault: %v", f)
	switch f.Kind {
	case Conflicts, Unknown, SlowCalls, DiskFull, StoreDown:
		w.trouble(f.For)
	case ClockStep:
		w.trouble(0)
	}
	switch f.Kind {
	case CutStreams:
		for _, s := range w.servers {
			s.cutStreams(f.P)
		}
		w.hold(f)
	case MuteStream:
		w.servers[f.Who%len(w.servers)].muteStream(f.Who)
	case KillWorker:
		w.workers[f.Who%len(w.workers)].kill(f.For)
	case KillServer:
		s := w.servers[f.Who%len(w.servers)]
		s.downFor = f.For
		if s.handle != nil {
			s.handle.killAt(1+f.Who, f.P >= 0.5)
		}
	case ClockStep:
		w.stepClock(w.servers[f.Who%len(w.servers)], f.For)
	case PauseServer:
		w.servers[f.Who%len(w.servers)].sleep(f.For)
	case LeaveServer:
		w.servers[f.Who%len(w.servers)].leave(f.For)
	case RefusePushes, ThrottlePushes, HangPushes, ForbidPushes, LosePushAnswers:
		if n := len(w.hosts); n > 0 {
			w.holdIn(&w.hosts[f.Who%n].weather, f)
		}
	default:
		w.hold(f)
	}
}

// hold makes a fault hold for its time.
func (w *world) hold(f Fault) { w.holdIn(&w.weather, f) }

// holdIn makes a fault hold in the weather of everybody, or of one.
func (w *world) holdIn(h *weather, f Fault) {
	a := &h.active[f.Kind]
	*a = append(*a, f.P)
	w.after(f.For, func() {
		if i := slices.Index(*a, f.P); i >= 0 { // the calm may have come before
			*a = slices.Delete(*a, i, i+1)
		}
	})
}

// calmDown ends all faults: from here on everything must come to its end.
func (w *world) calmDown() {
	w.log("calm")
	w.calm = true
	w.weather = weather{}
	for _, h := range w.hosts {
		h.weather = weather{}
	}
	for _, s := range w.servers {
		s.asleep = w.now
		if s.handle != nil {
			s.handle.killIn = 0
		}
	}
	w.watch()
}
