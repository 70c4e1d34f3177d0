package pgkv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// resolveTimeout is how long a commit whose answer was lost is looked for before its callers hear that its outcome
// is unknown. They wait, and so does every batch behind it: it must end well within a request's deadline.
const resolveTimeout = 4 * time.Second

// writer owns the one connection that writes. The batcher calls it from one goroutine at a time; turn is held
// during a physical transaction, and by the probe.
//
// Every physical transaction locks the counter's row first and holds it to its end, on every server. So there is
// one at a time, sequence numbers are in the order of commits, and a transaction that has the lock knows that those
// before it are over, a lost one of its own included.
type writer struct {
	*shared
	// id names this life of this server among the writers of the store.
	id uint64
	// resolveWithin is how long a lost commit is looked for before it is unknown: resolveTimeout, but for tests.
	resolveWithin atomic.Int64

	turn sync.Mutex
	conn *conn
	// backend and began name the transaction that a connection is or was in, for ending it from another one; 0 if
	// the last one is known to be over.
	backend, began int64
	// pending is the last commit whose outcome has yet to be found out.
	pending *lostCommit
	// lost are the commits whose answer was lost, the latest last.
	lost []*lostCommit
	// given is the highest number of a lost commit. None up to it is given again: its token would name two commits.
	given uint64
}

// lostCommit is one commit whose answer was lost.
type lostCommit struct {
	sequence           uint64
	decided, committed bool
}

// maxLostKept bounds how many answers a store remembers for Resolve.
const maxLostKept = 1024

// Begin implements batch.Remote.
func (w *writer) Begin(f *batch.Fetch) (uint64, error) {
	w.turn.Lock()
	sequence, err := w.begin(context.Background(), f)
	w.health.note(err)
	if err != nil {
		w.turn.Unlock()
	}
	return sequence, err
}

// begin begins a transaction, on a new connection if need be. One that was idle may have been cut without a word:
// then it is tried again on a new one, because nothing can have been done. After a silence it is not: the callers have
// waited enough.
func (w *writer) begin(ctx context.Context, f *batch.Fetch) (uint64, error) {
	for {
		reused := w.conn != nil
		if !reused {
			if err := w.connect(ctx); err != nil {
				return 0, failure("begin", err)
			}
		}
		sequence, err := w.lock(ctx, f)
		if err == nil {
			return sequence, nil
		}
		w.abandon(err)
		if !reused || w.conn != nil || errors.Is(err, context.DeadlineExceeded) {
			return 0, failure("begin", err)
		}
	}
}

// lock is the round trip that begins a transaction: it waits for the lock and then reads.
func (w *writer) lock(ctx context.Context, f *batch.Fetch) (uint64, error) {
	started := w.now()
	var found *counter
	calls := append(w.conn.begun(&w.stmts.beginWrite), call{statement: &w.stmts.lock, args: [][]byte{counterKey},
		row: func(values [][]byte) (err error) {
			w.stats.lockWaits.Add(w.since(started))
			c, err := parseCounter(values[0])
			if err != nil {
				return err
			}
			found = &c
			if w.backend, err = int8Value(values[1]); err != nil {
				return err
			}
			w.began, err = int8Value(values[2])
			return err
		}})
	// The format too: a newer server may have changed it since this one opened the store.
	format, last, err := w.fetchWithOwn(ctx, calls, f)
	if err != nil {
		return 0, err
	}
	if err := w.check(found, w.seen.Load()); err != nil {
		return 0, err
	}
	if _, err := parseFormat(format); err != nil {
		return 0, &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: "begin", Err: err}
	}
	if w.pending != nil {
		w.decide(last)
	}
	w.observe(found.sequence)
	return max(found.sequence, w.given), nil
}

// fetchWithOwn makes the calls and answers f, and reads the format and this writer's row in the same statement: other
// servers wait while it runs.
func (w *writer) fetchWithOwn(ctx context.Context, calls []call, f *batch.Fetch) (format, last []byte, err error) {
	all := batch.Fetch{Gets: slices.Clone(f.Gets), Scans: f.Scans}
	var at [2]int // of the own keys, in their order
	for i, key := range [][]byte{formatKey, writerKey(w.id)} {
		at[i], _ = slices.BinarySearchFunc(all.Gets, key, bytes.Compare)
		all.Gets = slices.Insert(all.Gets, at[i], key)
	}
	w.stats.trips.Add(1)
	if _, err := w.conn.do(ctx, w.conn.fetchCalls(calls, &all)); err != nil {
		return nil, nil, err
	}
	format, last = all.Values[at[0]], all.Values[at[1]]
	f.Values = slices.Delete(slices.Delete(all.Values, at[1], at[1]+1), at[0], at[0]+1)
	return format, last, nil
}

// Fetch implements batch.Remote.
func (w *writer) Fetch(f *batch.Fetch) error {
	w.stats.trips.Add(1)
	_, err := w.conn.do(context.Background(), w.conn.fetchCalls(nil, f))
	if err == nil {
		return nil
	}
	err = failure("get", err)
	w.health.note(err)
	return err
}

// Rollback implements batch.Remote.
func (w *writer) Rollback() {
	defer w.turn.Unlock()
	w.rollback()
}

// rollback ends the transaction, by the end of the connection if it must.
func (w *writer) rollback() {
	if w.conn == nil {
		return
	}
	if !w.conn.pg.IsClosed() {
		if _, err := w.conn.do(context.Background(), []call{{statement: &w.stmts.rollback}}); err == nil {
			w.backend = 0
			return
		}
	}
	w.disconnect()
}

// abandon ends a transaction after an error: a connection that the server still answers on is kept.
func (w *writer) abandon(err error) {
	w.stats.failures.Add(cause(err))
	if isServerError(err) {
		w.rollback()
		return
	}
	w.disconnect()
}

func (w *writer) disconnect() {
	if w.conn != nil {
		w.conn.close()
		w.conn = nil
	}
}

// Commit implements batch.Remote.
func (w *writer) Commit(c batch.Commit) error {
	defer w.turn.Unlock()
	started := w.now()
	err := w.commit(c)
	w.stats.commits.Add(w.since(started))
	w.health.note(err)
	return err
}

func (w *writer) commit(c batch.Commit) error {
	w.stats.trips.Add(1)
	tag, err := w.conn.do(context.Background(), w.commitCalls(c))
	switch {
	case err == nil && tag == "COMMIT":
		w.backend = 0
		w.observe(c.Sequence)
		return nil
	case err == nil: // the server says ROLLBACK to a COMMIT of what had failed
		w.backend = 0
		return &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: "commit", Detail: "the server rolled the transaction back"}
	case isServerError(err):
		// A statement was refused, or COMMIT was: either way it was not made.
		w.abandon(err)
		return failure("commit", err)
	}
	w.stats.failures.Add(cause(err))
	return w.lose(c.Sequence, err)
}

// lose finds out what became of a commit whose answer was lost. Beside the new connection the old one may still be
// in its transaction and hold the lock; it is ended, or ends by its timeout.
func (w *writer) lose(sequence uint64, cause error) error {
	l := &lostCommit{sequence: sequence}
	w.pending, w.given = l, sequence
	if len(w.lost) == maxLostKept {
		w.lost = w.lost[1:]
	}
	w.lost = append(w.lost, l)
	w.disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(w.resolveWithin.Load()))
	defer cancel()
	w.resolve(ctx)
	switch {
	case !l.decided:
		w.stats.unknown.Add(1)
		return &kv.Error{Is: kv.ErrCommitUnknown, Store: storeName, Op: "commit", Err: redacted{cause}, Token: w.token(l)}
	case l.committed:
		w.stats.resolved.Add(1)
		return nil
	}
	w.stats.resolved.Add(1)
	return failure("commit", cause)
}

// resolve decides the pending commit if the database can be reached until ctx ends.
func (w *writer) resolve(ctx context.Context) {
	for pause := firstPause; w.pending != nil; pause = min(2*pause, maxPause) {
		if _, err := w.begin(ctx, &batch.Fetch{}); err == nil {
			w.rollback()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// decide takes the row of this writer, which every commit of its leaves behind: a transaction that has the lock
// reads in it whether the pending one is there.
func (w *writer) decide(row []byte) {
	l := w.pending
	l.decided, l.committed = true, len(row) == 8 && binary.BigEndian.Uint64(row) >= l.sequence
	w.pending = nil
}

// commitCalls are the calls of one commit.
func (w *writer) commitCalls(c batch.Commit) []call {
	var all changes
	all.add(c.Writes)
	all.put(counterKey, counter{c.Sequence, w.store}.append(nil))
	all.put(writerKey(w.id), binary.BigEndian.AppendUint64(nil, c.Sequence))
	if c.Incarnation != 0 {
		all.put(formatKey, format{formatVersion, formatMinReader, c.Incarnation}.append(nil))
	}
	calls := []call{{statement: &w.stmts.put, args: [][]byte{list(all.keys, all.bytes), list(all.values, all.bytes)}}}
	if len(all.deletes) > 0 {
		calls = append(calls, call{statement: &w.stmts.remove, args: [][]byte{list(all.deletes, all.bytes)}})
	}
	for _, payload := range packSignals(w.id, c.Signals) {
		calls = append(calls, call{statement: &w.stmts.notify, args: [][]byte{[]byte(w.channel()), []byte(payload)}})
	}
	return append(calls, call{statement: &w.stmts.commit})
}

// connect makes the writer's connection, and ends the transaction that the last one may have been in.
func (w *writer) connect(ctx context.Context) error {
	if err := w.backoff.ready(); err != nil {
		return err
	}
	c, err := connect(ctx, w.config, w.stmts)
	w.backoff.note(err)
	if err != nil {
		w.stats.failures.Add(cause(err))
		return err
	}
	w.stats.connects.Add(1)
	w.conn = c
	if w.backend != 0 {
		// It may fail, or find nothing: then the lock is waited for.
		if _, err := c.do(ctx, []call{{statement: &w.stmts.terminate, args: [][]byte{int8Param(w.backend), int8Param(w.began)}}}); err != nil && !isServerError(err) {
			w.disconnect()
			return err
		}
	}
	return nil
}

// token names a lost commit for Resolve.
func (w *writer) token(l *lostCommit) kv.Token {
	return kv.Token(fmt.Sprintf("%x-%d", w.id, l.sequence))
}

// Resolve implements batch.Remote.
func (w *writer) Resolve(ctx context.Context, token kv.Token) (kv.Outcome, error) {
	w.turn.Lock()
	defer w.turn.Unlock()
	name, number, _ := strings.Cut(string(token), "-")
	id, errID := strconv.ParseUint(name, 16, 64)
	sequence, errSequence := strconv.ParseUint(number, 10, 64)
	if errID != nil || errSequence != nil {
		return kv.OutcomeUnknown, nil
	}
	if id != w.id {
		return w.resolveOther(ctx, id, sequence)
	}
	for _, l := range w.lost {
		if l.sequence != sequence {
			continue
		}
		w.resolve(ctx)
		switch {
		case !l.decided:
			return kv.OutcomeUnknown, failure("resolve", errors.Join(ctx.Err(), errUnreachable))
		case l.committed:
			return kv.OutcomeCommitted, nil
		}
		return kv.OutcomeNotCommitted, nil
	}
	return kv.OutcomeUnknown, nil
}

var errUnreachable = errors.New("the database cannot be reached")

// resolveOther resolves a commit of another life of a server. Only its last one can be told.
func (w *writer) resolveOther(ctx context.Context, id, sequence uint64) (kv.Outcome, error) {
	f := batch.Fetch{Gets: [][]byte{writerKey(id)}}
	if _, err := w.begin(ctx, &f); err != nil {
		return kv.OutcomeUnknown, err
	}
	w.rollback()
	var last uint64
	if row := f.Values[0]; len(row) == 8 {
		last = binary.BigEndian.Uint64(row)
	}
	switch {
	case last == sequence:
		return kv.OutcomeCommitted, nil
	case last < sequence && last > 0:
		return kv.OutcomeNotCommitted, nil
	}
	return kv.OutcomeUnknown, nil
}
