package cli

import (
	"encoding/json"
	"sort"
	"strings"

	"abide/protocol"
)

// MaxTree is the largest number of promises that a Tree holds.
const MaxTree = 20_000

// Tree is a call tree: promises by the parent that their tag resonate:parent names. The zero value is empty. It keeps
// of each promise what is shown, not its payloads.
type Tree struct {
	nodes map[string]*node
	more  bool
}

// node is one promise of a tree.
type node struct {
	ID        string                `json:"id"`
	Parent    string                `json:"parent,omitempty"`
	Depth     int                   `json:"depth"`
	State     protocol.PromiseState `json:"state"`
	Kind      string                `json:"kind,omitempty"` // sleep, rpc or run
	Func      string                `json:"func,omitempty"`
	CreatedAt int64                 `json:"createdAt"`
	SettledAt int64                 `json:"settledAt,omitempty"`

	children []*node
	last     bool // of its parent's children
	placed   bool
}

// Add puts promises into the tree, each once. It returns false if the tree is full; the rest is left out.
func (t *Tree) Add(all ...protocol.Promise) bool {
	if t.nodes == nil {
		t.nodes = map[string]*node{}
	}
	for _, p := range all {
		if t.nodes[p.ID] == nil && len(t.nodes) == MaxTree {
			t.more = true
			return false
		}
		n := &node{ID: p.ID, State: p.State, CreatedAt: p.CreatedAt}
		if p.State != protocol.Pending {
			n.SettledAt = p.SettledAt
		}
		if parent, _ := p.Tags.Get(protocol.TagParent); parent != p.ID {
			n.Parent = parent
		}
		n.Kind, n.Func = kindOf(p)
		t.nodes[p.ID] = n
	}
	return true
}

// kindOf says how a promise was made, as far as its tags tell.
func kindOf(p protocol.Promise) (kind, called string) {
	if timer, _ := p.Tags.Get(protocol.TagTimer); timer != "" {
		return "sleep", ""
	}
	switch scope, _ := p.Tags.Get(protocol.TagScope); scope {
	case "global":
		kind = "rpc"
	case "local":
		kind = "run"
	default:
		return "", ""
	}
	return kind, function(p.Param)
}

// Pending tells whether any promise of the tree is.
func (t *Tree) Pending() bool {
	for _, n := range t.nodes {
		if n.State == protocol.Pending {
			return true
		}
	}
	return false
}

// walk lists the nodes from root on, parents before their children, children by their creation. whole says that the
// tree is the root's own: then what names a parent that is not in it hangs on the root. A parent that is its own
// descendant is met once.
func (t *Tree) walk(root string, whole bool) []*node {
	top := t.nodes[root]
	if top == nil {
		return nil
	}
	for _, n := range t.nodes {
		n.children, n.placed, n.last = nil, false, false
	}
	for _, n := range t.nodes {
		parent := t.nodes[n.Parent]
		if parent == nil && whole {
			parent = top
		}
		if parent != nil && n != top {
			parent.children = append(parent.children, n)
		}
	}
	var order []*node
	stack := []*node{top}
	top.Depth, top.placed = 0, true
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		order = append(order, n)
		sort.Slice(n.children, func(i, j int) bool {
			a, b := n.children[i], n.children[j]
			return a.CreatedAt < b.CreatedAt || a.CreatedAt == b.CreatedAt && a.ID < b.ID
		})
		for i := len(n.children) - 1; i >= 0; i-- {
			if c := n.children[i]; !c.placed {
				c.Depth, c.placed, c.last = n.Depth+1, true, i == len(n.children)-1
				stack = append(stack, c)
			}
		}
	}
	return order
}

// The marks of states, which need no colours.
var marks = map[protocol.PromiseState]string{
	protocol.Pending: "🟡", protocol.Resolved: "🟢", protocol.Rejected: "🔴", protocol.RejectedCanceled: "🔴", protocol.RejectedTimedout: "🔴",
}

// Tree draws the tree below root, one promise a line. An unknown root is its id alone.
func (s Screen) Tree(t *Tree, root string, whole bool) string {
	var b strings.Builder
	var open []bool // by depth: a later child of that depth's parent follows
	order := t.walk(root, whole)
	for _, n := range order {
		open = append(open[:n.Depth], !n.last)
		for d := 1; d < n.Depth; d++ {
			b.WriteString(s.paint(dim, map[bool]string{true: "│   ", false: "    "}[open[d]]))
		}
		if n.Depth > 0 {
			b.WriteString(s.paint(dim, map[bool]string{true: "├── ", false: "└── "}[open[n.Depth]]))
		}
		b.WriteString(s.paint(stateColour(string(n.State)), Printable(n.ID)) + " " + marks[n.State])
		if n.Kind != "" {
			b.WriteString(" " + s.paint(dim, "("+strings.TrimRight(n.Kind+" "+Printable(n.Func), " ")+")"))
		}
		b.WriteByte('\n')
	}
	if len(order) == 0 {
		b.WriteString(Printable(root) + "\n")
	}
	if t.more {
		b.WriteString("… and more: only " + count(MaxTree, "promise") + " are shown\n")
	}
	return b.String()
}

// JSON is the tree below root as {"promises": [...], "truncated": bool}, in the order in which it is drawn.
func (t *Tree) JSON(root string, whole bool) []byte {
	out := struct {
		Promises  []*node `json:"promises"`
		Truncated bool    `json:"truncated"`
	}{t.walk(root, whole), t.more}
	if out.Promises == nil {
		out.Promises = []*node{}
	}
	text, _ := json.Marshal(out) // strings and numbers only
	return text
}
