// Package batch is group commit, written once for every engine that has no better of its own.
//
// One writer takes queued closures and runs each against the committed state plus the batch's overlay, an
// ordered set of what the batch has written so far. It keeps the writes of those that succeed, drops the
// writes of those that fail, then applies the merged overlay in key order, commits once, and answers all.
// So many closures share one sync, and the failure of one costs no savepoint. While a batch commits, the
// next one fills.
//
//   - Every closure of a batch, failed and non-writing ones included, is answered after the commit and shares
//     its outcome: what it decided may rest on a neighbour's uncommitted write. A batch without writes is
//     answered at once and never touches the disk.
//   - The position of a closure is the sequence number of the last commit plus its place among those of the
//     batch that wrote.
//   - A commit is tied to no caller's context: a caller that goes away takes its closure out of the queue,
//     never a batch apart.
//   - Limits of the contract are enforced here, alike for all engines, and fail the one closure only.
//
// An engine brings a Driver, or, if its reads are round trips, a Remote. With Options.Synchronous there is no goroutine and no waiting: Update runs the
// closure, commits, signals and returns, so that a simulator can drive a whole server in one goroutine.
package batch

import (
	"context"
	"errors"
	"math/bits"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"abide/kv"
)

// DefaultQueueLimit is how many closures wait in front of the writer unless Options say otherwise: at the
// 20,000 small transactions a second that SQLite commits, about a fifth of a second.
const DefaultQueueLimit = 4096

// Options say how a store batches. The zero value of every field but Name is usable.
type Options struct {
	// Name is the store's name in errors.
	Name string
	// Incarnation is the first part of every position; below 1<<32-1<<24.
	Incarnation uint32
	// Keys names kinds of keys in errors.
	Keys kv.KeyRegister
	// QueueLimit bounds the queue; 0 means DefaultQueueLimit.
	QueueLimit int
	// Now is the clock by which a batch and a closure end. Without it only their numbers and bytes count.
	Now func() time.Time
	// Synchronous runs every Update at once, alone, on the caller's goroutine.
	Synchronous bool
	// RunTwice runs every closure twice and takes the first run back, so that tests show a closure which
	// does more than call its Tx.
	RunTwice bool
}

// Stats count since the store was opened.
type Stats struct {
	Commits  uint64 // physical transactions that committed
	Closures uint64 // closures that were answered, whatever the answer
	Refused  uint64 // closures turned away by a full queue
	Queued   int    // closures waiting now

	// Batches counts the physical transactions that ended, whether or not they had something to commit, by
	// how many closures they answered: one, two, up to 4, 8, ... 256.
	Batches [BatchSizes]uint64
	// Of remote engines: round trips of the writer before its commits, and how often a closure ran again because
	// it had missed a read.
	Trips, Reruns uint64
	// Of remote engines too: the snapshots that were taken, each in a round trip, and all round trips for snapshots.
	Views, ViewTrips uint64

	// CommitTimes counts commits by how long the engine took to apply and commit them, in the classes of
	// CommitBounds; CommitTime is all of it together. Both stay 0 without Options.Now.
	CommitTimes [CommitClasses]uint64
	CommitTime  time.Duration
	// Closures that were answered with ErrConflict, ErrUnavailable, ErrCommitUnknown and ErrCorrupt.
	Conflicts, Unavailable, Unknown, Corrupt uint64
}

// BatchSizes is how many classes of size Stats tell apart.
const BatchSizes = 9

// Store is a kv.Store on a Driver.
type Store struct {
	opt         Options
	engine      engine
	driver      Driver // nil on a remote engine
	remote      Remote // nil on a driver
	queue       *queue
	subscribers subscribers

	// turn is held by whoever uses the driver's physical transaction and run.
	turn sync.Mutex
	run  run

	closing atomic.Bool
	ended   chan struct{} // closed when the writer has stopped
	closed  sync.Once
	failure error // of Close

	commits, closures, refused, trips, reruns, views, viewTrips atomic.Uint64

	batches  [BatchSizes]atomic.Uint64
	outcomes outcomes
}

var _ kv.Store = (*Store)(nil)

// New starts group commit over driver, which the store then owns.
func New(driver Driver, opt Options) *Store {
	s := prepare(driver, opt)
	s.driver, s.run.driver = driver, driver
	s.start()
	return s
}

// prepare makes a store whose writer has yet to be started.
func prepare(engine engine, opt Options) *Store {
	if opt.QueueLimit <= 0 {
		opt.QueueLimit = DefaultQueueLimit
	}
	s := &Store{opt: opt, engine: engine, queue: newQueue(opt.QueueLimit), ended: make(chan struct{})}
	s.run = run{opt: &s.opt, engine: engine, overlay: newOverlay()}
	return s
}

// start starts the writer.
func (s *Store) start() {
	if s.opt.Synchronous {
		close(s.ended)
	} else {
		go s.write()
	}
}

// Stats returns the store's counters.
func (s *Store) Stats() Stats {
	s.queue.mu.Lock()
	queued := s.queue.length
	s.queue.mu.Unlock()
	stats := Stats{Commits: s.commits.Load(), Closures: s.closures.Load(), Refused: s.refused.Load(), Queued: queued,
		Trips: s.trips.Load(), Reruns: s.reruns.Load(), Views: s.views.Load(), ViewTrips: s.viewTrips.Load()}
	for i := range s.batches {
		stats.Batches[i] = s.batches[i].Load()
	}
	s.outcomes.read(&stats)
	return stats
}

// Prefetches reports whether the store makes use of Hints.Prefetch: its reads are round trips.
func (s *Store) Prefetches() bool { return s.remote != nil }

// Update queues fn and waits for the outcome of its batch; see kv.Store. Hints.Prefetch is used on remote engines.
func (s *Store) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	if err := ctx.Err(); err != nil {
		return kv.Position{}, err
	}
	j := jobs.Get().(*job)
	j.fn, j.prefetch = fn, h.Prefetch
	var err error
	if s.opt.Synchronous {
		err = s.updateNow(j, h)
	} else {
		err = s.enqueue(ctx, j, h)
	}
	position := j.position
	if err == nil {
		err = j.err
	}
	*j = job{done: j.done}
	jobs.Put(j)
	return position, err
}

// enqueue waits until the writer has answered j. An error says that j never ran.
func (s *Store) enqueue(ctx context.Context, j *job, h kv.Hints) error {
	if j.timing = kv.TimingOf(ctx); j.timing != nil {
		queued := j.timing.Now()
		defer func() { j.answered(queued) }()
	}
	switch err := s.queue.push(j, h); err {
	case nil:
	case kv.ErrOverloaded:
		s.refused.Add(1)
		return s.opt.fault(err, "update", nil, "%d transactions are waiting; try again later", s.opt.QueueLimit)
	default:
		return s.opt.fault(err, "update", nil, "")
	}
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		if s.queue.remove(j) {
			return ctx.Err()
		}
		<-j.done // it is in a batch: its outcome will be known
		return nil
	}
}

// updateNow runs j as a batch of its own.
func (s *Store) updateNow(j *job, h kv.Hints) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.closing.Load() {
		return s.opt.fault(kv.ErrClosed, "update", nil, "")
	}
	if s.remote == nil {
		s.run.add(j, h.Background)
	} else {
		s.run.rounds.alone(j)
	}
	s.end()
	s.run.reset()
	return nil
}

// write is the writer: it makes batches of what is queued until the store is closed.
func (s *Store) write() {
	defer close(s.ended)
	for s.run.rounds.left() || s.queue.wait() {
		s.turn.Lock()
		if s.closing.Load() {
			s.refuseQueued()
		} else {
			s.batch()
		}
		answered := len(s.run.closures)
		for i := range s.run.closures {
			s.run.closures[i].job.done <- struct{}{}
		}
		s.run.reset()
		s.turn.Unlock()
		if answered > 1 {
			// Those who were answered often have a next closure at once. Let them bring it, instead of
			// syncing the first one alone.
			runtime.Gosched()
		}
	}
}

// batch fills, runs and ends one batch.
func (s *Store) batch() {
	if s.remote != nil {
		s.run.rounds.batch(s.queue)
		s.end()
		return
	}
	left := 0 // of the slice; 0 as long as no more than one workspace waits
	for !s.run.full() {
		if left == 0 {
			left = s.queue.slice()
		}
		j, background := s.queue.pop(s.run.requests, s.run.background)
		if j == nil {
			break
		}
		s.run.add(j, background)
		if left > 0 && !background {
			if left--; left == 0 {
				break
			}
		}
	}
	s.end()
}

// end commits the batch and tells the subscribers. It does not yet answer.
func (s *Store) end() {
	var began time.Time
	if s.opt.Now != nil && s.run.wrote > 0 {
		began = s.opt.Now()
	}
	signals, committed := s.run.finish()
	if committed {
		s.commits.Add(1)
		if s.opt.Now != nil {
			s.outcomes.committed(s.opt.Now().Sub(began))
		}
	}
	for i := range s.run.closures {
		s.outcomes.answered(s.run.closures[i].job.err)
	}
	if n := len(s.run.closures); n > 0 {
		s.closures.Add(uint64(n))
		s.batches[min(bits.Len(uint(n-1)), BatchSizes-1)].Add(1)
	}
	if s.remote != nil {
		s.trips.Store(s.run.rounds.counts.trips)
		s.reruns.Store(s.run.rounds.counts.reruns)
	}
	s.subscribers.send(signals)
}

// refuseQueued answers everything in the queue that the store is closed.
func (s *Store) refuseQueued() {
	for {
		j := s.run.rounds.give()
		if j == nil {
			j, _ = s.queue.pop(0, 0)
		}
		if j == nil {
			return
		}
		j.err = s.opt.fault(kv.ErrClosed, "update", nil, "")
		j.done <- struct{}{}
	}
}

// Resolve asks the driver about an unknown commit; see kv.Store.
func (s *Store) Resolve(ctx context.Context, t kv.Token) (kv.Outcome, kv.Position, error) {
	commit, sequence, err := splitToken(t)
	if err != nil {
		return kv.OutcomeUnknown, kv.Position{}, s.opt.fault(kv.ErrLimit, "resolve", nil, "the token is not one of this store's")
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.closing.Load() {
		return kv.OutcomeUnknown, kv.Position{}, s.opt.fault(kv.ErrClosed, "resolve", nil, "")
	}
	outcome, err := s.engine.Resolve(ctx, commit)
	if err != nil {
		return kv.OutcomeUnknown, kv.Position{}, s.opt.driverFault(err, "resolve", nil)
	}
	if outcome != kv.OutcomeCommitted {
		return outcome, kv.Position{}, nil
	}
	return outcome, s.position(sequence), nil
}

// splitToken undoes joinToken.
func splitToken(t kv.Token) (commit kv.Token, sequence uint64, err error) {
	i := strings.LastIndexByte(string(t), '/')
	if i < 0 {
		return "", 0, errors.New("no sequence number")
	}
	sequence, err = strconv.ParseUint(string(t[i+1:]), 10, 64)
	return t[:i], sequence, err
}

// Hint gives the signals of another server's commit to the subscribers; see Signals. The slice is shared.
func (s *Store) Hint(signals []kv.Signal) { s.subscribers.send(signals) }

// Close waits for the batch under way, answers what is queued with ErrClosed, and closes the driver; see
// kv.Store.
func (s *Store) Close() error {
	s.closed.Do(func() {
		s.closing.Store(true)
		s.queue.close()
		<-s.ended
		s.turn.Lock()
		defer s.turn.Unlock()
		s.failure = s.engine.Close()
	})
	return s.failure
}
