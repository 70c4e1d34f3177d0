package deliver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"abide/protocol"
)

// queueIn queues an execute and an unblock in a workspace, with their hints.
func (r *rig) queueIn(workspace, address string) {
	e := Execute{workspace, "t", 0, address, nil}
	r.box.queue(e)
	r.core.HintExecute(r.nowMs, e)
	r.box.queueUnblock(Unblock{workspace, "p", address, protocol.Promise{ID: "p", State: protocol.Resolved}})
	r.core.HintUnblock(r.nowMs, workspace, UnblockRef{"p", address})
}

func TestAddressesOfAWholeWorkspace(t *testing.T) {
	conns := []Destination{
		{"w", "g", "a"}, {"w", "h", "b"}, {"w", "w", "poll"}, {"w", "w", "c"},
		{"v", "g", "a"}, {"v", "w", "poll"},
		{"default", "g", "a"}, {"default", "default", "poll"}, {"default", "default", "d"},
	}
	for _, c := range []struct {
		workspace, address string
		whole              bool // else it means what it says:
		executes, unblocks int  // how many get one
	}{
		{"w", "poll://any@w/poll", true, 1, 4},
		{"w", "poll://uni@w/poll", true, 1, 4},
		{"w", "poll://any@%77/%70oll", true, 1, 4},
		{"w", "poll://uni@w:80/x/../poll?q#f", true, 1, 4},
		{"v", "poll://any@v/poll", true, 1, 2},
		{"v", "poll://uni@v/poll", true, 1, 2},
		{"w", "poll://any@w", false, 1, 1},
		{"w", "poll://any@w/c", false, 1, 1},
		{"w", "poll://uni@w/c", false, 1, 1},
		{"w", "poll://uni@w", false, 0, 0},
		{"w", "poll://uni@w/poll/", false, 0, 0},
		{"w", "poll://uni@w/POLL", false, 0, 0},
		{"w", "poll://uni@v/poll", false, 0, 0},
		{"v", "poll://uni@w/poll", false, 1, 1},
		{"v", "poll://any@w/poll", false, 1, 1},
		{"empty", "poll://uni@empty/poll", true, 0, 0},
		{"default", "poll://any@default/poll", false, 1, 1},
		{"default", "poll://uni@default/poll", false, 1, 1},
		{"default", "poll://any@default/d", false, 1, 1},
	} {
		r := newRig(t, Limits{})
		ids := map[ConnID]Destination{}
		for _, d := range conns {
			ids[r.connect(d.Workspace, d.Group, d.PID)] = d
		}
		r.work()
		r.queueIn(c.workspace, c.address)
		r.work()
		executes, unblocks := 0, 0
		for id, d := range ids {
			for _, m := range r.read(id) {
				a, _ := protocol.ParseAddress(c.address)
				if d.Workspace != c.workspace || !c.whole && (d.Group != a.Group || a.Cast == protocol.CastUni && d.PID != a.ID) {
					t.Errorf("%s in %s: %v got %s", c.address, c.workspace, d, m)
				}
				if m == "t@0" {
					executes++
				} else {
					unblocks++
				}
			}
		}
		if executes != c.executes || unblocks != c.unblocks {
			t.Errorf("%s in %s: %d got the execute, %d the unblock; want %d and %d",
				c.address, c.workspace, executes, unblocks, c.executes, c.unblocks)
		}
		r.pass(2000)
		if e, u := r.box.left(); c.executes > 0 && e+u > 0 {
			t.Errorf("%s in %s: not reported", c.address, c.workspace)
		}
	}
}

func TestWholeWorkspaceSharesAreFair(t *testing.T) {
	r := newRig(t, Limits{})
	ids := []ConnID{r.connect("w", "g", "a"), r.connect("w", "g", "b"), r.connect("w", "h", "a")}
	for i := range 300 {
		r.queueAndHint(fmt.Sprintf("t%03d", i), 0, "poll://any@w/poll")
	}
	r.work()
	for _, id := range ids {
		if n := len(r.read(id)); n != 100 {
			t.Errorf("connection %d got %d of 300", id, n)
		}
	}
}

func TestWholeWorkspaceWaitsForAnybody(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 8})
	for i := range 20 {
		r.queueAndHint(fmt.Sprintf("t%02d", i), 0, "poll://any@w/poll")
	}
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p", "poll://uni@w/poll"))
	r.connect("v", "w", "poll")
	r.pass(3000)
	if e, u := r.box.left(); e != 20 || u != 1 {
		t.Fatalf("%d executes and %d unblocks left", e, u)
	}
	a := r.connect("w", "g", "a")
	r.work()
	if n := len(r.read(a)); n != 9 { // its slots of executes, and the unblock
		t.Errorf("got %d messages", n)
	}
	b := r.connect("w", "h", "b")
	r.work()
	if n := len(r.read(b)); n != 8 { // the unblock had gone before
		t.Errorf("second worker got %d messages", n)
	}
	r.box.claim("w", "t00")
	r.core.HintClaimed(r.nowMs, "w", "t00", 0)
	r.work()
	r.want(append(r.read(a), r.read(b)...), "t16@0")
	r.core.Disconnect(r.nowMs, a)
	r.work()
	r.core.Disconnect(r.nowMs, b)
	if n := len(r.core.workspaces); n != 1 { // v
		t.Errorf("%d workspaces kept", n)
	}
	if s := r.core.Stats(); s.Messages[kindExecute].InFlight+s.Messages[kindUnblock].InFlight != 0 {
		t.Errorf("in flight with nobody there: %+v", s)
	}
	r.pass(3000)
	a = r.connect("w", "g", "a")
	r.queue("late", 0, "poll://any@w/poll") // its hint is lost
	for range 5 {
		r.pass(1100)
		r.claimAll(r.read(a))
	}
	if e, u := r.box.left(); e+u != 0 {
		t.Errorf("%d executes and %d unblocks left", e, u)
	}
}

func TestWholeWorkspaceIsScannedAtEachConnect(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	r.work()
	r.queue("t", 0, "poll://any@w/poll") // its hint is lost
	r.work()
	r.want(r.read(a))
	b := r.connect("w", "h", "b")
	r.work()
	r.want(append(r.read(a), r.read(b)...), "t@0")
}

func TestCopiesAreNotTracked(t *testing.T) {
	r := newRig(t, Limits{})
	a, b, d := r.connect("w", "g", "a"), r.connect("w", "g", "b"), r.connect("w", "h", "c")
	r.work()
	r.core.Woken()
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p", "poll://uni@w/poll"))
	r.work()
	woken := map[ConnID]bool{}
	for _, id := range r.core.Woken() {
		woken[id] = true
	}
	if len(woken) != 3 {
		t.Errorf("%d writers were woken, want 3", len(woken))
	}
	used := 0
	for _, g := range r.core.Stats().Groups {
		used += g.Unblocks
	}
	if used != 1 {
		t.Errorf("%d slots in use, want 1", used)
	}
	for _, id := range []ConnID{a, b, d} {
		r.want(r.read(id), "unblock p")
	}
	r.pass(3000)
	for _, id := range []ConnID{a, b, d} {
		r.want(r.read(id))
	}
	s := r.core.Stats()
	if m := s.Messages[kindUnblock]; m.Sent != 1 || m.Delivered != 1 || m.InFlight != 0 || s.Copies != 2 || s.CopiesDropped != 0 {
		t.Errorf("stats %+v", s)
	}
	if n := r.box.count("unblocks delivered"); n != 1 {
		t.Errorf("%d reports, want 1", n)
	}
}

func TestBrokenStreamsOfAWholeWorkspace(t *testing.T) {
	for _, tracked := range []bool{true, false} {
		r := newRig(t, Limits{})
		a, b, d := r.connect("w", "g", "a"), r.connect("w", "g", "b"), r.connect("w", "h", "c")
		r.work()
		r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p", "poll://uni@w/poll"))
		r.work()
		holder, others := a, []ConnID{b, d}
		if r.core.conns[a].used[kindUnblock] != 1 {
			t.Fatal("the first in turn does not have it")
		}
		r.want(r.read(a), "unblock p")
		r.want(r.peek(b), "unblock p")
		if !tracked {
			holder, others = b, []ConnID{a, d}
		}
		r.core.Disconnect(r.nowMs, holder)
		again := r.connect("w", "g", "again")
		r.work()
		if tracked { // all hear of it once more, for it may be the new one that waits
			r.want(r.read(again), "unblock p")
			r.want(r.read(others[0]), "unblock p")
			r.want(r.read(d), "unblock p", "unblock p")
		} else {
			r.want(r.read(again))
			r.want(r.read(others[0]))
			r.want(r.read(d), "unblock p")
		}
		r.pass(2000)
		if _, n := r.box.left(); n != 0 {
			t.Error("not reported")
		}
	}
}

func TestCopiesAreBoundedByTheBuffer(t *testing.T) {
	r := newRig(t, Limits{BufferBytes: 1000})
	fast, slow := r.connect("w", "g", "fast"), r.connect("w", "g", "slow")
	r.work()
	got := 0
	for i := range 50 {
		r.core.HintUnblock(r.nowMs, "w", r.queueUnblock(fmt.Sprintf("p%02d", i), "poll://uni@w/poll"))
		r.work()
		got += len(r.read(fast))
	}
	if got != 50 {
		t.Errorf("the fast worker got %d of 50", got)
	}
	s := r.core.Stats()
	if n := len(r.read(slow)); n != 6 || s.CopiesDropped != 44 { // the sixth passes the limit
		t.Errorf("%d wait for the slow worker; stats %+v", n, s)
	}
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("more", "poll://uni@w/poll"))
	r.work()
	r.want(r.read(slow), "unblock more")
}

func TestCopiesAndTheEndOfAStream(t *testing.T) {
	r := newRig(t, Limits{})
	a, b, d := r.connect("w", "g", "a"), r.connect("w", "g", "b"), r.connect("w", "g", "d")
	r.work()
	r.core.Finish(r.nowMs, d)
	r.core.HintUnblock(r.nowMs, "w", r.queueUnblock("p", "poll://uni@w/poll"))
	r.work()
	r.want(r.peek(d)) // it takes nothing any longer
	r.core.Finish(r.nowMs, b)
	messages, status := r.core.Output(r.nowMs, b, nil)
	if len(messages) != 1 || status != Ending { // its copy is written before
		t.Errorf("%d messages, status %d", len(messages), status)
	}
	r.want(r.read(a), "unblock p")
}

// Executes for one group and for the whole workspace, both more than the workers can take.
func TestGroupAndWorkspaceTakeTurns(t *testing.T) {
	r := newRig(t, Limits{MaxExecutes: 16})
	a := r.connect("w", "g", "a")
	for i := range 200 {
		r.queue(fmt.Sprintf("g%03d", i), 0, "poll://any@g")
		r.queue(fmt.Sprintf("w%03d", i), 0, "poll://any@w/poll")
	}
	r.pass(1000)
	served := map[byte]int{}
	for range 200 {
		for _, m := range r.read(a) {
			id, _, _ := splitAt(m)
			served[id[0]]++
			r.box.claim("w", id)
			r.core.HintClaimed(r.nowMs, "w", id, 0)
			r.work()
		}
		if served['g']+served['w'] >= 200 {
			break
		}
	}
	if served['g'] < 50 || served['w'] < 50 {
		t.Errorf("of the first 200: %d of the group, %d of the workspace", served['g'], served['w'])
	}
}

func TestDefaultWorkspaceHasNoQueueOfItsOwn(t *testing.T) {
	scans := func(workspace string) int {
		r := newRig(t, Limits{})
		r.connect(workspace, "g", "a")
		r.pass(10_000)
		return r.box.count("queues")
	}
	if d, w := scans(protocol.DefaultWorkspace), scans("w"); 3*d != 2*w { // its own and its group's; and the workspace's
		t.Errorf("%d scans in the default workspace, %d in another", d, w)
	}
}

func TestUnblockOfAWholeWorkspaceOverStreams(t *testing.T) {
	box := newMemOutbox()
	d := newDeliverer(t, box)
	readers := []*reader{read(t, d, "w", "g", "a"), read(t, d, "w", "g", "b"), read(t, d, "w", "h", "a")}
	u := Unblock{"w", "p", "poll://uni@w/poll", protocol.Promise{ID: "p", State: protocol.Resolved}}
	box.queueUnblock(u)
	d.HintUnblock("w", UnblockRef{u.ID, u.Address})
	eventually(t, "all have heard of it, and it is reported", func() bool {
		_, left := box.left()
		return left == 0 && !slices.ContainsFunc(readers, func(r *reader) bool { return len(r.frames()) == 0 })
	})
	want := strings.TrimSpace(readers[0].frames()[0])
	for _, r := range readers {
		for _, f := range r.frames() {
			if strings.TrimSpace(f) != want || !strings.Contains(f, `"unblock"`) {
				t.Errorf("%s\nis not\n%s", f, want)
			}
		}
	}
}

// A worker that takes only what is for its group gets neither the messages for the whole workspace nor copies of
// them, and everything that is for its group.
func TestWorkersOfOneGroupAlone(t *testing.T) {
	r := newRig(t, Limits{})
	alone, err := r.core.ConnectToGroup(r.nowMs, "w", "g", "alone")
	if err != nil {
		t.Fatal(err)
	}
	r.queueIn("w", "poll://any@w/poll")
	r.pass(2000)
	if got := r.read(alone); len(got) != 0 {
		t.Errorf("of the whole workspace's messages it got %v", got)
	}
	other := r.connect("w", "h", "other")
	r.work()
	if got := r.read(other); len(got) != 2 {
		t.Errorf("the other worker got %v", got)
	}
	if got := r.read(alone); len(got) != 0 {
		t.Errorf("it got copies: %v", got)
	}
	r.box.queue(Execute{"w", "own", 0, "poll://any@g", nil})
	r.core.HintExecute(r.nowMs, Execute{"w", "own", 0, "poll://any@g", nil})
	r.work()
	if got := r.read(alone); len(got) != 1 {
		t.Errorf("of its group's messages it got %v", got)
	}
	r.core.Disconnect(r.nowMs, alone)
	r.core.Disconnect(r.nowMs, other)
}
