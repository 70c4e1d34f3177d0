package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/kv"
	"abide/protocol"
)

// pass runs one pass of a server's timer loop.
func (n *node) pass(t *testing.T) {
	t.Helper()
	if _, err := n.TimerPass(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// timers makes promises that are due at an instant, as commits that no server has heard of.
func (f *fleet) timers(n int, dueAt int64) {
	f.t.Helper()
	for i := range n {
		f.do(f.nodes[0], &protocol.PromiseCreate{ID: fmt.Sprintf("timer%d", i), TimeoutAt: dueAt, Tags: protocol.Tags{}.With(protocol.TagTimer, "true")})
	}
	for _, node := range f.nodes { // whoever arms a timer that is due soon fires it: here nobody knows
		node.duties.take(1 << 60)
	}
}

// Every timer is fired once by the server that it belongs to, and every server has its share.
func TestTimersAreShared(t *testing.T) {
	const timers = 300
	f := newFleet(t, 3)
	due := f.nodes[0].Now() + 1000
	f.timers(timers, due)
	f.advance(1250 * time.Millisecond)
	total := int64(0)
	for _, n := range f.nodes {
		n.pass(t)
		steps := n.Counts().Steps
		total += steps
		if steps < timers/6 {
			t.Errorf("%s has fired %d of %d", n.opt.ServerID, steps, timers)
		}
	}
	if total != timers {
		t.Errorf("%d steps for %d timers", total, timers)
	}
	if _, armed, _ := f.nodes[0].NextDue(context.Background()); armed {
		t.Error("timers are left")
	}
}

// What a server leaves undone, another does after a second, long before the lease ends.
func TestTimersOfASleeperAreTakenOver(t *testing.T) {
	f := newFleet(t, 2)
	awake, sleeper := f.nodes[0], f.nodes[1]
	f.timers(50, awake.Now()+100)
	f.advance(250*time.Millisecond, sleeper)
	awake.pass(t)
	first := awake.Counts().Steps
	if first == 0 || first == 50 {
		t.Fatalf("%d of 50 timers are its own", first)
	}
	f.advance(500*time.Millisecond, sleeper)
	if awake.pass(t); awake.Counts().Steps != first {
		t.Error("it did not leave the others' timers to them for a second")
	}
	f.advance(500*time.Millisecond, sleeper)
	if awake.pass(t); awake.Counts().Steps != 50 {
		t.Errorf("%d of 50 timers are fired after a second", awake.Counts().Steps)
	}
}

// A server fires at once what it has armed itself, and what is due within a poll interval; others hear of it too late.
func TestArmedHereFiresHere(t *testing.T) {
	f := newFleet(t, 3)
	for i := range 30 {
		n := f.nodes[i%3]
		before := n.Counts().Steps
		f.do(n, &protocol.PromiseCreate{ID: fmt.Sprint("soon", i), TimeoutAt: n.Now() + 100, Tags: protocol.Tags{}.With(protocol.TagTimer, "true")})
		for _, each := range f.nodes {
			each.clock.advance(100 * time.Millisecond)
		}
		if n.pass(t); n.Counts().Steps != before+1 {
			t.Fatalf("timer %d was not fired by the server that has armed it", i)
		}
	}
}

// A long drain goes on where it was begun, without pauses.
func TestDrainGoesOn(t *testing.T) {
	f := newFleet(t, 3)
	n := f.nodes[0]
	f.do(n, &protocol.PromiseCreate{ID: "crowded", TimeoutAt: 1 << 50, Tags: protocol.Tags{}})
	for i := range 2000 {
		f.do(n, &protocol.PromiseRegisterListener{Awaited: "crowded", Address: fmt.Sprintf("poll://uni@g/%d", i)})
	}
	f.do(n, &protocol.PromiseSettle{ID: "crowded", State: protocol.Resolved})
	for passes := 0; ; passes++ {
		if _, armed, err := n.NextDue(context.Background()); err != nil || !armed {
			break
		}
		if passes > 100 {
			t.Fatal("the drain does not come to its end unless time passes")
		}
		n.pass(t)
	}
}

// Three servers that all look at a schedule make each of its 1,000 promises once.
func TestScheduleOfThreeServers(t *testing.T) {
	const ticks = 1000
	f := newFleet(t, 3)
	f.do(f.nodes[0], &protocol.ScheduleCreate{ID: "s", Cron: "* * * * * *", PromiseID: "{{.id}}.{{.timestamp}}", PromiseTimeout: 1 << 40, PromiseTags: protocol.Tags{}})
	begin := f.nodes[0].Now()
	for second := range ticks {
		for _, n := range f.nodes {
			n.clock.advance(time.Second)
		}
		if second%3 == 0 {
			f.passAll()
		}
		for i := range f.nodes { // each in turn is the first, and none knows what the others are about to do
			n := f.nodes[(i+second)%3]
			n.duties.left = nil
			n.pass(t)
		}
		f.nodes[second%3].duties.arm(f.nodes[0].Now() + 1000) // some fire what is another's
	}
	end := f.nodes[0].Now()
	for _, n := range f.nodes { // whatever was left to one is done
		n.clock.advance(1100 * time.Millisecond)
		n.pass(t)
		n.clock.advance(1100 * time.Millisecond)
	}
	for range 3 {
		for _, n := range f.nodes {
			n.pass(t)
		}
	}
	made, req := 0, &protocol.PromiseSearch{Tags: protocol.Tags{}.With(protocol.TagSchedule, "s"), Limit: 1000}
	for more := true; more; {
		body := f.do(f.nodes[1], req).Body.(protocol.PromisesBody)
		for _, p := range body.Promises {
			if p.CreatedAt > begin && p.CreatedAt <= end {
				made++
			}
		}
		req.Cursor, more = body.Cursor, body.Cursor != ""
	}
	if want := int(end/1000 - begin/1000); made != want || made != ticks {
		t.Errorf("%d promises for %d ticks", made, want)
	}
}

// door is the delivery of one server, its loops run by hand.
type door struct {
	*node
	core *deliver.Core
}

func (f *fleet) door(n *node) *door {
	d := &door{n, deliver.NewCore(deliver.Limits{})}
	d.core.Share(n.Roster())
	return d
}

func (d *door) nowMs() int64 { return d.clock.Mono().Milliseconds() }

// The door hears of this server's commits alone: signals do not travel.

func (d *door) HintExecute(e deliver.Execute) { d.core.HintExecute(d.nowMs(), e) }
func (d *door) HintClaimed(workspace, id string, version int64) {
	d.core.HintClaimed(d.nowMs(), workspace, id, version)
}
func (d *door) HintUnblock(workspace string, ref deliver.UnblockRef) {
	d.core.HintUnblock(d.nowMs(), workspace, ref)
}

// serve runs what is due at the doors, and lets every stream take what waits for it; it returns who was sent what.
func serve(t *testing.T, doors []*door, streams map[deliver.ConnID]*door, into map[string][]string) {
	t.Helper()
	for _, d := range doors {
		for busy := true; busy; {
			busy = false
			for cl := range deliver.Classes {
				if j := d.core.Take(d.nowMs(), cl); j != nil {
					busy = true
					d.core.Done(d.nowMs(), j, j.Run(context.Background(), d.Outbox()))
				}
			}
		}
	}
	for id, d := range streams {
		messages, _ := d.core.Output(d.nowMs(), id, nil)
		d.core.Flushed(d.nowMs(), id)
		for _, m := range messages {
			into[m.Task.ID] = append(into[m.Task.ID], d.opt.ServerID)
		}
	}
}

// With no signal between the servers, a worker of any of them gets what was made on any other within the poll interval,
// or a second later if a server that could have delivered it does not; and nothing is sent twice. (G12, G13)
func TestDeliveryWithoutSignals(t *testing.T) {
	const tasks = 60
	f := newFleet(t, 3)
	var doors []*door
	for _, n := range f.nodes {
		d := f.door(n)
		n.Attach(d)
		doors = append(doors, d)
	}
	streams := map[deliver.ConnID]*door{}
	for i, d := range doors[1:] { // nobody is connected to the first
		for range i + 1 {
			_, _ = d.core.Connect(d.nowMs(), "default", "other", "w")
		}
		id, err := d.core.Connect(d.nowMs(), "default", "g", fmt.Sprint("w", i))
		if err != nil {
			t.Fatal(err)
		}
		streams[id] = d
	}
	if len(streams) != 2 {
		t.Fatal("the test needs connections of different numbers")
	}
	sent := map[string][]string{}
	step := func(d time.Duration) {
		for ; d > 0; d -= 50 * time.Millisecond {
			for _, n := range f.nodes {
				n.clock.advance(50 * time.Millisecond)
			}
			if f.nodes[0].clock.Mono()%(250*time.Millisecond) == 0 {
				f.passAll()
			}
			serve(t, doors, streams, sent)
		}
	}
	step(time.Second)
	for i := range tasks {
		f.do(f.nodes[0], &protocol.PromiseCreate{ID: fmt.Sprint("t", i), TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, "poll://any@g")})
	}
	step(300 * time.Millisecond)
	by := map[string]int{}
	for i := range tasks {
		to := sent[fmt.Sprint("t", i)]
		if len(to) != 1 {
			t.Errorf("t%d was sent by %v within the poll interval", i, to)
			continue
		}
		by[to[0]]++
	}
	if len(by) != 2 {
		t.Errorf("who delivers: %v", by)
	}
	// The worker of the second server claims all of its own by way of the first: nobody tells the second, and its slots
	// come free all the same.
	for id, to := range sent {
		if slices.Contains(to, "server1") {
			f.do(f.nodes[0], &protocol.TaskAcquire{ID: id, Version: 0, PID: "w0", TTL: 60_000})
		}
	}
	step(600 * time.Millisecond)
	for _, g := range doors[1].core.Stats().Groups {
		if g.Group == "g" && g.Executes != 0 {
			t.Errorf("%d slots are taken by tasks that were claimed elsewhere", g.Executes)
		}
	}
	step(4 * time.Second)
	for id, to := range sent {
		if len(to) != 1 {
			t.Errorf("%s was sent by %v", id, to)
		}
	}
}

// The newest connection of a worker wins, wherever it is. (docs/servers.md)
func TestNewestConnectionWinsAcrossServers(t *testing.T) {
	f := newFleet(t, 2)
	doors := []*door{f.door(f.nodes[0]), f.door(f.nodes[1])}
	connect := func(d *door) deliver.ConnID {
		id, err := d.core.Connect(d.nowMs(), "default", "g", "w")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	settle := func() {
		for range 10 {
			for _, n := range f.nodes {
				n.clock.advance(100 * time.Millisecond)
				n.look(t)
			}
			serve(t, doors, nil, map[string][]string{})
		}
	}
	closed := func(d *door, id deliver.ConnID) bool {
		_, status := d.core.Output(d.nowMs(), id, nil)
		return status == deliver.Closed
	}
	where := func() string {
		c, err := keyspace.ParseConnection(f.get(keyspace.For("default", keyspace.Layout{Shards: 1}).Connection("g", "w")))
		if err != nil {
			t.Fatal(err)
		}
		return c.Server
	}
	first := connect(doors[0])
	settle()
	second := connect(doors[1])
	settle()
	if !closed(doors[0], first) || closed(doors[1], second) || where() != "server1" {
		t.Fatalf("the older connection is closed: %t, the newer: %t; the worker is at %s", closed(doors[0], first), closed(doors[1], second), where())
	}
	third := connect(doors[0])
	settle()
	if closed(doors[0], third) || !closed(doors[1], second) || where() != "server0" {
		t.Error("a worker cannot come back")
	}
	// Its row was swept while its server slept: it is recorded again, as nobody is newer.
	if _, err := f.disk.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		if _, err := raiseRoster(tx, false, 0); err != nil {
			return err
		}
		return tx.Delete(keyspace.For("default", keyspace.Layout{Shards: 1}).Connection("g", "w"))
	}); err != nil {
		t.Fatal(err)
	}
	settle()
	if closed(doors[0], third) || where() != "server0" {
		t.Error("a connection whose row was swept is not recorded again")
	}
	doors[0].core.Disconnect(doors[0].nowMs(), third)
	settle()
	if f.get(keyspace.For("default", keyspace.Layout{Shards: 1}).Connection("g", "w")) != nil {
		t.Error("the row of a connection that has ended is left")
	}
}

// Once one server has answered that a promise has timed out, no other settles it otherwise, though its clock says that
// there is time left: whoever was told may have acted upon it.
func TestTimedOutStaysTimedOutAcrossServers(t *testing.T) {
	target := protocol.Tags{}.With(protocol.TagTarget, "poll://any@g")
	for name, ask := range map[string]protocol.Request{
		"a read":                       &protocol.PromiseGet{ID: "p"},
		"a read of the task":           &protocol.TaskGet{ID: "p"},
		"a create that finds it":       &protocol.PromiseCreate{ID: "p", TimeoutAt: 1 << 50, Tags: target},
		"a callback":                   &protocol.PromiseRegisterCallback{Awaited: "p", Awaiter: "other"},
		"a settle that comes too late": &protocol.PromiseSettle{ID: "p", State: protocol.Resolved},
	} {
		f := newFleet(t, 2)
		ahead, behind := f.nodes[0], f.nodes[1]
		ahead.clock.step(1500 * time.Millisecond)
		f.do(behind, &protocol.PromiseCreate{ID: "other", TimeoutAt: 1 << 50, Tags: target})
		f.do(behind, &protocol.PromiseCreate{ID: "p", TimeoutAt: behind.Now() + 1000, Tags: target})
		told := f.do(ahead, ask)
		settled := f.do(behind, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved}).Body.(protocol.PromiseBody)
		if settled.Promise.State != protocol.RejectedTimedout {
			t.Errorf("%s was answered %+v, and then it was settled as %s", name, told.Body, settled.Promise.State)
		}
	}
}

// A search does not store what its page shows as expired: nobody acts upon a list, and a page has up to 1,000 rows.
func TestSearchStoresNothing(t *testing.T) {
	f := newFleet(t, 2)
	n := f.nodes[0]
	f.do(n, &protocol.PromiseCreate{ID: "p", TimeoutAt: n.Now() + 100, Tags: protocol.Tags{}})
	n.clock.advance(200 * time.Millisecond)
	f.do(n, &protocol.PromiseSearch{State: protocol.RejectedTimedout, Limit: 10})
	o, err := keyspace.Object("p", f.get(keyspace.For("default", n.layout).Object("p")))
	if err != nil || o.State != protocol.Pending {
		t.Errorf("stored as %v, %v", o.State, err)
	}
}

// The store goes away for two seconds at every point of a pass, for one server or for both: the loops come back by
// themselves, and every timer is fired. (D2, D20)
func TestStoreGoesAwayAtEveryPoint(t *testing.T) {
	const timers = 20
	for _, both := range []bool{false, true} {
		for point := int64(1); ; point++ {
			f := newFleet(t, 2)
			f.timers(timers, f.nodes[0].Now()+100)
			f.advance(250 * time.Millisecond)
			var calls int64
			away := time.Duration(1 << 62)
			reached := false
			for i, n := range f.nodes {
				fail := func() error {
					if calls++; calls == point {
						away, reached = n.clock.Mono()+2*time.Second, true
					}
					if reached && n.clock.Mono() < away && (both || i == 0) {
						return &kv.Error{Is: kv.ErrUnavailable, Detail: "gone"}
					}
					return nil
				}
				n.handle.before = func(kv.Hints) error { return fail() }
				n.handle.reading = fail
			}
			for range 24 {
				for _, n := range f.nodes {
					n.clock.advance(250 * time.Millisecond)
					_, _ = n.MemberPass(context.Background())
					_, _ = n.TimerPass(context.Background())
				}
			}
			for _, n := range f.nodes {
				n.handle.before, n.handle.reading = nil, nil
			}
			if _, armed, err := f.nodes[1].NextDue(context.Background()); armed || err != nil {
				t.Fatalf("gone at call %d, for both: %t: timers are left, %v", point, both, err)
			}
			if !reached || point > 60 {
				break
			}
		}
	}
}
