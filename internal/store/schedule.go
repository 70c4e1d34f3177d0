package store

import (
	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/machine"
)

// Schedule implements machine.State.
func (t *Txn) Schedule(id string) (*machine.Schedule, error) {
	b, err := t.r.Get(t.keys.Schedule(id))
	if err != nil || b == nil {
		return nil, err
	}
	return keyspace.Schedule(id, b)
}

// PutSchedule implements machine.State.
func (t *Txn) PutSchedule(s *machine.Schedule) error {
	stored, err := t.Schedule(s.ID)
	if err != nil {
		return err
	}
	key := func(token string, n int64) []byte { return t.keys.ScheduleChunk(s.ID, token, n) }
	if err := t.spill(&s.PromiseParam, key); err != nil {
		return err
	}
	if err := t.tx.Put(t.keys.Schedule(s.ID), keyspace.AppendSchedule(nil, s)); err != nil {
		return err
	}
	t.old, t.new = t.old[:0], t.keys.DeriveSchedule(t.new[:0], s)
	if stored != nil {
		t.old = t.keys.DeriveSchedule(t.old, stored)
	}
	if err := t.replace(nil, nil); err != nil {
		return err
	}
	return t.record(journal.Schedule, s.ID, journal.OfSchedule(stored), journal.OfSchedule(s))
}

// DeleteSchedule implements machine.State. Removing an absent one is harmless.
func (t *Txn) DeleteSchedule(id string) error {
	stored, err := t.Schedule(id)
	if err != nil || stored == nil {
		return err
	}
	if stored.PromiseParam.Ref != "" {
		for n := range pieces(stored.PromiseParam.Size) {
			if err := t.tx.Delete(t.keys.ScheduleChunk(id, stored.PromiseParam.Ref, n)); err != nil {
				return err
			}
		}
	}
	t.old, t.new = t.keys.DeriveSchedule(t.old[:0], stored), t.new[:0]
	if err := t.replace(nil, nil); err != nil {
		return err
	}
	if err := t.record(journal.Schedule, id, journal.OfSchedule(stored), journal.State{}); err != nil {
		return err
	}
	return t.tx.Delete(t.keys.Schedule(id))
}

// Schedules implements machine.State.
func (t *Txn) Schedules(after string, limit int) ([]*machine.Schedule, error) {
	all := t.keys.Schedules()
	r := all
	if after != "" {
		r = keyspace.After(all, t.keys.Schedule(after))
	}
	rows, err := t.r.Scan(r, limit)
	if err != nil {
		return nil, err
	}
	out := make([]*machine.Schedule, 0, len(rows))
	for _, row := range rows {
		id, err := keyspace.ParseLast(all, row.Key)
		if err != nil {
			return nil, err
		}
		s, err := keyspace.Schedule(id, row.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
