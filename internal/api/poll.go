package api

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"abide/internal/deliver"
)

// PollOptions are the times of the streams to workers. A zero duration stands for its default.
type PollOptions struct {
	// KeepAlive is the pause after which a silent stream carries a comment, so that proxies do not cut it
	// and a dead peer is noticed. Default 15 s.
	KeepAlive time.Duration
	// MaxAge is the longest life of a stream; each ends cleanly at a random moment in the last tenth before it.
	// It must stay below 290 s: the Python SDKs stop listening for good when one response takes 300 s.
	// Default 240 s.
	MaxAge time.Duration
	// WriteTimeout is how long a write may wait for a peer that reads nothing. Default 5 s.
	WriteTimeout time.Duration
	// Now is the clock that write deadlines are set by: time.Now.
	Now func() time.Time
	// Log gets panics. Nil: nowhere.
	Log *slog.Logger
}

func (o PollOptions) withDefaults() PollOptions {
	or := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	or(&o.KeepAlive, 15*time.Second)
	or(&o.MaxAge, 240*time.Second)
	or(&o.WriteTimeout, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Poll returns the handler of GET /poll/{group}/{id}: a stream of server-sent events that carries the
// messages for one worker. It answers 200, and the stream goes on after the handler has returned, until it ends; in
// plain text 503 if there are too many streams or the server is stopping, and 429 if there are too many of the group or the
// workspace.
//
// The format is what all released SDKs read: line feeds only, one data line of ASCII an event, no event names.
// Between events there may be comments.
//
// A stream takes its connection over from net/http, whose buffers and goroutines would take most of the memory of an
// idle one (docs/decisions/0049). http.Server no longer knows of it then: deliver.Deliverer ends the streams.
func Poll(d *deliver.Deliverer, o PollOptions) PollFunc {
	o = o.withDefaults()
	return func(w http.ResponseWriter, r *http.Request, worker Worker) {
		connect := d.Connect
		if worker.GroupOnly {
			connect = d.ConnectToGroup
		}
		cn, err := connect(worker.Workspace, worker.Group, worker.ID)
		if err != nil {
			status := http.StatusServiceUnavailable
			if errors.Is(err, deliver.ErrWorkspaceFull) || errors.Is(err, deliver.ErrGroupFull) {
				status = http.StatusTooManyRequests
			}
			w.Header().Set("Retry-After", retryAfter)
			http.Error(w, err.Error(), status)
			return
		}
		head := streamHead(w.Header(), r, o.Now())
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			cn.Close()
			http.Error(w, "streams need HTTP/1", http.StatusHTTPVersionNotSupported)
			return
		}
		s := &stream{o: o, conn: conn, cn: cn, chunked: r.ProtoAtLeast(1, 1), gone: make(chan struct{})}
		go s.listen()
		go s.serve(head)
	}
}

// streamHead is the head of a stream's response, with what the handler has put into h.
func streamHead(h http.Header, r *http.Request, now time.Time) []byte {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	// Not reused: nobody looks for another request on it.
	h.Set("Connection", "close")
	h.Set("Date", now.UTC().Format(http.TimeFormat))
	var b bytes.Buffer
	if r.ProtoAtLeast(1, 1) {
		h.Set("Transfer-Encoding", "chunked")
		b.WriteString("HTTP/1.1 200 OK\r\n")
	} else {
		b.WriteString("HTTP/1.0 200 OK\r\n")
	}
	_ = h.Write(&b) // to memory
	b.WriteString("\r\n")
	return b.Bytes()
}

// stream writes one response. serve owns it, but for the reading of conn, which is listen's.
type stream struct {
	o       PollOptions
	conn    net.Conn
	cn      *deliver.Connection
	chunked bool          // HTTP/1.1
	gone    chan struct{} // closed when nothing more can come from the peer
}

const (
	greeting  = ": abide\n\n"
	keepAlive = ": ping\n\n"
	// maxKeptFrames is the largest buffer that a stream keeps for its next write: enough for a few messages, and not so
	// much that thousands of streams that were busy once keep the memory.
	maxKeptFrames = 4 << 10
	// maxPiece is what a peer must be able to take in one WriteTimeout.
	maxPiece = 64 << 10
	// maxPeerBytes is what a peer may send on its stream, where it has nothing to say.
	maxPeerBytes = 64 << 10
)

// listen reads what the peer sends and makes nothing of it: it waits for the end of the connection.
func (s *stream) listen() {
	defer close(s.gone)
	var b [128]byte
	for sum := 0; sum <= maxPeerBytes; {
		n, err := s.conn.Read(b[:])
		if err != nil {
			return
		}
		sum += n
	}
}

// serve writes until the peer is gone or the stream has had its time.
func (s *stream) serve(head []byte) {
	defer func() {
		if fault := recover(); fault != nil {
			s.o.Log.Error("panic in a stream", "panic", fmt.Sprint(fault), "stack", string(debug.Stack()))
		}
		_ = s.conn.Close()
		s.cn.Close()
	}()
	if s.write(head) != nil || s.comment(greeting) != nil {
		return
	}
	silence := time.NewTimer(s.o.KeepAlive)
	defer silence.Stop()
	end := time.NewTimer(s.o.MaxAge - rand.N(s.o.MaxAge/10+1))
	defer end.Stop()
	var buf []byte
	for {
		frames, status := s.cn.Take(append(buf[:0], chunkRoom...))
		sent := len(frames) > len(chunkRoom)
		if sent {
			if s.send(frames) != nil {
				return
			}
			s.cn.Flushed()
			silence.Reset(s.o.KeepAlive)
		}
		if buf = frames; cap(buf) > maxKeptFrames {
			buf = nil
		}
		switch {
		case status != deliver.Open:
			s.finish()
			return
		case sent:
			continue
		}
		select {
		case <-s.cn.Wake():
		case <-silence.C:
			if s.comment(keepAlive) != nil {
				return
			}
			silence.Reset(s.o.KeepAlive)
		case <-end.C:
			s.cn.Finish()
		case <-s.gone:
			return
		}
	}
}

// chunkRoom is room in front of frames for the head of a chunk: its length in hexadecimal digits, and the end of the line.
const chunkRoom = "........\r\n"

// send sends frames, which begin with chunkRoom. It may change them.
func (s *stream) send(frames []byte) error {
	if !s.chunked {
		return s.write(frames[len(chunkRoom):])
	}
	const digits = "0123456789abcdef"
	at := len(chunkRoom) - len("\r\n")
	for n := len(frames) - len(chunkRoom); n > 0; n >>= 4 {
		at--
		frames[at] = digits[n&15]
	}
	return s.write(append(frames[at:], "\r\n"...))
}

// comment sends a comment.
func (s *stream) comment(text string) error { return s.send([]byte(chunkRoom + text)) }

// finish ends the response, so that the peer can tell it from one that broke off.
func (s *stream) finish() {
	if s.chunked {
		_ = s.write([]byte("0\r\n\r\n"))
	}
}

// write sends b at once. An error means that the peer is gone or reads nothing. A large b goes in pieces, each
// with its own deadline: a slow peer that reads is not a dead one.
func (s *stream) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), maxPiece)
		if err := s.conn.SetWriteDeadline(s.o.Now().Add(s.o.WriteTimeout)); err != nil {
			return err
		}
		if _, err := s.conn.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
