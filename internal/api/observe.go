package api

import "time"

// begin is the instant at which a request to the protocol begins, if somebody observes requests.
func (h *Handler) begin() (began time.Time) {
	if h.o.Observe != nil {
		began = h.o.Now()
	}
	return began
}

// observe tells how a request ended. One whose envelope could not be read has no kind.
func (h *Handler) observe(began time.Time, kind string, status int) {
	if h.o.Observe != nil {
		h.o.Observe(kind, status, h.o.Now().Sub(began))
	}
}

// InFlight is how many requests are in the engine now.
func (h *Handler) InFlight() int64 { return h.inFlight.Load() }
