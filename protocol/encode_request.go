package protocol

import "strconv"

// Head is the head of a request that a client sends.
type Head struct {
	// CorrID comes back in the answer; nothing else is done with it.
	CorrID string
	// Auth is a token; empty for none.
	Auth string
	// Origin is the hint resonate:origin; empty for none.
	Origin string
	// DebugTime is the instant at which the request happens, in epoch milliseconds, where the server has
	// debug on; nil for now.
	DebugTime *int64
	// Trace is the trace that the request is part of; nil for none.
	Trace *Trace
}

// AppendRequest appends the envelope of a request. What it appends for a Request that breaks a rule is
// what the server will refuse: nothing is checked here.
func AppendRequest(dst []byte, head Head, req Request) []byte {
	dst = appendString(append(dst, `{"kind":`...), string(req.Kind()))
	dst = appendHead(append(dst, `,"head":`...), head)
	return append(appendData(append(dst, `,"data":`...), req), '}')
}

func appendHead(dst []byte, head Head) []byte {
	dst = appendString(append(dst, `{"corrId":`...), head.CorrID)
	dst = append(dst, `,"version":"`+Version+`"`...)
	if head.Auth != "" {
		dst = appendStringMember(dst, "auth", head.Auth)
	}
	if head.Origin != "" {
		dst = appendStringMember(dst, "resonate:origin", head.Origin)
	}
	if head.DebugTime != nil {
		dst = appendIntMember(dst, "resonate:debug_time", *head.DebugTime)
	}
	return append(appendTrace(dst, head.Trace), '}')
}

// appendData appends the data of any request.
func appendData(dst []byte, req Request) []byte {
	switch r := req.(type) {
	case *PromiseGet:
		return appendID(dst, r.ID)
	case *PromiseCreate:
		return appendCreate(dst, r)
	case *PromiseSettle:
		return appendSettle(dst, r)
	case *PromiseRegisterCallback:
		return appendCallback(dst, r.Awaited, r.Awaiter)
	case *PromiseRegisterListener:
		dst = appendString(append(dst, `{"awaited":`...), r.Awaited)
		return append(appendStringMember(dst, "address", r.Address), '}')
	case *PromiseSearch:
		return appendSearch(dst, string(r.State), r.Tags, r.Limit, r.Cursor)
	case *ScheduleGet:
		return appendID(dst, r.ID)
	case *ScheduleCreate:
		return appendScheduleCreate(dst, r)
	case *ScheduleDelete:
		return appendID(dst, r.ID)
	case *ScheduleSearch:
		return appendSearch(dst, "", r.Tags, r.Limit, r.Cursor)
	case *DebugTick:
		return append(strconv.AppendInt(append(dst, `{"time":`...), r.Time, 10), '}')
	case *DebugStart, *DebugStop, *DebugReset, *DebugSnap:
		return append(dst, `{}`...)
	default:
		return appendTaskData(dst, req)
	}
}

// appendTaskData appends the data of a task.* request.
func appendTaskData(dst []byte, req Request) []byte {
	switch r := req.(type) {
	case *TaskGet:
		return appendID(dst, r.ID)
	case *TaskCreate:
		dst = appendString(append(dst, `{"pid":`...), r.PID)
		dst = appendIntMember(dst, "ttl", r.TTL)
		return append(appendCreate(appendAction(dst, KindPromiseCreate), &r.Action), `}}`...)
	case *TaskAcquire:
		dst = appendClaim(dst, r.ID, r.Version)
		dst = appendStringMember(dst, "pid", r.PID)
		return append(appendIntMember(dst, "ttl", r.TTL), '}')
	case *TaskFence:
		dst = appendClaim(dst, r.ID, r.Version)
		if r.Create != nil {
			dst = appendCreate(appendAction(dst, KindPromiseCreate), r.Create)
		} else {
			dst = appendSettle(appendAction(dst, KindPromiseSettle), r.Settle)
		}
		return append(dst, `}}`...)
	case *TaskHeartbeat:
		dst = appendString(append(dst, `{"pid":`...), r.PID)
		dst = appendList(appendName(dst, "tasks"), r.Tasks, func(dst []byte, t TaskRef) []byte { return t.AppendJSON(dst) })
		return append(dst, '}')
	case *TaskSuspend:
		dst = appendName(appendClaim(dst, r.ID, r.Version), "actions")
		dst = appendList(dst, r.Awaited, func(dst []byte, awaited string) []byte {
			dst = append(dst, `{"kind":"`+string(KindPromiseRegisterCallback)+`","head":{},"data":`...)
			return append(appendCallback(dst, awaited, r.ID), '}')
		})
		return append(dst, '}')
	case *TaskFulfill:
		dst = appendAction(appendClaim(dst, r.ID, r.Version), KindPromiseSettle)
		return append(appendSettle(dst, &r.Action), `}}`...)
	case *TaskRelease:
		return append(appendClaim(dst, r.ID, r.Version), '}')
	case *TaskHalt:
		return appendID(dst, r.ID)
	case *TaskContinue:
		return appendID(dst, r.ID)
	case *TaskExplain:
		return appendID(dst, r.ID)
	case *TaskSearch:
		return appendSearch(dst, string(r.State), nil, r.Limit, r.Cursor)
	default:
		return append(dst, `{}`...)
	}
}

func appendID(dst []byte, id string) []byte {
	return append(appendString(append(dst, `{"id":`...), id), '}')
}

// appendClaim appends the beginning of an object that names a task at a version.
func appendClaim(dst []byte, id string, version int64) []byte {
	return appendIntMember(appendString(append(dst, `{"id":`...), id), "version", version)
}

// appendAction appends the beginning of an action, up to its data.
func appendAction(dst []byte, kind Kind) []byte {
	return append(dst, `,"action":{"kind":"`+string(kind)+`","head":{},"data":`...)
}

func appendCreate(dst []byte, r *PromiseCreate) []byte {
	dst = appendString(append(dst, `{"id":`...), r.ID)
	dst = appendIntMember(dst, "timeoutAt", r.TimeoutAt)
	dst = r.Param.AppendJSON(appendName(dst, "param"))
	return append(r.Tags.AppendJSON(appendName(dst, "tags")), '}')
}

func appendSettle(dst []byte, r *PromiseSettle) []byte {
	dst = appendString(append(dst, `{"id":`...), r.ID)
	dst = appendStringMember(dst, "state", string(r.State))
	return append(r.Value.AppendJSON(appendName(dst, "value")), '}')
}

func appendCallback(dst []byte, awaited, awaiter string) []byte {
	dst = appendString(append(dst, `{"awaited":`...), awaited)
	return append(appendStringMember(dst, "awaiter", awaiter), '}')
}

func appendScheduleCreate(dst []byte, r *ScheduleCreate) []byte {
	dst = appendString(append(dst, `{"id":`...), r.ID)
	dst = appendStringMember(dst, "cron", r.Cron)
	dst = appendStringMember(dst, "promiseId", r.PromiseID)
	dst = appendIntMember(dst, "promiseTimeout", r.PromiseTimeout)
	dst = r.PromiseParam.AppendJSON(appendName(dst, "promiseParam"))
	return append(r.PromiseTags.AppendJSON(appendName(dst, "promiseTags")), '}')
}

// appendSearch appends the data of a search; what is empty or zero is left out.
func appendSearch(dst []byte, state string, tags Tags, limit int, cursor string) []byte {
	start := len(dst)
	if state != "" {
		dst = appendStringMember(dst, "state", state)
	}
	if len(tags) > 0 {
		dst = tags.AppendJSON(appendName(dst, "tags"))
	}
	if limit != 0 {
		dst = appendIntMember(dst, "limit", int64(limit))
	}
	if cursor != "" {
		dst = appendStringMember(dst, "cursor", cursor)
	}
	if len(dst) == start {
		return append(dst, `{}`...)
	}
	dst[start] = '{' // where the first member has its comma
	return append(dst, '}')
}
