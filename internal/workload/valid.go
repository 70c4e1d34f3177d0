package workload

import (
	"regexp"
	"strconv"
	"strings"

	"abide/protocol"
)

// valid reports whether a request passes everything that docs/protocol.md and the 400s of section 3 ask of
// it, but for a cron that never matches again, which is a matter of time.
func valid(req protocol.Request) bool {
	switch r := req.(type) {
	case *protocol.PromiseGet:
		return goodID(r.ID)
	case *protocol.PromiseCreate:
		return goodCreate(r)
	case *protocol.PromiseSettle:
		return goodSettle(r)
	case *protocol.PromiseRegisterCallback:
		return goodID(r.Awaited) && goodID(r.Awaiter) && r.Awaited != r.Awaiter
	case *protocol.PromiseRegisterListener:
		return goodID(r.Awaited) && goodAddress(r.Address)
	case *protocol.PromiseSearch:
		return goodLimit(r.Limit) && (r.State == "" || oneOf(string(r.State), pending, resolved, rejected, canceled, timedout)) && goodTags(r.Tags)
	case *protocol.ScheduleGet:
		return goodID(r.ID)
	case *protocol.ScheduleCreate:
		return goodSchedule(r)
	case *protocol.ScheduleDelete:
		return goodID(r.ID)
	case *protocol.ScheduleSearch:
		return goodLimit(r.Limit) && goodTags(r.Tags)
	case *protocol.DebugTick:
		return r.Time >= 0
	default:
		return validTask(req)
	}
}

func validTask(req protocol.Request) bool {
	switch r := req.(type) {
	case *protocol.TaskGet:
		return goodID(r.ID)
	case *protocol.TaskCreate:
		return goodPID(r.PID) && r.TTL >= 1 && goodTaskAction(&r.Action)
	case *protocol.TaskAcquire:
		return goodRef(r.ID, r.Version) && goodPID(r.PID) && r.TTL >= 1
	case *protocol.TaskFence:
		return goodRef(r.ID, r.Version) && goodFenced(r)
	case *protocol.TaskHeartbeat:
		return goodHeartbeat(r)
	case *protocol.TaskSuspend:
		return goodRef(r.ID, r.Version) && goodAwaited(r)
	case *protocol.TaskFulfill:
		return goodRef(r.ID, r.Version) && goodSettle(&r.Action) && r.Action.ID == r.ID
	case *protocol.TaskRelease:
		return goodRef(r.ID, r.Version)
	case *protocol.TaskHalt:
		return goodID(r.ID)
	case *protocol.TaskContinue:
		return goodID(r.ID)
	case *protocol.TaskSearch:
		return goodLimit(r.Limit) && (r.State == "" || oneOf(string(r.State), pending, acquired, suspended, halted, fulfilled))
	default:
		return true
	}
}

func oneOf(s string, list ...string) bool {
	for _, l := range list {
		if s == l {
			return true
		}
	}
	return false
}

func goodID(id string) bool { return id != "" && len(id) <= 1024 && !strings.Contains(id, "\x00") }

func goodPID(pid string) bool { return goodID(pid) }

func goodRef(id string, version int64) bool { return goodID(id) && version >= 0 }

func goodLimit(limit int) bool { return limit >= 0 && limit <= 1000 } // 0 stands for none given

func goodTags(tags protocol.Tags) bool {
	size := 0
	for _, t := range tags {
		size += len(t.Name) + len(t.Value)
		if strings.Contains(t.Name+t.Value, "\x00") {
			return false
		}
	}
	return size <= 32<<10
}

func goodCreate(r *protocol.PromiseCreate) bool {
	tags := asMap(r.Tags)
	target, targeted := tags["resonate:target"]
	delay, delayed := tags["resonate:delay"]
	switch {
	case !goodID(r.ID), r.TimeoutAt < 0, !goodTags(r.Tags):
		return false
	case targeted && !goodAddress(target):
		return false
	case delayed:
		at, good := delayOf(delay)
		return good && at < r.TimeoutAt && targeted
	}
	return true
}

func goodTaskAction(r *protocol.PromiseCreate) bool {
	tags := asMap(r.Tags)
	_, targeted := tags["resonate:target"]
	_, delayed := tags["resonate:delay"]
	return goodCreate(r) && targeted && !delayed && tags["resonate:timer"] != "true"
}

func goodSettle(r *protocol.PromiseSettle) bool {
	return goodID(r.ID) && oneOf(string(r.State), resolved, rejected, canceled)
}

func goodFenced(r *protocol.TaskFence) bool {
	if r.Create != nil {
		return goodCreate(r.Create) && r.Create.ID != r.ID
	}
	return goodSettle(r.Settle) && r.Settle.ID != r.ID
}

func goodHeartbeat(r *protocol.TaskHeartbeat) bool {
	for _, ref := range r.Tasks {
		if !goodRef(ref.ID, ref.Version) {
			return false
		}
	}
	return goodPID(r.PID) && len(r.Tasks) <= 10_000
}

func goodAwaited(r *protocol.TaskSuspend) bool {
	for _, awaited := range r.Awaited {
		if !goodID(awaited) || awaited == r.ID {
			return false
		}
	}
	return len(r.Awaited) >= 1 && len(r.Awaited) <= 2000
}

func goodSchedule(r *protocol.ScheduleCreate) bool {
	tags := asMap(r.PromiseTags)
	if target, targeted := tags["resonate:target"]; targeted && !goodAddress(target) {
		return false
	}
	if delay, delayed := tags["resonate:delay"]; delayed {
		if _, good := delayOf(delay); !good {
			return false
		}
	}
	_, good := parseCron(r.Cron)
	return goodID(r.ID) && goodID(r.PromiseID) && r.PromiseTimeout >= 0 && goodTags(r.PromiseTags) && good && len(r.Cron) <= 256
}

// delayOf reads a resonate:delay tag.
func delayOf(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}

// addresses accepts the plain forms of the addresses of docs/protocol.md. The rules of URL parsing are the
// matter of the protocol package's own tests.
var addresses = regexp.MustCompile(`^(poll://(any|uni)@[^/@ ]+(/.*)?|https?://[a-z0-9.-]+(:[0-9]{1,4})?(/.*)?|gcps://[^/@ ]+/.+|bash://(bash/?|docker/+[A-Za-z0-9._/:@+\[\]][A-Za-z0-9._/:@+\[\]-]*)?)$`)

func goodAddress(s string) bool { return len(s) <= 1024 && addresses.MatchString(s) }
