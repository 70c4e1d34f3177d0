package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// memRoster is the roster of several servers in memory; of is one server's side of it.
type memRoster struct {
	number  int64
	seats   map[[3]string]Seat
	live    []string
	travels bool
	fail    error
	looks   int
	claims  map[string]bool // ids of tasks that were claimed
}

func newMemRoster(live ...string) *memRoster {
	return &memRoster{seats: map[[3]string]Seat{}, live: live, claims: map[string]bool{}}
}

type rosterSide struct {
	*memRoster
	server string
}

func keyOf(s Seat) [3]string { return [3]string{s.Workspace, s.Group, s.PID} }

// take gives a seat to a server.
func (m *memRoster) take(s Seat) int64 {
	m.number++
	s.Number = m.number
	m.seats[keyOf(s)] = s
	return m.number
}

func (r rosterSide) Record(_ context.Context, made, again, ended []Seat) (numbers []int64, err error) {
	if r.fail != nil {
		return nil, r.fail
	}
	for _, s := range ended {
		if old, ok := r.seats[keyOf(s)]; ok && old.Server == r.server && old.Number == s.Number {
			r.number++
			delete(r.seats, keyOf(s))
		}
	}
	for i, s := range append(slices.Clone(made), again...) {
		s.Server = r.server
		if old, ok := r.seats[keyOf(s)]; ok && i >= len(made) {
			if old != s {
				old.Number = 0
			}
			numbers = append(numbers, old.Number)
			continue
		}
		numbers = append(numbers, r.take(s))
	}
	return numbers, nil
}

func (r rosterSide) Look(_ context.Context, after int64) (Standing, error) {
	r.looks++
	s := Standing{Server: r.server, Live: r.live, Travels: r.travels, Number: r.number, Changed: r.number != after}
	if s.Changed {
		for _, seat := range r.seats {
			s.Seats = append(s.Seats, seat)
		}
	}
	return s, r.fail
}

func (r rosterSide) Unclaimed(_ context.Context, _ string, sent []Execute) (unclaimed []Execute, err error) {
	for _, e := range sent {
		if !r.claims[e.ID] {
			unclaimed = append(unclaimed, e)
		}
	}
	return unclaimed, r.fail
}

// sharedRig is a rig of server "a", with a roster in which the test plays the others.
func sharedRig(t *testing.T, l Limits, others ...string) (*rig, *memRoster) {
	r := newRig(t, l)
	m := newMemRoster(append([]string{"a"}, others...)...)
	r.core.Share(rosterSide{m, "a"})
	return r, m
}

// foreignTo finds an id that belongs to another of the servers, and own one that belongs to this one.
func (r *rig) foreignAndOwn(servers ...string) (foreign, own string) {
	for i := 0; foreign == "" || own == ""; i++ {
		id := fmt.Sprint("id", i)
		f := &flight{kind: kindExecute, workspace: "w", id: id, target: target{group: "g"}}
		if r.core.mine(f, false) {
			own = id
		} else {
			foreign = id
		}
	}
	return foreign, own
}

// A message that belongs to another server is left to it, until it is queued a second after that would have reported it.
func TestOthersMessagesAreLeftToThem(t *testing.T) {
	r, m := sharedRig(t, Limits{}, "b")
	id := r.connect("w", "g", "p")
	m.take(Seat{Workspace: "w", Group: "g", PID: "q", Server: "b"})
	m.travels = true
	r.pass(500)
	foreign, own := r.foreignAndOwn("a", "b")
	r.queueAndHint(foreign, 0, "poll://any@g")
	r.queueAndHint(own, 0, "poll://any@g")
	r.work()
	r.want(r.read(id), own+"@0")
	r.claim(own, 0)
	r.pass(2000)
	r.want(r.read(id))
	r.pass(500)
	r.want(r.read(id), foreign+"@0")
	// What the other has delivered and somebody has claimed never comes.
	foreign2 := ""
	for i := 1000; foreign2 == ""; i++ {
		if f := (&flight{workspace: "w", id: fmt.Sprint("id", i), target: target{group: "g"}}); !r.core.mine(f, false) {
			foreign2 = f.id
		}
	}
	r.queueAndHint(foreign2, 0, "poll://any@g")
	r.pass(1000)
	r.box.claim("w", foreign2)
	r.pass(4000)
	r.want(r.read(id))
}

// Where hints do not travel, what a server is hinted it delivers itself: nobody else has heard of it.
func TestHintsThatDoNotTravel(t *testing.T) {
	r, m := sharedRig(t, Limits{}, "b")
	id := r.connect("w", "g", "p")
	m.take(Seat{Workspace: "w", Group: "g", PID: "q", Server: "b"})
	r.pass(500)
	foreign, _ := r.foreignAndOwn("a", "b")
	r.queueAndHint(foreign, 0, "poll://any@g")
	r.work()
	r.want(r.read(id), foreign+"@0")
}

// A dead server owns nothing, and one without a lease leaves everything to the others.
func TestOwnersLive(t *testing.T) {
	r, m := sharedRig(t, Limits{}, "b")
	id := r.connect("w", "g", "p")
	m.take(Seat{Workspace: "w", Group: "g", PID: "q", Server: "b"})
	r.pass(500)
	foreign, own := r.foreignAndOwn("a", "b")
	m.live = []string{"a"} // b is dead; its seat is not swept yet
	r.queue(foreign, 0, "poll://any@g")
	r.pass(500)
	r.want(r.read(id), foreign+"@0")
	r.claim(foreign, 0)
	m.live = nil
	r.pass(500)
	r.queue(own, 0, "poll://any@g")
	r.pass(1000)
	r.want(r.read(id))
	r.pass(2000)
	r.want(r.read(id), own+"@0")
}

// A claim that another server has answered, and of which no hint tells, frees its slot all the same.
func TestClaimsElsewhereFreeSlots(t *testing.T) {
	r, m := sharedRig(t, Limits{MaxExecutes: 4}, "b")
	id := r.connect("w", "g", "p")
	r.pass(500)
	for i := range 8 {
		r.queue(fmt.Sprint("t", i), 0, "poll://any@g")
	}
	r.pass(300)
	first := r.read(id)
	r.want(first, "t0@0", "t1@0", "t2@0", "t3@0")
	for i := range 4 {
		m.claims[fmt.Sprint("t", i)] = true
		r.box.claim("w", fmt.Sprint("t", i))
	}
	r.pass(600)
	r.want(r.read(id), "t4@0", "t5@0", "t6@0", "t7@0")
	r.pass(3000) // those are reported, and held
	if s := r.core.Stats(); s.Messages[kindExecute].Held != 4 {
		t.Errorf("%+v", s.Messages[kindExecute])
	}
	m.claims["t5"] = true
	r.pass(600)
	if s := r.core.Stats(); s.Messages[kindExecute].Held != 3 {
		t.Errorf("%+v", s.Messages[kindExecute])
	}
}

// However many workers are connected and idle, the store is asked about a thousand or two of them a second, many in
// one call, and about the group as often as ever.
func TestIdleConnectionsAreCheap(t *testing.T) {
	r, _ := sharedRig(t, Limits{MaxConnections: 2000})
	for i := range 1500 {
		r.connect("w", "g", fmt.Sprint("p", i))
	}
	quiet := func(ms int64) {
		for end := r.nowMs + ms; r.nowMs < end; r.nowMs += 10 {
			for cl := range Classes {
				for j := r.core.Take(r.nowMs, cl); j != nil; j = r.core.Take(r.nowMs, cl) {
					r.core.Done(r.nowMs, j, j.Run(context.Background(), r.box))
				}
			}
		}
	}
	quiet(3000)
	queues, calls := r.box.count("queues"), r.box.count("executes")+r.box.count("unblocks")
	quiet(2000)
	queues, calls = r.box.count("queues")-queues, r.box.count("executes")+r.box.count("unblocks")-calls
	if queues < 2*2*1500 || queues > 2*(2*1500+1500) || calls > queues/MaxAsks+40 {
		t.Errorf("%d queues in %d calls in two seconds", queues, calls)
	}
}

// Whom the address names gets the message from its own server, whichever that is.
func TestNamedWorkerAtAnotherServer(t *testing.T) {
	r, m := sharedRig(t, Limits{}, "b")
	id := r.connect("w", "g", "here")
	m.take(Seat{Workspace: "w", Group: "g", PID: "there", Server: "b"})
	r.pass(500)
	for i := range 20 {
		r.queue(fmt.Sprint("here", i), 0, "poll://any@g/here")
		r.queue(fmt.Sprint("there", i), 0, "poll://any@g/there")
		r.queue(fmt.Sprint("uni", i), 0, "poll://uni@g/here")
	}
	r.pass(500)
	got := r.read(id)
	if len(got) != 40 || slices.ContainsFunc(got, func(m string) bool { return m[0] == 't' }) {
		t.Errorf("%d messages: %v", len(got), got)
	}
	r.pass(2500)
	if got := r.read(id); len(got) != 20 {
		t.Errorf("%d messages of a worker that its server does not deliver to", len(got))
	}
}

// An unblock for a whole workspace is told to the connections of every server.
func TestWholeWorkspaceAcrossServers(t *testing.T) {
	r, m := sharedRig(t, Limits{}, "b")
	one, two := r.connect("w", "g", "p"), r.connect("w", "h", "p")
	m.take(Seat{Workspace: "w", Group: "g", PID: "q", Server: "b"})
	r.pass(500)
	for i := range 10 {
		r.queueUnblock(fmt.Sprint("u", i), "poll://uni@w/poll")
	}
	r.pass(500)
	if a, b := r.read(one), r.read(two); len(a) != 10 || len(b) != 10 {
		t.Errorf("%d and %d messages of 10", len(a), len(b))
	}
}

// Rows of this server's earlier life, and of ends that could not be recorded, are removed; a row that was lost comes back,
// unless the worker has a newer connection by then.
func TestRowsAndConnectionsAgree(t *testing.T) {
	r, m := sharedRig(t, Limits{}, "b")
	m.take(Seat{Workspace: "w", Group: "g", PID: "earlier", Server: "a"})
	m.take(Seat{Workspace: "w", Group: "other", PID: "earlier", Server: "a"})
	m.take(Seat{Workspace: "w", Group: "g", PID: "q", Server: "b"})
	stays, moves := r.connect("w", "g", "stays"), r.connect("w", "g", "moves")
	r.pass(1000)
	if len(m.seats) != 3 {
		t.Errorf("seats: %v", m.seats)
	}
	delete(m.seats, [3]string{"w", "g", "stays"}) // swept, as this server was taken for dead
	delete(m.seats, [3]string{"w", "g", "moves"})
	m.take(Seat{Workspace: "w", Group: "g", PID: "moves", Server: "b"})
	r.pass(1000)
	if m.seats[[3]string{"w", "g", "stays"}].Server != "a" || m.seats[[3]string{"w", "g", "moves"}].Server != "b" {
		t.Errorf("seats: %v", m.seats)
	}
	if r.core.conns[stays] == nil || r.core.conns[moves] != nil || r.core.Stats().Replaced != 1 {
		t.Errorf("connections: %v", r.core.conns)
	}
}

// Whoever asks why a task does not run hears of the workers at other servers too.
func TestReachableAcrossServers(t *testing.T) {
	r, m := sharedRig(t, Limits{}, "b")
	m.take(Seat{Workspace: "w", Group: "g", PID: "there", Server: "b"})
	m.take(Seat{Workspace: "w", Group: "g", PID: "lost", Server: "dead"})
	r.connect("w", "g", "here")
	r.pass(500)
	for address, want := range map[string]int{"poll://any@g": 2, "poll://uni@g/there": 1, "poll://uni@g/lost": 0, "poll://any@w/poll": 2, "poll://any@h": 0} {
		if got, ok := r.core.reachable("w", address); !ok || got != want {
			t.Errorf("%s: %d, want %d", address, got, want)
		}
	}
}

// Calls about other servers are tried again, and hold up no delivery.
func TestRosterFails(t *testing.T) {
	r, m := sharedRig(t, Limits{})
	m.fail = errors.New("down")
	id := r.connect("w", "g", "p")
	r.queueAndHint("t", 0, "poll://any@g")
	r.work()
	r.want(r.read(id), "t@0")
	r.pass(20_000)
	if r.core.Stats().Errors[RosterCalls] > 30 {
		t.Errorf("%d calls in 20 s", r.core.Stats().Errors[RosterCalls])
	}
	m.fail = nil
	r.pass(6000)
	if len(m.seats) != 1 {
		t.Error("the connection is not recorded once that works")
	}
	r.core.Disconnect(r.nowMs, id)
	r.pass(300)
	if len(m.seats) != 0 {
		t.Error("the end of a connection is not recorded")
	}
}

// A crowd of others' messages takes bounded memory, and bounded reading per pass, and is delivered in the end if they do
// not deliver it.
func TestCrowdOfOthersMessages(t *testing.T) {
	r, m := sharedRig(t, Limits{MaxExecutes: 100_000}, "b")
	id := r.connect("w", "g", "p")
	m.take(Seat{Workspace: "w", Group: "g", PID: "q", Server: "b"})
	r.pass(500)
	const crowd = 1200
	for i := range crowd {
		r.queue(fmt.Sprintf("t%05d", i), 0, "poll://any@g")
	}
	before := r.box.count("executes")
	r.pass(1000)
	if pages := r.box.count("executes") - before; pages > 5*(yieldedRows/MaxPage)*3 {
		t.Errorf("%d pages are read in a second", pages)
	}
	got := len(r.read(id))
	for range 24 {
		r.pass(250)
		for _, message := range r.read(id) {
			got++
			name, version, _ := splitAt(message)
			r.claim(name, version)
		}
		if n := len(r.core.roster.foreign[kindExecute].seen); n > maxForeign {
			t.Fatalf("%d messages are remembered", n)
		}
	}
	if got < crowd {
		t.Errorf("%d of %d are delivered", got, crowd)
	}
}
