package workload

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"abide/protocol"
)

// The constants of the enumeration: times so small that a step of enumerateStep passes a short deadline, a
// lease and a retry.
const (
	enumerateStart = 1_000
	enumerateRetry = 2
	enumerateStep  = 3
)

// Reachable enumerates the situations that two promises can be in, by walking the model breadth first: from
// every distinct state each request that can be made of two ids, now and a moment later. States count as
// the same if both promises have the same aspects and wait for each other in the same way; one of each
// is walked on from. Searches, schedules and debug requests, which name no promise, are left out.
func Reachable() *Coverage {
	all := NewCoverage()
	start := NewModel(enumerateRetry)
	start.space("").mark = enumerateStart
	seen := map[string]bool{start.space("").shape(): true}
	queue := []*Model{start}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		for _, later := range []int64{0, enumerateStep} {
			at := m.space("").mark + later
			for _, req := range alphabet(m.space(""), at, "a", "b") {
				next := m.clone()
				all.Apply(next, Op{At: at, Request: req})
				shape := next.space("").shape()
				if !seen[shape] {
					seen[shape] = true
					queue = append(queue, next)
				}
			}
		}
	}
	return all
}

// shape is what makes two states the same for the enumeration. Which of the two promises is called a does not.
func (s *space) shape() string {
	var halves []string
	for _, id := range []string{"a", "b"} {
		half := s.aspect(s.mark, id)
		if p := s.promises[id]; p != nil {
			half += fmt.Sprint(len(p.callbacks), p.timeoutAt-s.mark > enumerateStep)
		}
		halves = append(halves, half)
	}
	slices.Sort(halves)
	return strings.Join(halves, "|")
}

var flavours = []protocol.Tags{
	nil,
	{{Name: protocol.TagExternal, Value: "true"}},
	{{Name: protocol.TagTarget, Value: "poll://any@g"}},
	{{Name: protocol.TagTimer, Value: "true"}},
	{{Name: protocol.TagTarget, Value: "poll://any@g"}, {Name: protocol.TagTimer, Value: "true"}},
}

// alphabet is every request that the enumeration makes: about id alone, and about id and other, in both roles.
func alphabet(s *space, now int64, id, other string) []protocol.Request {
	out := []protocol.Request{&protocol.DebugTick{Time: now}}
	for _, pair := range [][2]string{{id, other}, {other, id}} {
		out = append(out, aboutPair(s, now, pair[0], pair[1])...)
	}
	return out
}

func aboutPair(s *space, now int64, id, other string) []protocol.Request {
	target := flavours[2]
	out := []protocol.Request{
		&protocol.PromiseGet{ID: id},
		&protocol.PromiseSettle{ID: id, State: protocol.Rejected},
		&protocol.PromiseRegisterCallback{Awaited: id, Awaiter: other},
		&protocol.PromiseRegisterCallback{Awaited: id, Awaiter: id},
		&protocol.PromiseRegisterListener{Awaited: id, Address: "poll://uni@g/l"},
		&protocol.TaskGet{ID: id},
		&protocol.TaskHalt{ID: id},
		&protocol.TaskContinue{ID: id},
		&protocol.TaskHeartbeat{PID: "p"},
	}
	for _, timeoutAt := range []int64{now, now + enumerateStep, math.MaxInt64} {
		for _, tags := range flavours {
			out = append(out, &protocol.PromiseCreate{ID: id, TimeoutAt: timeoutAt, Tags: tags})
		}
		for _, ttl := range []int64{enumerateStep, math.MaxInt64} {
			out = append(out, &protocol.TaskCreate{PID: "p", TTL: ttl, Action: protocol.PromiseCreate{ID: id, TimeoutAt: timeoutAt, Tags: target}})
		}
	}
	out = append(out, &protocol.PromiseCreate{ID: id, TimeoutAt: now + 100, Tags: target.With(protocol.TagDelay, fmt.Sprint(now+enumerateStep))})
	version := int64(0)
	if t := s.tasks[id]; t != nil {
		version = t.version
	}
	for _, v := range []int64{version, version + 1} {
		out = append(out, atVersion(now, id, other, v)...)
	}
	return out
}

func atVersion(now int64, id, other string, version int64) []protocol.Request {
	return []protocol.Request{
		&protocol.TaskAcquire{ID: id, Version: version, PID: "p", TTL: enumerateStep},
		&protocol.TaskAcquire{ID: id, Version: version, PID: "p", TTL: math.MaxInt64},
		&protocol.TaskHeartbeat{PID: "p", Tasks: []protocol.TaskRef{{ID: id, Version: version}}},
		&protocol.TaskHeartbeat{PID: "q", Tasks: []protocol.TaskRef{{ID: id, Version: version}}},
		&protocol.TaskRelease{ID: id, Version: version},
		&protocol.TaskFulfill{ID: id, Version: version, Action: protocol.PromiseSettle{ID: id, State: protocol.Resolved}},
		&protocol.TaskSuspend{ID: id, Version: version, Awaited: []string{other}},
		&protocol.TaskFence{ID: id, Version: version, Create: &protocol.PromiseCreate{ID: other, TimeoutAt: now + 100}},
		&protocol.TaskFence{ID: id, Version: version, Settle: &protocol.PromiseSettle{ID: other, State: protocol.Resolved}},
	}
}
