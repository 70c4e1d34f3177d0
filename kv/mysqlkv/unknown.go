package mysqlkv

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"abide/kv"
)

// A commit whose answer is lost is found out from a row that each opening of a store keeps of its own: the last number
// that it has committed, written in every commit. The row is read under the writers' lock, which the lost session
// held: once the lock is free, that session has committed or it never will.
//
// The numbers of a lost commit are not used again, not even by a session that begins where the lost one did: its token
// would name two commits. So the row still tells one commit from another when later ones have followed.

const (
	// sessionGap is how many numbers a new session of the writer leaves out. It is more than all batches together
	// that can be visible before they are durable, so that a number which somebody has read, and a crash of the
	// database has taken back, is never given to another commit.
	sessionGap = 1 << 20
	// writersKept is how many of the rows are kept: the latest. Whoever finds none of its own while so many others
	// have committed later cannot tell any more.
	writersKept = 64
	// maxUnknownKept bounds how many answers a store remembers for Resolve.
	maxUnknownKept = 1024
)

// unknownCommit is one physical commit whose answer was lost.
type unknownCommit struct {
	last    uint64 // its highest sequence number
	outcome kv.Outcome
}

// writerRow is the row of one opening of a store.
func writerRow(opened string) []byte { return append(slices.Clone(writerKeys), opened...) }

// writerRows read the rows of all writers.
type writerRows struct{ last map[string]uint64 }

// read is a statement and the sink of its result.
func (w *writerRows) read(s *script) {
	w.last = map[string]uint64{}
	end := slices.Clone(writerKeys)
	end[len(end)-1]++
	text := append([]byte("SELECT k,v FROM "+byKey+" WHERE k>="), appendLiteral(nil, writerKeys)...)
	s.add(string(appendLiteral(append(text, " AND k<"...), end)), func(row []driver.Value) error {
		n, err := decodeSequence(column(row, 1))
		w.last[string(column(row, 0)[len(writerKeys):])] = n
		return err
	})
}

// outcome is that of a commit up to the number last which the writer opened as so has tried, and nobody is trying any more.
func (w *writerRows) outcome(opened string, last uint64) kv.Outcome {
	n, ok := w.last[opened]
	switch {
	case ok && n == last:
		return kv.OutcomeCommitted
	case ok && n > last:
		return kv.OutcomeUnknown
	case ok:
		return kv.OutcomeNotCommitted
	}
	later := 0
	for _, other := range w.last {
		if other > last {
			later++
		}
	}
	if later >= writersKept {
		return kv.OutcomeUnknown // its row may have been there
	}
	return kv.OutcomeNotCommitted
}

// prune adds the statement that removes the rows of writers long gone. A writer that has come back meanwhile has a
// higher number, and keeps its row.
func (w *writerRows) prune(s *script) {
	if len(w.last) <= writersKept {
		return
	}
	numbers := make([]uint64, 0, len(w.last))
	for _, n := range w.last {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	end := slices.Clone(writerKeys)
	end[len(end)-1]++
	text := append([]byte("DELETE FROM "+table+" WHERE k>="), appendLiteral(nil, writerKeys)...)
	text = appendLiteral(append(text, " AND k<"...), end)
	s.add(string(appendLiteral(append(text, " AND v<"...), encodeSequence(numbers[len(numbers)-writersKept]))), nil)
}

// token names a commit of an opening for Resolve.
func token(opened string, last uint64) kv.Token {
	return kv.Token(fmt.Sprintf("%s-%d", hex.EncodeToString([]byte(opened)), last))
}

func splitToken(t kv.Token) (opened string, last uint64, ok bool) {
	name, number, _ := strings.Cut(string(t), "-")
	raw, err := hex.DecodeString(name)
	if err != nil || len(raw) != openedBytes {
		return "", 0, false
	}
	last, err = strconv.ParseUint(number, 10, 64)
	return string(raw), last, err == nil
}

// Resolve implements batch.Remote. It also answers for commits of other openings of the store, such as that of a process
// that has died.
func (w *writer) Resolve(ctx context.Context, t kv.Token) (kv.Outcome, error) {
	opened, last, ok := splitToken(t)
	if !ok {
		return kv.OutcomeUnknown, nil
	}
	w.turn.Lock()
	defer w.turn.Unlock()
	if opened != w.opened {
		return w.resolveOther(ctx, opened, last)
	}
	i := slices.IndexFunc(w.unknown, func(u *unknownCommit) bool { return u.last == last })
	if i < 0 {
		return kv.OutcomeUnknown, nil
	}
	u := w.unknown[i]
	if u.outcome == kv.OutcomeUnknown && w.pending == u {
		// A new session decides it.
		if err := w.connect(ctx, true); err != nil {
			return kv.OutcomeUnknown, err
		}
	}
	return u.outcome, nil
}

func (w *writer) resolveOther(ctx context.Context, opened string, last uint64) (kv.Outcome, error) {
	if err := w.connect(ctx, true); err != nil {
		return kv.OutcomeUnknown, err
	}
	rows, err := w.readWriters()
	if err != nil {
		return kv.OutcomeUnknown, failure("resolve", err)
	}
	return rows.outcome(opened, last), nil
}

// readWriters reads the rows of all writers under the lock.
func (w *writer) readWriters() (*writerRows, error) {
	rows := &writerRows{}
	script := &script{limit: w.session.packetBytes}
	script.add("BEGIN", nil)
	script.add(lockCounter, func([]driver.Value) error { return nil })
	rows.read(script)
	err := w.session.send(script)
	w.session.rollback()
	if w.session.lost {
		w.hangUp()
		if err == nil {
			err = unavailable("resolve", "the connection was lost")
		}
	}
	return rows, err
}

// settle finds out about the pending commit on a new session, before that does anything else.
func (w *writer) settle() error {
	rows, err := w.readWriters()
	if err != nil {
		return err
	}
	w.rows = rows
	if u := w.pending; u != nil {
		u.outcome = rows.outcome(w.opened, u.last)
		w.pending = nil
	}
	return nil
}
