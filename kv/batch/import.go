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
	snapshot, err := s.driver.Snapshot(ctx)
	if err != nil {
		return nil, s.opt.driverFault(err, "import", nil)
	}
	defer snapshot.Release()
	state, err := snapshot.Get(importKey)
	if err != nil {
		return nil, s.opt.driverFault(err, "import", nil)
	}
	return bytes.Clone(state), nil
}

// Import is that of kv.Importer. It waits for the batch under way and is a physical transaction of its own.
func (s *Store) Import(ctx context.Context, step kv.Import) error {
	driver, ok := s.driver.(Incarnated)
	if !ok {
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
	sequence, err := s.driver.Begin()
	if err != nil {
		return s.opt.driverFault(err, "import", nil)
	}
	if err := s.applyImport(driver, sequence, step); err != nil {
		s.driver.Rollback()
		return s.opt.driverFault(err, "import", nil)
	}
	if err := s.driver.Commit(max(sequence, step.Sequence) + 1); err != nil {
		return s.opt.driverFault(err, "import", nil)
	}
	s.commits.Add(1)
	return nil
}

// applyImport writes a step into the open physical transaction.
func (s *Store) applyImport(driver Incarnated, sequence uint64, step kv.Import) error {
	state, err := s.driver.Get(importKey)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(state, step.After):
		return s.opt.fault(kv.ErrConflict, "import", nil, "the state of the import is not the one that the step comes after")
	case state == nil && sequence > 0:
		return s.opt.fault(kv.ErrLimit, "import", nil, "the store is not empty")
	case state == nil:
		if err := driver.SetIncarnation(step.Incarnation); err != nil {
			return err
		}
	}
	writes := make([]Write, 0, len(step.Rows)+1)
	for _, row := range step.Rows {
		writes = append(writes, Write{Key: row.Key, Value: row.Value})
	}
	writes = append(writes, Write{Key: importKey, Value: step.State, Delete: step.State == nil})
	slices.SortFunc(writes, func(a, b Write) int { return bytes.Compare(a.Key, b.Key) })
	return s.driver.Apply(writes)
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
