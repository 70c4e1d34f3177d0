package api

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// Noted is what an Engine adds that is ready, and has something to say all the same: that its store is not durable,
// and the operator has accepted that.
type Noted interface {
	// Note is for a person, in one line; empty if there is nothing to say.
	Note() string
}

// serveReady says whether requests can be served now: 200 {"ready":true}, perhaps with a "note" for a person; or 503
// {"ready":false,"reason":"..."}. Probes look at the status alone. A server that drains is not ready from the first moment.
func (h *Handler) serveReady(w http.ResponseWriter, r *http.Request) {
	if h.draining.Load() {
		h.refuseReady(w, "the server is stopping")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.o.RequestTimeout)
	defer cancel()
	if err := h.engine.Ready(ctx); err != nil {
		h.o.Log.Error("not ready", "error", err)
		h.refuseReady(w, err.Error())
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

// refuseReady answers why the server is not ready.
func (h *Handler) refuseReady(w http.ResponseWriter, reason string) {
	h.write(w, http.StatusServiceUnavailable, append(appendMember([]byte(`{"ready":false`), "reason", reason), "}\n"...))
}

// appendMember appends a member to an object that has one already. What is not UTF-8 in the value is replaced.
func appendMember(dst []byte, name, value string) []byte {
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	dst, _ = jsontext.AppendQuote(dst, value)
	return dst
}
