package api

import (
	"errors"
	"math/rand/v2"
	"net/http"
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
	return o
}

// Poll returns the handler of GET /poll/{group}/{id}: a stream of server-sent events that carries the
// messages for one worker. It answers 200 until the stream ends; in
// plain text 503 if there are too many streams or the server is stopping, and 429 if there are too many of the group or the
// workspace.
//
// The format is what all released SDKs read: line feeds only, one data line of ASCII an event, no event names.
// Between events there may be comments.
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
		defer cn.Close()
		s := stream{o: o, w: w, rc: http.NewResponseController(w), cn: cn}
		s.serve(r)
	}
}

// stream writes one response.
type stream struct {
	o  PollOptions
	w  http.ResponseWriter
	rc *http.ResponseController
	cn *deliver.Connection
}

const (
	greeting  = ": abide\n\n"
	keepAlive = ": ping\n\n"
	// maxKeptFrames is the largest buffer that a stream keeps for its next write.
	maxKeptFrames = 128 << 10
	// maxPiece is what a peer must be able to take in one WriteTimeout.
	maxPiece = 64 << 10
)

// serve writes until the peer is gone or the stream has had its time.
func (s *stream) serve(r *http.Request) {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	// Not reused: the deadlines below are those of this stream.
	h.Set("Connection", "close")
	s.w.WriteHeader(http.StatusOK)
	if s.write([]byte(greeting)) != nil {
		return
	}
	silence := time.NewTimer(s.o.KeepAlive)
	defer silence.Stop()
	end := time.NewTimer(s.o.MaxAge - rand.N(s.o.MaxAge/10+1))
	defer end.Stop()
	var buf []byte
	for {
		frames, status := s.cn.Take(buf[:0])
		if len(frames) > 0 {
			if s.write(frames) != nil {
				return
			}
			s.cn.Flushed()
			silence.Reset(s.o.KeepAlive)
			if buf = frames; cap(buf) > maxKeptFrames {
				buf = nil
			}
		}
		switch {
		case status != deliver.Open:
			s.setDeadline() // for the end of the response, which the server writes
			return
		case len(frames) > 0:
			continue
		}
		select {
		case <-s.cn.Wake():
		case <-silence.C:
			if s.write([]byte(keepAlive)) != nil {
				return
			}
			silence.Reset(s.o.KeepAlive)
		case <-end.C:
			s.cn.Finish()
		case <-r.Context().Done():
			return
		}
	}
}

// write sends b at once. An error means that the peer is gone or reads nothing. A large b goes in pieces, each
// with its own deadline: a slow peer that reads is not a dead one.
func (s *stream) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), maxPiece)
		s.setDeadline()
		if _, err := s.w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return s.rc.Flush()
}

// setDeadline gives what is written next its time. Not every ResponseWriter has deadlines; one without them
// is still served.
func (s *stream) setDeadline() { _ = s.rc.SetWriteDeadline(s.o.Now().Add(s.o.WriteTimeout)) }
