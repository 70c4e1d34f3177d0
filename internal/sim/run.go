package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"

	"abide/protocol"
)

// run is one execution of a flow by a worker that has claimed its task: from its beginning, with what is recorded taken
// as done, up to a suspension, its end or an error.
type run struct {
	worker  *worker
	life    int
	id      string
	version int64
	node    *Node
	promise protocol.Promise
	known   map[string]protocol.Promise // children, as last seen; only looked up, never walked
	failed  map[string]int              // attempts of leaves that failed; the same
	over    bool
}

func newRun(k *worker, claim protocol.ClaimBody) *run {
	r := &run{
		worker: k, life: k.life, id: claim.Task.ID, version: claim.Task.Version, promise: claim.Promise,
		node: k.world.node(claim.Task.ID), known: map[string]protocol.Promise{}, failed: map[string]int{},
	}
	r.learn(claim.Preload)
	return r
}

// learn takes in the preload: what is settled there need not be asked for.
func (r *run) learn(preload []protocol.Promise) {
	for _, p := range preload {
		if p.State != protocol.Pending {
			r.known[p.ID] = p
		}
	}
}

// stopped reports whether the run has ended, or its worker has.
func (r *run) stopped() bool { return r.over || r.worker.life != r.life }

// end makes the worker forget the run.
func (r *run) end() {
	r.over = true
	r.worker.runs = slices.DeleteFunc(r.worker.runs, func(e *run) bool { return e == r })
}

// next does the first thing that is not done yet. Everything that it begins calls it again.
func (r *run) next() {
	if r.stopped() {
		return
	}
	if w := r.worker.world; w.failuresLeft(r.node) {
		r.release()
		return
	}
	for _, batch := range r.node.Steps {
		var awaited []string
		settled := 0
		for _, child := range batch.Nodes {
			p, known := r.known[child.ID]
			switch {
			case !known:
				r.create(child)
				return
			case child.Kind == Detached:
			case p.State != protocol.Pending:
				settled++
			case child.Kind == Leaf:
				r.work(child)
				return
			default:
				awaited = append(awaited, child.ID)
			}
		}
		if len(awaited) > 0 && !(batch.Any && settled > 0) {
			r.suspend(awaited)
			return
		}
	}
	r.fulfill()
}

// create makes a child's promise, or learns of the one that an earlier run has made.
func (r *run) create(child *Node) {
	r.child(&protocol.PromiseCreate{
		ID:        child.ID,
		TimeoutAt: min(r.promise.TimeoutAt, r.worker.world.wallMs(child.Timeout)),
		Param:     protocol.MakeValue(nil, "param of "+child.ID),
		Tags:      tagsOf(child, r.promise),
	}, nil)
}

// work runs a leaf; it may fail a few times first.
func (r *run) work(leaf *Node) {
	w := r.worker.world
	w.after(leaf.Work, func() {
		if r.stopped() {
			return
		}
		if r.failed[leaf.ID] < leaf.Fails {
			r.failed[leaf.ID]++
			w.after(100*time.Millisecond, r.next)
			return
		}
		r.worker.steps++
		result := fmt.Sprintf("%s/%d", r.worker.pid, r.worker.steps) + strings.Repeat("+", leaf.Size)
		r.child(nil, &protocol.PromiseSettle{ID: leaf.ID, State: leaf.ends(), Value: protocol.MakeValue(nil, result)})
	})
}

// ends is the state in which a node's promise ends unless its deadline comes first.
func (n *Node) ends() protocol.PromiseState {
	if n.Rejects {
		return protocol.Rejected
	}
	return protocol.Resolved
}

// child creates or settles a child, through a fence if that is the SDK's habit, and goes on with what it has become.
func (r *run) child(create *protocol.PromiseCreate, settle *protocol.PromiseSettle) {
	var req protocol.Request
	switch {
	case r.worker.habits.fenced:
		req = &protocol.TaskFence{ID: r.id, Version: r.version, Create: create, Settle: settle}
	case create != nil:
		req = create
	default:
		req = settle
	}
	r.ask(req, func(reply protocol.Reply) {
		if fence, ok := reply.Body.(protocol.FenceBody); ok {
			r.learn(fence.Preload)
			reply = fence.Action
		}
		if p, ok := reply.Body.(protocol.PromiseBody); ok {
			r.known[p.Promise.ID] = p.Promise
			r.next()
			return
		}
		r.release()
	})
}

// ask sends a request of the run. Without an answer the SDK gives up and releases the task.
func (r *run) ask(req protocol.Request, answered func(protocol.Reply)) {
	r.worker.world.send(r.worker.pid, req, func(reply protocol.Reply, ok bool) {
		switch {
		case r.stopped():
		case !ok:
			r.release()
		default:
			answered(reply)
		}
	})
}

// suspend waits for any of the awaited promises to settle.
func (r *run) suspend(awaited []string) {
	r.ask(&protocol.TaskSuspend{ID: r.id, Version: r.version, Awaited: awaited}, func(reply protocol.Reply) {
		switch reply.Status {
		case protocol.StatusOK:
			r.end()
		case protocol.StatusPreload:
			for _, id := range awaited {
				delete(r.known, id)
			}
			r.learn(reply.Body.(protocol.PreloadBody).Preload)
			r.next()
		default:
			r.release()
		}
	})
}

// fulfill ends the flow with a result that depends on the results of all of its steps.
func (r *run) fulfill() {
	sum := fnv.New64a()
	for _, batch := range r.node.Steps {
		for _, child := range batch.Nodes {
			addResult(sum, batch, child, r.known[child.ID])
		}
	}
	action := protocol.PromiseSettle{ID: r.id, State: r.node.ends(), Value: protocol.MakeValue(nil, fmt.Sprintf("%016x", sum.Sum64()))}
	r.worker.world.send(r.worker.pid, &protocol.TaskFulfill{ID: r.id, Version: r.version, Action: action},
		func(protocol.Reply, bool) {}) // the TypeScript SDK does not look at the answer either
	r.end()
}

// addResult adds what a flow has got of one child. Which of several was the first is not written down anywhere.
func addResult(sum io.Writer, batch Batch, child *Node, p protocol.Promise) {
	if child.Kind == Detached || batch.Any {
		return
	}
	_, _ = fmt.Fprintf(sum, "%s=%s:%s;", child.ID, p.State, p.Value)
}

// release gives the task back.
func (r *run) release() {
	r.worker.world.send(r.worker.pid, &protocol.TaskRelease{ID: r.id, Version: r.version}, func(protocol.Reply, bool) {})
	r.end()
}

// tagsOf are the tags of a child of parent, as the SDKs give them.
func tagsOf(n *Node, parent protocol.Promise) protocol.Tags {
	branch, _ := parent.Tags.Get(protocol.TagBranch)
	origin, _ := parent.Tags.Get(protocol.TagOrigin)
	var tags protocol.Tags
	switch n.Kind {
	case Flow, Detached:
		branch = n.ID
		tags = tags.With(protocol.TagTarget, n.Target)
	case Sleep:
		tags = tags.With(protocol.TagTimer, "true")
	case External:
		if len(n.ID)%2 == 0 { // the others are armed by whoever waits for them
			tags = tags.With(protocol.TagExternal, "true")
		}
	}
	if n.Kind == Detached {
		origin = n.ID
	}
	return tags.With(protocol.TagOrigin, origin).With(protocol.TagBranch, branch).With(protocol.TagParent, parent.ID)
}

// rootTags are the tags of a root.
func rootTags(n *Node) protocol.Tags {
	return protocol.Tags{}.With(protocol.TagTarget, n.Target).With(protocol.TagOrigin, n.ID).
		With(protocol.TagBranch, n.ID).With(protocol.TagParent, n.ID)
}
