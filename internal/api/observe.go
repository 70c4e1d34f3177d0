package api

// InFlight is how many requests are in the engine now.
func (h *Handler) InFlight() int64 { return h.inFlight.Load() }
