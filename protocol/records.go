package protocol

import "sort"

// PromiseState is the state of a promise.
type PromiseState string

// The states of a promise.
const (
	Pending          PromiseState = "pending"
	Resolved         PromiseState = "resolved"
	Rejected         PromiseState = "rejected"
	RejectedCanceled PromiseState = "rejected_canceled"
	RejectedTimedout PromiseState = "rejected_timedout"
)

// TaskState is the state of a task.
type TaskState string

// The states of a task.
const (
	TaskPending   TaskState = "pending"
	TaskAcquired  TaskState = "acquired"
	TaskSuspended TaskState = "suspended"
	TaskHalted    TaskState = "halted"
	TaskFulfilled TaskState = "fulfilled"
)

// Value is a param or a value: compact JSON of an object with at most the members headers (an object of
// strings) and data (a string), kept byte for byte as the client wrote those members, escapes included:
// the server never decodes or normalises a payload. Nil stands for the empty object.
type Value []byte

// Tag is one tag of a promise.
type Tag struct{ Name, Value string }

// Tags are a promise's tags, sorted by name, names unique. The order is part of the type: records,
// answers and index entries are all written in it.
type Tags []Tag

// Get returns the value of the tag called name.
func (t Tags) Get(name string) (value string, ok bool) {
	i := sort.Search(len(t), func(i int) bool { return t[i].Name >= name })
	if i < len(t) && t[i].Name == name {
		return t[i].Value, true
	}
	return "", false
}

// With returns a copy of t in which the tag called name has the given value.
func (t Tags) With(name, value string) Tags {
	i := sort.Search(len(t), func(i int) bool { return t[i].Name >= name })
	out := make(Tags, 0, len(t)+1)
	out = append(out, t[:i]...)
	out = append(out, Tag{name, value})
	if i < len(t) && t[i].Name == name {
		i++
	}
	return append(out, t[i:]...)
}

// Promise is the record of a promise as answers carry it. All times are epoch milliseconds. SettledAt is
// on the wire iff State is not pending.
type Promise struct {
	ID        string
	State     PromiseState
	Param     Value
	Value     Value
	Tags      Tags
	TimeoutAt int64
	CreatedAt int64
	SettledAt int64
}

// Task is the record of a task as answers carry it. TTL and PID are on the wire iff State is acquired.
type Task struct {
	ID      string
	State   TaskState
	Version int64
	Resumes int64
	TTL     int64
	PID     string
}

// Schedule is the record of a schedule as answers carry it. LastRunAt is on the wire iff HasRun.
type Schedule struct {
	ID             string
	Cron           string
	PromiseID      string
	PromiseTimeout int64
	PromiseParam   Value
	PromiseTags    Tags
	CreatedAt      int64
	NextRunAt      int64
	LastRunAt      int64
	HasRun         bool
}

// TaskRef names one task at one version.
type TaskRef struct {
	ID      string
	Version int64
}
