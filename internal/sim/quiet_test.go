package sim

import (
	"testing"
	"time"
)

// A program by hand, without a fault: what happens then is known.
func quiet() Config {
	leaf := func(id string) *Node {
		return &Node{ID: id, Kind: Leaf, Work: 5 * time.Millisecond, Timeout: deadline}
	}
	child := &Node{ID: "r.1", Kind: Flow, Target: "poll://any@beta", Timeout: deadline, Steps: []Batch{{Nodes: []*Node{leaf("r.1.0"), leaf("r.1.1")}}}}
	root := &Root{Listens: true, Node: Node{ID: "r", Kind: Flow, Target: "poll://any@alpha", Timeout: deadline, Steps: []Batch{
		{Nodes: []*Node{leaf("r.0")}},
		{Nodes: []*Node{
			child,
			{ID: "r.2", Kind: Sleep, For: 300 * time.Millisecond, Timeout: 300 * time.Millisecond},
			{ID: "r.3", Kind: External, For: 700 * time.Millisecond, Timeout: deadline},
		}},
	}}}
	return Config{Seed: 1, Model: true, Program: &Program{Roots: []*Root{root}}, Plan: &Plan{Calm: 10 * time.Millisecond}}
}

func TestQuietUniverse(t *testing.T) {
	w := newWorld(quiet())
	w.begin()
	for w.step(time.Minute) && !w.over {
	}
	if w.failure == nil {
		w.finish()
	}
	if w.failure != nil || !w.over {
		t.Fatal(w.failure)
	}
	if w.now > 4*time.Second { // the external takes 0.7 s, the last messages a window, and it is looked once a second
		t.Errorf("it took %s", w.now)
	}
	for _, c := range w.clients {
		if len(c.waits) != 1 || !c.waits[0].told {
			t.Errorf("%s was not told", c.pid)
		}
	}
	// One claim for each dispatch: the root's at its birth and after each of its suspensions, the child's once.
	root, child := w.ledger.fact("r"), w.ledger.fact("r.1")
	if n := len(child.claims); n != 1 {
		t.Errorf("the child was claimed %d times", n)
	}
	if n := len(root.claims); n < 2 || n > 4 {
		t.Errorf("the root was claimed %d times", n)
	}
	s := w.stats
	if s.Crashes+s.Lost+s.Duplicated+s.Delayed+s.Conflicts+s.Unknown+s.Slow+s.HintsDropped+s.Faults != 0 {
		t.Errorf("something went wrong: %+v", s)
	}
}

// In a program whose external nobody settles, the end never comes, and that is a failure.
func TestWhatDoesNotEndIsAFailure(t *testing.T) {
	c := quiet()
	c.Program.Roots[0].Steps[1].Nodes[2].Never = true
	if r := Run(c); r.Err == nil {
		t.Error("nothing was found")
	} else {
		t.Log(r.Err)
	}
}
