package workload

import (
	"fmt"
	"maps"
	"slices"

	"abide/protocol"
)

// Coverage counts situations: a kind of request, its answer, and what it found before it.
type Coverage struct{ counts map[string]int }

// NewCoverage returns an empty Coverage.
func NewCoverage() *Coverage { return &Coverage{counts: map[string]int{}} }

// Situations are the names of what was counted, sorted.
func (c *Coverage) Situations() []string { return slices.Sorted(maps.Keys(c.counts)) }

// Missing returns what all holds and c does not, sorted.
func (c *Coverage) Missing(all *Coverage) []string {
	var out []string
	for _, name := range all.Situations() {
		if c.counts[name] == 0 {
			out = append(out, name)
		}
	}
	return out
}

// Merge adds what other has counted.
func (c *Coverage) Merge(other *Coverage) {
	for name, n := range other.counts {
		c.counts[name] += n
	}
}

// Apply does a request on m and counts the situation.
func (c *Coverage) Apply(m *Model, op Op) Answer {
	s := m.space(op.Workspace)
	now := max(op.At, s.mark)
	name, before := kindAspect(op.Request), s.found(now, op.Request)
	answer := m.Apply(op.Workspace, op.At, op.Request)
	status := fmt.Sprint(answer.Status)
	if answer.Status == protocol.StatusInvalid {
		before = "" // it is refused whatever is there
	}
	if op.Request.Kind() == protocol.KindTaskFence && answer.Status == protocol.StatusOK {
		status += "/" + fmt.Sprint(answer.Data.(object)["action"].(object)["head"].(object)["status"])
	}
	c.counts[name+" "+status+" "+before]++
	return answer
}

// kindAspect is the kind of a request, and of the one inside it if that may differ.
func kindAspect(req protocol.Request) string {
	fence, is := req.(*protocol.TaskFence)
	switch {
	case !is:
		return string(req.Kind())
	case fence.Create != nil:
		return string(req.Kind()) + "(create)"
	default:
		return string(req.Kind()) + "(settle)"
	}
}

// found describes what a request finds: its promise or task, the other one that it names if it names one,
// and whether version and pid are right.
func (s *space) found(now int64, req protocol.Request) string {
	switch r := req.(type) {
	case *protocol.PromiseGet:
		return s.aspect(now, r.ID)
	case *protocol.PromiseCreate:
		return s.aspect(now, r.ID)
	case *protocol.PromiseSettle:
		return s.aspect(now, r.ID)
	case *protocol.PromiseRegisterCallback:
		return s.aspect(now, r.Awaited) + " by " + s.rough(now, r.Awaiter)
	case *protocol.PromiseRegisterListener:
		return s.aspect(now, r.Awaited)
	case *protocol.ScheduleGet:
		return s.scheduleAspect(now, r.ID)
	case *protocol.ScheduleCreate:
		return s.scheduleAspect(now, r.ID)
	case *protocol.ScheduleDelete:
		return s.scheduleAspect(now, r.ID)
	default:
		return s.foundTask(now, req)
	}
}

func (s *space) foundTask(now int64, req protocol.Request) string {
	switch r := req.(type) {
	case *protocol.TaskGet:
		return s.aspect(now, r.ID)
	case *protocol.TaskCreate:
		return s.aspect(now, r.Action.ID)
	case *protocol.TaskAcquire:
		return s.aspect(now, r.ID) + s.versionAspect(r.ID, r.Version)
	case *protocol.TaskFence:
		other := ""
		if r.Create != nil {
			other = r.Create.ID
		} else {
			other = r.Settle.ID
		}
		return s.aspect(now, r.ID) + s.versionAspect(r.ID, r.Version) + " on " + s.rough(now, other)
	case *protocol.TaskHeartbeat:
		return s.heartbeatAspect(now, r)
	case *protocol.TaskSuspend:
		return s.aspect(now, r.ID) + s.versionAspect(r.ID, r.Version) + " on " + s.awaitedAspect(now, r.Awaited)
	case *protocol.TaskFulfill:
		return s.aspect(now, r.ID) + s.versionAspect(r.ID, r.Version)
	case *protocol.TaskRelease:
		return s.aspect(now, r.ID) + s.versionAspect(r.ID, r.Version)
	case *protocol.TaskHalt:
		return s.aspect(now, r.ID)
	case *protocol.TaskContinue:
		return s.aspect(now, r.ID)
	default:
		return ""
	}
}

func (s *space) versionAspect(id string, version int64) string {
	switch t := s.tasks[id]; {
	case t == nil:
		return ""
	case t.version == version:
		return " v=current"
	default:
		return " v=other"
	}
}

func (s *space) awaitedAspect(now int64, awaited []string) string {
	unique := slices.Compact(slices.Sorted(slices.Values(awaited)))
	if len(unique) != 1 {
		return "several"
	}
	return s.rough(now, unique[0])
}

func (s *space) heartbeatAspect(now int64, r *protocol.TaskHeartbeat) string {
	switch len(r.Tasks) {
	case 0:
		return "all"
	case 1:
	default:
		return "several"
	}
	id := r.Tasks[0].ID
	out := s.aspect(now, id) + s.versionAspect(id, r.Tasks[0].Version)
	if t := s.tasks[id]; t != nil && t.state == acquired {
		out += fmt.Sprintf(" own=%t", t.pid == r.PID)
	}
	return out
}

// aspect describes a promise and its task finely.
func (s *space) aspect(now int64, id string) string {
	p := s.promises[id]
	if p == nil {
		return "absent"
	}
	out := flavour(p)
	switch {
	case p.state == pending && p.timeoutAt <= now:
		out += " lapsed"
	case p.state == timedout, p.state == resolved && p.settledAt == p.timeoutAt && p.value == "":
		return out + " expired"
	case p.state != pending:
		return out + " settled"
	default:
		out += " pending"
	}
	if p.waited {
		out += " waited"
	}
	t := s.tasks[id]
	if t == nil {
		return out
	}
	out += " task " + t.state
	if p.timeoutAt <= now {
		return out
	}
	switch t.state {
	case pending:
		if _, queued := s.executes[id]; queued {
			out += " queued"
		}
		if t.retryAt <= now {
			out += " due"
		}
	case acquired:
		if t.lease <= now {
			out += " lapsed"
		}
	}
	return out
}

func flavour(p *promise) string {
	_, target := p.tags["resonate:target"]
	switch {
	case target && p.isTimer():
		return "timer+target"
	case p.isTimer():
		return "timer"
	case target:
		return "targeted"
	case p.isExternal():
		return "external"
	default:
		return "plain"
	}
}

// rough describes a promise and its task as far as a request about another one looks at them.
func (s *space) rough(now int64, id string) string {
	p := s.promises[id]
	if p == nil {
		return "absent"
	}
	out := "untargeted"
	if p.isTargeted() {
		out = "targeted"
	}
	switch {
	case p.pendingAt(now):
		return out + " pending"
	case p.state == pending:
		return out + " lapsed"
	default:
		return out + " settled"
	}
}

func (s *space) scheduleAspect(now int64, id string) string {
	sc := s.schedules[id]
	switch {
	case sc == nil:
		return "absent"
	case sc.over:
		return "over"
	case sc.nextRunAt <= now:
		return "due"
	default:
		return "waiting"
	}
}
