package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"abide/internal/trace"
	"abide/protocol"
)

// Spent is where the time of a request went below the engine.
type Spent struct {
	Queued    time.Duration // waiting for the store's writer
	Committed time.Duration // with others in a batch, up to its commit
	Read      time.Duration // in snapshots
	// Transactions counts attempts; Conflicts and Overloaded those that were in vain, and those that a full queue refused.
	Transactions, Conflicts, Overloaded int64
}

// trail is what becomes known of a request on its way: instants, and its span. Without anybody to tell it stays empty.
type trail struct {
	workspace string
	served    bool      // it had its turn in the engine
	began     time.Time // its head is there
	received  time.Time // its body is
	decoded   time.Time // and understood
	entered   time.Time // the engine has it
	answered  time.Time // and has answered
	span      trace.Span
	spent     func() Spent
}

// begin starts the trail of a request to the protocol.
func (h *Handler) begin(workspace string) (t trail) {
	t.workspace = workspace
	h.mark(&t.began)
	return t
}

// mark notes the present instant, if anybody wants to know.
func (h *Handler) mark(at *time.Time) {
	if h.o.Now != nil {
		*at = h.o.Now()
	}
}

// trace begins the span of a request whose envelope has been read, and tells the request which trace it is part of.
func (h *Handler) trace(t *trail, r *http.Request, env *protocol.Envelope, req protocol.Request) {
	h.mark(&t.decoded)
	parent := traceOf(r, env)
	t.span = h.o.Tracer.Begin(knownKind(env.Kind), trace.Server, parent, t.began)
	if create := creation(req); create != nil {
		if create.Trace = parent; t.span.Recorded() {
			create.Trace = t.span.Trace()
		}
	}
}

func creation(req protocol.Request) *protocol.PromiseCreate {
	if req == nil {
		return nil
	}
	return protocol.Creates(req)
}

// traceOf is the trace that a request is part of: what its headers say, which is closer to the connection, or else its
// envelope. Several traceparents are none. (W3C Trace Context, 3.2)
func traceOf(r *http.Request, env *protocol.Envelope) *protocol.Trace {
	if parents := r.Header["Traceparent"]; len(parents) == 1 {
		if t := protocol.ParseTrace(parents[0], strings.Join(r.Header["Tracestate"], ",")); t != nil {
			return t
		}
	}
	return env.Trace
}

// knownKind is a kind as spans and logs show it: never what a client has made up.
func knownKind(kind string) string {
	if protocol.Known(kind) {
		return kind
	}
	return unknownKind
}

// unknownKind stands for kinds that there are not, and for those that could not be read.
const unknownKind = "unknown"

// timed is the context of the engine's work, which learns where its time goes.
func (h *Handler) timed(ctx context.Context, t *trail) context.Context {
	if h.mark(&t.entered); h.o.Timed != nil && (h.o.SlowRequest > 0 || t.span.Recorded()) {
		ctx, t.spent = h.o.Timed(ctx)
	}
	return ctx
}

// finish tells everybody who wants to know how a request ended. One whose envelope could not be read has no kind.
func (h *Handler) finish(t *trail, kind string, status int) {
	if h.o.Now == nil {
		return
	}
	ended := h.o.Now()
	took := ended.Sub(t.began)
	if h.o.Observe != nil {
		h.o.Observe(kind, status, took)
	}
	slow := h.o.SlowRequest > 0 && took >= h.o.SlowRequest
	if !slow && !t.span.Recorded() {
		return
	}
	var spent Spent
	if t.spent != nil {
		spent = t.spent()
	}
	h.endSpan(t, status, spent, ended)
	if slow {
		h.slow.tell(h.o.Log, t.line(knownKind(kind), status, spent, ended))
	}
}

// endSpan ends the span of a request, with one for the engine's part in it.
func (h *Handler) endSpan(t *trail, status int, spent Spent, ended time.Time) {
	if !t.span.Recorded() {
		return
	}
	if !t.entered.IsZero() {
		part := t.span.Child("engine", trace.Internal, t.entered)
		part.Int("abide.queued_us", spent.Queued.Microseconds())
		part.Int("abide.committed_us", spent.Committed.Microseconds())
		part.Int("abide.read_us", spent.Read.Microseconds())
		part.Int("abide.transactions", spent.Transactions)
		part.Int("abide.conflicts", spent.Conflicts)
		part.End(t.answered)
	}
	t.span.Text("abide.workspace", t.workspace)
	t.span.Int("http.response.status_code", int64(status))
	if status >= http.StatusInternalServerError {
		t.span.Fail(http.StatusText(status))
	}
	t.span.End(ended)
}

// part is a part of the time that a request took.
type part struct {
	name string // in the log
	why  string // when it is the largest
	took time.Duration
}

// parts takes the time of a request apart. A request that ended early has no later parts.
func (t *trail) parts(s Spent, ended time.Time) []part {
	since := func(from, to time.Time) time.Duration {
		switch {
		case from.IsZero():
			return 0
		case to.IsZero():
			to = ended
		}
		return max(0, to.Sub(from))
	}
	engine := since(t.entered, t.answered)
	return []part{
		{"body_ms", "its body came slowly", since(t.began, t.received)},
		{"decode_ms", "decoding, and checking its token", since(t.received, t.decoded)},
		{"turn_ms", "others' requests were before it", since(t.decoded, t.entered)},
		{"queue_ms", "the store's writer was busy", s.Queued},
		{"commit_ms", "the store was slow to commit", s.Committed},
		{"read_ms", "the store was slow to read", s.Read},
		{"engine_ms", "it waited in the engine", max(0, engine-s.Queued-s.Committed-s.Read)},
		{"answer_ms", "writing its answer", since(t.answered, ended)},
	}
}

// line is what the log says of a slow request: no id, no payload, nothing that a client has made up.
func (t *trail) line(kind string, status int, s Spent, ended time.Time) []slog.Attr {
	parts := t.parts(s, ended)
	reason := parts[0]
	for _, p := range parts {
		if p.took > reason.took {
			reason = p
		}
	}
	line := []slog.Attr{
		slog.String("kind", kind), slog.String("workspace", t.workspace), slog.Int("status", status),
		slog.Int64("took_ms", ended.Sub(t.began).Milliseconds()), slog.String("reason", reason.why),
	}
	for _, p := range parts {
		line = append(line, slog.Int64(p.name, p.took.Milliseconds()))
	}
	return append(line, slog.Int64("transactions", s.Transactions), slog.Int64("conflicts", s.Conflicts), slog.Int64("refused", s.Overloaded))
}

// Bounds of the log of slow requests: when the store stalls, all of them are.
const (
	slowLines    = 10
	slowInterval = 10 * time.Second
)

// slowLog tells the log of slow requests: of slowLines in a slowInterval one by one, and of the others how many they were.
type slowLog struct {
	mu      sync.Mutex
	told    int
	leftOut int
	open    bool // an interval has begun
	after   func(time.Duration, func())
}

// tell logs one line, or counts it.
func (s *slowLog) tell(log *slog.Logger, line []slog.Attr) {
	s.mu.Lock()
	if !s.open {
		s.open, s.told = true, 0
		s.after(slowInterval, func() { s.close(log) })
	}
	if s.told++; s.told > slowLines {
		s.leftOut++
		line = nil
	}
	s.mu.Unlock()
	if line != nil {
		log.LogAttrs(context.Background(), slog.LevelWarn, "slow request", line...)
	}
}

// close ends an interval.
func (s *slowLog) close(log *slog.Logger) {
	s.mu.Lock()
	n := s.leftOut
	s.leftOut, s.open = 0, false
	s.mu.Unlock()
	if n > 0 {
		log.Warn("more slow requests than are told of one by one", "left_out", n, "in", slowInterval.String())
	}
}
