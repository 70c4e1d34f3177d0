package push

import "hash/fnv"

// Limits are the bounds of push. A zero field stands for its default.
type Limits struct {
	// MaxOutstanding is how many messages may be on their way at once, over all lanes: from the last look at the store
	// until the transport has answered. Default 1,024. Lanes share it; see share.
	MaxOutstanding int
	// MaxFlights is how many messages are held in memory, those that wait and those that pause after a failure among them.
	// Default 32,768. The rest stays in the store. It is shared as MaxOutstanding is.
	MaxFlights int
	// MaxLargeBytes is how many bytes the promises of messages above largeBytes that are on their way may have together. Each
	// is in memory two or three times. Default 64 MiB. It is shared as MaxOutstanding is.
	MaxLargeBytes int
	// MaxReady is how many messages of one lane wait in memory for their turn, if the lane is quick. Default 512.
	MaxReady int
	// PollMs is the longest time between two looks for queues that hold messages. Default 1,000; where servers share a
	// store at most sharedPollMs.
	PollMs int64
	// RetryMsFirst and RetryMsMax are the pauses of a message after its first failure, and at most; each failure doubles
	// it, and up to half of it is taken off by chance. Defaults 1,000 and 60,000. The same holds for a lane of which the
	// last messages have all failed.
	RetryMsFirst, RetryMsMax int64
	// MaxLaterMs bounds what a destination may ask for with LaterError. Default 300,000.
	MaxLaterMs int64
	// TakeOverMs is how long the next server in line leaves alone what another server that lives should have sent; the one
	// after it twice as long, and so on. Default 10,000: long enough for most answers, since a message that is being sent
	// looks like one that is not.
	TakeOverMs int64
	// CallTimeoutMs is the deadline of one call to the Outbox. Default 5,000.
	CallTimeoutMs int64
}

// Further limits.
const (
	// sharedPollMs is the longest time between two looks where servers share a store.
	sharedPollMs = 250
	// largeBytes is up to which size a message is none of MaxLargeBytes, which slots bound well enough. largePauseMs is when one
	// that has not fitted is tried again.
	largeBytes   = 32 << 10
	largePauseMs = 250
	// firstWindow is how many messages may be on their way to a lane of which nothing is known yet. Each that is accepted
	// or claimed makes it one more, up to the transport's Concurrency.
	firstWindow = 8
	// minReady is how many messages of a lane wait in memory, however slow it is.
	minReady = 16
	// minPage is the least that a page of a queue is asked for, so that a page full of known messages is passed quickly.
	minPage = 32
	// failuresInRow is after how many failures in a row a lane pauses, and its window begins to shrink: so many at least, and
	// half of its window.
	failuresInRow = 3
	// quickSteps is how many steps of a walk over the queues follow each other at once. Further ones are pacedSteps in a
	// poll interval, so that very many queues that nobody takes from do not occupy the store.
	quickSteps = 8
	pacedSteps = 8
	// quietMsMax is how seldom a queue is looked into in which everything has been known.
	quietMsMax = 30_000
	// maxOpen is how many queues are remembered, but for one of each lane with room. What is over it is met by the next walk.
	maxOpen = 16_384
	// laneIdleMs is how long a lane without messages is remembered.
	laneIdleMs = 60_000
	// watched is how many messages at the head of another server's queue are remembered.
	watched = 16
	// takenMs is for how long a server serves a lane that it has taken over.
	takenMs = 60_000
	// maxRoutes bounds the memory of parsed addresses.
	maxRoutes = 4096
	// maxReportAttempts is how often a message is reported in vain before it is forgotten. The next walk meets it again.
	maxReportAttempts = 5
	// maxErrorBytes is how much of an error's text is kept.
	maxErrorBytes = 300

	// maxNotices is how many notices there are in noticeSpanMs.
	maxNotices   = 64
	noticeSpanMs = 60_000
)

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
	orInt(&l.MaxOutstanding, 1024)
	orInt(&l.MaxFlights, 32_768)
	orInt(&l.MaxLargeBytes, 64<<20)
	orInt(&l.MaxReady, 512)
	orMs(&l.PollMs, 1000)
	orMs(&l.RetryMsFirst, 1000)
	orMs(&l.RetryMsMax, 60_000)
	orMs(&l.MaxLaterMs, 300_000)
	orMs(&l.TakeOverMs, 10_000)
	orMs(&l.CallTimeoutMs, 5000)
	return l
}

// jittered takes up to half off a pause, by what: messages that failed together do not come back together.
func jittered(ms int64, what string, attempt int) int64 {
	h := fnv.New64a()
	h.Write([]byte(what))
	h.Write([]byte{byte(attempt)})
	sum := h.Sum64()
	sum ^= sum >> 33 // the low bits of FNV alone are no good mixture
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	return ms - int64(sum%uint64(ms/2+1))
}
