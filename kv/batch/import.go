package batch

import (
	"bytes"
	"context"
	"slices"

	"abide/kv"
)

// Incarnated is what a Driver adds so that its store can be filled from another engine.
type Incarnated interface {
	// SetIncarnation changes what every position of the store begins with, in the physical transaction that is
	// open and as durable as its commit. The incarnation that the driver's store was opened with stays as it is.
	SetIncarnation(incarnation uint32) error
}

// importKey is where the state of an import stands while it goes on; among the keys that a store can hold it
// comes just before the floors.
var importKey = []byte("\xFF~import")

var _ kv.Importer = (*Store)(nil)

// ImportState is that of kv.Importer.
func (s *Store) ImportState(ctx context.Context) ([]byte, error) {
	if s.closing.Load() {
		return nil, s.opt.fault(kv.ErrClosed, "import", nil, "")
	}
	state, err := s.storedImport(ctx)
	if err != nil {
		return nil, s.opt.driverFault(err, "import", nil)
	}
	return bytes.Clone(state), nil
}

func (s *Store) storedImport(ctx context.Context) ([]byte, error) {
	if s.remote != nil {
		snapshot, err := s.remote.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		defer snapshot.Release()
		f := Fetch{Gets: [][]byte{importKey}}
		if _, err := snapshot.Fetch(&f); err != nil {
			return nil, err
		}
		return f.Values[0], nil
	}
	snapshot, err := s.driver.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer snapshot.Release()
	return snapshot.Get(importKey)
}

// Import is that of kv.Importer. It waits for the batch under way and is a physical transaction of its own.
func (s *Store) Import(ctx context.Context, step kv.Import) error {
	if _, ok := s.driver.(Incarnated); s.remote == nil && !ok {
		return s.opt.fault(kv.ErrLimit, "import", nil, "this engine cannot be filled from another one")
	}
	if err := s.checkImport(step); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.closing.Load() {
		return s.opt.fault(kv.ErrClosed, "import", nil, "")
	}
	sequence, state, err := s.beginImport()
	if err != nil {
		return s.opt.driverFault(err, "import", nil)
	}
	commit, err := s.importCommit(sequence, state, step)
	if err != nil {
		s.engine.Rollback()
		return err
	}
	if err := s.commitImport(commit); err != nil {
		return s.opt.driverFault(err, "import", nil)
	}
	s.commits.Add(1)
	return nil
}

// beginImport begins a physical transaction and reads the state of the import in it.
func (s *Store) beginImport() (sequence uint64, state []byte, err error) {
	if s.remote != nil {
		f := Fetch{Gets: [][]byte{importKey}}
		if sequence, err = s.remote.Begin(&f); err != nil {
			return 0, nil, err
		}
		return sequence, f.Values[0], nil
	}
	if sequence, err = s.driver.Begin(); err != nil {
		return 0, nil, err
	}
	if state, err = s.driver.Get(importKey); err != nil {
		s.driver.Rollback()
	}
	return sequence, state, err
}

// importCommit is what a step writes, on a store in this state.
func (s *Store) importCommit(sequence uint64, state []byte, step kv.Import) (Commit, error) {
	c := Commit{Sequence: max(sequence, step.Sequence) + 1}
	switch {
	case !bytes.Equal(state, step.After):
		return c, s.opt.fault(kv.ErrConflict, "import", nil, "the state of the import is not the one that the step comes after")
	case state == nil && sequence > 0:
		return c, s.opt.fault(kv.ErrLimit, "import", nil, "the store is not empty")
	case state == nil:
		c.Incarnation = step.Incarnation
	}
	c.Writes = make([]Write, 0, len(step.Rows)+1)
	for _, row := range step.Rows {
		c.Writes = append(c.Writes, Write{Key: row.Key, Value: row.Value})
	}
	c.Writes = append(c.Writes, Write{Key: importKey, Value: step.State, Delete: step.State == nil})
	slices.SortFunc(c.Writes, func(a, b Write) int { return bytes.Compare(a.Key, b.Key) })
	return c, nil
}

// commitImport ends the physical transaction with a step.
func (s *Store) commitImport(c Commit) error {
	if s.remote != nil {
		return s.remote.Commit(c)
	}
	return commitDriver(s.driver, c)
}

// commitDriver is Remote.Commit on a driver.
func commitDriver(d Driver, c Commit) error {
	if c.Incarnation != 0 {
		if err := d.(Incarnated).SetIncarnation(c.Incarnation); err != nil {
			d.Rollback()
			return err
		}
	}
	if err := d.Apply(c.Writes); err != nil {
		d.Rollback()
		return err
	}
	return d.Commit(c.Sequence)
}

// checkImport holds a step against the limits.
func (s *Store) checkImport(step kv.Import) error {
	b := newBudget(&s.opt)
	isOwn := func(key []byte) bool { return isEntry(key) || isFloor(key) }
	for _, row := range step.Rows {
		if err := b.spend("import", 1); err != nil {
			return err
		}
		if err := b.checkKey("import", row.Key, isOwn); err != nil {
			return err
		}
		if err := b.checkValue("import", row.Key, row.Value); err != nil {
			return err
		}
		if err := b.write("import", row.Key, len(row.Key)+len(row.Value)); err != nil {
			return err
		}
	}
	switch {
	case step.State != nil && len(step.State) == 0, step.State == nil && step.After == nil:
		return s.opt.fault(kv.ErrLimit, "import", nil, "a step without a state")
	case len(step.State) > kv.MaxValueBytes:
		return s.opt.fault(kv.ErrLimit, "import", nil, "a state of %d bytes; at most %d", len(step.State), kv.MaxValueBytes)
	case step.Incarnation == 0 || step.Incarnation > kv.MaxIncarnation:
		return s.opt.fault(kv.ErrLimit, "import", nil, "incarnation %d; it must be 1 to %d", step.Incarnation, kv.MaxIncarnation)
	}
	return nil
}
