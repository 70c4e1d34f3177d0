package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"abide/protocol"
)

const (
	// firstBuffer holds nearly every body and answer.
	firstBuffer = 4 << 10
	// maxKept is the largest buffer that waits for its next use.
	maxKept = 64 << 10
	// maxDrained is how much of a body that is refused is read and thrown away, so that the client is not
	// still sending when the answer comes and sees a reset connection in its place.
	maxDrained = 16 << 20
	// drainGrace is how long a body may still come in once the server stops.
	drainGrace = time.Second
	// largeBody is the size from which bodies are decoded largeDecodes at a time: what decoding takes besides the
	// body itself grows with the number of its members.
	largeBody    = 64 << 10
	largeDecodes = 4
)

// buffer is memory for one body or one answer.
type buffer struct {
	bytes []byte
}

var buffers = sync.Pool{New: func() any { return &buffer{bytes: make([]byte, 0, firstBuffer)} }}

func takeBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) put() {
	if cap(b.bytes) > maxKept {
		return
	}
	b.bytes = b.bytes[:0]
	buffers.Put(b)
}

// failure is why a body was not read: a status and a text, since there is no envelope to answer in.
type failure struct {
	status  int
	message string
}

// readBody reads the body of r into b, and charges held for it. The memory grows with what has arrived, not with what was
// announced: a thousand clients that promise two megabytes and send nothing cost next to nothing.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, b *buffer, held *charge) *failure {
	if r.ContentLength > protocol.MaxBodyBytes {
		return tooLarge(r)
	}
	rc := http.NewResponseController(w)
	defer h.receiving.done(rc)
	for reads := 1; ; reads++ {
		if reads == 2 {
			h.receiving.begin(rc)
		}
		if len(b.bytes) == cap(b.bytes) {
			if refused := h.grow(b, held); refused != letIn {
				return noRoom(r, refused)
			}
		}
		n, err := r.Body.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		switch {
		case len(b.bytes) > protocol.MaxBodyBytes:
			return tooLarge(r)
		case errors.Is(err, io.EOF):
			if reads > 1 {
				// A body that came slowly has used up much of the time that the server gives to reading;
				// the end of that time must not cut the request short now. Without deadlines there is
				// nothing to clear.
				h.receiving.done(rc)
				_ = rc.SetReadDeadline(time.Time{})
			}
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && h.draining.Load():
			return &failure{http.StatusServiceUnavailable, stopping}
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &failure{http.StatusRequestTimeout, "Failed to buffer the request body: it did not arrive in time"}
		case err != nil:
			return &failure{http.StatusBadRequest, "Failed to buffer the request body: " + err.Error()}
		}
	}
}

// receiving are the requests whose bodies did not come in one piece. A client that stalls in the middle of one
// must not hold up a stop.
type receiving struct {
	mu   sync.Mutex
	cut  bool
	from map[*http.ResponseController]struct{}
}

func (r *receiving) begin(rc *http.ResponseController) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		_ = rc.SetReadDeadline(longAgo)
		return
	}
	if r.from == nil {
		r.from = map[*http.ResponseController]struct{}{}
	}
	r.from[rc] = struct{}{}
}

func (r *receiving) done(rc *http.ResponseController) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.from, rc)
}

// cutAll ends the wait for every body.
func (r *receiving) cutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for rc := range r.from {
		_ = rc.SetReadDeadline(longAgo)
	}
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// grow doubles the memory of b, up to the largest body and the byte that proves a larger one.
func (h *Handler) grow(b *buffer, held *charge) refused {
	size, before := min(2*cap(b.bytes), protocol.MaxBodyBytes+1), held.bytes
	if refused := h.bodies.take(held, int64(size)); refused != letIn {
		return refused
	}
	grown := make([]byte, len(b.bytes), size)
	copy(grown, b.bytes)
	b.bytes = grown
	h.bodies.give(held, before)
	return letIn
}

// noRoom reads on for a while and says that a body does not fit into the memory for bodies.
func noRoom(r *http.Request, refused refused) *failure {
	discard(r)
	if refused == shareFull {
		return &failure{http.StatusTooManyRequests, tooManyBytes}
	}
	return &failure{http.StatusServiceUnavailable, fullOfBytes}
}

// discard reads the rest of a body that is refused, up to maxDrained. A client that waits for a go-ahead has sent nothing
// yet.
func discard(r *http.Request) {
	if r.Header.Get("Expect") == "" && r.ContentLength <= maxDrained {
		// Whatever ends this, the answer is the same.
		_, _ = io.CopyN(io.Discard, r.Body, maxDrained)
	}
}

// tooLarge reads on for a while and reports a 413.
func tooLarge(r *http.Request) *failure {
	discard(r)
	return &failure{http.StatusRequestEntityTooLarge,
		fmt.Sprintf("Failed to buffer the request body: it is larger than %d bytes, the limit (MaxBodyBytes)", protocol.MaxBodyBytes)}
}
