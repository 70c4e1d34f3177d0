package deliver

import (
	"errors"
	"sync"
	"time"

	"abide/internal/trace"
	"abide/protocol"
)

// Connection is one worker's stream, from the side of whoever writes it. Its owner loops: Take, write and
// flush what came, Flushed; when nothing came, wait for Wake. Close on every way out. The methods are for
// one goroutine, except Wake's channel and Close.
type Connection struct {
	d         *Deliverer
	id        ConnID
	serverURL string
	wake      chan struct{}
	workspace string
	messages  []Message

	recording sync.Mutex   // since Close may come from elsewhere
	spans     []trace.Span // of what is being written

	closeOnce sync.Once
}

// errInternal is the answer to a connect during which delivery began anew.
var errInternal = errors.New("delivery has just restarted after an internal error; connect again")

// Connect registers a worker's stream. Errors: ErrFull, ErrWorkspaceFull, ErrGroupFull, ErrDraining. Group and pid are decoded names.
func (d *Deliverer) Connect(workspace, group, pid string) (*Connection, error) {
	return d.connect(workspace, group, pid, (*Core).Connect)
}

// ConnectToGroup is Connect for a worker that is to be sent messages of its group alone: none of those for the whole
// workspace, which Destination tells of.
func (d *Deliverer) ConnectToGroup(workspace, group, pid string) (*Connection, error) {
	return d.connect(workspace, group, pid, (*Core).ConnectToGroup)
}

func (d *Deliverer) connect(workspace, group, pid string, register func(c *Core, nowMs int64, workspace, group, pid string) (ConnID, error)) (*Connection, error) {
	cn := &Connection{d: d, wake: make(chan struct{}, 1), serverURL: d.options.ServerURL(workspace), workspace: workspace}
	err := errInternal
	d.step(func(c *Core, nowMs int64) {
		if cn.id, err = register(c, nowMs, workspace, group, pid); err == nil {
			d.connections[cn.id] = cn
			d.streams.Add(1)
		}
	})
	if err != nil {
		return nil, err
	}
	return cn, nil
}

// Wake receives a value when Take may have something new. One value may stand for several reasons.
func (cn *Connection) Wake() <-chan struct{} { return cn.wake }

// Take appends the frames that wait to buf, all in ASCII, and says what to do after they are written. Frames:
// "data: ", a message as one line of JSON, and two line feeds.
func (cn *Connection) Take(buf []byte) ([]byte, Status) {
	status := Closed
	cn.messages = cn.messages[:0]
	cn.d.step(func(c *Core, nowMs int64) {
		cn.messages, status = c.Output(nowMs, cn.id, cn.messages)
	})
	for i := range cn.messages {
		m := &cn.messages[i]
		buf = append(buf, "data: "...)
		if m.Promise != nil {
			buf = protocol.AppendUnblock(buf, *m.Promise)
		} else {
			buf = protocol.AppendTracedExecute(buf, cn.serverURL, m.Task, cn.traced(m.Trace))
		}
		buf = append(buf, "\n\n"...)
	}
	clear(cn.messages) // lets go of the promises
	return buf, status
}

// traced is the trace that a message carries: that of its task, with this delivery as the cause of what comes if it is
// recorded.
func (cn *Connection) traced(task *protocol.Trace) *protocol.Trace {
	if !task.Sampled() {
		return task
	}
	span := cn.d.options.Tracer.Begin("deliver execute", trace.Producer, task, time.Time{})
	if !span.Recorded() {
		return task
	}
	span.Text("abide.workspace", cn.workspace)
	cn.recording.Lock()
	defer cn.recording.Unlock()
	cn.spans = append(cn.spans, span)
	return span.Trace()
}

// endSpans ends the spans of what was being written; failure is why it did not arrive, if it did not.
func (cn *Connection) endSpans(failure string) {
	cn.recording.Lock()
	defer cn.recording.Unlock()
	for _, span := range cn.spans {
		if failure != "" {
			span.Fail(failure)
		}
		span.End(time.Time{})
	}
	cn.spans = cn.spans[:0]
}

// Flushed reports that all frames of the last Take were written and flushed without an error.
func (cn *Connection) Flushed() {
	cn.endSpans("")
	cn.d.step(func(c *Core, nowMs int64) { c.Flushed(nowMs, cn.id) })
}

// Finish makes the connection take no further message: Take answers Ending after the last one.
func (cn *Connection) Finish() {
	cn.d.step(func(c *Core, nowMs int64) { c.Finish(nowMs, cn.id) })
}

// Close deregisters the connection. What was not flushed, or flushed only just now, is sent to somebody
// else. It may be called again.
func (cn *Connection) Close() {
	cn.closeOnce.Do(func() {
		cn.endSpans("the stream broke")
		cn.d.step(func(c *Core, nowMs int64) {
			delete(cn.d.connections, cn.id)
			c.Disconnect(nowMs, cn.id)
		})
		cn.d.streams.Done()
	})
}
