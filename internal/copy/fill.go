package copy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"abide/kv"
)

// Target is a store that a copy fills.
type Target interface {
	kv.Store
	kv.Importer
}

// ErrOther: the target holds the beginning of a copy of something else.
var ErrOther = errors.New("the target holds the beginning of another copy, or the source has changed since it began: empty the target and copy again")

// ErrNotEmpty: the target holds data, and no copy into it has begun.
var ErrNotEmpty = errors.New("the target is not empty")

// maxRise bounds how far the incarnation rises at random in one copy. Two copies of one store have different
// ones nearly always, so that a cursor of one is not taken for a cursor of the other.
const maxRise = 1 << 16

// stepAttempts is how often a step is tried that did not commit because something was in its way.
const stepAttempts = 5

// state is what a target keeps of a copy that has not ended.
type state struct {
	Version     int    `json:"version"`
	Digest      string `json:"digest"` // of the source's content
	Incarnation uint32 `json:"incarnation"`
	Sequence    uint64 `json:"sequence"` // of the source's last commit
	Space       int    `json:"space"`    // where the next page begins
	After       []byte `json:"after"`
	Rows        int64  `json:"rows"` // copied
	Filled      bool   `json:"filled"`
}

const stateVersion = 1

// Fill copies everything from the source, whose Survey is content, and leaves the target marked as incomplete.
// A target that an earlier Fill of the same content has left is filled further; resumed says so. random gives a number
// below n. progress, if not nil, is told now and then how many rows are there.
//
// Errors: ErrNotEmpty, ErrOther, ErrChanged; those of the stores. After any of them Fill may be called again.
func Fill(ctx context.Context, from kv.Store, to Target, content Content, random func(n uint32) uint32, progress func(rows int64)) (resumed bool, err error) {
	f := &filling{to: to, progress: progress}
	if resumed, err = f.begin(ctx, content, random); err != nil || f.Filled {
		return resumed, err
	}
	p := &pages{store: from, bound: &content.Last, space: f.Space, after: f.After}
	for {
		rows, err := p.next(ctx)
		if err != nil {
			return resumed, err
		}
		for i := range rows {
			if rows[i], err = transposed(rows[i], p.space, f.Incarnation); err != nil {
				return resumed, err
			}
		}
		next := f.state
		next.Space, next.After, next.Rows = p.space, p.after, f.Rows+int64(len(rows))
		next.Filled = len(rows) == 0
		if err := f.step(ctx, rows, &next); err != nil || next.Filled {
			return resumed, err
		}
	}
}

// End makes a target that is filled a store like any other.
func End(ctx context.Context, to Target) error {
	f := &filling{to: to}
	found, err := f.load(ctx)
	switch {
	case err != nil:
		return err
	case !found || !f.Filled:
		return errors.New("the target is not filled")
	}
	return f.step(ctx, nil, nil)
}

// Pending says in a few words what a store that is not complete is; empty for one that is. Whoever opens a store
// to serve from it refuses it then.
func Pending(ctx context.Context, s kv.Store) (string, error) {
	to, ok := s.(Target)
	if !ok {
		return "", nil
	}
	f := &filling{to: to}
	found, err := f.load(ctx)
	switch {
	case errors.Is(err, errState):
		return "a copy into it has not ended, and its record does not decode", nil
	case err != nil:
		return "", err
	case !found:
		return "", nil
	case f.Filled:
		return fmt.Sprintf("a copy of %d rows into it was not checked to its end", f.Rows), nil
	}
	return fmt.Sprintf("a copy into it broke off after %d rows", f.Rows), nil
}

// filling is a copy under way.
type filling struct {
	state
	to       Target
	stored   []byte // the state as the target has it; nil: none
	progress func(rows int64)
}

var errState = errors.New("the target's record of a copy does not decode")

// load reads the state that the target has, if it has one.
func (f *filling) load(ctx context.Context) (found bool, err error) {
	f.stored, err = f.to.ImportState(ctx)
	if err != nil || f.stored == nil {
		return false, err
	}
	if err := json.Unmarshal(f.stored, &f.state); err != nil || f.Version != stateVersion {
		return true, errState
	}
	return true, nil
}

// begin goes on with the copy that the target has, or begins one.
func (f *filling) begin(ctx context.Context, content Content, random func(n uint32) uint32) (resumed bool, err error) {
	found, err := f.load(ctx)
	switch {
	case errors.Is(err, errState):
		return false, ErrOther
	case err != nil:
		return false, err
	case found && (f.Digest != content.digest() || f.Sequence != content.Last.Sequence()):
		return false, ErrOther
	case found:
		return true, nil
	}
	own, err := bound(ctx, f.to)
	switch {
	case err != nil:
		return false, err
	case !own.IsZero():
		return false, ErrNotEmpty
	}
	incarnation := content.Last.Incarnation() + 1 + random(maxRise)
	if incarnation > kv.MaxIncarnation {
		return false, fmt.Errorf("the source has incarnation %d and a copy needs a higher one, at most %d", content.Last.Incarnation(), kv.MaxIncarnation)
	}
	first := state{Version: stateVersion, Digest: content.digest(), Incarnation: incarnation, Sequence: content.Last.Sequence()}
	return false, f.step(ctx, nil, &first)
}

// bound is the last commit of a store.
func bound(ctx context.Context, s kv.Store) (at kv.Position, err error) {
	err = s.View(ctx, func(v kv.Snapshot) error { at = v.Bound(); return nil })
	return at, err
}

// step makes one step of the import; next is the state after it, nil at the end. An outcome that is unknown is found out.
func (f *filling) step(ctx context.Context, rows []kv.Entry, next *state) error {
	step := kv.Import{Rows: rows, After: f.stored, Incarnation: f.Incarnation, Sequence: f.Sequence}
	if next != nil {
		step.Incarnation, step.Sequence = next.Incarnation, next.Sequence
		var err error
		if step.State, err = json.Marshal(next); err != nil {
			return err
		}
	}
	for attempt := 1; ; attempt++ {
		err := f.to.Import(ctx, step)
		if err == nil {
			break
		}
		stored, unreadable := f.to.ImportState(ctx)
		switch {
		case unreadable != nil:
			return err
		case errors.Is(err, kv.ErrCommitUnknown) && bytes.Equal(stored, step.State):
		case !bytes.Equal(stored, f.stored):
			return fmt.Errorf("another copy into the target is under way: %w", err)
		case attempt < stepAttempts && (errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrCommitUnknown)):
			continue
		default:
			return err
		}
		break
	}
	if f.stored = step.State; next != nil {
		f.state = *next
	}
	if f.progress != nil {
		f.progress(f.Rows)
	}
	return nil
}
