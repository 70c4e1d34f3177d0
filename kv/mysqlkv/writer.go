package mysqlkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

const (
	// maxResolveTime bounds how long a batch waits to hear what became of its commit when the answer was lost.
	// The lost session holds the writers' lock for idleSeconds at most.
	maxResolveTime = (idleSeconds + 2) * time.Second
	// connectTimeout bounds one attempt to connect.
	connectTimeout = dialTimeout + ioTimeout
	// First and largest pause between two attempts of the writer to connect.
	firstPause = 50 * time.Millisecond
	maxPause   = 3 * time.Second
	// patience is the pause that a batch waits for, rather than to fail at once: a connection that is cut is
	// mostly made again at once.
	patience = 200 * time.Millisecond
	// openedBytes name an opening of the store.
	openedBytes = 10
)

// lockCounter takes the writers' lock: the row of the commit counter, held to the end of the transaction. Everybody
// who writes takes it first, so batches of all servers follow one another, in the order of their numbers.
var lockCounter = "SELECT v FROM " + table + " WHERE k=" + string(appendLiteral(nil, counterKey)) + " FOR UPDATE"

// writer is the part of the engine that writes: one session at a time.
type writer struct {
	connector *connector
	horizon   *horizon
	health    *health
	stats     *counters
	now       func() time.Time
	format    format
	opened    string // names this opening of the store
	// resolveWithin is how long a lost commit is looked for before it is unknown, in ns: maxResolveTime, but for tests.
	resolveWithin atomic.Int64

	// turn is held during a physical transaction, and by whatever else uses what follows.
	turn    sync.Mutex
	session *session // nil if there is none
	// fresh says that the session has committed nothing yet.
	fresh   bool
	rows    *writerRows // of a fresh session
	began   uint64      // the counter, in the transaction that is open
	pending *unknownCommit
	unknown []*unknownCommit // the latest last
	given   uint64           // the highest number of a lost commit
	pause   time.Duration    // before the next attempt to connect
	failure error            // of the last attempt to connect
	used    bool             // since the last tick of keep

	waiting atomic.Bool // for pause to pass
}

// Begin implements batch.Remote.
func (w *writer) Begin(f *batch.Fetch) (uint64, error) {
	w.turn.Lock()
	sequence, err := w.begin(f)
	if err != nil {
		w.stats.failed(err)
		w.health.note(err)
		w.turn.Unlock()
	}
	return sequence, err
}

func (w *writer) begin(f *batch.Fetch) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	for again := w.session != nil; ; again = false {
		if err := w.connect(ctx, false); err != nil {
			return 0, err
		}
		sequence, err := w.lock(f)
		if err == nil {
			return sequence, nil
		}
		if isLost(err) || w.session.lost {
			w.hangUp()
			if again {
				continue // it may have been lost long ago
			}
		} else {
			w.rollback()
		}
		return 0, failure("begin", err)
	}
}

// lock takes the writers' lock and answers f.
func (w *writer) lock(f *batch.Fetch) (uint64, error) {
	w.used = true
	began := w.clock()
	var sequence uint64
	found := false
	script := &script{limit: w.session.packetBytes}
	script.add("BEGIN", nil)
	script.add(lockCounter, func(row []driver.Value) (err error) {
		w.stats.lockWaits.Add(w.clock().Sub(began))
		found = true
		sequence, err = decodeSequence(column(row, 0))
		return err
	})
	own := &batch.Fetch{Gets: [][]byte{formatKey}}
	script.fetch(own)
	script.fetch(f)
	if err := w.session.send(script); err != nil {
		return 0, err
	}
	if err := w.connector.recognise("begin", own.Values[0]); err != nil {
		return 0, err
	}
	switch {
	case !found:
		return 0, unavailable("begin", "the database that answers has no commit counter: it is not the store that was opened")
	case sequence < w.horizon.at():
		// It would give numbers a second time.
		return 0, unavailable("begin", fmt.Sprintf("the database that answers has lost commits: it is at %d, and %d was acknowledged; "+
			"a failover to a replica that was behind?", sequence, w.horizon.at()))
	}
	w.began = sequence
	if w.fresh && sequence > 0 {
		sequence += sessionGap
	}
	return max(sequence, w.given), nil
}

// Fetch implements batch.Remote.
func (w *writer) Fetch(f *batch.Fetch) error {
	if w.session == nil {
		return unavailable("get", "the connection was lost")
	}
	script := &script{limit: w.session.packetBytes}
	script.fetch(f)
	return failure("get", w.session.send(script))
}

// Rollback implements batch.Remote.
func (w *writer) Rollback() {
	defer w.turn.Unlock()
	w.rollback()
}

// Settle implements batch.Settler: other servers' commits may have been visible before they were durable.
func (w *writer) Settle() error {
	seen := w.began
	w.Rollback()
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	err := w.horizon.seen(ctx, seen)
	if err != nil {
		w.stats.failed(err)
		w.health.note(err)
	}
	return failure("commit", err)
}

func (w *writer) rollback() {
	if w.session == nil {
		return
	}
	w.session.rollback()
	if w.session.lost {
		w.hangUp()
	}
}

// Commit implements batch.Remote.
func (w *writer) Commit(c batch.Commit) error {
	defer w.turn.Unlock()
	if w.session == nil {
		return unavailable("commit", "the connection was lost")
	}
	began := w.clock()
	w.horizon.commits(c.Sequence)
	err := w.commit(c)
	w.horizon.commits(0)
	w.stats.commits.Add(w.clock().Sub(began))
	if err != nil {
		w.stats.failed(err)
	}
	w.health.note(err)
	return err
}

func (w *writer) commit(c batch.Commit) error {
	script := &script{limit: w.session.packetBytes}
	if w.fresh {
		w.rows.prune(script)
	}
	script.write(c.Writes)
	number := encodeSequence(c.Sequence)
	script.write([]batch.Write{{Key: counterKey, Value: number}, {Key: writerRow(w.opened), Value: number}})
	f := w.format
	if c.Incarnation != 0 {
		f.incarnation = c.Incarnation
		w.connector.importing.Store(c.Incarnation)
		script.write([]batch.Write{{Key: formatKey, Value: f.encode()}})
	}
	script.add("COMMIT", nil)
	err := w.session.send(script)
	switch {
	case err == nil:
		if w.fresh = false; f != w.format {
			w.format = f
			w.connector.store.Store(&f)
		}
		w.horizon.reach(c.Sequence)
		return nil
	case errors.Is(identity(err), kv.ErrConflict) || isReadOnly(err):
		// A lock timeout ends only its statement.
		w.rollback()
		w.leave(err)
		return failure("commit", err)
	}
	return w.findOut(c.Sequence, err)
}

// findOut is for a commit whose answer was lost, or says too little.
func (w *writer) findOut(sequence uint64, cause error) error {
	w.hangUp()
	u := &unknownCommit{last: sequence}
	w.pending, w.given = u, sequence
	if len(w.unknown) == maxUnknownKept {
		w.unknown = w.unknown[1:]
	}
	w.unknown = append(w.unknown, u)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(w.resolveWithin.Load()))
	defer cancel()
	for w.pending == u && ctx.Err() == nil {
		_ = w.connect(ctx, true) // the next attempt has its own error
	}
	if u.outcome != kv.OutcomeUnknown {
		w.stats.resolved.Add(1)
	}
	switch u.outcome {
	case kv.OutcomeCommitted:
		w.horizon.reach(sequence)
		return nil
	case kv.OutcomeNotCommitted:
		return &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: "commit", Err: cause}
	}
	w.stats.unknown.Add(1)
	return &kv.Error{Is: kv.ErrCommitUnknown, Store: storeName, Op: "commit", Err: cause, Token: token(w.opened, sequence)}
}

// connect makes a session if there is none. Between two attempts a pause must pass: with wait it waits for that as
// long as ctx lasts; else, if it is more than patience, it says at once why the last attempt failed.
func (w *writer) connect(ctx context.Context, wait bool) error {
	if w.session != nil {
		return nil
	}
	if w.waiting.Load() {
		if !wait && w.pause > patience {
			return w.failure
		}
		t := time.NewTicker(firstPause)
		defer t.Stop()
		for w.waiting.Load() {
			select {
			case <-t.C:
			case <-ctx.Done():
				return w.failure
			}
		}
	}
	s, err := w.connector.dial(ctx, writing)
	if err == nil {
		w.session, w.fresh, w.used = s, true, true
		if err = w.settle(); err != nil {
			w.hangUp()
		}
	}
	if err == nil {
		w.pause, w.failure = 0, nil
		return nil
	}
	w.failure = failure("connect", err)
	w.pause = min(max(2*w.pause, firstPause), maxPause)
	w.waiting.Store(true)
	time.AfterFunc(w.pause/2+rand.N(w.pause/2), func() { w.waiting.Store(false) })
	return w.failure
}

// hangUp gives the session up.
func (w *writer) hangUp() {
	if w.session != nil {
		w.session.hangUp()
		w.session = nil
	}
}

// leave gives up the session of a server that has become read-only: the address may lead to its successor by now.
func (w *writer) leave(err error) {
	if isReadOnly(err) {
		w.hangUp()
	}
}

func (w *writer) clock() time.Time {
	if w.now == nil {
		return time.Time{}
	}
	return w.now()
}

// keep is called every tick. It keeps a session that is not used, which the server would end, and makes one where there
// is none, so that a store without traffic knows whether it could write.
func (w *writer) keep(ctx context.Context) {
	if !w.turn.TryLock() {
		return // it is in use
	}
	defer w.turn.Unlock()
	if w.used && w.health.get() == nil {
		w.used = false
		return
	}
	if w.waiting.Load() {
		return
	}
	err := w.connect(ctx, false)
	if err == nil {
		err = w.probe()
	}
	w.health.settle(err)
}

// probe writes if a write has failed, else it only asks for a sign of life.
func (w *writer) probe() error {
	script := &script{limit: w.session.packetBytes}
	if w.health.get() == nil {
		script.add("DO 0", nil)
	} else {
		// Its value is always another one: InnoDB does not write what is there already.
		script.write([]batch.Write{{Key: flushKey, Value: encodeSequence(rand.Uint64())}})
	}
	err := w.session.send(script)
	if w.session.lost {
		w.hangUp()
	}
	w.leave(err)
	return failure("probe", err)
}
