package deliver

import "abide/protocol"

// Message is what one frame carries: the unblock of Promise if that is set, else the execute of Task.
// Trace is the one that the task is part of, or nil.
type Message struct {
	Task    protocol.TaskRef
	Promise *protocol.Promise
	Trace   *protocol.Trace
}

// Status is what a connection's writer should do after it has written what it was given.
type Status int

const (
	// Open: wait for more.
	Open Status = iota
	// Ending: end the stream, nothing more will come.
	Ending
	// Closed: end the stream now; the connection is not registered any longer, a newer one took its place.
	Closed
)

// Output appends what waits for a connection to dst, up to Limits.WriteBytes, in the order in which it was
// handed out. The writer writes and flushes all of it, then calls Flushed before it asks again. Nobody may
// change the promises: the writers of several connections may have been given the same one.
func (c *Core) Output(nowMs int64, id ConnID, dst []Message) ([]Message, Status) {
	nowMs = c.advance(nowMs)
	cn := c.conns[id]
	if cn == nil {
		return dst, Closed
	}
	for n := 0; cn.out.front != nil && n < c.limits.WriteBytes; {
		f := cn.out.popFront()
		n += f.bytes
		cn.outBytes -= f.bytes
		dst = append(dst, Message{protocol.TaskRef{ID: f.id, Version: f.version}, f.promise, f.trace})
		if f.copy {
			continue
		}
		f.state, f.promise = taken, nil
		cn.writing.pushBack(f)
	}
	for k := range kinds {
		c.refresh(nowMs, cn, k)
	}
	if cn.state == connFinishing && cn.out.front == nil {
		return dst, Ending
	}
	return dst, Open
}

// Flushed takes in that all that was taken for a connection is on the wire. From now on it must stay healthy
// for a window.
func (c *Core) Flushed(nowMs int64, id ConnID) {
	nowMs = c.advance(nowMs)
	cn := c.conns[id]
	if cn == nil {
		return
	}
	for cn.writing.front != nil {
		f := cn.writing.popFront()
		f.state, f.untilMs = flushed, nowMs+c.limits.WindowMs
		c.window.pushBack(f)
		c.stats.Messages[f.kind].Sent++
	}
}

// frameBytes is about what a frame takes beyond what its record holds.
const frameBytes = 192

// traceBytes is about what a trace takes in a frame, but for its state.
const traceBytes = 96

// sizeOf estimates the frame of f.
func (c *Core) sizeOf(f *flight) int {
	n := frameBytes + len(f.id)
	if f.trace != nil {
		n += traceBytes + len(f.trace.State)
	}
	if p := f.promise; p != nil {
		n += len(p.Param) + len(p.Value)
		for _, t := range p.Tags {
			n += len(t.Name) + len(t.Value)
		}
	}
	return n
}
