package push

import (
	"fmt"
	"testing"

	"abide/internal/cluster"
)

// pair is two servers on one outbox, each with a core of its own.
type pair struct {
	a, b *rig
}

func newPair(t *testing.T) *pair {
	p := &pair{newRig(t, Limits{}), newRig(t, Limits{})}
	p.b.box = p.a.box
	return p
}

// as lets one of the servers do something.
func (p *pair) as(r *rig, live ...string) *rig {
	p.a.box.self, p.a.box.live = "a", live
	if r == p.b {
		p.a.box.self = "b"
	}
	return r
}

// Each of two servers sends what is its own, whoever heard of it, and nothing is sent twice.
func TestEachLaneIsOneServers(t *testing.T) {
	p := newPair(t)
	const messages = 200
	for i := range messages {
		e := execute(fmt.Sprintf("t%03d", i), 0, fmt.Sprintf("http://h%d/", i%20))
		p.a.box.queue(e)
		p.as(p.a, "a", "b").settle()
		p.a.core.HintExecute(p.a.nowMs, e) // b hears of none
	}
	sent := map[string]string{}
	both := map[string]bool{}
	for range 100 {
		for _, r := range []*rig{p.a, p.b} {
			r = p.as(r, "a", "b")
			r.pass(100)
			for _, s := range append([]*Send(nil), r.sends...) {
				if by := sent[s.ID]; by != "" {
					t.Fatalf("%s is sent by %s and again", s.ID, by)
				}
				sent[s.ID] = r.box.self
				both[r.box.self] = true
				r.end(s, nil)
			}
		}
	}
	if len(sent) != messages || len(both) != 2 || p.a.box.left() != 0 {
		t.Errorf("%d sent by %d servers", len(sent), len(both))
	}
}

// A server that dies is followed at once; one that lives and sends nothing is followed after a while. One whose own lease
// has ended sends nothing.
func TestAnotherServersLane(t *testing.T) {
	host := ""
	for i := range 100 {
		if host = fmt.Sprint("h", i); cluster.Owner(host, []string{"a", "b"}) == "b" {
			break
		}
	}
	p := newPair(t)
	p.as(p.a, "a", "b").settle()
	for i := range 5 {
		p.a.hint(execute(fmt.Sprint("t", i), 0, "http://"+host+"/"))
	}
	begin := p.a.nowMs
	for len(p.a.pass(100)) == 0 {
		if p.a.nowMs-begin > 15_000 {
			t.Fatal("what lies there for long is not taken over")
		}
	}
	if took := p.a.nowMs - begin; took < 9000 {
		t.Errorf("taken over after %d ms", took)
	}
	if p.a.core.Stats().TakenOver != 1 || len(p.a.sends) != 5 {
		t.Errorf("%+v, %d sends", p.a.core.Stats(), len(p.a.sends))
	}
	if pages := p.a.box.calls["executes"]; pages > 6 {
		t.Errorf("%d pages of another server's queue", pages)
	}

	p = newPair(t)
	p.as(p.a, "a", "b").settle()
	p.a.hint(execute("t", 0, "http://"+host+"/"))
	if len(p.a.pass(1000)) != 0 {
		t.Error("sent by the wrong server")
	}
	if len(p.as(p.a, "b").pass(60_000)) != 0 {
		t.Error("sent by a server whose lease has ended")
	}
	if len(p.as(p.a, "a").pass(500)) != 1 {
		t.Error("a dead server's message is not sent")
	}
}

// What waits in line goes when the lane becomes another server's.
func TestALaneThatGoesToAnother(t *testing.T) {
	p := newPair(t)
	p.as(p.a, "a").settle()
	for host := range 50 {
		for i := range firstWindow + 4 {
			p.a.hint(execute(fmt.Sprintf("t%d.%d", host, i), 0, fmt.Sprintf("http://h%d/", host)))
		}
	}
	p.a.pass(100)
	open := len(p.a.sends)
	p.as(p.a, "a", "b").settle()
	sentByA := map[string]bool{}
	for range 30 {
		for _, s := range append([]*Send(nil), p.as(p.a, "a", "b").sends...) {
			sentByA[s.ID] = true
			p.a.end(s, nil)
		}
		p.a.pass(100)
	}
	twice := 0
	for range 100 {
		for _, s := range p.as(p.b, "a", "b").pass(100) {
			if sentByA[s.ID] {
				twice++
			}
			p.b.end(s, nil)
		}
	}
	if p.a.box.left() != 0 || twice != 0 || len(sentByA) == 50*(firstWindow+4) || len(sentByA) < open {
		t.Errorf("%d left, %d twice, %d by the first", p.a.box.left(), twice, len(sentByA))
	}
}
