// Package api is the HTTP surface: routes, the request envelope, statuses, CORS and the doors that keep web
// pages out. It decides nothing about promises: it decodes, asks the engine once, and writes the answer.
//
// POST /            one request of the protocol; the HTTP status is the status of its head
// GET  /poll/G/ID   a stream of messages for a worker
// GET  /health      200 while the process lives
// GET  /ready       200 while it can serve, else 503; a JSON object says why
//
// Each also under /w/NAME, for the data of that workspace; without it, that of the workspace default. Paths
// are served as they come, with the doubled slashes that SDKs make of a base URL; there are no redirects.
package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"abide/internal/auth"
	"abide/internal/trace"
	"abide/protocol"
)

// DefaultWorkspace is the workspace of paths that name none.
const DefaultWorkspace = protocol.DefaultWorkspace

// Defaults of Options.
const (
	// DefaultRequestTimeout is below the 10 s after which the TypeScript SDK gives up.
	DefaultRequestTimeout = 8 * time.Second
	// DefaultMaxInFlight is the number of requests that may be in the engine, or wait for it, at once.
	DefaultMaxInFlight = 4096
	// DefaultMaxWorkspaceInFlight is the number of them that may be of one workspace.
	DefaultMaxWorkspaceInFlight = DefaultMaxInFlight / 2
	// DefaultMaxBufferedBytes bounds the memory of the bodies of requests, and that of answers.
	DefaultMaxBufferedBytes = 128 << 20
)

// Engine serves requests. Its methods are called from many goroutines at once.
type Engine interface {
	// Do serves one valid request in a workspace. DebugTime, in epoch milliseconds, replaces the clock; it
	// is nil unless debug is on and the client gave one. Do returns by the deadline of ctx.
	Do(ctx context.Context, workspace string, req protocol.Request, debugTime *int64) protocol.Reply
	// Ready reports why requests cannot be served now; nil if they can.
	Ready(ctx context.Context) error
}

// PollFunc serves the stream of one worker until it ends.
type PollFunc func(w http.ResponseWriter, r *http.Request, worker Worker)

// Worker is who asks for a stream.
type Worker struct {
	Workspace string
	// Group and ID are decoded, not empty, and UTF-8.
	Group, ID string
	// GroupOnly says that the worker may be sent the messages of its group and no others of the workspace.
	GroupOnly bool
}

// Options of a Handler. A zero number stands for its default.
type Options struct {
	// Debug permits debug.* requests and resonate:debug_time; without it, and to whoever may not touch every id, the
	// former are 403 and the latter is ignored.
	Debug bool
	// CORSOrigins are the origins whose web pages may use the server, as https://host or http://host:port,
	// or * for all. Empty: none may.
	CORSOrigins []string
	// Hosts, if not empty, are the only names by which the server may be addressed, besides IP addresses: a
	// page whose own name was made to resolve to this machine is of the same origin to a browser, and only its
	// Host header gives it away. For servers on loopback.
	Hosts []string
	// Poll serves workers' streams; without it /poll is 404.
	Poll PollFunc
	// Auth asks for tokens; nil lets everybody do everything.
	Auth *Auth
	// Log gets panics and unreadiness (errors) and calls of removed endpoints (warnings). Nil: nowhere.
	Log *slog.Logger
	// RequestTimeout is what the engine has for one request.
	RequestTimeout time.Duration
	// MaxInFlight bounds the requests in the engine and in front of it; one more is answered 503.
	MaxInFlight int
	// MaxWorkspaceInFlight bounds those of one workspace; one more is answered 429.
	MaxWorkspaceInFlight int
	// MaxBufferedBytes bounds the bodies above 4 KiB of requests that have not been answered, all together; one that does
	// not fit is answered 503, or 429 if its workspace has half of it. It bounds the answers above 4 KiB that are being
	// written as well, by themselves: the one that has been longest at it is cut off. It must hold two bodies of
	// protocol.MaxBodyBytes.
	MaxBufferedBytes int64
	// Observe, if not nil, is told of every request to the protocol as it is answered: its kind as the client named
	// it, or "" or "unknown" if that could not be read, the status of the answer, and how long it took from the head of the
	// request. It is called by many goroutines at once and must be quick. It needs Now.
	Observe func(kind string, status int, took time.Duration)
	// Tracer records requests as spans; nil records none. It needs Now.
	Tracer *trace.Tracer
	// SlowRequest is how long a request may take, from its head to its answer, before the log tells of it with the reason; 0
	// for any time. It needs Now.
	SlowRequest time.Duration
	// Timed makes a context in which the engine's calls to its store are timed, and what tells how. Nil: nobody knows.
	Timed func(context.Context) (context.Context, func() Spent)
	// Now is the clock by which all those times are taken: time.Now.
	Now func() time.Time
}

// Handler serves the whole surface. It is safe for concurrent use.
type Handler struct {
	engine   Engine
	o        Options
	cors     *cors
	bodies   budget
	answers  answers
	shares   shares
	brake    brake
	draining atomic.Bool
	refusals tally
	slow     slowLog

	receiving receiving
	decoding  chan struct{} // holds a token for each large body that is being decoded
}

// New returns a handler. The error names a CORS origin that is none.
func New(engine Engine, o Options) (*Handler, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = DefaultRequestTimeout
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
	if o.MaxWorkspaceInFlight <= 0 {
		o.MaxWorkspaceInFlight = DefaultMaxWorkspaceInFlight
	}
	if o.MaxBufferedBytes <= 0 {
		o.MaxBufferedBytes = DefaultMaxBufferedBytes
	}
	o.MaxBufferedBytes = max(o.MaxBufferedBytes, 2*protocol.MaxBodyBytes)
	c, err := newCORS(o.CORSOrigins)
	if err != nil {
		return nil, err
	}
	return &Handler{engine: engine, o: o, cors: c, bodies: budget{limit: o.MaxBufferedBytes}, answers: answers{limit: o.MaxBufferedBytes},
		slow:     slowLog{after: func(d time.Duration, f func()) { time.AfterFunc(d, f) }},
		shares:   shares{limit: o.MaxInFlight, each: o.MaxWorkspaceInFlight, later: afterOthers, by: map[string]*share{}},
		decoding: make(chan struct{}, largeDecodes)}, nil
}

// Drain makes every later request a 503 that closes its connection, and /ready as well. What is in flight
// ends as usual; a body that is still coming in has drainGrace to arrive.
func (h *Handler) Drain() {
	h.draining.Store(true)
	time.AfterFunc(drainGrace, h.receiving.cutAll)
}

// ServeHTTP serves one request. (docs/protocol.md)
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.cors.serve(w, r) {
		return
	}
	defer func() {
		fault := recover()
		switch {
		case fault == http.ErrAbortHandler:
			panic(fault)
		case fault != nil:
			h.logPanic(fault, r.URL.Path, "")
			h.write(w, http.StatusInternalServerError, protocol.AppendResponse(nil, "unknown", "0", failed))
		}
	}()
	if h.draining.Load() || lastOfConnection(r) {
		w.Header().Set("Connection", "close")
	}
	if !h.knownHost(r.Host) {
		plain(w, http.StatusForbidden, "Refused: this server is not addressed by the name "+strconv.QuoteToASCII(r.Host)+"; use localhost")
		return
	}
	route, err := parseRoute(r.URL.EscapedPath())
	switch {
	case err != nil && r.Method == http.MethodPost:
		h.write(w, http.StatusBadRequest, protocol.AppendResponse(nil, "unknown", "0", protocol.Fail(protocol.StatusInvalid, err.Error())))
		return
	case err != nil:
		plain(w, http.StatusBadRequest, err.Error())
		return
	}
	if allowed := route.methods(); allowed != nil && !slices.Contains(allowed, r.Method) {
		w.Header().Set("Allow", strings.Join(allowed, ","))
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	switch route.endpoint {
	case endpointProtocol:
		h.serveProtocol(w, r, route.workspace)
	case endpointPoll:
		h.servePoll(w, r, route)
	case endpointHealth:
		w.WriteHeader(http.StatusOK)
	case endpointReady:
		h.serveReady(w, r)
	case endpointLegacy:
		h.o.Log.Warn("removed endpoint called; the client's SDK is too old", "method", r.Method, "path", "/"+route.legacy)
		h.write(w, http.StatusGone, []byte(legacyMessage))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

const legacyMessage = `{"error":"this endpoint is no longer supported; update the SDK to one that speaks the protocol of ` + protocol.Version + `"}`

// servePoll hands a worker's connection to the Poll option.
func (h *Handler) servePoll(w http.ResponseWriter, r *http.Request, route route) {
	switch {
	case h.o.Poll == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case h.draining.Load():
		w.Header().Set("Retry-After", retryAfter)
		plain(w, http.StatusServiceUnavailable, stopping)
		return
	}
	defer func() {
		if fault := recover(); fault != nil {
			h.logPanic(fault, pollKind, route.workspace)
			// The stream may have begun: all that is left to say is the end of the connection.
			panic(http.ErrAbortHandler)
		}
	}()
	worker := Worker{Workspace: route.workspace, Group: route.group, ID: route.id}
	if h.admitWorker(w, r, &worker) {
		h.o.Poll(w, r, worker)
	}
}

const (
	// retryAfter is how long a client should wait after a 503 or a 429, in seconds.
	retryAfter = "1"
	stopping   = "The server is stopping; nothing was done, try again"
	tooMany    = "This workspace has too many requests at once (limits.requests_per_workspace); nothing was done, try again"
	// What is said of large bodies.
	tooManyBytes = "This workspace has too many large requests at once (half of limits.buffered_bytes); nothing was done, try again"
	fullOfBytes  = "The server has too many large requests at once (limits.buffered_bytes); nothing was done, try again"
	late         = "The server did not come to this request in time; nothing was done, try again"
	busy         = "The server has too many requests at once (limits.requests); nothing was done, try again"
)

// serveProtocol serves POST /: reads the body, decodes, asks the engine, answers.
func (h *Handler) serveProtocol(w http.ResponseWriter, r *http.Request, workspace string) {
	t := h.begin(workspace)
	if err := h.cors.check(r); err != nil {
		h.finish(&t, "", http.StatusForbidden)
		plain(w, http.StatusForbidden, "Refused: this request comes from a web page of another origin; allow its origin with --server-cors-allow-origin")
		return
	}
	in, held := takeBuffer(), charge{workspace: workspace}
	defer func() { h.bodies.give(&held, held.bytes) }()
	if failure := h.readBody(w, r, in, &held); failure != nil {
		in.put()
		w.Header().Set("Connection", "close")
		if failure.status == http.StatusServiceUnavailable || failure.status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", retryAfter)
		}
		h.finish(&t, "", failure.status)
		h.bodies.give(&held, held.bytes)
		defer h.hold(r, &t)()
		plain(w, failure.status, failure.message)
		return
	}
	h.mark(&t.received)
	var env protocol.Envelope
	req, claims, reply := h.decode(r, workspace, in, &env)
	h.trace(&t, r, &env, req)
	if req != nil {
		reply = h.trim(claims, h.do(r, &t, &env, req))
	}
	out := takeBuffer()
	out.bytes = protocol.AppendResponse(out.bytes, env.Kind, env.CorrID, reply)
	reply.Body = nil // what is left of it is in out: whoever reads slowly keeps no more than that
	h.bodies.give(&held, held.bytes)
	challenge(w, reply.Status)
	if reply.Status == protocol.StatusUnavailable || reply.Status == protocol.StatusTooManyRequests {
		w.Header().Set("Retry-After", retryAfter)
	}
	h.finish(&t, env.Kind, reply.Status)
	defer h.hold(r, &t)()
	h.answer(w, reply.Status, out.bytes)
	out.put()
}

// hold lets a request that did not reach the engine wait for its answer, if it is one of many of its workspace and somebody
// else is there to suffer from them. The caller calls done afterwards.
func (h *Handler) hold(r *http.Request, t *trail) (done func()) {
	if t.served || h.draining.Load() || !h.shares.others(t.workspace) {
		return func() {}
	}
	return h.brake.hold(r.Context(), t.workspace)
}

// answer writes an answer, within the memory that there is for large ones.
func (h *Handler) answer(w http.ResponseWriter, status int, body []byte) {
	if cap(body) > firstBuffer {
		written, cut := h.answers.begin(w, int64(cap(body)))
		defer h.answers.end(written)
		if cut {
			h.o.Log.Warn("large answers take all the memory that there is for them (limits.buffered_bytes); the slowest are cut off")
		}
	}
	h.write(w, status, body)
}

// decode reads an envelope and its data, and ends the use of the body. First failure wins: envelope, version, token,
// kind, data, rights. It returns a request and the claims of its bearer, or nil and a reply that refuses. Either way
// env says what to echo.
func (h *Handler) decode(r *http.Request, workspace string, in *buffer, env *protocol.Envelope) (protocol.Request, *auth.Claims, protocol.Reply) {
	defer in.put()
	done := h.decodingTurn(in)
	var err error
	*env, err = protocol.DecodeEnvelope(in.bytes)
	done()
	if err != nil {
		return nil, nil, protocol.Fail(protocol.StatusInvalid, err.Error())
	}
	claims, refusal := h.admit(r, workspace, env)
	if refusal != nil {
		return nil, nil, refuse(refusal)
	}
	if !h.o.Debug || (claims != nil && !claims.Unrestricted()) {
		env.DebugTime = nil // it moves the clock of the whole workspace
	}
	if !h.o.Debug {
		if strings.HasPrefix(env.Kind, "debug.") && protocol.Known(env.Kind) {
			return nil, nil, protocol.Fail(protocol.StatusForbidden, "Forbidden: debug.* needs a server that runs with --debug")
		}
	}
	done = h.decodingTurn(in)
	req, err := protocol.DecodeRequest(env.Kind, env.Data)
	done()
	if err == nil {
		err = protocol.CheckDebugTime(*env, req)
	}
	if err != nil {
		return nil, nil, protocol.Fail(protocol.StatusInvalid, err.Error())
	}
	env.Data = nil // it lies in the body; the request has its own memory
	if refusal := h.judge(r, workspace, claims, req); refusal != nil {
		return nil, nil, refuse(refusal)
	}
	return req, claims, protocol.Reply{}
}

// decodingTurn waits until the body may be decoded, which is at once unless it is large. The caller calls done
// afterwards.
func (h *Handler) decodingTurn(in *buffer) (done func()) {
	if len(in.bytes) < largeBody {
		return func() {}
	}
	h.decoding <- struct{}{}
	return func() { <-h.decoding }
}

// failed answers a request in which the server has a fault.
var failed = protocol.Fail(protocol.StatusInternal,
	"Internal error: the server failed in this request and has logged why; whether it had an effect is unknown")

// do asks the engine, if there is room for one more request. A panic becomes a 500: it is a fault of this
// request, not of the process.
func (h *Handler) do(r *http.Request, t *trail, env *protocol.Envelope, req protocol.Request) (reply protocol.Reply) {
	if h.draining.Load() {
		return protocol.Fail(protocol.StatusUnavailable, stopping)
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.o.RequestTimeout)
	defer cancel()
	turn, refused := h.shares.enter(ctx, t.workspace)
	switch refused {
	case shareFull:
		return protocol.Fail(protocol.StatusTooManyRequests, tooMany)
	case allFull:
		return protocol.Fail(protocol.StatusUnavailable, busy)
	case gaveUp:
		return protocol.Fail(protocol.StatusUnavailable, late)
	}
	t.served = true
	leave := h.shares.leave
	if quick(req.Kind()) {
		leave = h.shares.leaveLater
	}
	defer leave(turn)
	defer func() {
		if fault := recover(); fault != nil {
			h.logPanic(fault, env.Kind, t.workspace)
			reply = failed
		}
	}()
	defer h.mark(&t.answered)
	return h.engine.Do(h.timed(ctx, t), t.workspace, req, env.DebugTime)
}

func (h *Handler) logPanic(fault any, kind, workspace string) {
	h.o.Log.Error("panic in a request", "panic", fmt.Sprint(fault), "kind", kind, "workspace", workspace, "stack", string(debug.Stack()))
}

// jsonType is shared by all answers: a header's values are never written to.
var jsonType = []string{"application/json"}

// write sends a JSON body.
func (h *Handler) write(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	// An error means that the client is gone; there is nobody to tell.
	_, _ = w.Write(body)
}

// plain sends a line of text: what happens outside an envelope has none to answer in.
func plain(w http.ResponseWriter, status int, message string) {
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(message)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(message))
}
