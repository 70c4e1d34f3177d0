package batch

import (
	"time"
)

const (
	// maxRounds is how often a closure is run again for reads that were missing. After that it runs once more and
	// fetches each as it comes to it.
	maxRounds = 6
	// maxJoinTrips is how many round trips a batch has made when no further closures may join it: those in it are
	// waiting.
	maxJoinTrips = 4
	// joinShare: while other servers wait for the lock, closures join a batch that has begun only if they are one for
	// this many that are in it. Fewer are not worth a round trip in which everybody waits.
	joinShare = 4
)

// rounds runs the closures of a batch on a remote engine. Every closure runs; one that reads what has not been
// fetched ends there, what it missed is fetched together with what the others missed, and it runs again from
// its beginning. The order in which closures succeed is the order of their positions: a closure that runs again
// sees what its neighbours have written meanwhile, so every closure runs as if alone, at the moment of its last
// run.
type rounds struct {
	run    *run
	remote Remote
	reads  *reads

	waiting []waiting
	trips   int
	counts  roundCounts

	contention contention
	contended  bool      // others wait for the lock while this batch has it
	came       time.Time // when the batch had its first closure
}

// roundCounts are since the store was opened.
type roundCounts struct{ trips, reruns uint64 }

// waiting is a closure that has yet to come to something.
type waiting struct {
	job    *job
	hinted bool
	missed int // runs that ended at a miss
}

func newRounds(r *run, remote Remote) *rounds {
	m := &rounds{run: r, remote: remote}
	m.reads = &reads{cache: r.overlay, fetch: m.fetch}
	return m
}

// left reports whether closures have been left over by the last batch.
func (m *rounds) left() bool { return m != nil && len(m.waiting) > 0 }

// give takes one of the closures that were left over; nil if there is none.
func (m *rounds) give() *job {
	if !m.left() {
		return nil
	}
	j := m.waiting[0].job
	m.waiting = m.waiting[1:]
	return j
}

// alone is a batch of one.
func (m *rounds) alone(j *job) {
	m.waiting = append(m.waiting, waiting{job: j})
	m.batch(nil)
}

// batch runs closures of q, and first those that the last batch left over, until none is left or the batch is
// full.
func (m *rounds) batch(q *queue) {
	m.trips = 0
	for i := range m.waiting {
		m.waiting[i] = waiting{job: m.waiting[i].job}
	}
	m.gather(q)
	for m.run.failure == nil {
		m.join(q)
		if len(m.waiting) == 0 {
			return
		}
		m.travel()
		if m.run.failure == nil && !m.pass() {
			return
		}
	}
	for _, w := range m.waiting {
		m.run.closures = append(m.run.closures, closure{job: w.job, err: m.run.failure})
	}
	m.waiting = m.waiting[:0]
}

// gather lets a batch fill while others have the lock that it will wait for.
func (m *rounds) gather(q *queue) {
	m.contended = false
	if q == nil || m.run.opt.Now == nil {
		return
	}
	m.came = m.run.opt.Now()
	m.contended = m.contention.wait() > 0
	if pause := m.contention.gather(); pause > 0 && q.waiting() < maxBatchClosures {
		time.Sleep(pause)
	}
}

// join takes closures from the queue.
func (m *rounds) join(q *queue) {
	r := m.run
	if q == nil || m.trips >= maxJoinTrips || r.full() {
		return
	}
	if m.contended && r.begun && q.waiting()*joinShare < len(r.closures)+len(m.waiting) {
		return
	}
	for len(r.closures)+len(m.waiting) < maxBatchClosures {
		j, background := q.pop(r.requests, r.background)
		if j == nil {
			return
		}
		if background {
			r.background++
		} else {
			r.requests++
		}
		m.waiting = append(m.waiting, waiting{job: j})
	}
}

// travel begins the physical transaction, or fetches within it, what the waiting closures are known to need.
func (m *rounds) travel() {
	for i := range m.waiting {
		if w := &m.waiting[i]; !w.hinted {
			w.hinted = true
			m.reads.hint(w.job.prefetch, maxPrefetchRows)
		}
	}
	if m.run.begun {
		if !m.reads.need.Empty() {
			_ = m.reads.load() // the run takes note of its failure
		}
		return
	}
	f := m.reads.take()
	m.trips++
	m.counts.trips++
	sequence, err := m.remote.Begin(&f)
	if err != nil {
		m.run.failure = m.run.opt.driverFault(err, "begin", nil)
		return
	}
	m.run.begin(sequence)
	if !m.came.IsZero() {
		m.contention.begun(m.run.started.Sub(m.came))
	}
	m.reads.keep(&f)
}

// fetch is one round trip within the physical transaction.
func (m *rounds) fetch(f *Fetch) error {
	r := m.run
	if r.failure != nil {
		return r.failure
	}
	m.trips++
	m.counts.trips++
	var began time.Time
	if r.opt.Now != nil {
		began = r.opt.Now()
	}
	err := m.remote.Fetch(f)
	if r.opt.Now != nil {
		took := r.opt.Now().Sub(began)
		r.away += took
		m.contention.fetched(took)
	}
	if err != nil {
		r.failure = r.opt.driverFault(err, "get", nil)
		return r.failure
	}
	return nil
}

// pass runs every waiting closure once, and keeps those that missed something waiting. It returns false if the
// batch is full.
func (m *rounds) pass() bool {
	kept := 0
	for i, w := range m.waiting {
		if m.run.full() {
			m.waiting = append(m.waiting[:kept], m.waiting[i:]...)
			return false
		}
		// With nobody to share a round trip with, running again would be for nothing.
		m.reads.direct = w.missed >= maxRounds || (kept == 0 && i == len(m.waiting)-1)
		c := closure{job: w.job}
		if c.err = m.run.attempt(w.job.fn, &c); c.err == errMissed {
			m.counts.reruns++
			w.missed++
			m.waiting[kept] = w
			kept++
			continue
		}
		m.run.closures = append(m.run.closures, c)
		if m.run.failure != nil {
			m.waiting = append(m.waiting[:kept], m.waiting[i+1:]...)
			return true
		}
	}
	clear(m.waiting[kept:])
	m.waiting = m.waiting[:kept]
	return true
}
