package deliver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	e := Execute{"w", id, version, address, nil}
	r.box.queue(e)
	return e
}

func (r *rig) queueAndHint(id string, version int64, address string) {
	r.core.HintExecute(r.nowMs, r.queue(id, version, address))
}

// claimAll claims the tasks among what a worker has read.
func (r *rig) claimAll(got []string) {
	for _, m := range got {
		if id, version, ok := splitAt(m); ok {
			r.claim(id, version)
		}
	}
}

// claim claims one task, with its hint.
func (r *rig) claim(id string, version int64) {
	r.box.claim("w", id)
	r.core.HintClaimed(r.nowMs, "w", id, version)
}

// splitAt takes apart what read returns for an execute.
func splitAt(m string) (id string, version int64, ok bool) {
	id, text, ok := strings.Cut(m, "@")
	version, _ = strconv.ParseInt(text, 10, 64)
	return id, version, ok
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

// fataler is what a test and a rapid check have in common.
type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// checkCore recomputes what the core keeps in step.
func checkCore(t fataler, c *Core) {
	t.Helper()
	var used [kinds]int
	for i, cn := range c.order {
		if i > 0 && c.order[i-1].id >= cn.id {
			t.Fatalf("connections are out of order at %d", i)
		}
		if c.conns[cn.id] != cn || cn.group.byPID[cn.pid] != cn {
			t.Fatalf("connection %d is not registered everywhere", cn.id)
		}
		checkConn(t, c, cn)
		for k := range kinds {
			used[k] += cn.used[k]
		}
	}
	pools := checkPools(t, c)
	for k := range kinds {
		if c.checks[k].n > len(c.flights[k]) || used[k] > len(c.flights[k]) {
			t.Fatalf("more of kind %d queued (%d) or with a slot (%d) than in flight (%d)", k, c.checks[k].n, used[k], len(c.flights[k]))
		}
		for i, l := range c.lanes[k] {
			if l.pos != i || l.state != laneScheduled {
				t.Fatalf("lane %v is at %d in state %d, believes %d", l.dest, i, l.state, l.pos)
			}
			if l.conn != nil && c.conns[l.conn.id] != l.conn || l.conn == nil && !pools[l.pool] {
				t.Fatalf("lane %v is scheduled, but nobody is there", l.dest)
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
	until = 0
	for f := c.holding.front; f != nil; f = f.links[linkQueue].next {
		if f.untilMs < until || f.state != held || f.kind != kindExecute || f.conn == nil || f.links[linkConn].list != &f.conn.flights {
			t.Fatalf("%v is held until %d after %d, in state %d, by %v", f.key(), f.untilMs, until, f.state, f.conn)
		}
		until = f.untilMs
	}
}

// checkConn recomputes what one connection holds.
func checkConn(t fataler, c *Core, cn *conn) {
	t.Helper()
	var slots [kinds]int
	for f := cn.flights.front; f != nil; f = f.links[linkConn].next {
		slots[f.kind]++
		if f.conn != cn || f.copy || c.flights[f.kind][f.key()] != f {
			t.Fatalf("flight %v of connection %d is astray", f.key(), cn.id)
		}
		if (f.promise != nil) != (f.kind == kindUnblock && f.state == buffered) {
			t.Fatalf("flight %v in state %d: promise %v", f.key(), f.state, f.promise)
		}
	}
	outBytes, last := 0, 0
	for f := cn.out.front; f != nil; f = f.links[linkQueue].next {
		last = f.bytes
		outBytes += last
		if f.copy && (cn.workspace == nil || f.promise == nil) || !f.copy && (f.conn != cn || f.state != buffered) {
			t.Fatalf("%v in the buffer of connection %d is astray", f.key(), cn.id)
		}
	}
	if slots != cn.used || outBytes != cn.outBytes {
		t.Fatalf("connection %d counts %v slots and %d bytes, holds %v and %d", cn.id, cn.used, cn.outBytes, slots, outBytes)
	}
	if outBytes-last >= c.limits.BufferBytes {
		t.Fatalf("connection %d buffers %d bytes, the last message %d, limit %d", cn.id, outBytes, last, c.limits.BufferBytes)
	}
	for k := range kinds {
		if cn.used[k] > c.slots(k) {
			t.Fatalf("connection %d holds %d messages of kind %d, limit %d", cn.id, cn.used[k], k, c.slots(k))
		}
	}
}

// checkPools recomputes the groups and workspaces from their connections, and returns them.
func checkPools(t fataler, c *Core) map[*pool]bool {
	t.Helper()
	groups, workspaces := map[*group][]*conn{}, map[*workspace][]*conn{}
	for _, cn := range c.order {
		groups[cn.group] = append(groups[cn.group], cn)
		if cn.workspace != nil {
			workspaces[cn.workspace] = append(workspaces[cn.workspace], cn)
		}
		name := cn.group.key.workspace
		if c.groups[cn.group.key] != cn.group || (cn.workspace != nil && (c.workspaces[name] != cn.workspace || name == protocol.DefaultWorkspace)) {
			t.Fatalf("connection %d is in an unknown group or workspace", cn.id)
		}
	}
	if len(c.conns) != len(c.order) || len(groups) != len(c.groups) || len(workspaces) != len(c.workspaces) {
		t.Fatalf("%d connections, %d groups, %d workspaces registered, %d, %d and %d listed",
			len(c.conns), len(c.groups), len(c.workspaces), len(c.order), len(groups), len(workspaces))
	}
	pools := map[*pool]bool{}
	for g, conns := range groups {
		pools[&g.pool] = true
		checkPool(t, &g.pool, conns)
	}
	for w, conns := range workspaces {
		if !slices.Equal(w.conns, conns) {
			t.Fatalf("%v has %d connections, lists %d", w.lanes[0].dest, len(conns), len(w.conns))
		}
		pools[&w.pool] = true
		checkPool(t, &w.pool, conns)
	}
	return pools
}

func checkPool(t fataler, p *pool, conns []*conn) {
	t.Helper()
	for k := range kinds {
		sum, roomy := 0, 0
		for _, cn := range conns {
			sum += cn.room[k]
			if cn.room[k] == 0 {
				continue
			}
			roomy++
			if !slices.Contains(p.rings[k].conns, cn) {
				t.Fatalf("connection %d has room %d and is not in the ring of %v", cn.id, cn.room[k], p.lanes[k].dest)
			}
		}
		if p.room[k] != sum || len(p.rings[k].conns) != roomy {
			t.Fatalf("%v counts room %d in %d connections, has %d in %d", p.lanes[k].dest, p.room[k], len(p.rings[k].conns), sum, roomy)
		}
	}
}
