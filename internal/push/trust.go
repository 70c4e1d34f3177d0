package push

// trust is what is known of a destination. Whoever may create promises can name any number of destinations that hang or
// that nobody answers at. What all lanes share, the slots and the memory of messages, is therefore never theirs alone: all
// that are doubted have half of it at most, and they and the new ones together three quarters.
type trust int

// The trusts, in the order in which they are served.
const (
	proven  trust = iota // its last messages were accepted, or claimed
	unknown              // nothing is known
	doubted              // it has accepted nothing yet, or its last messages have all failed
	trusts               // how many there are
)

// trust is that of l now.
func (l *lane) trust() trust {
	switch {
	case l.troubles > 0 || l.denied || l.failures > 0 && l.window <= firstWindow:
		return doubted
	case l.window > firstWindow:
		return proven
	}
	return unknown
}

// most is how much of all may be taken for lanes of a trust, and those that are trusted less, together; at least 1.
func most(t trust, all int) int {
	switch t {
	case doubted:
		return max(1, all/2)
	case unknown:
		return max(1, all-all/4)
	}
	return all
}

// left is how much more of all may be taken for lanes of a trust. taken is what they have all taken, by trust.
func left(t trust, taken *[trusts]int, all int) int {
	free, sum := all, 0
	for other := trusts - 1; other >= proven; other-- {
		sum += taken[other]
		if other <= t {
			free = min(free, most(other, all)-sum)
		}
	}
	return free
}

// memory is how many more messages of l may be held, but for its own share.
func (c *Core) memory(l *lane) int { return left(l.trust(), &c.kept, c.limits.MaxFlights) }

// fits reports whether the bytes of f may be with a transport now. Slots bound the number of messages, which is no bound of
// memory where each may carry megabytes. One of any size fits where there is no other.
func (c *Core) fits(f *flight) bool {
	return f.bytes <= largeBytes || c.large[f.trust] == 0 || left(f.trust, &c.large, c.limits.MaxLargeBytes) >= f.bytes
}

// load counts the bytes of f, which is about to be sent.
func (c *Core) load(f *flight) {
	if f.bytes > largeBytes {
		f.loaded = f.bytes
		c.large[f.trust] += f.loaded
	}
}

// put makes f wait until there is room for its bytes, without a slot.
func (c *Core) put(nowMs int64, f *flight) {
	f.state, f.untilMs = resting, nowMs+largePauseMs
	c.alarm(alarm{atMs: f.untilMs, flight: f})
}

// entrust counts f, and its slot if it has one, by the trust of its lane as it is now.
func (c *Core) entrust(f *flight) {
	t := f.lane.trust()
	c.kept[f.trust]--
	c.kept[t]++
	if f.state == sending {
		c.held[f.trust]--
		c.held[t]++
		c.large[f.trust] -= f.loaded
		c.large[t] += f.loaded
	}
	f.trust = t
}
