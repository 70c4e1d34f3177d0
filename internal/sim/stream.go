package sim

import (
	"slices"
	"time"

	"abide/internal/deliver"
	"abide/protocol"
)

// listener is who holds the far end of a stream.
type listener interface {
	// receive is a message that came.
	receive(deliver.Message)
	// disconnected is the end of the stream, as its holder notices it.
	disconnected(*stream)
}

// reconnectPause is how long a worker waits before it connects again.
const reconnectPause = time.Second

// stream is one stream of messages to a worker.
type stream struct {
	world      *world
	server     *server
	life       int // of the server
	id         deliver.ConnID
	owner      listener
	group, pid string

	open    bool          // registered with the server
	broken  bool          // nothing goes through any more
	mute    bool          // it swallows what is written to it, and nobody has noticed
	writing bool          // its writer is at work
	last    time.Duration // when the last frame arrives: they arrive in order
}

// connect opens a stream for a worker. The returned stream may be refused; its owner then hears that it has ended.
func (w *world) connect(owner listener, group, pid string) *stream {
	st := &stream{world: w, server: w.servers[0], owner: owner, group: group, pid: pid}
	if n := len(w.servers); n > 1 {
		st.server = w.servers[w.net.IntN(n)]
	}
	st.server.after(w.latency(), st.register)
	return st
}

func (st *stream) register() {
	s := st.server
	if st.broken {
		return
	}
	if !s.up {
		st.tellOwner()
		return
	}
	id, err := s.core.Connect(s.nowMs(), protocol.DefaultWorkspace, st.group, st.pid)
	if err != nil {
		st.tellOwner()
		return
	}
	st.id, st.life, st.open = id, s.life, true
	s.streams = append(s.streams, st)
	st.world.log("stream %d of %s/%s", id, st.group, st.pid)
}

func (s *server) stream(id deliver.ConnID) *stream {
	for _, st := range s.streams {
		if st.id == id {
			return st
		}
	}
	return nil
}

// planWrite lets the writer look at what waits.
func (st *stream) planWrite() {
	if st.writing {
		return
	}
	st.writing = true
	st.server.after(0, st.write)
}

// write takes what waits, writes it, flushes it, and looks again.
func (st *stream) write() {
	s, w := st.server, st.world
	if !st.open || s.life != st.life {
		return
	}
	messages, status := s.core.Output(s.nowMs(), st.id, nil)
	if status != deliver.Open && len(messages) == 0 {
		st.close()
		st.tellOwner()
		return
	}
	if len(messages) == 0 {
		st.writing = false
		return
	}
	for _, m := range messages {
		st.carry(m)
	}
	w.after(between(w.net, 0, 2*time.Millisecond), func() {
		if !st.open || s.life != st.life {
			return
		}
		s.core.Flushed(s.nowMs(), st.id)
		st.write()
	})
}

// carry takes one frame to the other side, unless the stream breaks before.
func (st *stream) carry(m deliver.Message) {
	w := st.world
	if m.Promise != nil && m.Promise.State == protocol.Pending {
		w.fail("an unblock tells of %q, which is pending", m.Promise.ID)
	}
	if chance(w.net, w.weather.p(CutStreams)/2) {
		st.cut()
	}
	times := 1
	if chance(w.net, w.weather.p(Duplicate)) {
		times = 2
	}
	for range times {
		st.last = max(st.last, w.now+w.latency())
		w.after(st.last-w.now, func() {
			if !st.broken && !st.mute {
				st.owner.receive(m)
			}
		})
	}
}

// close deregisters the stream.
func (st *stream) close() {
	s := st.server
	if !st.open || s.life != st.life {
		return
	}
	st.open = false
	s.streams = slices.DeleteFunc(s.streams, func(e *stream) bool { return e == st })
	s.core.Disconnect(s.nowMs(), st.id)
}

// tellOwner ends the stream for its owner.
func (st *stream) tellOwner() {
	if !st.broken {
		st.broken = true
		st.world.after(st.world.latency(), func() { st.owner.disconnected(st) })
	}
}

// cut breaks the stream for both sides; the server notices within half a second.
func (st *stream) cut() {
	w := st.world
	if st.broken {
		return
	}
	w.log("stream %d of %s/%s breaks", st.id, st.group, st.pid)
	st.tellOwner()
	w.after(between(w.net, 0, 500*time.Millisecond), st.close)
}

// abandon is cut by a worker that dies: nobody is left to be told.
func (st *stream) abandon() {
	if !st.broken {
		st.broken = true
		st.world.after(between(st.world.net, 0, 500*time.Millisecond), st.close)
	}
}

// serverDied breaks the stream: the server's life is over.
func (st *stream) serverDied() {
	st.open = false
	st.tellOwner()
}

// cutStreams breaks each stream with probability p.
func (s *server) cutStreams(p float64) {
	for _, st := range slices.Clone(s.streams) {
		if chance(s.world.net, p) {
			st.cut()
		}
	}
}

// muteStream makes one stream swallow what is written to it for longer than a server can notice.
func (s *server) muteStream(which int) {
	if len(s.streams) == 0 {
		return
	}
	w, st := s.world, s.streams[which%len(s.streams)]
	w.log("stream %d of %s/%s goes mute", st.id, st.group, st.pid)
	st.mute = true
	if c, ok := st.owner.(*client); ok {
		c.doubtful = true
	}
	w.after(between(w.net, time.Second, 4*time.Second), st.cut)
}
