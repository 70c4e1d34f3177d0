package cluster

import "slices"

// Ceiling is what a store holds of one server's clock: no instant beyond it was ever served. (docs/machine.md, Time)
type Ceiling struct {
	ID   string
	Ms   int64
	Live bool // its lease seems to hold
}

// ceilingAheadMs is more than a ceiling is ahead of its server's time.
const ceilingAheadMs = 500

// StartMs is the instant below which a server that starts must serve none: the highest ceiling of its own earlier
// lives and of all servers that are gone. Of those that seem to live a ceiling counts as long as it is no more than
// MaxOffsetMs ahead of their median: a single server whose clock is far ahead, which is not ready, must not draw all
// that start after it along. A store that is not shared has no live servers.
func StartMs(self string, ceilings []Ceiling) (ms int64) {
	var live []int64
	for _, c := range ceilings {
		if c.ID == self || !c.Live {
			ms = max(ms, c.Ms)
		} else {
			live = append(live, c.Ms)
		}
	}
	if len(live) == 0 {
		return ms
	}
	slices.Sort(live)
	sane := live[(len(live)-1)/2] + MaxOffsetMs + ceilingAheadMs
	for _, c := range live {
		if c <= sane {
			ms = max(ms, c)
		}
	}
	return ms
}
