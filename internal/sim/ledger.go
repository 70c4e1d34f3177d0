package sim

import (
	"bytes"
	"slices"
	"strings"

	"abide/protocol"
)

// ledger is what the server has answered so far, and the judge of what it answers next: what was once answered binds
// every request that begins afterwards. It knows nothing of how the server works.
type ledger struct {
	world *world
	ended uint64           // numbers answers
	facts map[string]*fact // by promise; only looked up
	order []*fact          // the same in the order in which they were met
}

// fact is what is known of one promise and its task.
type fact struct {
	id      string
	known   bool             // it exists
	knownAt uint64           // the number of the answer that said so
	born    protocol.Promise // what never changes: param, tags, createdAt, timeoutAt

	settled   bool
	settledAt uint64
	result    protocol.Promise

	lease lease // the last one that was acknowledged

	versions []version // of its task, ascending
	claims   []version // the same, those that somebody was given
}

// lease is what the holder of a task was promised: nobody takes the task back before.
type lease struct {
	pid     string
	version int64
	life    int   // of the server that it claimed from
	until   int64 // epoch ms
}

// version is a version of a task with the number of the answer that showed it.
type version struct {
	n  int64
	at uint64
}

func newLedger(w *world) *ledger { return &ledger{world: w, facts: map[string]*fact{}} }

func (l *ledger) fact(id string) *fact {
	f := l.facts[id]
	if f == nil {
		f = &fact{id: id}
		l.facts[id] = f
		l.order = append(l.order, f)
	}
	return f
}

// begin is when a request begins: all answers up to this number bind it.
func (l *ledger) begin() uint64 { return l.ended }

// latest is the largest version that answers up to begin have shown; -1 for none.
func latest(versions []version, begin uint64) int64 {
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].at <= begin {
			return versions[i].n
		}
	}
	return -1
}

// observe takes in the answer to a request that began at begin.
func (l *ledger) observe(begin uint64, req protocol.Request, reply protocol.Reply) {
	l.ended++
	l.status(begin, req, reply)
	l.holder(begin, req, reply)
	switch body := reply.Body.(type) {
	case protocol.PromiseBody:
		l.promise(begin, body.Promise)
	case protocol.TaskBody:
		l.task(begin, body.Task)
	case protocol.ClaimBody:
		l.promise(begin, body.Promise)
		l.task(begin, body.Task)
		l.promises(begin, body.Preload)
		l.claim(req, body.Task)
	case protocol.PreloadBody:
		l.promises(begin, body.Preload)
	case protocol.FenceBody:
		if p, ok := body.Action.Body.(protocol.PromiseBody); ok {
			l.promise(begin, p.Promise)
		}
		l.promises(begin, body.Preload)
	case protocol.PromisesBody:
		for _, p := range body.Promises {
			if !l.world.undecided(begin, l.fact(p.ID), p) {
				l.promise(begin, p)
			}
		}
	case protocol.TasksBody:
		for _, t := range body.Tasks {
			l.task(begin, t)
		}
	}
}

// status judges an answer without a body.
func (l *ledger) status(begin uint64, req protocol.Request, reply protocol.Reply) {
	w := l.world
	switch reply.Status {
	case protocol.StatusOK, protocol.StatusPreload, protocol.StatusConflict, protocol.StatusUnavailable:
	case protocol.StatusNotFound:
		if id := subject(req); id != "" {
			if f := l.fact(id); f.known && f.knownAt <= begin {
				w.fail("%s is answered 404, but the promise was there before: %s", req.Kind(), show(req))
			}
		}
	case protocol.StatusInternal:
		if w.stats.Unknown == 0 || !strings.Contains(reply.Message, "outcome of the request is unknown") {
			w.fail("%s is answered 500: %s", show(req), reply.Message)
		}
	case protocol.StatusUnprocessable:
		// The awaiter may not exist yet.
		if req.Kind() != protocol.KindPromiseRegisterCallback {
			w.fail("%s is answered 422: %s", show(req), reply.Message)
		}
	default:
		w.fail("%s is answered %d: %s", show(req), reply.Status, reply.Message)
	}
}

// subject is the promise that a request cannot be answered without; empty if there may be none.
func subject(req protocol.Request) string {
	switch r := req.(type) {
	case *protocol.PromiseGet:
		return r.ID
	case *protocol.PromiseSettle:
		return r.ID
	case *protocol.PromiseRegisterListener:
		return r.Awaited
	case *protocol.PromiseRegisterCallback:
		return r.Awaited
	case *protocol.TaskAcquire:
		return r.ID
	case *protocol.TaskFence:
		return r.ID
	case *protocol.TaskSuspend:
		return r.ID
	case *protocol.TaskFulfill:
		return r.ID
	case *protocol.TaskRelease:
		return r.ID
	}
	return ""
}

// holder judges the success of a request that only the holder of a task may make: nobody may have been given a later
// version before.
func (l *ledger) holder(begin uint64, req protocol.Request, reply protocol.Reply) {
	if reply.Status != protocol.StatusOK && reply.Status != protocol.StatusPreload {
		return
	}
	var id string
	var held int64
	switch r := req.(type) {
	case *protocol.TaskFence:
		id, held = r.ID, r.Version
	case *protocol.TaskSuspend:
		id, held = r.ID, r.Version
	case *protocol.TaskFulfill:
		id, held = r.ID, r.Version
	case *protocol.TaskRelease:
		id, held = r.ID, r.Version
	default:
		return
	}
	if last := latest(l.fact(id).claims, begin); last != held {
		l.world.fail("%s is answered %d, but the last claim was given version %d: %s", req.Kind(), reply.Status, last, show(req))
	}
}

// claim judges a claim: each version is given once.
func (l *ledger) claim(req protocol.Request, t protocol.Task) {
	if t.State != protocol.TaskAcquired {
		return
	}
	f := l.fact(t.ID)
	if slices.ContainsFunc(f.claims, func(v version) bool { return v.n >= t.Version }) {
		l.world.fail("version %d of task %q is given twice, or after a later one: %s", t.Version, t.ID, show(req))
	}
	if r, ok := req.(*protocol.TaskAcquire); ok && r.Version+1 != t.Version {
		l.world.fail("a claim of version %d of task %q is given version %d", r.Version, t.ID, t.Version)
	}
	f.claims = append(f.claims, version{t.Version, l.ended})
}

func (l *ledger) promises(begin uint64, list []protocol.Promise) {
	for _, p := range list {
		l.promise(begin, p)
	}
}

// promise judges one record of a promise.
func (l *ledger) promise(begin uint64, p protocol.Promise) {
	w, f := l.world, l.fact(p.ID)
	if !f.known {
		f.known, f.knownAt, f.born = true, l.ended, p
	}
	b := &f.born
	if !bytes.Equal(b.Param, p.Param) || !slices.Equal(b.Tags, p.Tags) || b.CreatedAt != p.CreatedAt || b.TimeoutAt != p.TimeoutAt {
		w.fail("promise %q has changed: %s, before %s", p.ID, showPromise(p), showPromise(*b))
	}
	if p.State == protocol.Pending {
		if f.settled && f.settledAt <= begin {
			w.fail("promise %q is pending after it was answered as %s", p.ID, f.result.State)
		}
		return
	}
	if p.SettledAt > p.TimeoutAt || p.SettledAt < p.CreatedAt-w.apart {
		w.fail("promise %q is settled at %d, outside of its life from %d to %d", p.ID, p.SettledAt, p.CreatedAt, p.TimeoutAt)
	}
	if !f.settled {
		f.settled, f.settledAt, f.result = true, l.ended, p
		return
	}
	if !samePromise(f.result, p) {
		w.fail("promise %q is settled as %s, after it was answered as %s", p.ID, showPromise(p), showPromise(f.result))
	}
}

// samePromise compares what settles a promise.
func samePromise(a, b protocol.Promise) bool {
	return a.ID == b.ID && a.State == b.State && bytes.Equal(a.Value, b.Value) && a.SettledAt == b.SettledAt
}

// task judges one record of a task.
func (l *ledger) task(begin uint64, t protocol.Task) {
	w, f := l.world, l.fact(t.ID)
	if last := latest(f.versions, begin); t.Version < last {
		w.fail("task %q is at version %d after it was answered as %d", t.ID, t.Version, last)
	}
	if n := len(f.versions); n == 0 || f.versions[n-1].n < t.Version {
		f.versions = append(f.versions, version{t.Version, l.ended})
	}
	if t.State != protocol.TaskFulfilled && f.settled && f.settledAt <= begin {
		w.fail("task %q is %s after its promise was answered as %s", t.ID, t.State, f.result.State)
	}
}

// leases takes in what an answer to a claim or a heartbeat promises. began is the instant at which the server began.
func (l *ledger) leases(life int, began int64, req protocol.Request, reply protocol.Reply) {
	switch body := reply.Body.(type) {
	case protocol.ClaimBody:
		if t := body.Task; t.State == protocol.TaskAcquired {
			l.fact(t.ID).lease = lease{t.PID, t.Version, life, began + t.TTL}
		}
	case protocol.HeartbeatBody:
		beat, ok := req.(*protocol.TaskHeartbeat)
		if !ok {
			return
		}
		for _, ref := range beat.Tasks {
			f := l.fact(ref.ID)
			if f.lease.pid == beat.PID && f.lease.version == ref.Version && !slices.Contains(body.Lost, ref.ID) {
				f.lease.until = max(f.lease.until, began+leaseTTL.Milliseconds())
			}
		}
		if len(beat.Tasks) > 0 {
			return
		}
		if l.world.shared() {
			return // what another server was lost with is not vouched for, and nobody here knows what that is
		}
		for _, f := range l.order { // without a list it is for all that this pid has claimed from this server
			if f.lease.pid == beat.PID && f.lease.life == life {
				f.lease.until = max(f.lease.until, began+leaseTTL.Milliseconds())
			}
		}
	}
}

// leaseEnds judges that a server takes a task back.
func (l *ledger) leaseEnds(id string, v, at int64) {
	if f := l.fact(id); f.lease.version == v && at < f.lease.until-l.world.apart {
		l.world.fail("the lease of %q at version %d, held by %s until %d, ends at %d", id, v, f.lease.pid, f.lease.until, at)
	}
}

// told takes in what an unblock message says.
func (l *ledger) told(p protocol.Promise) {
	l.ended++
	l.promise(l.ended-1, p)
}
