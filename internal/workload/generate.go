package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"abide/protocol"
)

// The generator's workspaces: the one that needs no name, and another, in which the same ids mean other
// promises.
const (
	firstSpace  = protocol.DefaultWorkspace
	secondSpace = "second"
)

// Start is the instant at which histories begin: ten minutes before a year ends, so that crons of every field
// come round.
var Start = time.Date(2026, time.December, 31, 23, 50, 0, 0, time.UTC).UnixMilli()

const (
	poolSize = 20 // ids in play in a workspace at a time
	planOdds = 30 // one in how many requests begins a plan
)

// Generator makes histories. It looks at the model to reach what a blind choice would hardly meet: the
// current version, an instant that is exactly a deadline, a promise in a state that was not tried lately.
// The same seed, options and answers give the same history. It is not safe for concurrent use.
type Generator struct {
	rng    *rand.Rand
	pools  map[string][]string
	plans  map[string][]planned
	serial int
	tried  map[string]int // how often each situation, but for its answer, was asked for

	// BigDrain is how many listeners a promise is given now and then before it is settled, to make a drain
	// larger than the server's bounded step; 0 for never.
	BigDrain int
}

// planned is a request to come, made when its turn has come. It may be nil, which skips it.
type planned struct {
	after int64 // milliseconds since the request before
	make  func(s *space, now int64) protocol.Request
}

// NewGenerator returns the generator of a seed.
func NewGenerator(seed uint64) *Generator {
	return &Generator{
		rng:   rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)),
		pools: map[string][]string{},
		plans: map[string][]planned{},
		tried: map[string]int{},
	}
}

// Next makes the next request of a history whose state so far is m, which it only reads. About one in twenty breaks
// a rule of validation.
func (g *Generator) Next(m *Model) Op {
	workspace := firstSpace
	if g.rng.IntN(6) == 0 {
		workspace = secondSpace
	}
	s := m.space(workspace)
	for len(g.plans[workspace]) > 0 {
		step := g.plans[workspace][0]
		g.plans[workspace] = g.plans[workspace][1:]
		at := plus(max(s.mark, Start), step.after)
		if req := step.make(s, at); req != nil {
			return dated(Op{workspace, at, req})
		}
	}
	if g.rng.IntN(planOdds) == 0 {
		g.plans[workspace] = g.plan()
	}
	g.refresh(workspace, s)
	at := g.instant(workspace, s)
	return dated(Op{workspace, at, g.free(workspace, s, max(at, s.mark))})
}

// dated puts the instant into a debug.tick, which must repeat it.
func dated(op Op) Op {
	if _, is := op.Request.(*protocol.DebugTick); is {
		op.Request = &protocol.DebugTick{Time: op.At}
	}
	return op
}

// candidates is how many requests are drawn where the one is taken whose situation was tried least.
const candidates = 8

// paired are the kinds that look at two promises: nearly all situations are theirs.
var paired = []protocol.Kind{
	protocol.KindTaskFence, protocol.KindTaskFence, protocol.KindTaskSuspend, protocol.KindPromiseRegisterCallback,
}

// free makes a request about anything in the pool: half of the time any, else one that leads where this history has
// not been.
func (g *Generator) free(workspace string, s *space, now int64) protocol.Request {
	if g.rng.IntN(resetOdds) == 0 {
		return &protocol.DebugReset{}
	}
	c := g.chooser(g.pools[workspace], s, now)
	draws := 1
	if g.rng.IntN(2) == 0 {
		draws += candidates
	}
	req := g.leastTried(c, draws)
	if g.rng.IntN(20) == 0 {
		c.spoil(req)
	}
	return req
}

// leastTried draws requests and takes the one whose situation this history has asked about least.
func (g *Generator) leastTried(c chooser, draws int) protocol.Request {
	var best protocol.Request
	var name string
	for i := range draws {
		kind := g.kind()
		if i%2 == 1 {
			kind = pick(g, paired...)
		}
		req := c.make(kind)
		if other := kindAspect(req) + c.s.found(c.now, req); best == nil || g.tried[other] < g.tried[name] {
			best, name = req, other
		}
	}
	g.tried[name]++
	return best
}

// refresh keeps the pool full of ids, some of which the workspace does not know yet, and varied: one of the ids
// that have what most have goes, so that rare states stay until they are used.
func (g *Generator) refresh(workspace string, s *space) {
	pool := g.pools[workspace]
	for len(pool) < poolSize {
		pool = append(pool, g.newID(workspace, pool))
	}
	if g.rng.IntN(3) == 0 {
		now := max(s.mark, Start)
		aspects := groupBy(pool, func(id string) string { return s.aspect(now, id) })
		most := slices.MaxFunc(aspects.names, func(a, b string) int { return len(aspects.ids[a]) - len(aspects.ids[b]) })
		if old := pick(g, aspects.ids[most]...); s.promises[old] != nil && len(aspects.ids[most]) > 1 {
			pool[slices.Index(pool, old)] = g.newID(workspace, pool)
		}
	}
	if g.rng.IntN(60) == 0 && len(s.promises) > 0 {
		known := ids(s.promises)
		if id := known[g.rng.IntN(len(known))]; !slices.Contains(pool, id) {
			pool[g.rng.IntN(len(pool))] = id
		}
	}
	g.pools[workspace] = pool
}

// newID is an id for a pool: in the second workspace often one that the first one plays with.
func (g *Generator) newID(workspace string, pool []string) string {
	if other := g.pools[firstSpace]; workspace == secondSpace && len(other) > 0 && g.rng.IntN(2) == 0 {
		if id := pick(g, other...); !slices.Contains(pool, id) {
			return id
		}
	}
	return g.freshID()
}

// strange are shapes of ids that a careless server trips over; %d is a number that makes them new.
var strange = []string{
	"a/b/%d", "é%d", "%d\x01", `"%d"`, "{{.id}}%d", " %d ", "../%d", "💥%d", "%d%%00", "\u2028%d", "poll://any@g/%d", ".%d", ":%d",
	"%d.", "%d:", "r..%d", "r:.%d", "'; --%d", "r.0%d\xc2\xa0", "%d\n", "\ufeff%d", "\U0010ffff%d", "~%d", "\x7f%d", "r%d.0:1.2:3",
}

// freshID makes an id that was not there before: mostly like those of the SDKs, in both of their dialects.
func (g *Generator) freshID() string {
	g.serial++
	root := g.rng.IntN(4)
	switch g.rng.IntN(8) {
	case 0:
		return fmt.Sprintf(strange[g.rng.IntN(len(strange))], g.serial)
	case 1:
		return fmt.Sprintf("r%d:%d", root, g.serial)
	case 2:
		return fmt.Sprintf("r%d.%d", root, g.serial)
	case 3:
		return fmt.Sprintf("r%d.%d:1", root, g.serial)
	case 4:
		if g.rng.IntN(4) == 0 {
			return strings.Repeat("x", 1024-10) + fmt.Sprintf("%010d", g.serial)
		}
		return fmt.Sprintf("r%d.%d.1.2", root, g.serial)
	default:
		return fmt.Sprintf("r%d", g.serial)
	}
}

// instant is the time of the next request: often that of the one before, often exactly a deadline or next to
// it, sometimes far on, sometimes earlier than the mark.
func (g *Generator) instant(workspace string, s *space) int64 {
	base := max(s.mark, Start)
	switch n := g.rng.IntN(100); {
	case n < 50:
		return base
	case n < 64:
		return base + 1 + g.rng.Int64N(10)
	case n < 84:
		if due := g.deadlines(workspace, s, base); len(due) > 0 {
			return max(0, due[g.rng.IntN(len(due))]-1+g.rng.Int64N(3))
		}
		return base + 100
	case n < 90:
		return base + 500 + g.rng.Int64N(1000)
	case n < 93:
		return base + 30_000
	case n < 95:
		return base + g.rng.Int64N(200_000)
	case n < 99:
		return base - g.rng.Int64N(5_000)
	default:
		return g.rng.Int64N(2)
	}
}

// farMs bounds how far on a deadline may lie that the clock is set to.
const farMs = 10 * 60 * 1000

// deadlines are the instants, not far on, at which something becomes due.
func (g *Generator) deadlines(workspace string, s *space, base int64) []int64 {
	var out []int64
	add := func(at int64) {
		if at > base && at-base < farMs {
			out = append(out, at)
		}
	}
	for _, id := range g.pools[workspace] {
		if p := s.promises[id]; p != nil && p.state == pending {
			add(p.timeoutAt)
		}
		if t := s.tasks[id]; t != nil {
			add(t.lease)
			add(t.retryAt)
		}
	}
	for _, id := range scheduleIDs {
		if sc := s.schedules[id]; sc != nil && !sc.over {
			add(sc.nextRunAt)
		}
	}
	return out
}

// weights say how often each kind is asked.
var weights = []struct {
	kind   protocol.Kind
	weight int
}{
	{protocol.KindPromiseGet, 4}, {protocol.KindPromiseCreate, 16}, {protocol.KindPromiseSettle, 7},
	{protocol.KindPromiseRegisterCallback, 7}, {protocol.KindPromiseRegisterListener, 4}, {protocol.KindPromiseSearch, 1},
	{protocol.KindTaskGet, 4}, {protocol.KindTaskCreate, 7}, {protocol.KindTaskAcquire, 12}, {protocol.KindTaskFence, 10},
	{protocol.KindTaskHeartbeat, 5}, {protocol.KindTaskSuspend, 10}, {protocol.KindTaskFulfill, 4}, {protocol.KindTaskRelease, 5},
	{protocol.KindTaskHalt, 4}, {protocol.KindTaskContinue, 4}, {protocol.KindTaskSearch, 1}, {protocol.KindScheduleGet, 1},
	{protocol.KindScheduleCreate, 2}, {protocol.KindScheduleDelete, 2}, {protocol.KindScheduleSearch, 1}, {protocol.KindDebugTick, 3},
}

// resetOdds is one in how many requests is a debug.reset.
const resetOdds = 600

// kind draws one by its weight.
func (g *Generator) kind() protocol.Kind {
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	n := g.rng.IntN(total)
	for _, w := range weights {
		if n -= w.weight; n < 0 {
			return w.kind
		}
	}
	return protocol.KindDebugTick
}

// pick returns one element of list.
func pick[T any](g *Generator, list ...T) T { return list[g.rng.IntN(len(list))] }

// timeout is an instant for a new promise: past, exactly now, soon, or late.
func (g *Generator) timeout(now int64) int64 {
	return pick(g, 0, now-1, now, now+1, now+1+g.rng.Int64N(20), now+1+g.rng.Int64N(20), now+1_000, now+30_000, now+60_000,
		now+farMs, now+farMs, now+24*60*60*1000, now+24*60*60*1000, math.MaxInt64)
}

// ttl is a lease: from the shortest to what released SDKs send at most.
func (g *Generator) ttl() int64 {
	return pick(g, int64(1), 5, 10, 999, 1_000, 5_000, 60_000, farMs, 1<<53-1, math.MaxInt64)
}

func (g *Generator) pid() string { return pick(g, "p1", "p1", "p2", "pid/ü") }

func (g *Generator) payload() protocol.Value {
	return protocol.Value(pick(g, "", "", `{"data":"1"}`, `{"headers":{"k":"v"},"data":"\u00e9\ud800"}`, `{"headers":{}}`, `{"headers":{"a":"","":"b"}}`, `{"data":""}`))
}
