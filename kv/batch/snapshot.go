package batch

import (
	"context"
	"errors"
	"fmt"

	"abide/kv"
)

// snapshot is the handle of one View.
type snapshot struct {
	budget
	ctx    context.Context
	driver DriverSnapshot // nil on a remote engine
	remote *remoteView    // nil on a driver
	bound  kv.Position
}

var _ kv.Snapshot = (*snapshot)(nil)

// View runs fn on a snapshot of its own; see kv.Store.
func (s *Store) View(ctx context.Context, fn func(kv.Snapshot) error) (err error) {
	if s.remote != nil {
		return s.ViewHinted(ctx, nil, 0, fn)
	}
	if t := kv.TimingOf(ctx); t != nil {
		began := t.Now()
		defer func() { t.ReadSince(began) }()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closing.Load() {
		return s.opt.fault(kv.ErrClosed, "view", nil, "")
	}
	driver, err := s.driver.Snapshot(ctx)
	if err != nil {
		if errors.Is(err, ctx.Err()) {
			return err
		}
		return s.opt.driverFault(err, "view", nil)
	}
	defer driver.Release()
	sequence, err := driver.Sequence()
	if err != nil {
		return s.opt.driverFault(err, "view", nil)
	}
	snap := &snapshot{budget: newBudget(&s.opt), ctx: ctx, driver: driver, bound: s.position(sequence)}
	defer func() { snap.done = true }()
	return fn(snap)
}

// position is that of a commit's sequence number; none for 0.
func (s *Store) position(sequence uint64) kv.Position {
	if sequence == 0 {
		return kv.Position{}
	}
	return kv.NewPosition(s.opt.Incarnation, sequence)
}

func (v *snapshot) Bound() kv.Position { return v.bound }

func (v *snapshot) Get(key []byte) ([]byte, error) {
	if err := v.check("get"); err != nil {
		return nil, err
	}
	if err := v.checkKey("get", key, isFloor); err != nil {
		return nil, err
	}
	value, err := v.stored(key)
	if err != nil {
		return nil, v.opt.driverFault(err, "get", key)
	}
	return value, nil
}

func (v *snapshot) stored(key []byte) ([]byte, error) {
	if v.remote != nil {
		return v.remote.get(key)
	}
	return v.driver.Get(key)
}

// check spends an operation unless the caller has gone away.
func (v *snapshot) check(op string) error {
	if err := v.ctx.Err(); err != nil && !v.done {
		return err
	}
	return v.spend(op, 1)
}

func (v *snapshot) GetMany(keys [][]byte) ([][]byte, error) {
	if v.remote != nil && !v.done {
		if err := v.learn(keys); err != nil {
			return nil, err
		}
	}
	values := make([][]byte, len(keys))
	for i, key := range keys {
		value, err := v.Get(key)
		if err != nil {
			return nil, err
		}
		values[i] = value
	}
	return values, nil
}

func (v *snapshot) Scan(r kv.Range, limit int) ([]kv.Entry, error) {
	if err := v.ctx.Err(); err != nil && !v.done {
		return nil, err
	}
	return v.scan(v.storedRange(limit), r, limit)
}

// storedRange scans for at most limit entries.
func (v *snapshot) storedRange(limit int) func(kv.Range, func(key, value []byte) bool) error {
	if v.remote == nil {
		return v.driver.Scan
	}
	return func(r kv.Range, visit func(key, value []byte) bool) error {
		return v.remote.scan(r, limit, visit)
	}
}

func (v *snapshot) Journal(partition []byte, after kv.EntryPosition, limit int) ([]kv.JournalEntry, error) {
	if err := v.check("journal"); err != nil {
		return nil, err
	}
	if err := v.checkRows("journal", limit); err != nil {
		return nil, err
	}
	if err := v.checkPartition("journal", partition); err != nil {
		return nil, err
	}
	if v.remote != nil {
		if err := v.remote.journal(partition, after, limit); err != nil {
			return nil, v.opt.driverFault(err, "journal", entryKey)
		}
	}
	floor, err := kv.Floor(v, partition)
	if err != nil {
		return nil, v.opt.driverFault(err, "journal", floorKey)
	}
	if kv.Expired(after, floor, v.bound) {
		return nil, &kv.Error{Is: kv.ErrExpired, Store: v.opt.Name, Op: "journal", KeyKind: kv.KindEntry, Floor: floor,
			Detail: fmt.Sprintf("a reader at %v; the floor is %v and the last commit %v", after, floor, v.bound)}
	}
	return v.entries(kv.EntriesAfter(partition, after), limit)
}

// entries reads at most limit journal entries of r.
func (v *snapshot) entries(r kv.Range, limit int) ([]kv.JournalEntry, error) {
	var entries []kv.JournalEntry
	var bad error
	err := v.storedRange(limit)(r, func(key, value []byte) bool {
		if len(entries) > 0 { // the call itself has paid for the first
			if bad = v.spendRow("journal"); bad != nil {
				return false
			}
		}
		var at kv.EntryPosition
		if _, at, bad = kv.ParseJournalKey(key); bad != nil {
			return false
		}
		entries = append(entries, kv.JournalEntry{Position: at, Record: value})
		return len(entries) < limit
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, v.opt.driverFault(err, "journal", entryKey)
	}
	return entries, nil
}
