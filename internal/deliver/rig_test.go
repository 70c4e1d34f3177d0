package deliver

import (
	"context"
	"fmt"
	"testing"

	"abide/protocol"
)

// rig drives a Core by hand, with an outbox in memory and a clock that only moves when told.
type rig struct {
	t     *testing.T
	core  *Core
	box   *memOutbox
	nowMs int64
}

func newRig(t *testing.T, l Limits) *rig {
	return &rig{t: t, core: NewCore(l), box: newMemOutbox(), nowMs: 1}
}

func (r *rig) connect(workspace, group, pid string) ConnID {
	r.t.Helper()
	id, err := r.core.Connect(r.nowMs, workspace, group, pid)
	if err != nil {
		r.t.Fatalf("connect %s/%s: %v", group, pid, err)
	}
	return id
}

// work runs jobs until none is due.
func (r *rig) work() {
	r.t.Helper()
	for rounds := 0; ; rounds++ {
		busy := false
		for cl := range Classes {
			if j := r.core.Take(r.nowMs, cl); j != nil {
				busy = true
				r.core.Done(r.nowMs, j, j.Run(context.Background(), r.box))
			}
			checkCore(r.t, r.core)
		}
		if !busy {
			return
		}
		if rounds > 100_000 {
			r.t.Fatal("the jobs do not come to an end without time passing")
		}
	}
}

// pass lets time go by in steps of 10 ms, with all the work that comes due.
func (r *rig) pass(ms int64) {
	r.t.Helper()
	for end := r.nowMs + ms; r.nowMs < end; {
		r.nowMs = min(r.nowMs+10, end)
		r.work()
	}
}

// read takes what waits for a connection and reports it flushed.
func (r *rig) read(id ConnID) []string {
	r.t.Helper()
	out := r.peek(id)
	r.core.Flushed(r.nowMs, id)
	checkCore(r.t, r.core)
	return out
}

// peek takes what waits for a connection and leaves it unflushed.
func (r *rig) peek(id ConnID) (out []string) {
	for {
		messages, _ := r.core.Output(r.nowMs, id, nil)
		if len(messages) == 0 {
			return out
		}
		for _, m := range messages {
			if m.Promise != nil {
				out = append(out, "unblock "+m.Promise.ID)
			} else {
				out = append(out, fmt.Sprintf("%s@%d", m.Task.ID, m.Task.Version))
			}
		}
	}
}

func (r *rig) queue(id string, version int64, address string) Execute {
	e := Execute{"w", id, version, address}
	r.box.queue(e)
	return e
}

func (r *rig) queueAndHint(id string, version int64, address string) {
	r.core.HintExecute(r.nowMs, r.queue(id, version, address))
}

func (r *rig) queueUnblock(id, address string) UnblockRef {
	r.box.queueUnblock(Unblock{"w", id, address, protocol.Promise{ID: id, State: protocol.Resolved}})
	return UnblockRef{id, address}
}

func (r *rig) want(got []string, want ...string) {
	r.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Fatalf("got %v, want %v", got, want)
	}
}

// checkCore recomputes what the core keeps in step.
func checkCore(t interface {
	Helper()
	Fatalf(string, ...any)
}, c *Core) {
	t.Helper()
	var held [kinds]int
	rooms := map[*group][kinds]int{}
	for i, cn := range c.order {
		if i > 0 && c.order[i-1].id >= cn.id {
			t.Fatalf("connections are out of order at %d", i)
		}
		if c.conns[cn.id] != cn || cn.group.byPID[cn.pid] != cn {
			t.Fatalf("connection %d is not registered everywhere", cn.id)
		}
		var slots [kinds]int
		outBytes := 0
		for f := cn.flights.front; f != nil; f = f.links[linkConn].next {
			slots[f.kind]++
			if f.conn != cn || c.flights[f.kind][f.key()] != f {
				t.Fatalf("flight %v of connection %d is astray", f.key(), cn.id)
			}
			if f.state == buffered {
				outBytes += f.bytes
			}
			if (f.promise != nil) != (f.kind == kindUnblock && f.state == buffered) {
				t.Fatalf("flight %v in state %d: promise %v", f.key(), f.state, f.promise)
			}
		}
		if slots != cn.held || outBytes != cn.outBytes {
			t.Fatalf("connection %d counts %v slots and %d bytes, holds %v and %d", cn.id, cn.held, cn.outBytes, slots, outBytes)
		}
		sum := rooms[cn.group]
		for k := range kinds {
			held[k] += cn.held[k]
			sum[k] += cn.room[k]
			if cn.held[k] > c.slots(k) {
				t.Fatalf("connection %d holds %d messages of kind %d, limit %d", cn.id, cn.held[k], k, c.slots(k))
			}
			inRing := 0
			for _, r := range cn.group.rings[k].conns {
				if r == cn {
					inRing++
				}
			}
			if (cn.room[k] > 0) != (inRing == 1) || inRing > 1 {
				t.Fatalf("connection %d has room %d and stands %d times in the ring", cn.id, cn.room[k], inRing)
			}
		}
		rooms[cn.group] = sum
	}
	if len(c.conns) != len(c.order) || len(rooms) != len(c.groups) {
		t.Fatalf("%d connections and %d groups registered, %d and %d listed", len(c.conns), len(c.groups), len(c.order), len(rooms))
	}
	for g, sum := range rooms {
		if g.room != sum {
			t.Fatalf("group %v counts room %v, has %v", g.key, g.room, sum)
		}
	}
	for k := range kinds {
		if c.checks[k].n > len(c.flights[k]) || held[k] > len(c.flights[k]) {
			t.Fatalf("more of kind %d queued (%d) or held (%d) than in flight (%d)", k, c.checks[k].n, held[k], len(c.flights[k]))
		}
		for i, l := range c.lanes[k] {
			if l.pos != i || l.state != laneScheduled {
				t.Fatalf("lane %v is at %d in state %d, believes %d", l.dest, i, l.state, l.pos)
			}
		}
	}
	until := int64(0)
	for f := c.window.front; f != nil; f = f.links[linkQueue].next {
		if f.untilMs < until || f.state != flushed {
			t.Fatalf("window out of order: %d after %d", f.untilMs, until)
		}
		until = f.untilMs
	}
}
