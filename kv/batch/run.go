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
	driver  Driver
	overlay *overlay

	begun      bool
	sequence   uint64 // of the last closure that wrote
	wrote      int    // closures that did
	bytes      int
	closures   []closure
	requests   int
	background int
	started    time.Time
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
	case r.opt.Now == nil || len(r.closures) == 0:
		return false
	}
	return r.opt.Now().Sub(r.started) >= maxBatchClosureMs*time.Millisecond
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
		c.err = r.begin()
	}
	if c.err == nil {
		if r.opt.RunTwice {
			r.try(j.fn, nil)
		}
		c.err = r.try(j.fn, &c)
	}
	r.closures = append(r.closures, c)
}

func (r *run) begin() error {
	sequence, err := r.driver.Begin()
	if err != nil {
		return r.opt.driverFault(err, "begin", nil)
	}
	r.begun, r.sequence = true, sequence
	if r.opt.Now != nil {
		r.started = r.opt.Now()
	}
	return nil
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
	if t.err != nil {
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
	case r.wrote > 0:
		failure = r.commit()
		committed = failure == nil
	case r.begun:
		r.driver.Rollback()
	}
	if committed {
		signals = r.signals.take()
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

func (r *run) commit() error {
	r.writes = r.overlay.writes(clearSlice(r.writes))
	if err := r.driver.Apply(r.writes); err != nil {
		r.driver.Rollback()
		return r.opt.driverFault(err, "put", nil)
	}
	if err := r.driver.Commit(r.sequence); err != nil {
		return r.opt.driverFault(err, "commit", nil)
	}
	return nil
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
	r.closures = clearSlice(r.closures)
	r.writes = clearSlice(r.writes)
	r.signals = coalescing{}
}

// joinToken makes the token of one closure from that of its physical commit.
func joinToken(commit kv.Token, sequence uint64) kv.Token {
	return commit + kv.Token("/"+strconv.FormatUint(sequence, 10))
}
