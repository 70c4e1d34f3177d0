package deliver

// MessageStats counts one kind of message since the start. A message counts again each time it is sent.
type MessageStats struct {
	Sent      uint64 // flushed to a stream
	Claimed   uint64 // executes whose claim came before their report
	Delivered uint64 // reported to the outbox
	Late      uint64 // executes whose claim came after it
	Expired   uint64 // executes that were held for Limits.HoldMs without a claim
	Resent    uint64 // taken back from a stream that broke too early
	GivenUp   uint64 // not reported, because that failed too often
	InFlight  int    // now, with those held
	Held      int    // now: executes that were reported and are not claimed
}

// GroupStats is one group that has connections.
type GroupStats struct {
	Workspace   string
	Group       string
	Connections int
	Executes    int // slots in use, also by those held
	Unblocks    int
}

// Stats are the counters of delivery since its start, and what it holds now.
type Stats struct {
	Messages     [2]MessageStats // executes, unblocks
	Connections  int
	Refused      uint64 // connections over the limit
	Replaced     uint64 // connections closed by a newer one of their pid
	HintsDropped uint64
	Yielded      uint64          // times that a message was left to another server
	Errors       [Classes]uint64 // failed calls to the outbox
	Groups       []GroupStats    // by their oldest connection

	// Copies counts copies of an unblock for the whole workspace, put into the buffers of the connections
	// that the message itself did not go to; CopiesDropped those for which there was no room.
	Copies        uint64
	CopiesDropped uint64
}

// Stats returns a copy of the counters, and counts the groups.
func (c *Core) Stats() Stats {
	s := c.stats
	for k := range kinds {
		s.Messages[k].InFlight = len(c.flights[k])
	}
	s.Messages[kindExecute].Held = c.holding.n
	s.Connections = len(c.order)
	at := map[*group]int{}
	for _, cn := range c.order {
		i, ok := at[cn.group]
		if !ok {
			i = len(s.Groups)
			at[cn.group] = i
			s.Groups = append(s.Groups, GroupStats{Workspace: cn.group.key.workspace, Group: cn.group.key.name})
		}
		s.Groups[i].Connections++
		s.Groups[i].Executes += cn.used[kindExecute]
		s.Groups[i].Unblocks += cn.used[kindUnblock]
	}
	return s
}
