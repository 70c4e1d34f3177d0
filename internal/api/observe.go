package api

// InFlight is how many requests are in the engine now, or wait for it.
func (h *Handler) InFlight() int64 { return int64(h.shares.inFlight()) }
