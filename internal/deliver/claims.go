package deliver

// A claim frees the slot of its execute by a hint. Where hints do not travel between servers, a claim that another
// server has answered gives none here: then the tasks themselves are asked about, every poll interval.

// asksForClaims reports whether claims may go unheard.
func (c *Core) asksForClaims() bool {
	r := &c.roster
	return !r.standing.Travels && len(r.standing.Live) > 1 && c.window.n+c.holding.n > 0
}

// takeClaims fills j with a page of executes that were written and may have been claimed; false if none is to be asked
// about.
func (c *Core) takeClaims(nowMs int64, j *Job) bool {
	r := &c.roster
	if len(r.claims) == 0 {
		if nowMs < r.claimsAtMs || !c.asksForClaims() {
			return false
		}
		r.claimsAtMs = nowMs + c.limits.PollMs
		for _, l := range []*flightList{&c.window, &c.holding} {
			for f := l.front; f != nil; f = f.links[linkQueue].next {
				if f.kind == kindExecute {
					r.claims = append(r.claims, f)
				}
			}
		}
	}
	var rest []*flight
	for _, f := range r.claims {
		switch {
		case f.state != flushed && f.state != held:
		case len(j.flights) == 0 || (f.workspace == j.Workspace && len(j.flights) < MaxPage):
			j.Workspace = f.workspace
			j.flights = append(j.flights, f)
			j.executes = append(j.executes, f.execute())
		default:
			rest = append(rest, f)
		}
	}
	r.claims = rest
	return len(j.flights) > 0
}

// claimed ends those that were asked about and are pending no longer.
func (c *Core) claimed(nowMs int64, j *Job, unclaimed []Execute) {
	pending := make(map[string]int64, len(unclaimed))
	for _, e := range unclaimed {
		pending[e.ID] = e.Version
	}
	for _, f := range j.flights {
		if version, ok := pending[f.id]; (ok && version == f.version) || (f.state != flushed && f.state != held) {
			continue
		}
		c.HintClaimed(nowMs, f.workspace, f.id, f.version)
	}
}
