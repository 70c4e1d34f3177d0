package push

// TransportStats counts what one transport was given since the start, and what waits for it now. A message counts again
// each time it is sent.
type TransportStats struct {
	Name     string
	Accepted uint64 // sends that the destination accepted
	Failed   uint64 // sends that it did not
	Refused  uint64 // sends that could not even be tried: denied, no credential
	Dropped  uint64 // messages that had nothing left to do before they were sent: taken, settled

	Sending  int   // now with the transport
	Ready    int   // now in line
	Resting  int   // now in a pause after a failure
	Lanes    int   // destinations with messages
	Failing  int   // of them: those that pause because their last sends have all failed
	OldestMs int64 // age of the oldest message in memory; 0 if there is none
}

// Stats are the counters of push since its start, and what it holds now.
type Stats struct {
	Transports   []TransportStats
	Outstanding  int // slots in use
	HintsDropped uint64
	GivenUp      uint64 // messages whose report failed too often
	TakenOver    uint64 // lanes of other servers that this one has served
	// Unserved is how many queues the last walk over each kind has met that this server sends nothing from.
	Unserved [2]int
	Errors   [Classes]uint64 // failed calls to the outbox
}

// Stats returns a copy of the counters, and counts what is held.
func (c *Core) Stats() Stats {
	s := c.stats
	s.Outstanding = c.busy
	s.Transports = append([]TransportStats(nil), c.stats.Transports...)
	for i := range s.Transports {
		s.Transports[i].Name = c.transports[i].Name
	}
	for _, f := range c.flights {
		t := &s.Transports[f.lane.key.transport]
		switch f.state {
		case sending:
			t.Sending++
		case resting:
			t.Resting++
		case ready, checking:
			t.Ready++
		default:
			continue // accepted
		}
		t.OldestMs = max(t.OldestMs, c.nowMs-f.sinceMs)
	}
	for _, l := range c.lanes {
		if l.flights == 0 {
			continue
		}
		t := &s.Transports[l.key.transport]
		t.Lanes++
		if l.troubles > 0 {
			t.Failing++
		}
	}
	return s
}
