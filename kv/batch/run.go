package batch

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"abide/kv"
)

// The end of a batch: whichever comes first. A batch that grows further makes its first closures wait
// longer than the shared sync saves them.
const (
	maxBatchClosures  = 256
	maxBatchBytes     = 4 << 20
	maxBatchClosureMs = 20
)

// run is one physical transaction, from Begin to the answers. One value serves all batches of a store in
// turn; everything in it belongs to whoever holds Store.turn.
type run struct {
	opt     *Options
	engine  engine
	driver  Driver  // nil on a remote engine
	rounds  *rounds // nil on a driver
	overlay *overlay

	begun      bool
	sequence   uint64 // of the last closure that wrote
	wrote      int    // closures that did
	bytes      int
	closures   []closure
	requests   int
	background int
	started    time.Time
	away       time.Duration // since then, spent in the engine
	failure    error         // of the engine, before the commit: nothing can commit any more
	signals    coalescing
	writes     []Write
}

// closure is one closure of a batch with what it came to.
type closure struct {
	job      *job
	position kv.Position // zero if it wrote nothing
	err      error
}

// full reports whether the batch must end.
func (r *run) full() bool {
	switch {
	case len(r.closures) >= maxBatchClosures, r.bytes >= maxBatchBytes:
		return true
	case r.rounds != nil && r.overlay.cachedBytes >= maxCachedBytes && len(r.closures) > 0:
		return true
	case r.opt.Now == nil || len(r.closures) == 0:
		return false
	}
	return r.opt.Now().Sub(r.started)-r.away >= maxBatchClosureMs*time.Millisecond
}

// add runs one closure on top of the batch.
func (r *run) add(j *job, background bool) {
	if background {
		r.background++
	} else {
		r.requests++
	}
	c := closure{job: j}
	if !r.begun {
		sequence, err := r.driver.Begin()
		if err != nil {
			c.err = r.opt.driverFault(err, "begin", nil)
		} else {
			r.begin(sequence)
		}
	}
	if c.err == nil {
		c.err = r.attempt(j.fn, &c)
	}
	r.closures = append(r.closures, c)
}

// begin notes that the physical transaction has begun, after the commit with this sequence number.
func (r *run) begin(sequence uint64) {
	r.begun, r.sequence = true, sequence
	if r.opt.Now != nil {
		r.started = r.opt.Now()
	}
}

// attempt runs fn for c, twice if the options say so.
func (r *run) attempt(fn func(kv.Tx) error, c *closure) error {
	if r.opt.RunTwice {
		if err := r.try(fn, nil); err == errMissed {
			return err
		}
	}
	return r.try(fn, c)
}

// try runs fn once and keeps its writes if it succeeds and c is given; otherwise it takes them back.
func (r *run) try(fn func(kv.Tx) error, c *closure) error {
	m := r.overlay.begin()
	t := &tx{
		budget:   newBudget(r.opt),
		run:      r,
		position: kv.NewPosition(r.opt.Incarnation, r.sequence+1),
	}
	err := call(fn, t)
	t.done = true
	if t.missed {
		err = errMissed
	} else if t.err != nil {
		err = t.err
	}
	if err != nil || c == nil {
		r.overlay.rollback(m)
		return err
	}
	if t.wrote {
		r.sequence++
		r.wrote++
		r.bytes += t.bytes
		c.position = t.position
		r.signals.add(t.signals)
	}
	return nil
}

// call runs fn; its panic becomes an error.
func call(fn func(kv.Tx) error, t *tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a transaction closure: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(t)
}

// finish ends the physical transaction and writes every closure's outcome into its job. Afterwards the jobs
// can be answered and the run be reset. It returns the signals of the batch and whether anything committed.
func (r *run) finish() (signals []kv.Signal, committed bool) {
	var failure error
	switch {
	case r.failure != nil:
		failure = r.failure
		if r.begun {
			r.engine.Rollback()
		}
	case r.wrote > 0:
		signals = r.signals.take()
		failure = r.commit(signals)
		committed = failure == nil
	case r.begun:
		failure = r.settle()
	}
	if !committed {
		signals = nil
	}
	for i := range r.closures {
		c := &r.closures[i]
		c.job.position, c.job.err = c.position, c.err
		if failure != nil {
			c.job.position, c.job.err = kv.Position{}, r.outcome(c, failure)
		}
	}
	return signals, committed
}

// settle ends a physical transaction that has only read. Its error says that what was read may not last.
func (r *run) settle() error {
	s, ok := r.engine.(Settler)
	if !ok {
		r.engine.Rollback()
		return nil
	}
	if err := s.Settle(); err != nil {
		return r.opt.driverFault(err, "commit", nil)
	}
	return nil
}

func (r *run) commit(signals []kv.Signal) error {
	r.writes = r.overlay.writes(clearSlice(r.writes))
	c := Commit{Sequence: r.sequence, Writes: r.writes, Signals: travelling(signals)}
	if r.rounds != nil {
		return r.fault("commit", r.rounds.remote.Commit(c))
	}
	return r.fault("commit", commitDriver(r.driver, c))
}

// fault names the operation in an error of the engine's.
func (r *run) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	return r.opt.driverFault(err, op, nil)
}

// outcome is what a closure hears of a batch that did not commit, or may not have. Its own result does not
// stand: it may have been decided on a neighbour's writes. A closure that wrote nothing committed nothing,
// even if its neighbours' fate is unknown.
func (r *run) outcome(c *closure, failure error) error {
	if !errors.Is(failure, kv.ErrCommitUnknown) {
		return failure
	}
	if c.position.IsZero() {
		// Not wrapped: the identity of the batch's failure is not this closure's.
		return &kv.Error{Is: kv.ErrUnavailable, Store: r.opt.Name, Op: "commit",
			Detail: "this transaction wrote nothing, and shared its batch with others: " + failure.Error()}
	}
	var known *kv.Error
	if !errors.As(failure, &known) {
		return failure
	}
	own := *known
	own.Token = joinToken(known.Token, c.position.Sequence())
	return &own
}

// reset makes the run ready for the next batch. It lets go of everything that the last one held.
func (r *run) reset() {
	r.overlay.reset()
	r.begun, r.sequence, r.wrote, r.bytes, r.requests, r.background = false, 0, 0, 0, 0, 0
	r.away, r.failure = 0, nil
	r.closures = clearSlice(r.closures)
	r.writes = clearSlice(r.writes)
	r.signals = coalescing{}
}

// joinToken makes the token of one closure from that of its physical commit.
func joinToken(commit kv.Token, sequence uint64) kv.Token {
	return commit + kv.Token("/"+strconv.FormatUint(sequence, 10))
}
