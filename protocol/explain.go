package protocol

import "math"

// KindTaskExplain asks why a task is not running. It is an extension: servers of the protocol that do not know it
// answer 400, Unknown operation. (docs/protocol.md, Kinds)
const KindTaskExplain Kind = "task.explain"

// MaxExplainAwaiting is the largest number of awaited promises that one answer of task.explain names.
const MaxExplainAwaiting = 100

// TaskExplain asks what a task waits for. It changes nothing.
type TaskExplain struct{ ID string }

// Kind is KindTaskExplain.
func (*TaskExplain) Kind() Kind { return KindTaskExplain }

// ExplainBody is the answer of task.explain: facts, from which a client makes its sentence. All times are epoch
// milliseconds; those that the task's state does not call for are 0 and not on the wire.
type ExplainBody struct {
	Task      Task
	Promise   PromiseState // of the task's promise
	Target    string       // the address that executes the task
	TimeoutAt int64        // the promise's deadline
	Now       int64        // the server's instant of this answer
	// While pending: Queued says that the execute waits for a worker that has room. Else it is dispatched at
	// RetryAt, not before.
	Queued  bool
	RetryAt int64
	// While acquired: the lease ends then, unless a heartbeat moves it.
	LeaseAt int64
	// The last claim, and how many releases in a row came less than a second after theirs: from the fourth on the
	// next dispatch is put off. (docs/machine.md, Hasty releases)
	ClaimedAt int64
	Hasty     int64
	// While suspended: pending promises of the same call tree whose settlement resumes the task, at most
	// MaxExplainAwaiting. Partial says that there may be others in the tree. Awaited promises of other trees are not
	// looked for.
	Awaiting []string
	Partial  bool
	// Workers is how many connected workers of this server Target could send to now. HasWorkers is false where the
	// server cannot know: then Target is no poll address.
	Workers    int
	HasWorkers bool
	// Push tells how it goes with an execute that is queued for Target, if that is no poll address: one of the Push
	// constants, "" where the server does not say. PushTo is what it waits in line for, such as a host. PushAttempts is how
	// often this server has sent it; of 0, what follows is about others that went to the same place. PushError is why it was
	// not accepted the last time, or why it is not sent at all, PushTriedAt when that was, or since when it is being sent,
	// PushAt when it is sent again, not before. PushOpen is how many are on their way where that keeps it from being sent.
	Push         string
	PushTo       string
	PushAttempts int64
	PushError    string
	PushTriedAt  int64
	PushAt       int64
	PushOpen     int64
}

// How it goes with a message to an address that is no poll address.
const (
	PushWaiting   = "waiting"   // it waits for its turn
	PushFull      = "full"      // it waits, because its destination has as many as it may have at once
	PushBusy      = "busy"      // it waits, because this server has as many on their way as it may have
	PushSending   = "sending"   // its request is open
	PushPaused    = "paused"    // it was not accepted, or its destination accepts nothing now
	PushRefused   = "refused"   // this server's rules forbid it, or it lacks a credential
	PushElsewhere = "elsewhere" // another server sends it
	PushUnserved  = "unserved"  // this server sends nothing there
)

// AppendJSON appends the body.
func (b ExplainBody) AppendJSON(dst []byte) []byte {
	dst = b.Task.AppendJSON(append(dst, `{"task":`...))
	dst = appendStringMember(dst, "promise", string(b.Promise))
	dst = appendStringMember(dst, "target", b.Target)
	dst = appendIntMember(dst, "timeoutAt", b.TimeoutAt)
	dst = appendIntMember(dst, "now", b.Now)
	dst = appendBoolMember(dst, "queued", b.Queued)
	for _, m := range []struct {
		name string
		n    int64
	}{{"retryAt", b.RetryAt}, {"leaseAt", b.LeaseAt}, {"claimedAt", b.ClaimedAt}, {"hasty", b.Hasty}} {
		if m.n != 0 {
			dst = appendIntMember(dst, m.name, m.n)
		}
	}
	dst = appendList(appendName(dst, "awaiting"), b.Awaiting, appendString)
	dst = appendBoolMember(dst, "partial", b.Partial)
	if b.HasWorkers {
		dst = appendIntMember(dst, "workers", int64(b.Workers))
	}
	if b.Push != "" {
		dst = appendStringMember(dst, "push", b.Push)
		if b.PushTo != "" {
			dst = appendStringMember(dst, "pushTo", b.PushTo)
		}
		dst = appendIntMember(dst, "pushAttempts", b.PushAttempts)
	}
	if b.PushError != "" {
		dst = appendStringMember(dst, "pushError", b.PushError)
	}
	for _, m := range []struct {
		name string
		n    int64
	}{{"pushTriedAt", b.PushTriedAt}, {"pushAt", b.PushAt}, {"pushOpen", b.PushOpen}} {
		if m.n != 0 {
			dst = appendIntMember(dst, m.name, m.n)
		}
	}
	return append(dst, '}')
}

func appendBoolMember(dst []byte, name string, b bool) []byte {
	if b {
		return append(appendName(dst, name), "true"...)
	}
	return append(appendName(dst, name), "false"...)
}

var explainFields = []field[ExplainBody]{
	{"task", required, func(d *decode, v value, b *ExplainBody) { object(d, v, taskFields, &b.Task) }},
	{"promise", required, func(d *decode, v value, b *ExplainBody) {
		b.Promise = state(d, v, Pending, Resolved, Rejected, RejectedCanceled, RejectedTimedout)
	}},
	{"target", required, func(d *decode, v value, b *ExplainBody) { b.Target, _ = d.text(v) }},
	{"timeoutAt", required, func(d *decode, v value, b *ExplainBody) { b.TimeoutAt = d.integer(v, math.MinInt64) }},
	{"now", required, func(d *decode, v value, b *ExplainBody) { b.Now = d.integer(v, math.MinInt64) }},
	{"queued", required, func(d *decode, v value, b *ExplainBody) { b.Queued = d.boolean(v) }},
	{"retryAt", optional, func(d *decode, v value, b *ExplainBody) { b.RetryAt = d.integer(v, math.MinInt64) }},
	{"leaseAt", optional, func(d *decode, v value, b *ExplainBody) { b.LeaseAt = d.integer(v, math.MinInt64) }},
	{"claimedAt", optional, func(d *decode, v value, b *ExplainBody) { b.ClaimedAt = d.integer(v, math.MinInt64) }},
	{"hasty", optional, func(d *decode, v value, b *ExplainBody) { b.Hasty = d.integer(v, 0) }},
	{"awaiting", required, func(d *decode, v value, b *ExplainBody) {
		d.list(v, math.MaxInt, "", func(v value) {
			id, _ := d.text(v)
			b.Awaiting = append(b.Awaiting, id)
		})
	}},
	{"partial", required, func(d *decode, v value, b *ExplainBody) { b.Partial = d.boolean(v) }},
	{"workers", optional, func(d *decode, v value, b *ExplainBody) {
		b.Workers, b.HasWorkers = int(min(d.integer(v, 0), math.MaxInt32)), true
	}},
	{"push", optional, func(d *decode, v value, b *ExplainBody) { b.Push, _ = d.text(v) }},
	{"pushTo", optional, func(d *decode, v value, b *ExplainBody) { b.PushTo, _ = d.text(v) }},
	{"pushAttempts", optional, func(d *decode, v value, b *ExplainBody) { b.PushAttempts = d.integer(v, 0) }},
	{"pushError", optional, func(d *decode, v value, b *ExplainBody) { b.PushError, _ = d.text(v) }},
	{"pushTriedAt", optional, func(d *decode, v value, b *ExplainBody) { b.PushTriedAt = d.integer(v, math.MinInt64) }},
	{"pushAt", optional, func(d *decode, v value, b *ExplainBody) { b.PushAt = d.integer(v, math.MinInt64) }},
	{"pushOpen", optional, func(d *decode, v value, b *ExplainBody) { b.PushOpen = d.integer(v, 0) }},
}

// DecodeExplainBody reads the answer of task.explain.
func DecodeExplainBody(data Data) (ExplainBody, error) { return decodeFields(data, explainFields) }

// boolean reads true or false.
func (d *decode) boolean(v value) bool {
	switch string(v) {
	case "true":
		return true
	case "false":
		return false
	}
	d.mistyped("true or false", v)
	return false
}
