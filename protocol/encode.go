package protocol

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// The functions of this file append JSON to a slice and return it grown, as append does. They write
// members in a fixed order, leave out what is not there, never write null, and add no white space.

// AppendResponse appends the envelope that answers a request of that kind and corrId: the body of reply,
// or its message as a string if it has none. (docs/protocol.md, Requests and answers)
func AppendResponse(dst []byte, kind, corrID string, reply Reply) []byte {
	dst = appendString(append(dst, `{"kind":`...), kind)
	dst = appendString(append(dst, `,"head":{"corrId":`...), corrID)
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(reply.Status), 10)
	dst = append(dst, `,"version":"`+Version+`"},"data":`...)
	switch body := reply.Body.(type) {
	case nil:
		if reply.Status == StatusOK {
			dst = append(dst, `{}`...)
		} else {
			dst = appendString(dst, reply.Message)
		}
	case FenceBody:
		body.CorrID = corrID
		dst = body.AppendJSON(dst)
	default:
		dst = body.AppendJSON(dst)
	}
	return append(dst, '}')
}

// appendString appends s as a JSON string. Bytes that are not UTF-8 come out as U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error only reports such bytes
	return dst
}

// Each of these appends a member, with the comma before it.

func appendStringMember(dst []byte, name, s string) []byte {
	return appendString(appendName(dst, name), s)
}

func appendIntMember(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(appendName(dst, name), n, 10)
}

func appendName(dst []byte, name string) []byte {
	return append(append(append(dst, `,"`...), name...), `":`...)
}

// appendList appends the elements of list in brackets.
func appendList[T any](dst []byte, list []T, one func(dst []byte, element T) []byte) []byte {
	dst = append(dst, '[')
	for i, element := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = one(dst, element)
	}
	return append(dst, ']')
}

// AppendJSON appends the payload, {} if there is none.
func (v Value) AppendJSON(dst []byte) []byte {
	if len(v) == 0 {
		return append(dst, `{}`...)
	}
	return append(dst, v...)
}

// AppendJSON appends the tags as an object.
func (t Tags) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for i, tag := range t {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, tag.Name), ':')
		dst = appendString(dst, tag.Value)
	}
	return append(dst, '}')
}

// AppendJSON appends the record of a promise; settledAt only if it is not pending.
func (p Promise) AppendJSON(dst []byte) []byte {
	dst = appendString(append(dst, `{"id":`...), p.ID)
	dst = appendStringMember(dst, "state", string(p.State))
	dst = p.Param.AppendJSON(appendName(dst, "param"))
	dst = p.Value.AppendJSON(appendName(dst, "value"))
	dst = p.Tags.AppendJSON(appendName(dst, "tags"))
	dst = appendIntMember(dst, "timeoutAt", p.TimeoutAt)
	dst = appendIntMember(dst, "createdAt", p.CreatedAt)
	if p.State != Pending {
		dst = appendIntMember(dst, "settledAt", p.SettledAt)
	}
	return append(dst, '}')
}

// AppendJSON appends the record of a task; ttl and pid only if it is acquired.
func (t Task) AppendJSON(dst []byte) []byte {
	dst = appendString(append(dst, `{"id":`...), t.ID)
	dst = appendStringMember(dst, "state", string(t.State))
	dst = appendIntMember(dst, "version", t.Version)
	dst = appendIntMember(dst, "resumes", t.Resumes)
	if t.State == TaskAcquired {
		dst = appendIntMember(dst, "ttl", t.TTL)
		dst = appendStringMember(dst, "pid", t.PID)
	}
	return append(dst, '}')
}

// AppendJSON appends the record of a schedule; lastRunAt only if it has run.
func (s Schedule) AppendJSON(dst []byte) []byte {
	dst = appendString(append(dst, `{"id":`...), s.ID)
	dst = appendStringMember(dst, "cron", s.Cron)
	dst = appendStringMember(dst, "promiseId", s.PromiseID)
	dst = appendIntMember(dst, "promiseTimeout", s.PromiseTimeout)
	dst = s.PromiseParam.AppendJSON(appendName(dst, "promiseParam"))
	dst = s.PromiseTags.AppendJSON(appendName(dst, "promiseTags"))
	dst = appendIntMember(dst, "createdAt", s.CreatedAt)
	dst = appendIntMember(dst, "nextRunAt", s.NextRunAt)
	if s.HasRun {
		dst = appendIntMember(dst, "lastRunAt", s.LastRunAt)
	}
	return append(dst, '}')
}

// AppendJSON appends {id, version}.
func (r TaskRef) AppendJSON(dst []byte) []byte {
	dst = appendString(append(dst, `{"id":`...), r.ID)
	return append(appendIntMember(dst, "version", r.Version), '}')
}

func appendPromise(dst []byte, p Promise) []byte   { return p.AppendJSON(dst) }
func appendTask(dst []byte, t Task) []byte         { return t.AppendJSON(dst) }
func appendSchedule(dst []byte, s Schedule) []byte { return s.AppendJSON(dst) }

func appendPreload(dst []byte, preload []Promise) []byte {
	return appendList(append(dst, `"preload":`...), preload, appendPromise)
}

// appendCursor appends the cursor of a page, if there is one, and the end of the object.
func appendCursor(dst []byte, cursor string) []byte {
	if cursor != "" {
		dst = appendStringMember(dst, "cursor", cursor)
	}
	return append(dst, '}')
}

// AppendJSON appends {}.
func (EmptyBody) AppendJSON(dst []byte) []byte { return append(dst, `{}`...) }

// AppendJSON appends [].
func (TickBody) AppendJSON(dst []byte) []byte { return append(dst, `[]`...) }

// AppendJSON appends {promise}.
func (b PromiseBody) AppendJSON(dst []byte) []byte {
	return append(b.Promise.AppendJSON(append(dst, `{"promise":`...)), '}')
}

// AppendJSON appends {task}.
func (b TaskBody) AppendJSON(dst []byte) []byte {
	return append(b.Task.AppendJSON(append(dst, `{"task":`...)), '}')
}

// AppendJSON appends {task, promise, preload}.
func (b ClaimBody) AppendJSON(dst []byte) []byte {
	dst = b.Task.AppendJSON(append(dst, `{"task":`...))
	dst = b.Promise.AppendJSON(appendName(dst, "promise"))
	return append(appendPreload(append(dst, ','), b.Preload), '}')
}

// AppendJSON appends {preload}.
func (b PreloadBody) AppendJSON(dst []byte) []byte {
	return append(appendPreload(append(dst, '{'), b.Preload), '}')
}

// AppendJSON appends {action, preload}, where action is a whole envelope.
func (b FenceBody) AppendJSON(dst []byte) []byte {
	dst = AppendResponse(append(dst, `{"action":`...), string(b.ActionKind), b.CorrID, b.Action)
	return append(appendPreload(append(dst, ','), b.Preload), '}')
}

// AppendJSON appends {}, or {lost}.
func (b HeartbeatBody) AppendJSON(dst []byte) []byte {
	if len(b.Lost) == 0 {
		return append(dst, `{}`...)
	}
	return append(appendList(append(dst, `{"lost":`...), b.Lost, appendString), '}')
}

// AppendJSON appends {promises, cursor?}.
func (b PromisesBody) AppendJSON(dst []byte) []byte {
	return appendCursor(appendList(append(dst, `{"promises":`...), b.Promises, appendPromise), b.Cursor)
}

// AppendJSON appends {tasks, cursor?}.
func (b TasksBody) AppendJSON(dst []byte) []byte {
	return appendCursor(appendList(append(dst, `{"tasks":`...), b.Tasks, appendTask), b.Cursor)
}

// AppendJSON appends {schedule}.
func (b ScheduleBody) AppendJSON(dst []byte) []byte {
	return append(b.Schedule.AppendJSON(append(dst, `{"schedule":`...)), '}')
}

// AppendJSON appends {schedules, cursor?}.
func (b SchedulesBody) AppendJSON(dst []byte) []byte {
	return appendCursor(appendList(append(dst, `{"schedules":`...), b.Schedules, appendSchedule), b.Cursor)
}

// AppendJSON appends the snapshot; every list is there, empty or not. (docs/protocol.md, Debugging and tests)
func (b SnapBody) AppendJSON(dst []byte) []byte {
	dst = appendList(append(dst, `{"promises":`...), b.Promises, appendPromise)
	dst = appendList(appendName(dst, "promiseTimeouts"), b.PromiseTimeouts, func(dst []byte, t SnapTimeout) []byte {
		dst = appendString(append(dst, `{"id":`...), t.ID)
		return append(appendIntMember(dst, "timeout", t.Timeout), '}')
	})
	dst = appendList(appendName(dst, "callbacks"), b.Callbacks, func(dst []byte, c SnapCallback) []byte {
		dst = appendString(append(dst, `{"awaiter":`...), c.Awaiter)
		return append(appendStringMember(dst, "awaited", c.Awaited), '}')
	})
	dst = appendList(appendName(dst, "listeners"), b.Listeners, func(dst []byte, l SnapListener) []byte {
		dst = appendString(append(dst, `{"id":`...), l.ID)
		return append(appendStringMember(dst, "address", l.Address), '}')
	})
	dst = appendList(appendName(dst, "tasks"), b.Tasks, appendTask)
	dst = appendList(appendName(dst, "taskTimeouts"), b.TaskTimeouts, func(dst []byte, t SnapTaskTimeout) []byte {
		dst = appendString(append(dst, `{"id":`...), t.ID)
		dst = appendIntMember(dst, "type", int64(t.Type))
		return append(appendIntMember(dst, "timeout", t.Timeout), '}')
	})
	dst = appendList(appendName(dst, "messages"), b.Messages, func(dst []byte, m SnapMessage) []byte {
		dst = appendString(append(dst, `{"address":`...), m.Address)
		dst = appendName(dst, "message")
		if m.Execute != nil {
			dst = appendExecute(dst, "", *m.Execute, nil)
		} else if m.Unblock != nil {
			dst = appendUnblock(dst, *m.Unblock)
		} else {
			dst = append(dst, `{}`...)
		}
		return append(dst, '}')
	})
	return append(dst, '}')
}
