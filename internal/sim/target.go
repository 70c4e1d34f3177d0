package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"abide/internal/deliver"
	"abide/internal/push"
	"abide/protocol"
)

// Choice is whether something is in a universe.
type Choice int

// The choices.
const (
	AsSeed Choice = iota // as the seed chooses
	Always
	Never
)

// pushShare is in how many universes there are targets, if the seed chooses.
const pushShare = 0.3

// pushes reports whether there are targets in the universe.
func (c Config) pushes() bool {
	switch c.Push {
	case Always:
		return true
	case Never:
		return false
	}
	return chance(newRand(c.Seed, streamPush), pushShare)
}

// pushing is what push is like in one universe.
type pushing struct {
	concurrency int // requests at once to one host
	outstanding int // to all of them; 0 for the default
	flights     int // messages in memory; 0 for the default
}

// host is a target: what is pushed there, a worker behind it runs, or the clients hear. It answers as it likes.
type host struct {
	world   *world
	name    string
	weather weather // what goes wrong with it alone
	worker  *worker
	open    []*request // not answered, in the order in which they came
}

// Bounds of targets.
const (
	hostsMax = 3
	// floodMax is how many tasks are pushed to one host at the same time.
	floodMax = 40
	// openMax is how long a target keeps a request open while the function runs, if not for longer than servers wait.
	openMax = 800 * time.Millisecond
	// ear is where clients hear.
	ear = "/ear/"
)

// furnish makes the targets of a universe.
func (w *world) furnish(c Config) {
	if !c.pushes() {
		return
	}
	r := newRand(c.Seed, streamTargets)
	w.pushing = pushing{concurrency: 1 + r.IntN(6)}
	if chance(r, 0.5) {
		w.pushing.outstanding = 2 + r.IntN(8)
	}
	if chance(r, 0.2) {
		w.pushing.flights = 4 + r.IntN(8)
	}
	for i := range 1 + r.IntN(hostsMax) {
		w.hosts = append(w.hosts, &host{world: w, name: fmt.Sprintf("http://h%d", i)})
	}
	if c.Program == nil {
		w.program.retarget(r, w.hosts)
	}
	w.listensByPush = chance(r, 0.7)
}

// retarget makes part of a program go by push, and adds what comes to one host all at once.
func (p *Program) retarget(r *rand.Rand, hosts []*host) {
	address := func() string {
		return hosts[r.IntN(len(hosts))].name + "/run" + strconv.Itoa(r.IntN(2))
	}
	var change func(n *Node)
	change = func(n *Node) {
		if n.Target != "" && chance(r, 0.5) {
			n.Target = address()
		}
		for _, batch := range n.Steps {
			for _, child := range batch.Nodes {
				change(child)
			}
		}
	}
	for _, root := range p.Roots {
		change(&root.Node)
	}
	for _, c := range p.Crons {
		if c.Target != "" && chance(r, 0.5) {
			c.Target = address()
		}
	}
	if !chance(r, 0.4) {
		return
	}
	at, target := between(r, 0, stormFor*2/3), address()
	for i := range 4 + r.IntN(floodMax-3) {
		p.Roots = append(p.Roots, &Root{At: at, Node: Node{ID: fmt.Sprintf("flood%d", i), Kind: Flow, Target: target, Timeout: deadline}})
	}
}

// pushFaultKinds are what goes wrong with targets, and stops, which wait for them.
var pushFaultKinds = []FaultKind{RefusePushes, ThrottlePushes, HangPushes, ForbidPushes, LosePushAnswers, KillAtClaim, LeaveServer}

// pushFaults are the faults of a seed that are about push.
func pushFaults(seed uint64) (out []Fault) {
	r := newRand(seed, streamPushPlan)
	for range 5 + r.IntN(8) {
		out = append(out, Fault{
			Kind: pushFaultKinds[r.IntN(len(pushFaultKinds))],
			At:   between(r, 0, stormFor*9/10),
			For:  between(r, 300*time.Millisecond, 6*time.Second),
			P:    0.3 + 0.7*r.Float64(),
			Who:  r.IntN(64),
		})
	}
	return out
}

// employ makes the workers behind the targets.
func (w *world) employ() {
	for _, h := range w.hosts {
		h.worker = &worker{world: w, index: len(w.workers), group: "behind", host: h}
		h.worker.habits.fenced = true
		w.workers = append(w.workers, h.worker)
		h.worker.boot()
	}
}

// hostAt is the target of an address.
func (w *world) hostAt(address string) *host {
	name := hostOf(address)
	for _, h := range w.hosts {
		if h.name == name {
			return h
		}
	}
	return w.hosts[0]
}

// What targets answer if they do not accept a message.
var (
	errStatus500 = errors.New("500")
	errStatus429 = errors.New("429")
	errNobody    = errors.New("connection refused")
)

// receive is a request that has come.
func (h *host) receive(r *request) {
	w := h.world
	switch {
	case !h.worker.up:
		r.answer(errNobody)
	case chance(w.net, h.weather.p(HangPushes)):
		w.log("%s hangs over %q", h.name, r.send.ID)
	case chance(w.net, h.weather.p(RefusePushes)):
		r.answer(errStatus500)
	case chance(w.net, h.weather.p(ThrottlePushes)):
		later := between(w.net, 500*time.Millisecond, pushLaterMax)
		w.log("%s wants %q after %s", h.name, r.send.ID, later)
		r.answer(&push.LaterError{Err: errStatus429, AfterMs: later.Milliseconds()})
	case r.send.Kind == push.KindUnblock:
		w.heardByPush(r.send.Address, *r.send.Promise)
		r.answer(nil)
	case !w.calm && chance(w.net, 0.05): // it has accepted what its function never hears of
		r.answer(nil)
	default:
		h.worker.receive(deliver.Message{Task: protocol.TaskRef{ID: r.send.ID, Version: r.send.Version}})
		switch {
		case chance(w.net, 0.6):
			r.answer(nil)
		case w.calm || chance(w.net, 0.8): // the function runs inside the request
			w.after(between(w.net, 0, openMax), func() { r.answer(nil) })
		}
	}
}

// claims is a worker behind the target that has claimed a task: some servers do not live to hear the answer.
func (h *host) claims(id string) {
	w := h.world
	for _, r := range slices.Clone(h.open) {
		s := r.pusher.server
		if r.send.Kind != push.KindExecute || r.send.ID != id || r.pusher.over() {
			continue
		}
		r.claimed = true
		if chance(w.net, w.weather.p(KillAtClaim)/2) {
			w.stats.PushKills++
			s.downFor = between(w.net, 10*time.Millisecond, 2*time.Second)
			s.crash()
		}
	}
}

// heardByPush is a client that hears of the end of a promise at a target.
func (w *world) heardByPush(address string, p protocol.Promise) {
	if p.State == protocol.Pending {
		w.fail("an unblock tells of %q, which is pending", p.ID)
	}
	w.ledger.told(p)
	for _, c := range w.clients {
		for _, wt := range c.waits {
			if wt.id == p.ID && wt.address == address {
				wt.told = true
				wt.hear(w, p)
			}
		}
	}
}
