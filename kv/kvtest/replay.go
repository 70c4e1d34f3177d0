package kvtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"abide/kv"
)

// replay runs a history against a store and the model.
type replay struct {
	harness Harness
	t       testing.TB
	store   kv.Store
	model   *model
}

// errMeant is the error of closures that are meant to fail.
var errMeant = errors.New("the closure fails because the history says so")

// attempts bounds how often a statement is tried again on a store that fails now and then.
const attempts = 1000

func (r *replay) run(h history) error {
	for i := range h {
		if err := r.statement(&h[i]); err != nil {
			return err
		}
	}
	if err := r.checkContent(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	return nil
}

func (r *replay) statement(s *statement) (err error) {
	switch s.kind {
	case doUpdate, doFail:
		err = r.update(s)
	case doView:
		err = r.view(s)
	case doCompact:
		err = r.compact(s)
	case doReopen:
		if err = r.store.Close(); err == nil {
			r.store = r.harness.Reopen(r.t, Config{Keys: register})
			err = r.checkContent()
		}
	}
	if err != nil && s.kind != doView { // a view names the statement inside it
		err = fmt.Errorf("statement %d (%s): %w", s.number, s.kind, err)
	}
	return err
}

// passing reports whether an error is one after which the same call is made again.
func passing(err error) bool {
	return errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrOverloaded) || errors.Is(err, kv.ErrUnavailable)
}

// update runs a transaction until its outcome is known, and compares it with what the model says.
func (r *replay) update(s *statement) error {
	after := r.model.clone()
	want, writes := after.run(s.body)
	var got [][]string
	at, err := r.commit(func(tx kv.Tx) error {
		got = nil
		for _, op := range s.body {
			result, err := apply(tx, op)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", op.kind, quote(op.key), err)
			}
			if result != nil {
				got = append(got, result)
			}
		}
		if s.kind == doFail {
			return errMeant
		}
		return nil
	})
	if s.kind == doFail && errors.Is(err, errMeant) {
		err, writes, after = nil, false, r.model
	} else if s.kind == doFail && err == nil {
		return errors.New("the closure's error was lost")
	}
	if err != nil {
		return err
	}
	if err := compareResults(reads(s.body), got, want); err != nil {
		return err
	}
	if err := r.checkPosition(at, writes); err != nil {
		return err
	}
	if writes {
		after.commit(s.number, s.body, at)
		r.model = after
	}
	return nil
}

// checkPosition demands a position after all others from a transaction that wrote, and none from any other.
func (r *replay) checkPosition(at kv.Position, wrote bool) error {
	switch {
	case !wrote && !at.IsZero():
		return fmt.Errorf("nothing was written, and the position is %v", at)
	case wrote && at.Compare(r.model.bound) <= 0:
		return fmt.Errorf("the position is %v after %v", at, r.model.bound)
	}
	return nil
}

// commit runs fn until its outcome is known. What the store cannot resolve is told by the bound, because
// nobody else writes.
func (r *replay) commit(fn func(kv.Tx) error) (at kv.Position, err error) {
	for range attempts {
		at, err = r.store.Update(context.Background(), kv.Hints{}, fn)
		if passing(err) {
			continue
		}
		if !errors.Is(err, kv.ErrCommitUnknown) {
			return at, err
		}
		outcome, known, err := r.resolve(err)
		if err != nil {
			return at, err
		}
		if outcome == kv.OutcomeCommitted {
			return known, nil
		}
	}
	return at, err
}

// resolve finds out what became of a commit whose outcome is unknown.
func (r *replay) resolve(unknown error) (outcome kv.Outcome, at kv.Position, err error) {
	var known *kv.Error
	if !errors.As(unknown, &known) || known.Token == "" {
		return 0, at, fmt.Errorf("an unknown outcome without a token: %w", unknown)
	}
	for range attempts {
		if outcome, at, err = r.store.Resolve(context.Background(), known.Token); !passing(err) {
			break
		}
	}
	if err != nil || outcome != kv.OutcomeUnknown {
		return outcome, at, err
	}
	err = r.snapshot(func(s kv.Snapshot) error { at = s.Bound(); return nil })
	if at == r.model.bound {
		return kv.OutcomeNotCommitted, kv.Position{}, err
	}
	return kv.OutcomeCommitted, at, err
}

// snapshot runs fn on a snapshot, again if the store could not give one. fn must not fail in passing.
func (r *replay) snapshot(fn func(kv.Snapshot) error) (err error) {
	for range attempts {
		if err = r.store.View(context.Background(), fn); !passing(err) {
			break
		}
	}
	return err
}

// view compares what a snapshot says with the model as it was when the snapshot was taken.
func (r *replay) view(s *statement) error {
	return r.snapshot(func(snap kv.Snapshot) error {
		then := r.model.clone()
		for _, op := range s.body {
			if op.nested != nil {
				if err := r.statement(op.nested); err != nil {
					return err
				}
				then.commits = r.model.commits // what a reference means is no part of the snapshot
				continue
			}
			got, err := look(snap, then, op)
			if err == nil {
				err = compareResults([]operation{op}, [][]string{got}, [][]string{then.answer(op)})
			}
			if err != nil {
				return fmt.Errorf("statement %d (view): %w", s.number, err)
			}
		}
		if snap.Bound() != then.bound {
			return fmt.Errorf("statement %d (view): the bound is %v, want %v", s.number, snap.Bound(), then.bound)
		}
		return nil
	})
}

// look makes a reading call on a snapshot.
func look(snap kv.Snapshot, m *model, op operation) ([]string, error) {
	if op.kind != opJournal {
		return apply(snap, op)
	}
	entries, err := snap.Journal([]byte(op.key), m.position(op.after), op.limit)
	if !errors.Is(err, kv.ErrExpired) {
		return showJournal(entries), err
	}
	var known *kv.Error
	if !errors.As(err, &known) || known.Floor != m.floors[op.key] {
		return nil, fmt.Errorf("the floor is %v, but the error says: %w", m.floors[op.key], err)
	}
	return []string{expired}, nil
}

// apply makes a call; the result is nil for those that read nothing.
func apply(r kv.Reader, op operation) ([]string, error) {
	key := []byte(op.key)
	switch op.kind {
	case opGet:
		value, err := r.Get(key)
		return []string{show(value)}, err
	case opGetMany:
		values, err := r.GetMany([][]byte{key, []byte(op.end), key})
		out := []string{}
		for _, v := range values {
			out = append(out, show(v))
		}
		return out, err
	case opScan:
		entries, err := r.Scan(span(op.key, op.end), op.limit)
		return append([]string{}, showEntries(entries)...), err
	case opPut:
		return nil, r.(kv.Tx).Put(key, []byte(op.value))
	case opDelete:
		return nil, r.(kv.Tx).Delete(key)
	}
	return nil, r.(kv.Tx).Append(key, []byte(op.value))
}

// reads are the operations of a transaction that have a result.
func reads(body []operation) []operation {
	return slices.DeleteFunc(slices.Clone(body), func(op operation) bool {
		return op.kind == opPut || op.kind == opDelete || op.kind == opAppend
	})
}

func compareResults(ops []operation, got, want [][]string) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d reads answered, want %d", len(got), len(want))
	}
	for i, op := range ops {
		if !slices.Equal(got[i], want[i]) {
			return fmt.Errorf("%s of %s gives %s, want %s", op.kind, quote(op.key), list(got[i]), list(want[i]))
		}
	}
	return nil
}

// compact makes one step of compaction.
func (r *replay) compact(s *statement) error {
	after := r.model.clone()
	target := r.model.position(s.target)
	wantFloor, wantMore, writes := after.compact(s.partition, target)
	var floor kv.EntryPosition
	var more bool
	var err error
	for range attempts {
		floor, more, err = kv.Compact(context.Background(), r.store, []byte(s.partition), target)
		if passing(err) {
			continue
		}
		if !errors.Is(err, kv.ErrCommitUnknown) {
			break
		}
		outcome, at, resolveErr := r.resolve(err)
		if resolveErr != nil {
			return resolveErr
		}
		if outcome == kv.OutcomeCommitted {
			floor, more, err = wantFloor, wantMore, r.checkPosition(at, writes)
			break
		}
	}
	if err != nil {
		return err
	}
	if floor != wantFloor || more != wantMore {
		return fmt.Errorf("of %q through %v: the floor is %v (more: %v), want %v (more: %v)", s.partition, target, floor, more, wantFloor, wantMore)
	}
	if !writes {
		return nil
	}
	r.model = after
	return r.snapshot(func(snap kv.Snapshot) error {
		if after.bound.Compare(snap.Bound()) >= 0 {
			return fmt.Errorf("the bound is %v after compaction and was %v before", snap.Bound(), after.bound)
		}
		after.bound, after.commits[s.number] = snap.Bound(), snap.Bound()
		return nil
	})
}

// checkContent compares everything.
func (r *replay) checkContent() error {
	return r.snapshot(func(s kv.Snapshot) error {
		if s.Bound() != r.model.bound {
			return fmt.Errorf("the bound is %v, want %v", s.Bound(), r.model.bound)
		}
		entries, err := s.Scan(everything, kv.MaxScanRows)
		if got, want := showEntries(entries), r.model.scan("", "\xFF", kv.MaxScanRows); err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("the entries are %s, want %s", list(got), list(want))
		}
		if err != nil {
			return err
		}
		for partition, want := range r.model.journal {
			entries, err := s.Journal([]byte(partition), r.model.floors[partition], kv.MaxScanRows)
			if err != nil {
				return err
			}
			same := slices.EqualFunc(entries, want, func(got kv.JournalEntry, want modelEntry) bool {
				return got.Position == want.at && string(got.Record) == want.record
			})
			if !same {
				return fmt.Errorf("the journal of %q holds %s, want %s", partition, list(showJournal(entries)),
					list(r.model.read(partition, r.model.floors[partition], kv.MaxScanRows)))
			}
		}
		return nil
	})
}
