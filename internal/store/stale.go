package store

import (
	"bytes"
	"errors"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/kv"
	"abide/protocol"
)

// ClearStale removes a timer entry that its record does not call for, and leaves one that it does.
func (t *Txn) ClearStale(timer keyspace.Timer) error {
	stands, err := t.stands(timer)
	if err != nil || stands {
		return err
	}
	return t.tx.Delete(timer.Key)
}

// stands reports whether a timer entry is derived from a record as it is now.
func (t *Txn) stands(timer keyspace.Timer) (bool, error) {
	var derived []kv.Entry
	switch timer.Kind {
	case keyspace.TimerDrain:
		return t.Draining(timer.ID)
	case keyspace.TimerSchedule:
		s, err := t.Schedule(timer.ID)
		if err != nil || s == nil {
			return false, err
		}
		derived = t.keys.DeriveSchedule(nil, s)
	default:
		o, err := t.Object(timer.ID)
		if err != nil || o == nil {
			return false, err
		}
		derived = t.keys.Derive(nil, o)
	}
	for _, e := range derived {
		if bytes.Equal(e.Key, timer.Key) {
			return true, nil
		}
	}
	return false, nil
}

// Remove deletes a tree row with the entries that it calls for: a workspace is being emptied. An object
// that does not decode is deleted by itself; its entries are stale from then on.
func (t *Txn) Remove(row kv.Entry) error {
	if err := t.tx.Delete(row.Key); err != nil {
		return err
	}
	id, isObject, err := t.keys.ParseObject(row.Key)
	if err != nil || !isObject {
		return t.removeOther(row)
	}
	o, err := keyspace.Object(id, row.Value)
	if err != nil {
		return t.journal(journal.Entry{What: journal.Object, ID: id})
	}
	t.old, t.new = t.keys.Derive(t.old[:0], o), t.new[:0]
	if err := t.replace(nil, o); err != nil {
		return err
	}
	return t.record(journal.Object, id, journal.OfObject(o), journal.State{})
}

// maxScheduleChunks is more than the chunks of the largest payload there can be.
const maxScheduleChunks = 2 * protocol.MaxBodyBytes / chunkBytes

// RemoveSchedule deletes a schedule: a workspace is being emptied. One that does not decode is deleted with its chunks;
// its timer is stale from then on.
func (t *Txn) RemoveSchedule(id string) error {
	err := t.DeleteSchedule(id)
	if !errors.Is(err, kv.ErrCorrupt) {
		return err
	}
	chunks, err := t.tx.Scan(t.keys.ScheduleChunks(id), maxScheduleChunks)
	if err != nil {
		return err
	}
	for _, row := range chunks {
		if err := t.tx.Delete(row.Key); err != nil {
			return err
		}
	}
	if err := t.journal(journal.Entry{What: journal.Schedule, ID: id}); err != nil {
		return err
	}
	return t.tx.Delete(t.keys.Schedule(id))
}

// removeOther deletes the entry of a drain obligation or of an unblock message.
func (t *Txn) removeOther(row kv.Entry) error {
	if id, ok := t.keys.ParseDrain(row.Key); ok {
		return t.tx.Delete(t.keys.DeriveDrain(id).Key)
	}
	if id, address, ok := t.keys.ParseUnblock(row.Key); ok {
		return t.tx.Delete(t.keys.DeriveUnblock(id, address).Key)
	}
	return nil
}
