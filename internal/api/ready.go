package api

import (
	"io"
	"net/http"
)

// Noted is what an Engine adds that is ready, and has something to say all the same: that its store is not durable,
// and the operator has accepted that.
type Noted interface {
	// Note is for a person, in one line; empty if there is nothing to say.
	Note() string
}

// serveReadyNote answers a server that is ready: with no body, or with what the engine has to say.
func (h *Handler) serveReadyNote(w http.ResponseWriter) {
	noted, ok := h.engine.(Noted)
	if !ok || noted.Note() == "" {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, noted.Note()+"\n")
}
