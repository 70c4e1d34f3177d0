package keyspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"abide/internal/machine"
	"abide/protocol"
)

// recordVersion is the first byte of every value. What follows is in protobuf's wire format with the field
// numbers below: a reader skips fields that it does not know, a retired number stays reserved. Layouts are
// pinned by golden bytes in testdata.
//
// A record ends with the CRC-32C of all before it. Without it, one that was cut short where a field ends, or in
// which a byte was flipped, would decode to something else.
const recordVersion = 1

// sumBytes is the size of the checksum at the end of a record, little endian.
const sumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal ends the record that begins at start.
func seal(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// InlineBytes is the largest param or value that lives in its record. A larger one lives in chunk rows, so
// that a claim or a heartbeat never rewrites it.
const InlineBytes = 1024

// maxPayloadBytes is more than any payload has: a request is no larger than protocol.MaxBodyBytes. Whoever reads a payload
// makes room for as much as its record says.
const maxPayloadBytes = 8 * protocol.MaxBodyBytes

// Fields of an object record.
const (
	objState     = 1
	objTimeoutAt = 2
	objCreatedAt = 3
	objSettledAt = 4
	objWaited    = 5
	objParam     = 6 // payload
	objValue     = 7 // payload
	objTag       = 8 // repeated: name length, name, value
	objTask      = 9 // task
	objTrace     = 10
)

// Fields of a payload: inline bytes, or a reference with the size.
const (
	payInline = 1
	payRef    = 2
	paySize   = 3
)

// Fields of a task.
const (
	taskState     = 1
	taskVersion   = 2
	taskResumes   = 3
	taskPID       = 4
	taskTTL       = 5
	taskLeaseAt   = 6
	taskArmedAt   = 7
	taskRetryAt   = 8
	taskQueued    = 9
	taskClaimedAt = 10
	taskHasty     = 11
)

// Fields of a schedule record.
const (
	schCron      = 1
	schPromiseID = 2
	schTimeout   = 3
	schParam     = 4 // payload
	schTag       = 5
	schCreatedAt = 6
	schNextRunAt = 7
	schLastRunAt = 8 // absent: it has not run
	schDisarmed  = 9
)

// Stored numbers of the states: an index into these lists. Append only.
var (
	promiseStates = []protocol.PromiseState{
		protocol.Pending, protocol.Resolved, protocol.Rejected, protocol.RejectedCanceled, protocol.RejectedTimedout,
	}
	taskStates = []protocol.TaskState{
		protocol.TaskPending, protocol.TaskAcquired, protocol.TaskSuspended, protocol.TaskHalted, protocol.TaskFulfilled,
	}
)

func stateNumber[S comparable](states []S, s S) int64 {
	for i, t := range states {
		if t == s {
			return int64(i)
		}
	}
	return -1 // does not decode: CheckObject keeps it from ever being written
}

func putInt(b []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

func putBytes[T ~string | ~[]byte](b []byte, field protowire.Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(v)))
	return append(b, v...)
}

func putBool(b []byte, field protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return putInt(b, field, 1)
}

func putPayload(b []byte, field protowire.Number, p *machine.Payload) []byte {
	if p.Size == 0 {
		return b
	}
	var body []byte
	if p.Ref == "" {
		body = putBytes(make([]byte, 0, len(p.Inline)+4), payInline, p.Inline)
	} else {
		body = putInt(putBytes(nil, payRef, p.Ref), paySize, p.Size)
	}
	return putBytes(b, field, body)
}

func putTags(b []byte, field protowire.Number, tags protocol.Tags) []byte {
	for _, t := range tags {
		n := protowire.SizeVarint(uint64(len(t.Name))) + len(t.Name) + len(t.Value)
		b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n))
		b = protowire.AppendVarint(b, uint64(len(t.Name)))
		b = append(append(b, t.Name...), t.Value...)
	}
	return b
}

// AppendObject appends the record of an object. The id is in the key.
func AppendObject(b []byte, o *machine.Object) []byte {
	start := len(b)
	b = append(b, recordVersion)
	b = putInt(b, objState, stateNumber(promiseStates, o.State))
	b = putInt(b, objTimeoutAt, o.TimeoutAt)
	b = putInt(b, objCreatedAt, o.CreatedAt)
	b = putInt(b, objSettledAt, o.SettledAt)
	b = putBool(b, objWaited, o.Waited)
	b = putPayload(b, objParam, &o.Param)
	b = putPayload(b, objValue, &o.Value)
	b = putTags(b, objTag, o.Tags)
	if o.Task != nil {
		var task [128]byte
		body := appendTask(task[:0], o.Task)
		b = protowire.AppendVarint(protowire.AppendTag(b, objTask, protowire.BytesType), uint64(len(body)))
		b = append(b, body...) // present even when empty: a pending task at version 0 has no field set
	}
	b = putTrace(b, o.Trace)
	return seal(b, start)
}

func appendTask(b []byte, t *machine.Task) []byte {
	b = putInt(b, taskState, stateNumber(taskStates, t.State))
	b = putInt(b, taskVersion, t.Version)
	b = putInt(b, taskResumes, t.Resumes)
	b = putBytes(b, taskPID, t.PID)
	b = putInt(b, taskTTL, t.TTL)
	b = putInt(b, taskLeaseAt, t.LeaseAt)
	b = putInt(b, taskArmedAt, t.ArmedAt)
	b = putInt(b, taskRetryAt, t.RetryAt)
	b = putBool(b, taskQueued, t.Queued)
	b = putInt(b, taskClaimedAt, t.ClaimedAt)
	return putInt(b, taskHasty, t.Hasty)
}

// AppendSchedule appends the record of a schedule. The id is in the key.
func AppendSchedule(b []byte, s *machine.Schedule) []byte {
	start := len(b)
	b = append(b, recordVersion)
	b = putBytes(b, schCron, s.Cron)
	b = putBytes(b, schPromiseID, s.PromiseID)
	b = putInt(b, schTimeout, s.PromiseTimeout)
	b = putPayload(b, schParam, &s.PromiseParam)
	b = putTags(b, schTag, s.PromiseTags)
	b = putInt(b, schCreatedAt, s.CreatedAt)
	b = putInt(b, schNextRunAt, s.NextRunAt)
	if s.HasRun {
		b = protowire.AppendVarint(protowire.AppendTag(b, schLastRunAt, protowire.VarintType), uint64(s.LastRunAt))
	}
	return seal(putBool(b, schDisarmed, s.Disarmed), start)
}

// fields walks the fields of a record or a message in one, giving each to set: n for a number, bytes for
// everything else.
func fields(b []byte, set func(field protowire.Number, n int64, bytes []byte) error) error {
	for len(b) > 0 {
		field, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var number uint64
		var bytes []byte
		switch typ {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			return fmt.Errorf("field %d has wire type %d", field, typ)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if number > math.MaxInt64 {
			return fmt.Errorf("field %d is negative", field)
		}
		if err := set(field, int64(number), bytes); err != nil {
			return err
		}
	}
	return nil
}

// checkVersion checks the first byte of a value.
func checkVersion(b []byte) error {
	if len(b) == 0 {
		return errors.New("empty record")
	}
	if b[0] != recordVersion {
		return fmt.Errorf("record version %d, this server knows %d", b[0], recordVersion)
	}
	return nil
}

// body checks a record's version and its checksum and returns what is between them.
func body(b []byte) ([]byte, error) {
	if err := checkVersion(b); err != nil {
		return nil, err
	}
	end := len(b) - sumBytes
	if end < 1 || binary.LittleEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return nil, errors.New("the checksum does not fit")
	}
	return b[1:end:end], nil
}

func getState[S any](states []S, n int64) (s S, err error) {
	if n < 0 || n >= int64(len(states)) {
		return s, fmt.Errorf("state number %d", n)
	}
	return states[n], nil
}

func getPayload(b []byte) (p machine.Payload, err error) {
	err = fields(b, func(f protowire.Number, n int64, bytes []byte) error {
		switch f {
		case payInline:
			p.Inline = bytes
		case payRef:
			p.Ref = string(bytes)
		case paySize:
			p.Size = n
		}
		return nil
	})
	switch {
	case err != nil:
	case p.Ref == "" && p.Size != 0, p.Ref != "" && (p.Size == 0 || len(p.Inline) > 0):
		err = errors.New("a payload is either in its record, or elsewhere with its size")
	case p.Size > maxPayloadBytes:
		err = fmt.Errorf("a payload of %d bytes; at most %d", p.Size, maxPayloadBytes)
	case p.Ref == "":
		p.Size = int64(len(p.Inline))
	}
	return p, err
}

func getTag(b []byte) (protocol.Tag, error) {
	n, size := protowire.ConsumeVarint(b)
	if size < 0 || n > uint64(len(b)-size) {
		return protocol.Tag{}, errors.New("tag name runs over its end")
	}
	b = b[size:]
	return protocol.Tag{Name: string(b[:n]), Value: string(b[n:])}, nil
}

func getTask(b []byte) (*machine.Task, error) {
	t := &machine.Task{State: protocol.TaskPending}
	err := fields(b, func(f protowire.Number, n int64, bytes []byte) (err error) {
		switch f {
		case taskState:
			t.State, err = getState(taskStates, n)
		case taskVersion:
			t.Version = n
		case taskResumes:
			t.Resumes = n
		case taskPID:
			t.PID = string(bytes)
		case taskTTL:
			t.TTL = n
		case taskLeaseAt:
			t.LeaseAt = n
		case taskArmedAt:
			t.ArmedAt = n
		case taskRetryAt:
			t.RetryAt = n
		case taskQueued:
			t.Queued = n != 0
		case taskClaimedAt:
			t.ClaimedAt = n
		case taskHasty:
			t.Hasty = n
		}
		return err
	})
	return t, err
}

// Object decodes an object record. The object shares bytes with b, which nobody may change any more.
// Errors: kv.ErrCorrupt for bytes that do not decode or break a property of the machine.
func Object(id string, b []byte) (*machine.Object, error) {
	o := &machine.Object{ID: id, State: protocol.Pending}
	rest, err := body(b)
	if err != nil {
		return nil, corrupt("object", err)
	}
	tags := 0
	for _, c := range rest { // an upper bound, so that Tags is allocated once
		if c == objTag<<3|byte(protowire.BytesType) {
			tags++
		}
	}
	if tags > 0 {
		o.Tags = make(protocol.Tags, 0, min(tags, 8))
	}
	err = fields(rest, func(f protowire.Number, n int64, bytes []byte) (err error) {
		switch f {
		case objState:
			o.State, err = getState(promiseStates, n)
		case objTimeoutAt:
			o.TimeoutAt = n
		case objCreatedAt:
			o.CreatedAt = n
		case objSettledAt:
			o.SettledAt = n
		case objWaited:
			o.Waited = n != 0
		case objParam:
			o.Param, err = getPayload(bytes)
		case objValue:
			o.Value, err = getPayload(bytes)
		case objTag:
			var t protocol.Tag
			if t, err = getTag(bytes); err == nil {
				o.Tags = append(o.Tags, t)
			}
		case objTask:
			o.Task, err = getTask(bytes)
		case objTrace:
			o.Trace = getTrace(bytes)
		}
		return err
	})
	if err == nil {
		err = machine.CheckObject(o)
	}
	if err != nil {
		return nil, corrupt("object", err)
	}
	return o, nil
}

// Schedule decodes a schedule record. The schedule shares bytes with b.
func Schedule(id string, b []byte) (*machine.Schedule, error) {
	s := &machine.Schedule{ID: id}
	rest, err := body(b)
	if err != nil {
		return nil, corrupt("schedule", err)
	}
	err = fields(rest, func(f protowire.Number, n int64, bytes []byte) (err error) {
		switch f {
		case schCron:
			s.Cron = string(bytes)
		case schPromiseID:
			s.PromiseID = string(bytes)
		case schTimeout:
			s.PromiseTimeout = n
		case schParam:
			s.PromiseParam, err = getPayload(bytes)
		case schTag:
			var t protocol.Tag
			if t, err = getTag(bytes); err == nil {
				s.PromiseTags = append(s.PromiseTags, t)
			}
		case schCreatedAt:
			s.CreatedAt = n
		case schNextRunAt:
			s.NextRunAt = n
		case schLastRunAt:
			s.LastRunAt, s.HasRun = n, true
		case schDisarmed:
			s.Disarmed = n != 0
		}
		return err
	})
	if err != nil {
		return nil, corrupt("schedule", err)
	}
	return s, nil
}
