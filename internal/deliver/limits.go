package deliver

// Limits are the bounds of delivery. A zero field stands for its default.
type Limits struct {
	// MaxConnections is the largest number of streams in all. Default 1,000.
	MaxConnections int
	// MaxWorkspaceConnections is the largest number of streams in one workspace, MaxGroupConnections of one group.
	// Default: MaxConnections.
	MaxWorkspaceConnections int
	MaxGroupConnections     int
	// MaxExecutes is how many executes one connection may have been handed that are not claimed. An
	// execute counts until its task is claimed, halted or settled (HintClaimed), is queued again because its
	// retry has come, or has been held for HoldMs. Default 256.
	MaxExecutes int
	// MaxUnblocks is the same for unblocks, which nobody claims: each counts until it is reported as
	// delivered, a window after it was flushed. Default 4,096.
	MaxUnblocks int
	// BufferBytes bounds what waits for one connection's writer: a connection that holds as much takes no
	// further message, so it holds at most one message more. Default 256 KiB.
	BufferBytes int
	// WriteBytes ends a batch of messages that one write carries, after the message that reaches it.
	// Default 64 KiB.
	WriteBytes int
	// MaxHints is how many hinted messages of each kind may wait for their check; further hints are
	// dropped and found by a scan. Default 16,384.
	MaxHints int
	// WindowMs is how long a stream must stay healthy after a flush for a message to count as delivered.
	// Default 1,000.
	WindowMs int64
	// GatherMs is how much longer a delivered message waits for company, so that one transaction reports
	// many. Default 50.
	GatherMs int64
	// HoldMs is how long after its report an unclaimed execute counts in MaxExecutes, if no hint says
	// earlier that it was claimed or queued again. It should be the time after which tasks are
	// dispatched again: shorter, and a worker that claims nothing is handed more; longer, and slots stay
	// taken after a hint was lost. Default 30,000.
	HoldMs int64
	// PollMs is the longest time between two scans of a destination that has a connection. Default 1,000.
	PollMs int64
	// CallTimeoutMs is the deadline of one call to the Outbox. Default 5,000.
	CallTimeoutMs int64
}

// maxReportAttempts is how often a message is reported as delivered in vain before it is forgotten. Its
// entry is still in the outbox then, and is met again by a scan.
const maxReportAttempts = 5

// withDefaults fills in the zero fields.
func (l Limits) withDefaults() Limits {
	orInt := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	orMs := func(p *int64, v int64) {
		if *p <= 0 {
			*p = v
		}
	}
	orInt(&l.MaxConnections, 1000)
	orInt(&l.MaxWorkspaceConnections, l.MaxConnections)
	orInt(&l.MaxGroupConnections, l.MaxConnections)
	orInt(&l.MaxExecutes, 256)
	orInt(&l.MaxUnblocks, 4096)
	orInt(&l.BufferBytes, 256<<10)
	orInt(&l.WriteBytes, 64<<10)
	orInt(&l.MaxHints, 16384)
	orMs(&l.WindowMs, 1000)
	orMs(&l.GatherMs, 50)
	orMs(&l.HoldMs, 30_000)
	orMs(&l.PollMs, 1000)
	orMs(&l.CallTimeoutMs, 5000)
	return l
}
