package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// NodeKind is what a node of a call tree is.
type NodeKind int

// The kinds of nodes.
const (
	Flow     NodeKind = iota // a function that a worker of some group runs as a task
	Leaf                     // a step that the flow's own worker runs
	Sleep                    // a timer
	External                 // somebody else settles it, or nobody before its deadline
	Detached                 // a flow that nobody waits for
)

// Batch is steps of a flow that are begun together, and awaited together: all of them or, with Any, the first to settle.
type Batch struct {
	Nodes []*Node
	Any   bool
}

// Node is one promise of a call tree, and what happens for it.
type Node struct {
	ID      string
	Kind    NodeKind
	Target  string        // address of who runs a flow
	Steps   []Batch       // of a flow, one after the other
	Work    time.Duration // of a leaf: how long one attempt takes
	Fails   int           // of a leaf: attempts that fail before one succeeds; of a flow: runs that end with an error
	For     time.Duration // of a sleep: how long; of an external: how long until it is settled
	Timeout time.Duration // from its creation to its deadline
	Never   bool          // of an external: nobody settles it, and its deadline is after the end of everything
	Rejects bool          // it ends as rejected
	Size    int           // of a leaf: how many bytes its result has beyond the usual
}

// Start is how a root begins.
type Start int

// The ways in which a root begins.
const (
	ByClient   Start = iota // a client creates the promise
	ByWorker                // a worker creates the task already claimed, and runs it itself
	Later                   // with a delay
	TooLate                 // its deadline has passed already
	startKinds              // how many there are
)

// Root is a call tree and how it begins.
type Root struct {
	Node
	At      time.Duration
	Start   Start
	Listens bool          // its client wants to hear of its end
	HaltAt  time.Duration // an operator halts it then, and continues it later; 0 for never
}

// Cron is a schedule's expression: every so many seconds.
type Cron struct {
	ID       string
	EverySec int
	Target   string // of its promises; empty: they have no task
	At, For  time.Duration
}

// Crowd is one promise for which so many wait that it takes several transactions to tell them. Nobody is there to be
// told, so that the messages expire.
type Crowd struct {
	ID           string
	At, SettleAt time.Duration
	Listeners    int
}

// Program is what is to be done in one universe.
type Program struct {
	Roots []*Root
	Crons []*Cron
	Crowd *Crowd // nil for none
	Large bool   // some results are too large for one row
}

// Bounds of a program.
const (
	rootsMin = 5
	rootsMax = 8
	// deadline is a root's, far behind the end of the storm and of everything after it.
	deadline = time.Hour
)

var groups = []string{"alpha", "beta"}

// NewProgram makes the work of a seed.
func NewProgram(seed uint64) *Program {
	r := newRand(seed, streamProgram)
	p := &Program{Large: chance(r, 0.06)}
	for i := range rootsMin + r.IntN(rootsMax-rootsMin+1) {
		p.Roots = append(p.Roots, p.newRoot(r, i))
	}
	for i := range 1 + r.IntN(2) {
		c := &Cron{
			ID:       fmt.Sprintf("cron%d", i),
			EverySec: 2 + r.IntN(3),
			At:       between(r, 0, stormFor/3),
			For:      between(r, stormFor/4, stormFor/2),
		}
		if chance(r, 0.6) {
			c.Target = anyOf(r)
		}
		p.Crons = append(p.Crons, c)
	}
	if chance(r, 0.07) {
		at := between(r, 0, stormFor/2)
		p.Crowd = &Crowd{ID: "crowd", At: at, SettleAt: at + between(r, time.Second, stormFor/2), Listeners: 270 + r.IntN(300)}
	}
	return p
}

func anyOf(r *rand.Rand) string { return "poll://any@" + groups[r.IntN(len(groups))] }

func (p *Program) newRoot(r *rand.Rand, i int) *Root {
	root := &Root{
		Node:    Node{ID: fmt.Sprintf("root%d", i), Kind: Flow, Target: anyOf(r), Timeout: deadline},
		At:      between(r, 0, stormFor*2/3),
		Start:   ByClient,
		Listens: chance(r, 0.8),
	}
	if chance(r, 0.4) {
		root.Start = Start(r.IntN(int(startKinds)))
	}
	if chance(r, 0.15) {
		root.HaltAt = root.At + between(r, 10*time.Millisecond, 4*time.Second)
	}
	if chance(r, 0.1) { // not enough time for it
		root.Timeout = between(r, 500*time.Millisecond, 6*time.Second)
	}
	if root.Start == Later { // behind its delay
		root.Timeout = deadline
	}
	separator := "."
	if chance(r, 0.5) {
		separator = ":"
	}
	if root.Start == TooLate {
		root.Timeout = -time.Second
	}
	p.grow(r, &root.Node, separator, 2)
	return root
}

// grow gives a flow its steps.
func (p *Program) grow(r *rand.Rand, flow *Node, separator string, depth int) {
	if chance(r, 0.15) {
		flow.Fails = 1 + r.IntN(2)
	}
	flow.Rejects = chance(r, 0.1)
	n := 0
	for range 1 + r.IntN(3) {
		batch := Batch{Any: chance(r, 0.12)}
		if batch.Any { // the others must be enough
			never := &Node{ID: fmt.Sprintf("%s%s%d", flow.ID, separator, n), Kind: External, Never: true, Timeout: deadline}
			batch.Nodes = append(batch.Nodes, never)
			n++
		}
		for range 1 + r.IntN(3) {
			batch.Nodes = append(batch.Nodes, p.newNode(r, fmt.Sprintf("%s%s%d", flow.ID, separator, n), separator, depth))
			n++
		}
		if batch.Any && batch.Nodes[1].Kind == Detached {
			batch.Any, batch.Nodes = false, batch.Nodes[1:]
		}
		flow.Steps = append(flow.Steps, batch)
	}
}

func (p *Program) newNode(r *rand.Rand, id, separator string, depth int) *Node {
	n := &Node{ID: id, Timeout: deadline}
	switch k := r.IntN(100); {
	case k < 40 || depth == 0 && k < 75:
		n.Kind = Leaf
		n.Work = between(r, 0, 80*time.Millisecond)
		if chance(r, 0.1) { // longer than a lease
			n.Work = between(r, leaseTTL, 2*leaseTTL)
		}
		if chance(r, 0.1) {
			n.Fails = 1 + r.IntN(2)
		}
		n.Rejects = chance(r, 0.05)
		if p.Large && chance(r, 0.1) {
			n.Size = 50_000 + r.IntN(100_000)
		}
	case k < 70:
		n.Kind, n.Target = Flow, anyOf(r)
		p.grow(r, n, separator, depth-1)
	case k < 82:
		n.Kind = Sleep
		n.For = between(r, time.Millisecond, 3*time.Second)
		n.Timeout = n.For
	case k < 94 || depth == 0:
		n.Kind = External
		n.For = between(r, 10*time.Millisecond, 4*time.Second)
		n.Rejects = chance(r, 0.2)
		if chance(r, 0.2) { // about when it is settled
			n.Timeout = between(r, n.For/2, n.For*2)
		}
	default:
		n.Kind, n.Target = Detached, anyOf(r)
		n.Fails = r.IntN(2)
	}
	return n
}

// index is every node by its id.
func (p *Program) index() map[string]*Node {
	nodes := map[string]*Node{}
	var add func(n *Node)
	add = func(n *Node) {
		nodes[n.ID] = n
		for _, batch := range n.Steps {
			for _, child := range batch.Nodes {
				add(child)
			}
		}
	}
	for _, root := range p.Roots {
		add(&root.Node)
	}
	return nodes
}
