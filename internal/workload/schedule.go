package workload

import (
	"strconv"
	"strings"

	"abide/protocol"
)

func (s *space) scheduleGet(id string) Answer {
	sc := s.schedules[id]
	if sc == nil {
		return fail(protocol.StatusNotFound)
	}
	return ok(object{"schedule": sc.record(id)})
}

func (s *space) scheduleCreate(now int64, r *protocol.ScheduleCreate) Answer {
	if s.schedules[r.ID] == nil {
		when, _ := parseCron(r.Cron)
		next, again := when.next(now)
		if !again || !goodID(expand(r.PromiseID, r.ID, longestTimestamp)) {
			return fail(protocol.StatusInvalid)
		}
		s.schedules[r.ID] = &schedule{
			cron:           r.Cron,
			promiseID:      r.PromiseID,
			promiseTimeout: r.PromiseTimeout,
			param:          string(r.PromiseParam),
			tags:           asMap(r.PromiseTags),
			createdAt:      now,
			nextRunAt:      next,
		}
	}
	return s.scheduleGet(r.ID)
}

func (s *space) scheduleDelete(id string) Answer {
	if s.schedules[id] == nil {
		return fail(protocol.StatusNotFound)
	}
	delete(s.schedules, id)
	return ok(empty())
}

// runSchedule does every occurrence up to the instant last, which is not after now.
func (s *space) runSchedule(now, last int64, id string) {
	sc := s.schedules[id]
	when, _ := parseCron(sc.cron)
	for !sc.over && sc.nextRunAt <= last {
		at := sc.nextRunAt
		s.occurrence(now, at, id)
		sc.lastRunAt, sc.hasRun = at, true
		next, again := when.next(at)
		if again {
			sc.nextRunAt = next
		}
		sc.over = !again
	}
}

// expand fills in a template: first the id, then the instant, also where it comes in with the id.
func expand(template, id string, at int64) string {
	return strings.ReplaceAll(strings.ReplaceAll(template, "{{.id}}", id), "{{.timestamp}}", strconv.FormatInt(at, 10))
}

// longestTimestamp has as many digits as the largest instant of a cron.
const longestTimestamp = 9_999_999_999_999

// occurrence makes the promise of the instant at.
func (s *space) occurrence(now, at int64, id string) {
	sc := s.schedules[id]
	promiseID := expand(sc.promiseID, id, at)
	if s.promises[promiseID] != nil {
		return
	}
	var tags protocol.Tags
	for name, value := range sc.tags {
		tags = append(tags, protocol.Tag{Name: name, Value: value})
	}
	p := s.birth(at, now, &protocol.PromiseCreate{
		ID:        promiseID,
		TimeoutAt: plus(at, sc.promiseTimeout),
		Param:     protocol.Value(sc.param),
		Tags:      tags,
	})
	p.tags["resonate:schedule"] = id
	for _, name := range []string{"resonate:origin", "resonate:branch", "resonate:parent", "resonate:prefix"} {
		p.tags[name] = promiseID
	}
}
