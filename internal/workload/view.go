package workload

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// payload is a param or a value as JSON.
func payload(text string) any {
	if text == "" {
		return object{}
	}
	return json.RawMessage(text)
}

// record is the promise as answers show it, projected.
func (p *promise) record(id string, now int64) object {
	out := object{
		"id": id, "state": p.stateAt(now), "param": payload(p.param), "value": payload(p.value), "tags": tagObject(p.tags),
		"timeoutAt": p.timeoutAt, "createdAt": p.createdAt,
	}
	switch {
	case p.state != pending:
		out["settledAt"] = p.settledAt
	case !p.pendingAt(now):
		out["settledAt"] = p.timeoutAt
	}
	return out
}

func tagObject(tags map[string]string) object {
	out := object{}
	for name, value := range tags {
		out[name] = value
	}
	return out
}

// taskRecord is the task as answers show it, viewed.
func (s *space) taskRecord(id string, now int64) object {
	t, state := s.tasks[id], s.viewAt(now, id)
	out := object{"id": id, "state": state, "version": t.version, "resumes": t.resumes}
	switch state {
	case fulfilled:
		out["resumes"] = int64(0)
	case acquired:
		out["pid"], out["ttl"] = t.pid, t.ttl
	}
	return out
}

func (sc *schedule) record(id string) object {
	out := object{
		"id": id, "cron": sc.cron, "promiseId": sc.promiseID, "promiseTimeout": sc.promiseTimeout,
		"promiseParam": payload(sc.param), "promiseTags": tagObject(sc.tags),
		"createdAt": sc.createdAt, "nextRunAt": sc.nextRunAt,
	}
	if sc.hasRun {
		out["lastRunAt"] = sc.lastRunAt
	}
	if sc.over {
		out["nextRunAt"] = sc.lastRunAt
	}
	return out
}

// preload is what a worker may want next: the other promises of the same branch. The server may bound it.
func (s *space) preload(now int64, id string) []any {
	out := []any{}
	branch, has := s.promises[id].tags["resonate:branch"]
	if !has {
		return out
	}
	for _, other := range ids(s.promises) {
		p := s.promises[other]
		if b, tagged := p.tags["resonate:branch"]; tagged && b == branch && other != id {
			out = append(out, p.record(other, now))
		}
	}
	return out
}

// tree is the part of an id before its first dot or colon.
func tree(id string) string {
	if i := strings.IndexAny(id, ".:"); i >= 0 {
		return id[:i]
	}
	return id
}

// inTreeOrder sorts ids as searches do.
func inTreeOrder(list []string) []string {
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(tree(a), tree(b)), cmp.Compare(a, b)) })
	return list
}

func carries(tags, wanted map[string]string) bool {
	for name, value := range wanted {
		if have, has := tags[name]; !has || have != value {
			return false
		}
	}
	return true
}

func (s *space) promiseSearch(now int64, state string, tags map[string]string) Answer {
	out := []any{}
	for _, id := range inTreeOrder(ids(s.promises)) {
		p := s.promises[id]
		if (state == "" || p.stateAt(now) == state) && carries(p.tags, tags) {
			out = append(out, p.record(id, now))
		}
	}
	return ok(object{"promises": out})
}

func (s *space) taskSearch(now int64, state string) Answer {
	out := []any{}
	for _, id := range inTreeOrder(ids(s.tasks)) {
		if state == "" || s.viewAt(now, id) == state {
			out = append(out, s.taskRecord(id, now))
		}
	}
	return ok(object{"tasks": out})
}

func (s *space) scheduleSearch(tags map[string]string) Answer {
	out := []any{}
	for _, id := range ids(s.schedules) {
		if carries(s.schedules[id].tags, tags) {
			out = append(out, s.schedules[id].record(id))
		}
	}
	return ok(object{"schedules": out})
}

// Types of a task's timeouts in debug.snap.
const (
	snapRetry = int64(0)
	snapLease = int64(1)
)

// snap is debug.snap, all of it projected: a promise that is over by now has no timeout, its task no message.
// Its lists are sorted by id, then by what else they hold.
func (s *space) snap(now int64) object {
	promises, timeouts, callbacks, listeners := []any{}, []any{}, []any{}, []any{}
	for _, id := range ids(s.promises) {
		p := s.promises[id]
		promises = append(promises, p.record(id, now))
		if p.armed() && p.pendingAt(now) {
			timeouts = append(timeouts, object{"id": id, "timeout": p.timeoutAt})
		}
		for _, awaiter := range ids(p.callbacks) {
			callbacks = append(callbacks, object{"awaiter": awaiter, "awaited": id})
		}
		for _, address := range ids(p.listeners) {
			listeners = append(listeners, object{"id": id, "address": address})
		}
	}
	tasks, taskTimeouts := []any{}, []any{}
	for _, id := range ids(s.tasks) {
		tasks = append(tasks, s.taskRecord(id, now))
		switch s.viewAt(now, id) {
		case pending:
			taskTimeouts = append(taskTimeouts, object{"id": id, "type": snapRetry, "timeout": s.tasks[id].retryAt})
		case acquired:
			taskTimeouts = append(taskTimeouts, object{"id": id, "type": snapLease, "timeout": s.tasks[id].lease})
		}
	}
	return object{
		"promises": promises, "promiseTimeouts": timeouts, "callbacks": callbacks, "listeners": listeners,
		"tasks": tasks, "taskTimeouts": taskTimeouts, "messages": s.messages(now),
	}
}

// messages is the outbox.
func (s *space) messages(now int64) []any {
	out := []any{}
	for _, id := range ids(s.executes) {
		if s.viewAt(now, id) != pending {
			continue
		}
		out = append(out, object{
			"address": s.promises[id].tags["resonate:target"],
			"message": object{"kind": "execute", "head": object{}, "data": object{"task": object{"id": id, "version": s.executes[id]}}},
		})
	}
	for u := range s.unblocks {
		out = append(out, object{
			"address": u.address,
			"message": object{"kind": "unblock", "head": object{}, "data": object{"promise": s.promises[u.id].record(u.id, now)}},
		})
	}
	return out
}
