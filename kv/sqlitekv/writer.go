package sqlitekv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"

	"abide/kv"
	"abide/kv/batch"
)

// writer owns the one connection that writes. The batcher calls it from one goroutine at a time.
//
// A commit whose outcome SQLite cannot tell poisons the connection: the frames may be in the log, and after
// a failed sync what the page cache shows need not be what the disk has. Nothing is committed again until
// recover has brought certainty.
type writer struct {
	opt  *Options
	path string
	// openedAs tells the tokens of this opening of the store from those of others.
	openedAs string

	conn     *conn
	poisoned bool
	// pending is the commit whose outcome recovery has to find out; nil if the connection was given up for
	// another reason.
	pending *unknownCommit
	// unknown are the commits whose outcome was unknown once, the latest last.
	unknown []*unknownCommit

	checkpointer *checkpointer
	readers      *readers
	// walPages is the length of the log after the last commit.
	walPages atomic.Int64
	// restartAt is the length at which the writer next tries to start the log over.
	restartAt int64
}

// unknownCommit is one physical commit that failed half-way.
type unknownCommit struct {
	last uint64 // its highest sequence number
	// decided becomes true when the log could be read back, settled when the answer can no longer change.
	decided, settled bool
	committed        bool
}

// maxUnknownKept bounds how many answers a store remembers for Resolve.
const maxUnknownKept = 1024

// open opens the writing connection; the file exists.
func (w *writer) open() error {
	c, err := w.opt.openConn(w.path, writing, w.opt.writerCacheBytes())
	if err != nil {
		return err
	}
	c.db.WALHook(func(_ *sqlite3.Conn, _ string, pages int) error {
		w.walPages.Store(int64(pages))
		return nil
	})
	w.conn = c
	return nil
}

// Get implements batch.DriverReader inside the open transaction.
func (w *writer) Get(key []byte) ([]byte, error) { return w.conn.Get(key) }

// Scan implements batch.DriverReader inside the open transaction.
func (w *writer) Scan(r kv.Range, visit func(key, value []byte) bool) error {
	return w.conn.Scan(r, visit)
}

// Begin implements batch.Driver.
func (w *writer) Begin() (uint64, error) {
	if w.poisoned || w.checkpointer.lost.Load() {
		if err := w.recover(); err != nil {
			return 0, err
		}
	}
	w.restartLog()
	if err := w.conn.begin.Exec(); err != nil {
		return 0, failure("begin", err)
	}
	sequence, err := w.conn.sequence()
	if err != nil {
		w.Rollback()
		return 0, err
	}
	return sequence, nil
}

// Apply implements batch.Driver.
func (w *writer) Apply(writes []batch.Write) error {
	for i := range writes {
		if err := w.conn.apply(&writes[i]); err != nil {
			return failure("put", err)
		}
	}
	return nil
}

// Commit implements batch.Driver.
func (w *writer) Commit(sequence uint64) error {
	if err := w.putSequence(sequence); err != nil {
		w.Rollback()
		return err
	}
	err := w.conn.commit.Exec()
	switch {
	case err == nil:
		w.checkpointer.wrote(w.walPages.Load())
		return nil
	case isBusy(err), errors.Is(err, sqlite3.FULL):
		// A full disk refuses a write, which comes before the sync, and the frame that makes a commit valid
		// is the last to be written: it is not there.
		w.Rollback()
		return failure("commit", err)
	}
	return w.commitFailed(sequence, err)
}

func (w *writer) putSequence(sequence uint64) error {
	if err := w.conn.apply(&batch.Write{Key: counterKey, Value: encodeSequence(sequence)}); err != nil {
		return failure("commit", err)
	}
	return nil
}

// SetIncarnation implements batch.Incarnated.
func (w *writer) SetIncarnation(incarnation uint32) error {
	if err := w.conn.db.Exec(fmt.Sprintf(`UPDATE format SET incarnation = %d`, incarnation)); err != nil {
		return failure("import", err)
	}
	return nil
}

// commitFailed makes the connection unusable until recovery, which is left to the next call, so that the
// callers hear now that the outcome is unknown.
func (w *writer) commitFailed(sequence uint64, cause error) error {
	u := &unknownCommit{last: sequence}
	w.poisoned, w.pending = true, u
	if len(w.unknown) == maxUnknownKept {
		w.unknown = w.unknown[1:]
	}
	w.unknown = append(w.unknown, u)
	return &kv.Error{Is: kv.ErrCommitUnknown, Store: storeName, Op: "commit", Err: cause, Token: w.token(u)}
}

// Rollback implements batch.Driver. A rollback that fails leaves a connection that nobody can use.
func (w *writer) Rollback() {
	if w.conn.db.GetAutocommit() {
		return // SQLite has rolled back by itself, as it does after some errors
	}
	if err := w.conn.rollback.Exec(); err != nil {
		w.poisoned = true
	}
}

// recover brings a poisoned store back: a fresh connection, whatever is valid in the log moved into the file
// and the log emptied, the counter read again. It says in an error why that cannot be done yet; the next
// call tries again.
func (w *writer) recover() error {
	w.checkpointer.turn.Lock()
	defer w.checkpointer.turn.Unlock()
	w.drop()
	reopen := w.reopen
	if w.checkpointer.lost.Load() {
		reopen = w.rereadLog
	}
	if err := reopen(); err != nil {
		w.drop()
		w.poisoned = true
		return &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: "recover", Err: err,
			Detail: "a commit failed earlier; the store refuses to write until the disk works again"}
	}
	w.poisoned, w.pending = false, nil
	return nil
}

// drop closes the connection, which has failed: nothing of it is needed.
func (w *writer) drop() {
	if w.conn != nil {
		_ = w.conn.abandon()
		w.conn = nil
	}
}

// rereadLog reopens the file after a checkpoint has failed (see checkpointer). Once every connection is closed, the
// next one to be opened reads the log from its beginning, and all of it is moved again. Nobody reads meanwhile. If
// it fails, reading goes on only where no commit is pending: the log may hold it now, and if its own sync has failed
// nothing but a checkpoint makes it durable.
func (w *writer) rereadLog() (err error) {
	if !w.readers.retire(recoverBusyTimeout) {
		return errSnapshotsOpen
	}
	defer func() {
		away := err
		if w.pending == nil {
			away = nil
		}
		w.readers.resume(away)
	}()
	p := w.checkpointer
	if p.conn != nil {
		_ = p.conn.abandon()
		p.conn = nil
	}
	p.lost.Store(false)
	err = w.reopen()
	if err == nil {
		p.conn, err = w.opt.openConn(w.path, checkpointing, checkpointCacheBytes)
	}
	if err != nil {
		p.lost.Store(true)
		return err
	}
	w.walPages.Store(0)
	w.restartAt = w.opt.walPages
	p.restarted()
	return nil
}

// errSnapshotsOpen is why the file could not be opened anew yet.
var errSnapshotsOpen = errors.New("snapshots are still open")

func (w *writer) reopen() error {
	if err := w.open(); err != nil {
		return err
	}
	if err := w.conn.db.BusyTimeout(recoverBusyTimeout); err != nil {
		return err
	}
	// Readers may still need the log; then this is busy and the next call tries again.
	if _, err := w.checkpointer.run(w.conn, sqlite3.CHECKPOINT_TRUNCATE); err != nil {
		return err
	}
	if err := w.conn.db.BusyTimeout(busyTimeout); err != nil {
		return err
	}
	if err := w.conn.prepare(writing); err != nil {
		return err
	}
	return w.settle()
}

// recoverBusyTimeout is how long recovery waits for readers, with the writer's queue waiting behind it.
const recoverBusyTimeout = time.Second

// settle finds out what became of the pending commit. If it is not in the file, its numbers are given up:
// the counter is moved past them in a commit of its own. That commit also overwrites the head of the log,
// which has been emptied but not yet synced, so that no loss of power can bring the old frames back after
// somebody was told that they are gone.
func (w *writer) settle() error {
	u := w.pending
	if u == nil {
		return nil
	}
	if !u.decided {
		sequence, err := w.conn.sequence()
		if err != nil {
			return err
		}
		u.decided, u.committed = true, sequence >= u.last
	}
	if !u.committed {
		if err := w.conn.begin.Exec(); err != nil {
			return err
		}
		if err := w.putSequence(u.last); err != nil {
			return err
		}
		if err := w.conn.commit.Exec(); err != nil {
			return err
		}
	}
	u.settled = true
	return nil
}

// token names an unknown commit for Resolve.
func (w *writer) token(u *unknownCommit) kv.Token {
	return kv.Token(fmt.Sprintf("%s-%d", w.openedAs, u.last))
}

// Resolve implements batch.Driver. It recovers the store if that is what it takes. A token of another
// opening of the store cannot be told any more.
func (w *writer) Resolve(_ context.Context, token kv.Token) (kv.Outcome, error) {
	opened, number, _ := strings.Cut(string(token), "-")
	last, err := strconv.ParseUint(number, 10, 64)
	if err != nil || opened != w.openedAs {
		return kv.OutcomeUnknown, nil
	}
	for _, u := range w.unknown {
		if u.last != last {
			continue
		}
		if !u.settled {
			if err := w.recover(); err != nil {
				return kv.OutcomeUnknown, err
			}
		}
		if u.committed {
			return kv.OutcomeCommitted, nil
		}
		return kv.OutcomeNotCommitted, nil
	}
	return kv.OutcomeUnknown, nil
}

// restartLog starts the log over once it has passed its bound, between two batches. It waits for the
// checkpointer to have moved almost everything, so that little is left to do, but not beyond twice the
// bound. Short snapshots are waited for, because many of them are never all over at one moment; if one still
// needs the log after that, it is tried again when the log has grown some more. Long ones that overlap could keep it
// busy for ever; so beyond walStop times the bound the writer waits for them too. A snapshot that begins
// meanwhile does not prolong that: it reads the file alone as soon as all of the log is in it.
func (w *writer) restartLog() {
	pages := w.walPages.Load()
	if pages < w.restartAt {
		return
	}
	if pages-w.checkpointer.moved.Load() > restartLagPages && pages < 2*w.opt.walPages {
		w.checkpointer.hurry()
		return
	}
	p := w.checkpointer
	if pages >= 2*w.opt.walPages {
		p.turn.Lock()
	} else if !p.turn.TryLock() {
		return // the checkpointer is at it
	}
	defer p.turn.Unlock()
	if p.lost.Load() {
		return
	}
	w.restartAt = pages + w.opt.walPages/16
	wait := restartWait
	if pages >= walStop*w.opt.walPages {
		wait = busyTimeout
	}
	if w.conn.db.BusyTimeout(wait) != nil {
		return
	}
	if _, err := p.run(w.conn, sqlite3.CHECKPOINT_RESTART); err == nil {
		w.walPages.Store(0)
		w.restartAt = w.opt.walPages
		p.restarted()
	}
	if err := w.conn.db.BusyTimeout(busyTimeout); err != nil {
		w.poisoned = true
	}
}
