package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// Noted is what an Engine adds that is ready, and has something to say all the same: that its store is not durable,
// and the operator has accepted that.
type Noted interface {
	// Note is for a person, in one line; empty if there is nothing to say.
	Note() string
}

// Reticent is an error of Engine.Ready of which the log may know more than whoever asks: /ready needs no token.
type Reticent interface {
	error
	// Public is the reason for everybody.
	Public() string
}

// errStopping is why a server that drains is not ready.
var errStopping = errors.New("the server is stopping")

// Ready reports why requests cannot be served now, by the deadline of ctx; nil if they can. A server that drains is not
// ready from the first moment. Safe for concurrent use.
func (h *Handler) Ready(ctx context.Context) error {
	if h.draining.Load() {
		return errStopping
	}
	return h.engine.Ready(ctx)
}

// serveReady says whether requests can be served now: 200 {"ready":true}, perhaps with a "note" for a person; or 503
// {"ready":false,"reason":"..."}. Probes look at the status alone.
func (h *Handler) serveReady(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.o.RequestTimeout)
	defer cancel()
	if err := h.Ready(ctx); err != nil {
		if !errors.Is(err, errStopping) {
			h.o.Log.Error("not ready", "error", err)
		}
		reason := err.Error()
		if reticent := Reticent(nil); errors.As(err, &reticent) {
			reason = reticent.Public()
		}
		body := appendMember([]byte(`{"ready":false`), "reason", reason)
		h.write(w, http.StatusServiceUnavailable, append(body, "}\n"...))
		return
	}
	body := []byte(`{"ready":true`)
	if noted, ok := h.engine.(Noted); ok {
		if note := noted.Note(); note != "" {
			body = appendMember(body, "note", note)
		}
	}
	h.write(w, http.StatusOK, append(body, "}\n"...))
}

// appendMember appends a member to an object that has one already. What is not UTF-8 in the value is replaced.
func appendMember(dst []byte, name, value string) []byte {
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	dst, _ = jsontext.AppendQuote(dst, value)
	return dst
}
