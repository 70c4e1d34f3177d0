package deliver

import (
	"context"
	"errors"
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

func TestHintGoesStraightToTheWorker(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.work()
	scans := r.box.count("executes")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t1@0")
	if n := r.box.count("executes"); n != scans {
		t.Errorf("the hint cost %d scans", n-scans)
	}
	if n := r.box.count("check executes"); n != 1 {
		t.Errorf("checked %d times, want once", n)
	}
	for _, id := range r.core.Woken() {
		if id != a {
			t.Errorf("connection %d was woken", id)
		}
	}
}

func TestClaimedMessageCostsNoReport(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t1@0")
	r.box.claim("w", "t1")
	r.core.HintClaimed(r.nowMs, "w", "t1", 0)
	r.pass(3000)
	if n := r.box.count("executes delivered"); n != 0 {
		t.Errorf("reported %d times", n)
	}
	s := r.core.Stats().Messages[kindExecute]
	if s.Claimed != 1 || s.Delivered != 0 || s.InFlight != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestUnclaimedMessageIsReportedAfterTheWindowAndMayComeAgain(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t1@0")
	r.pass(990)
	if n, _ := r.box.left(); n != 1 {
		t.Fatal("reported before the window was over")
	}
	r.want(r.read(a)) // and a scan meanwhile did not send it again
	r.pass(200)
	if n, _ := r.box.left(); n != 0 {
		t.Fatal("not reported after the window")
	}
	r.queueAndHint("t1", 0, "poll://any@g") // the retry timer came due: same version
	r.work()
	r.want(r.read(a), "t1@0")
}

func TestManyDeliveriesAreOneReport(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	for i := range 100 {
		r.queueAndHint(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
		r.work()
		r.read(a)
	}
	r.pass(2000)
	if n := r.box.count("executes delivered"); n != 1 {
		t.Errorf("%d reports, want 1", n)
	}
}

func TestBrokenStreamSendsAgain(t *testing.T) {
	for _, flush := range []bool{false, true} {
		r := newRig(t, Limits{})
		a, b := r.connect("w", "g", "a"), r.connect("w", "g", "b")
		r.queueAndHint("t1", 0, "poll://any@g/a")
		r.work()
		if flush {
			r.want(r.read(a), "t1@0")
		} else {
			r.want(r.peek(a), "t1@0")
		}
		r.nowMs += 500
		r.core.Disconnect(r.nowMs, a)
		r.work()
		r.want(r.read(b), "t1@0")
		if s := r.core.Stats().Messages[kindExecute]; s.Resent != 1 {
			t.Errorf("stats %+v", s)
		}
	}
}

func TestStreamThatBreaksAfterTheWindowHasDelivered(t *testing.T) {
	r := newRig(t, Limits{GatherMs: 500})
	a, b := r.connect("w", "g", "a"), r.connect("w", "g", "b")
	r.queueAndHint("t1", 0, "poll://any@g/a")
	r.work()
	r.want(r.read(a), "t1@0")
	r.pass(1100) // past the window; the report still waits for company
	r.core.Disconnect(r.nowMs, a)
	r.pass(1000)
	r.want(r.read(b))
	if n, _ := r.box.left(); n != 0 {
		t.Error("not reported")
	}
}

func TestMessagesWaitForTheirWorker(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range 600 {
		r.queueAndHint(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
	}
	r.queueAndHint("mine", 0, "poll://uni@g/b")
	r.queueAndHint("nobody", 0, "poll://uni@g")
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p1", "poll://uni@g/b"))
	r.pass(5000)
	if n := r.box.count("executes") + r.box.count("check executes") + r.box.count("unblocks"); n != 0 {
		t.Errorf("%d calls although nobody is connected", n)
	}
	a := r.connect("w", "g", "a")
	r.work()
	if got := r.read(a); len(got) != 256 {
		t.Errorf("%d messages at once, want the limit of 256", len(got))
	}
	b := r.connect("w", "g", "b")
	r.work()
	got := r.read(b)
	if len(got) != 257 { // 256 executes and the unblock
		t.Errorf("second worker got %d messages", len(got))
	}
	for range 5 {
		r.pass(1100)
		r.read(a)
		r.read(b)
	}
	if n, _ := r.box.left(); n != 1 {
		t.Errorf("%d executes left, want the one that nobody can get", n)
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		address string
		who     string // gets it while a and b are connected
	}{
		{"poll://uni@g/a", "a"},
		{"poll://uni@g/b", "b"},
		{"poll://uni@g/c", ""},
		{"poll://uni@g", ""},
		{"poll://any@g/a", "a"},
		{"poll://any@g/b", "b"},
		{"poll://any@other", ""},
		{"poll://any@g%67", ""},
		{"poll://uni@%67/%61", "a"},
		{"http://example.com/", ""},
		{"bash://x", ""},
		{"no address", ""},
	} {
		r := newRig(t, Limits{})
		conns := map[string]ConnID{"a": r.connect("w", "g", "a"), "b": r.connect("w", "g", "b")}
		foreign := r.connect("v", "g", "a")
		r.queueAndHint("t", 0, c.address)
		r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p", c.address))
		r.work()
		for pid, id := range conns {
			got := r.read(id)
			if c.who == pid {
				r.want(got, "t@0", "unblock p")
			} else if len(got) > 0 {
				t.Errorf("%s: %s got %v", c.address, pid, got)
			}
		}
		r.want(r.read(foreign))
	}
}

func TestAnyFallsBackWhenTheNamedWorkerIsAbsentOrFull(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 1})
	a, b := r.connect("w", "g", "a"), r.connect("w", "g", "b")
	r.queueAndHint("t1", 0, "poll://any@g/a")
	r.queueAndHint("t2", 0, "poll://any@g/a")
	r.work()
	r.want(r.read(a), "t1@0")
	r.want(r.read(b), "t2@0")
	r.core.HintClaimed(r.nowMs, "w", "t2", 0)
	r.queueAndHint("t3", 0, "poll://any@g/absent")
	r.work()
	r.want(r.read(b), "t3@0")
}

func TestFullWorkerHoldsUpNobody(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 2})
	a := r.connect("w", "g", "a")
	for i := range 10 {
		r.queue(fmt.Sprintf("a%d", i), 0, "poll://uni@g/a")
	}
	r.core.HintExecute(r.nowMs, Execute{"w", "a0", 0, "poll://uni@g/a"})
	r.work()
	r.want(r.read(a), "a0@0", "a1@0")
	b := r.connect("w", "g", "b")
	r.queueAndHint("t", 0, "poll://any@g")
	r.work()
	r.want(r.read(b), "t@0")
}

func TestSharesAreFair(t *testing.T) {
	r := newRig(t, Limits{})
	ids := []ConnID{r.connect("w", "g", "a"), r.connect("w", "g", "b"), r.connect("w", "g", "c")}
	for i := range 300 {
		r.queueAndHint(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
	}
	r.work()
	for _, id := range ids {
		if n := len(r.read(id)); n != 100 {
			t.Errorf("connection %d got %d of 300", id, n)
		}
	}
}

func TestSlotsComeFreeByClaims(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 16})
	a := r.connect("w", "g", "a")
	for i := range 100 {
		r.queue(fmt.Sprintf("t%03d", i), 0, "poll://any@g")
	}
	r.pass(1000)
	total := 0
	for range 100 {
		for _, m := range r.read(a) {
			total++
			id, _, _ := splitAt(m)
			r.box.claim("w", id)
			r.core.HintClaimed(r.nowMs, "w", id, 0)
		}
		r.work() // no time passes
	}
	if total != 100 {
		t.Errorf("got %d of 100 without time passing", total)
	}
}

func splitAt(m string) (id, version string, ok bool) {
	for i := range m {
		if m[i] == '@' {
			return m[:i], m[i+1:], true
		}
	}
	return m, "", false
}

func TestOldTasksDoNotStarve(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 16})
	a := r.connect("w", "g", "a")
	for i := range 64 {
		r.queue(fmt.Sprintf("old%02d", i), 0, "poll://any@g")
	}
	r.core.HintExecute(r.nowMs, Execute{"w", "old00", 0, "poll://any@g"})
	r.pass(1000)
	// A worker that claims one at a time, while new tasks come as fast as it claims.
	old, inbox := 0, []string(nil)
	for i := range 400 {
		r.work()
		inbox = append(inbox, r.read(a)...)
		if len(inbox) == 0 {
			t.Fatal("nothing to do")
		}
		id, _, _ := splitAt(inbox[0])
		inbox = inbox[1:]
		if id < "p" {
			old++
		}
		r.box.claim("w", id)
		r.core.HintClaimed(r.nowMs, "w", id, 0)
		r.queueAndHint(fmt.Sprintf("young%03d", i), 0, "poll://any@g")
	}
	if old != 64 {
		t.Errorf("%d of 64 old tasks were served", old)
	}
}

func TestNewestConnectionOfAPIDWins(t *testing.T) {
	r := newRig(t, Limits{})
	old := r.connect("w", "g", "a")
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p", "poll://uni@g/a"))
	r.queueAndHint("t", 0, "poll://uni@g/a")
	r.work()
	r.want(r.read(old), "t@0", "unblock p")
	r.core.Woken()
	young := r.connect("w", "g", "a")
	if _, status := r.core.Output(r.nowMs, old, nil); status != Closed {
		t.Errorf("the older one is in status %d", status)
	}
	found := false
	for _, id := range r.core.Woken() {
		found = found || id == old
	}
	if !found {
		t.Error("the older one's writer was not woken")
	}
	r.work()
	r.want(r.read(young), "t@0", "unblock p") // both, because the old stream did not live a second longer
	r.core.Disconnect(r.nowMs, old)           // its handler returns late
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p2", "poll://uni@g/a"))
	r.work()
	r.want(r.read(young), "unblock p2")
	if s := r.core.Stats(); s.Replaced != 1 || s.Connections != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestConnectionLimit(t *testing.T) {
	r := newRig(t, Limits{MaxConnections: 2})
	r.connect("w", "g", "a")
	r.connect("w", "h", "a")
	if _, err := r.core.Connect(r.nowMs, "w", "g", "b"); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
	a := r.connect("w", "g", "a") // takes its own place
	r.core.Disconnect(r.nowMs, a)
	r.connect("w", "g", "b")
	checkCore(t, r.core)
	if s := r.core.Stats(); s.Refused != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestLostHintsCostOnlyLatency(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.pass(500)
	r.queue("t1", 0, "poll://any@g")
	r.queue("t2", 0, "poll://uni@g/a")
	r.queueUnblock("p1", "poll://uni@g/a")
	r.queueUnblock("p2", "poll://any@g")
	r.pass(1000)
	if got := r.read(a); len(got) != 4 {
		t.Errorf("got %v", got)
	}
}

func TestIdleWorkersCostOneScanAQueueAndPoll(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range 10 {
		r.connect("w", "g", fmt.Sprint(i))
	}
	for i := range 1000 { // for workers that are gone
		r.queueUnblock(fmt.Sprintf("p%04d", i), fmt.Sprintf("poll://uni@g/gone%d", i))
		r.queue(fmt.Sprintf("t%04d", i), 0, fmt.Sprintf("poll://uni@g/gone%d", i))
	}
	r.work()
	before := r.box.count("unblocks") + r.box.count("executes")
	r.pass(10_000)
	if n := r.box.count("unblocks") + r.box.count("executes") - before; n > 2*11*10 {
		t.Errorf("%d scans in 10 polls of 11 queues of 2 kinds", n)
	}
	gone := r.connect("w", "g", "gone7")
	r.work()
	r.want(r.read(gone), "t0007@0", "unblock p0007")
}

func TestUnblocksArePaged(t *testing.T) {
	r := newRig(t, Limits{})
	for i := range 100 {
		r.queueUnblock(fmt.Sprintf("p%03d", i), "poll://uni@g/a")
	}
	a := r.connect("w", "g", "a")
	r.work()
	if n := len(r.read(a)); n != 100 {
		t.Errorf("got %d of 100", n)
	}
	if n := r.box.count("unblocks"); n < 100/MaxUnblockPage {
		t.Errorf("%d pages", n)
	}
	r.pass(1100)
	if _, n := r.box.left(); n != 0 {
		t.Errorf("%d unblocks left after their window", n)
	}
	if n := r.box.count("unblocks delivered"); n != 1 {
		t.Errorf("%d reports, want 1", n)
	}
}

func TestBufferIsBounded(t *testing.T) {
	r := newRig(t, Limits{BufferBytes: 1000, WriteBytes: 500})
	a := r.connect("w", "g", "a")
	big := protocol.Promise{ID: "big", State: protocol.Resolved, Value: make([]byte, 5000)}
	for _, id := range []string{"b1", "b2", "b3"} {
		big.ID = id
		r.box.queueUnblock(Unblock{"w", id, "poll://uni@g/a", big})
	}
	r.pass(2000)
	messages, _ := r.core.Output(r.nowMs, a, nil)
	if len(messages) != 1 {
		t.Fatalf("%d messages were buffered, want one that fills it", len(messages))
	}
	r.work()
	if next, _ := r.core.Output(r.nowMs, a, nil); len(next) != 1 {
		t.Fatalf("%d messages were buffered behind it", len(next))
	}
	r.core.Flushed(r.nowMs, a)
	r.work()
	r.want(r.read(a), "unblock b3")
}

func TestClaimedAndReleasedWithinTheWindow(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t@0")
	r.queueAndHint("t", 1, "poll://any@g") // claimed (that hint was lost), released
	r.work()
	r.want(r.read(a), "t@1")
	r.queue("t", 2, "poll://any@g") // again, and both hints lost
	r.pass(1000)
	r.want(r.read(a), "t@2")
}

func TestHaltedAndContinuedWithinTheWindow(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t@0")
	r.nowMs += 100
	r.core.HintExecute(r.nowMs, r.queue("t", 0, "poll://any@g")) // the same version, dispatched anew
	r.work()
	r.want(r.read(a), "t@0")
}

func TestHintDuringACheckOrReportIsNotLost(t *testing.T) {
	r := newRig(t, Limits{PollMs: 1 << 40})
	a := r.connect("w", "g", "a")
	r.work()
	r.queueAndHint("t", 0, "poll://any@g")
	r.box.claim("w", "t") // halted
	j := r.core.Take(r.nowMs, CheckExecutes)
	answer := j.Run(context.Background(), r.box)
	r.queueAndHint("t", 0, "poll://any@g") // continued, before the answer is taken in
	r.core.Done(r.nowMs, j, answer)
	r.work()
	r.want(r.read(a), "t@0")

	r.nowMs += 1100
	j = r.core.Take(r.nowMs, Report)
	answer = j.Run(context.Background(), r.box)
	r.queueAndHint("t", 0, "poll://any@g") // the retry timer was very short
	r.core.Done(r.nowMs, j, answer)
	r.work()
	r.want(r.read(a), "t@0")
}

func TestStaleHintsAndPages(t *testing.T) {
	r := newRig(t, Limits{PollMs: 1 << 40})
	a := r.connect("w", "g", "a")
	r.work()
	r.core.HintExecute(r.nowMs, Execute{"w", "t", 0, "poll://any@g"}) // not in the outbox
	r.work()
	r.want(r.read(a))

	// A page that was read before a claim, and comes in after it.
	r.queue("u", 0, "poll://any@g")
	r.connect("w", "g", "b") // begins a scan
	j := r.core.Take(r.nowMs, ScanExecutes)
	answer := j.Run(context.Background(), r.box)
	r.queueAndHint("u", 0, "poll://any@g/a")
	check := r.core.Take(r.nowMs, CheckExecutes)
	r.core.Done(r.nowMs, check, check.Run(context.Background(), r.box))
	r.want(r.read(a), "u@0")
	r.box.claim("w", "u")
	r.core.HintClaimed(r.nowMs, "w", "u", 0)
	r.core.Done(r.nowMs, j, answer)
	r.work()
	r.want(r.read(a))
}

func TestFailingOutboxIsRetriedWithBackoff(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.work()
	r.box.fail = func(string) error { return errors.New("disk full") }
	r.queueAndHint("t1", 0, "poll://any@g")
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p1", "poll://uni@g/a"))
	before := r.box.count("executes") + r.box.count("unblocks")
	r.pass(30_000)
	if n := r.box.count("executes") + r.box.count("unblocks") - before; n > 80 {
		t.Errorf("%d calls in 30 s of failure", n)
	}
	r.want(r.read(a))
	r.box.fail = nil
	r.pass(backoffMsMax)
	r.want(r.read(a), "t1@0", "unblock p1")
	if s := r.core.Stats(); s.Errors[ScanExecutes] == 0 || s.Errors[CheckExecutes] != 1 || s.Errors[CheckUnblocks] != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestFailingReportsAreRepeated(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t1@0")
	failures := 3
	r.box.fail = func(op string) error {
		if op == "executes delivered" && failures > 0 {
			failures--
			return errors.New("conflict")
		}
		return nil
	}
	r.pass(3000)
	if n, _ := r.box.left(); n != 0 {
		t.Error("not reported")
	}
	r.want(r.read(a)) // never sent twice meanwhile
}

// poisoned is an outbox that cannot report one task.
type poisoned struct{ *memOutbox }

func (p poisoned) ExecutesDelivered(ctx context.Context, w string, delivered []Execute) error {
	for _, e := range delivered {
		if e.ID == "t13" {
			return errors.New("cannot")
		}
	}
	return p.memOutbox.ExecutesDelivered(ctx, w, delivered)
}

func TestEntryThatCannotBeReportedHoldsUpNobody(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	for i := range 100 {
		r.queueAndHint(fmt.Sprintf("t%d", i), 0, "poll://any@g")
	}
	r.work()
	r.read(a)
	for end := r.nowMs + 20_000; r.nowMs < end; r.nowMs += 10 {
		for cl := range Classes {
			if j := r.core.Take(r.nowMs, cl); j != nil {
				r.core.Done(r.nowMs, j, j.Run(context.Background(), poisoned{r.box}))
			}
		}
	}
	if n, _ := r.box.left(); n != 1 {
		t.Errorf("%d executes left, want the one that cannot be reported", n)
	}
	if s := r.core.Stats().Messages[kindExecute]; s.GivenUp != 1 || s.Delivered != 99 {
		t.Errorf("stats %+v", s)
	}
}

func TestPause(t *testing.T) {
	r := newRig(t, Limits{})
	a, other := r.connect("w", "g", "a"), r.connect("v", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.want(r.read(a), "t1@0")
	r.core.Pause(r.nowMs, "w")
	checkCore(t, r.core)
	r.queueAndHint("t2", 0, "poll://any@g")
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p", "poll://uni@g/a"))
	b := r.connect("w", "g", "b")
	r.box.queue(Execute{"v", "x", 0, "poll://any@g"})
	calls := r.box.count("executes delivered")
	r.pass(5000)
	r.want(r.read(a))
	r.want(r.read(b))
	r.want(r.read(other), "x@0")
	if n := r.box.count("executes delivered"); n != calls {
		t.Error("reported during the pause")
	}
	r.core.Resume(r.nowMs, "w")
	r.work()
	if got := append(r.read(a), r.read(b)...); len(got) != 3 {
		t.Errorf("after the pause: %v", got)
	}
}

func TestPageAskedForBeforeAPauseIsThrownAway(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queue("t", 0, "poll://any@g")
	j := r.core.Take(r.nowMs, ScanExecutes)
	answer := j.Run(context.Background(), r.box)
	r.core.Pause(r.nowMs, "w")
	r.box.claim("w", "t") // a reset
	r.core.Resume(r.nowMs, "w")
	r.core.Done(r.nowMs, j, answer)
	r.work()
	r.want(r.read(a))
	r.queue("t2", 0, "poll://any@g")
	r.pass(1000)
	r.want(r.read(a), "t2@0")
}

func TestDrain(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.work()
	r.core.Drain(r.nowMs)
	r.queueAndHint("t2", 0, "poll://any@g")
	r.pass(2000)
	messages, status := r.core.Output(r.nowMs, a, nil)
	if len(messages) != 1 || status != Ending {
		t.Errorf("%d messages, status %d", len(messages), status)
	}
	r.core.Flushed(r.nowMs, a)
	r.core.Disconnect(r.nowMs, a)
	if _, err := r.core.Connect(r.nowMs, "w", "g", "b"); !errors.Is(err, ErrDraining) {
		t.Errorf("got %v", err)
	}
	r.pass(2000)
	if n, _ := r.box.left(); n != 2 {
		t.Errorf("%d executes left, want both: neither was delivered", n)
	}
}

func TestFinishedConnectionWritesWhatItHas(t *testing.T) {
	r := newRig(t, Limits{WriteBytes: 1})
	a := r.connect("w", "g", "a")
	r.queueAndHint("t1", 0, "poll://any@g")
	r.queueAndHint("t2", 0, "poll://any@g")
	r.work()
	r.core.Finish(r.nowMs, a)
	first, status := r.core.Output(r.nowMs, a, nil)
	if len(first) != 1 || status != Open {
		t.Errorf("%d messages, status %d", len(first), status)
	}
	r.core.Flushed(r.nowMs, a)
	second, status := r.core.Output(r.nowMs, a, nil)
	if len(second) != 1 || status != Ending {
		t.Errorf("%d messages, status %d", len(second), status)
	}
}

func TestTooManyHintsAreLeftToTheScan(t *testing.T) {
	r := newRig(t, Limits{MaxHints: 10})
	a := r.connect("w", "g", "a")
	r.work()
	for i := range 50 {
		r.queueAndHint(fmt.Sprintf("t%02d", i), 0, "poll://any@g")
	}
	if s := r.core.Stats(); s.HintsDropped != 40 {
		t.Errorf("stats %+v", s)
	}
	r.work()
	if n := len(r.read(a)); n != 50 {
		t.Errorf("got %d of 50", n)
	}
}

func TestTargetMemoryIsBounded(t *testing.T) {
	ts := targets{}
	for i := range 3 * maxTargets {
		ts.parse(fmt.Sprintf("poll://uni@g/%d", i))
	}
	if len(ts) > maxTargets {
		t.Errorf("%d targets kept", len(ts))
	}
}
