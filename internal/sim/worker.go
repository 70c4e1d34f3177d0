package sim

import (
	"fmt"
	"slices"
	"time"

	"abide/internal/deliver"
	"abide/protocol"
)

// leaseTTL is the lease that workers ask for.
const leaseTTL = 3 * time.Second

// habits are in what SDKs differ.
type habits struct {
	fenced  bool // children are created and settled through task.fence
	emptied bool // heartbeats name no tasks
	stable  bool // the pid outlives the process
}

// worker is one process after another that runs the tasks of a group, as an SDK does.
type worker struct {
	world  *world
	index  int
	group  string
	habits habits
	host   *host // that it stands behind; nil for one that has a stream

	up     bool
	life   int
	pid    string
	stream *stream
	runs   []*run // what it holds, in the order in which it came
	steps  int    // numbers what its leaves do, so that no two of them have the same result
}

// boot begins a life.
func (k *worker) boot() {
	k.life++
	k.up = true
	k.pid = fmt.Sprintf("%s%d", k.group, k.index)
	if !k.habits.stable {
		k.pid = fmt.Sprintf("%s-%d", k.pid, k.life)
	}
	k.world.log("worker %s is up", k.pid)
	if k.host == nil {
		k.stream = k.world.connect(k, k.group, k.pid)
	}
	life := k.life
	k.world.after(leaseTTL/2, func() { k.heartbeat(life) })
}

// kill ends a life, and plans the next one.
func (k *worker) kill(away time.Duration) {
	if !k.up {
		return
	}
	k.world.log("worker %s dies", k.pid)
	k.up = false
	k.life++
	k.runs = nil
	if k.host == nil {
		k.stream.abandon()
	}
	k.world.after(away, k.boot)
}

// receive implements listener: an execute is answered with a claim.
func (k *worker) receive(m deliver.Message) {
	if !k.up || m.Promise != nil {
		return
	}
	life := k.life
	acquire := &protocol.TaskAcquire{ID: m.Task.ID, Version: m.Task.Version, PID: k.pid, TTL: k.world.leaseTTL().Milliseconds()}
	k.world.send(k.pid, acquire, func(reply protocol.Reply, ok bool) {
		if claim, claimed := reply.Body.(protocol.ClaimBody); ok && claimed && k.life == life {
			if k.host != nil {
				k.host.claims(claim.Task.ID)
			}
			k.start(claim)
		}
	})
}

// invoke creates a root's task already claimed, and runs it.
func (k *worker) invoke(create *protocol.PromiseCreate) {
	if !k.up {
		return
	}
	life := k.life
	req := &protocol.TaskCreate{PID: k.pid, TTL: k.world.leaseTTL().Milliseconds(), Action: *create}
	k.world.send(k.pid, req, func(reply protocol.Reply, ok bool) {
		claim, claimed := reply.Body.(protocol.ClaimBody)
		if ok && claimed && k.life == life && claim.Task.State == protocol.TaskAcquired {
			k.start(claim)
		}
	})
}

// start runs a task that was claimed. Of the same task at an earlier version, the lease has been lost.
func (k *worker) start(claim protocol.ClaimBody) {
	if claim.Task.State != protocol.TaskAcquired || claim.Task.PID != k.pid {
		k.world.fail("%s has claimed %q and is answered %+v", k.pid, claim.Task.ID, claim.Task)
		return
	}
	for _, r := range slices.Clone(k.runs) {
		if r.id == claim.Task.ID {
			r.end()
		}
	}
	r := newRun(k, claim)
	k.runs = append(k.runs, r)
	r.next()
}

// heartbeat renews the leases of what the worker holds, twice within each.
func (k *worker) heartbeat(life int) {
	if k.life != life {
		return
	}
	k.world.after(leaseTTL/2, func() { k.heartbeat(life) })
	if len(k.runs) == 0 {
		return
	}
	beat := &protocol.TaskHeartbeat{PID: k.pid}
	if !k.habits.emptied {
		for _, r := range k.runs {
			beat.Tasks = append(beat.Tasks, protocol.TaskRef{ID: r.id, Version: r.version})
		}
	}
	k.world.send(k.pid, beat, func(protocol.Reply, bool) {})
}

// disconnected implements listener.
func (k *worker) disconnected(st *stream) {
	if !k.up || k.stream != st {
		return
	}
	life := k.life
	k.world.after(reconnectPause, func() {
		if k.life == life && k.stream == st {
			k.stream = k.world.connect(k, k.group, k.pid)
		}
	})
}
