package batch

import (
	"sync"
	"time"

	"abide/kv"
)

// job is one closure on its way through the queue. Its links belong to the queue; its outcome is written by
// the writer before done.
type job struct {
	fn func(kv.Tx) error
	// prefetch is what fn will probably read: the caller's, who waits.
	prefetch []kv.Range
	next     *job
	prev     *job
	lane     *lane
	done     chan struct{}

	position kv.Position
	err      error

	timing *kv.Timing // of the caller; nil if nobody asks
	taken  time.Time  // when the writer took it, by the timing's clock
}

// answered tells whoever asks how long j took since it was queued. One that was never taken has only waited.
func (j *job) answered(queued time.Time) {
	now := j.timing.Now()
	if j.taken.IsZero() {
		j.taken = now
	}
	j.timing.Answered(j.taken.Sub(queued), now.Sub(j.taken))
}

// jobs are reused together with their channels. A job goes back only by the goroutine that waited for it.
var jobs = sync.Pool{New: func() any { return &job{done: make(chan struct{}, 1)} }}

// lane is the queue of one workspace at one urgency.
type lane struct {
	name        string
	first, last *job
	length      int
	// next and prev link the lanes of the same urgency that have work, in a ring.
	next, prev *lane
	owner      *ring
}

// ring is the lanes of one urgency that have work. The next job comes from the lane at turn; every lane
// gives one job in its turn.
type ring struct {
	turn  *lane
	lanes map[string]*lane
	// spare keeps one emptied lane, so that a store with one workspace does not allocate one per closure.
	spare *lane
}

// queue is the bounded queue in front of the writer. A closure waits in the lane of its workspace; requests
// and background work have lanes of their own.
type queue struct {
	mu         sync.Mutex
	ready      sync.Cond // signalled when a job arrives or the queue closes
	requests   ring
	background ring
	length     int
	limit      int
	closed     bool
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit}
	q.ready.L = &q.mu
	q.requests.lanes = make(map[string]*lane)
	q.background.lanes = make(map[string]*lane)
	return q
}

// push adds a job. It returns kv.ErrOverloaded if the queue is full and kv.ErrClosed if it is closed.
func (q *queue) push(j *job, h kv.Hints) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return kv.ErrClosed
	case q.length >= q.limit:
		return kv.ErrOverloaded
	}
	r := &q.requests
	if h.Background {
		r = &q.background
	}
	r.lane(h.Lane).push(j)
	if q.length++; q.length == 1 {
		q.ready.Signal()
	}
	return nil
}

// remove takes j out again and reports whether it was still there.
func (q *queue) remove(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.lane == nil {
		return false
	}
	j.lane.remove(j)
	q.length--
	return true
}

// wait returns when there is a job, or false when the queue is closed and empty.
func (q *queue) wait() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.length == 0 && !q.closed {
		q.ready.Wait()
	}
	return q.length > 0
}

// waiting is how many jobs wait.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.length
}

// pop takes the next job for a batch that has already taken so many; nil if none is waiting. While requests
// wait, background work gets at most every other place.
func (q *queue) pop(requests, background int) (j *job, isBackground bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := &q.requests
	if r.turn == nil || (q.background.turn != nil && background < requests) {
		r, isBackground = &q.background, true
	}
	if r.turn == nil {
		return nil, false
	}
	l := r.turn
	r.turn = l.next
	j = l.first
	l.remove(j)
	q.length--
	if j.timing != nil {
		j.taken = j.timing.Now()
	}
	return j, isBackground
}

// slice is how many requests a batch takes before it ends, 0 for as many as there are. While several workspaces wait, each
// gives as many as the one that has the fewest: whoever has sent one request then waits for a batch of a few, and not for all
// that others have sent; those go with the next one. Workspaces that send alike share long batches. (docs/decisions/0050)
func (q *queue) slice() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.requests.turn
	if first == nil || first.next == first {
		return 0
	}
	lanes, fewest := 1, first.length
	for l := first.next; l != first && lanes < maxBatchClosures; l = l.next {
		lanes++
		fewest = min(fewest, l.length)
	}
	return lanes * fewest
}

// close makes every later push fail. Jobs in the queue stay.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Broadcast()
}

// lane returns the lane of a name, putting it behind all others of the ring if it is new.
func (r *ring) lane(name string) *lane {
	if l := r.lanes[name]; l != nil {
		return l
	}
	l := r.spare
	if r.spare = nil; l == nil {
		l = &lane{owner: r}
	}
	l.name = name
	r.lanes[name] = l
	if r.turn == nil {
		r.turn, l.next, l.prev = l, l, l
		return l
	}
	l.next, l.prev = r.turn, r.turn.prev
	l.prev.next, l.next.prev = l, l
	return l
}

func (l *lane) push(j *job) {
	j.lane, j.prev, j.next = l, l.last, nil
	if l.last == nil {
		l.first = j
	} else {
		l.last.next = j
	}
	l.last = j
	l.length++
}

// remove takes j out of the lane, and an empty lane out of its ring.
func (l *lane) remove(j *job) {
	if j.prev == nil {
		l.first = j.next
	} else {
		j.prev.next = j.next
	}
	if j.next == nil {
		l.last = j.prev
	} else {
		j.next.prev = j.prev
	}
	j.lane, j.prev, j.next = nil, nil, nil
	l.length--
	if l.first != nil {
		return
	}
	r := l.owner
	delete(r.lanes, l.name)
	if l.next == l {
		r.turn = nil
	} else {
		l.prev.next, l.next.prev = l.next, l.prev
		if r.turn == l {
			r.turn = l.next
		}
	}
	l.next, l.prev = nil, nil
	r.spare = l
}
