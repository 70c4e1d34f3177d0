package batch

import (
	"bytes"

	"abide/kv"
)

// tx is the handle of one run of one closure. It outlives the closure only to answer ErrTxDone.
type tx struct {
	budget
	run *run
	// err is the first error that a method gave. It fails the closure whatever the closure returns, so that
	// half of what it meant to do never commits.
	err error
	// missed says that it ended at a read that has yet to be fetched, and will run again. Whatever else it came to
	// counts for nothing.
	missed bool
	// position is where the closure will stand if it writes.
	position kv.Position
	appends  uint32
	wrote    bool
	signals  []kv.Signal
}

var _ kv.Tx = (*tx)(nil)

// fail remembers the first error of a closure that is still running.
func (t *tx) fail(err error) error {
	if err != nil && t.err == nil && !t.done {
		t.err = err
	}
	return err
}

func (t *tx) Get(key []byte) ([]byte, error) {
	value, err := t.get(key)
	return value, t.fail(err)
}

func (t *tx) get(key []byte) ([]byte, error) {
	if err := t.spend("get", 1); err != nil {
		return nil, err
	}
	if err := t.checkKey("get", key, isFloor); err != nil {
		return nil, err
	}
	value, err := t.stored(key)
	if err != nil {
		return nil, t.opt.driverFault(err, "get", key)
	}
	return value, nil
}

// stored reads a key in the overlay or the engine.
func (t *tx) stored(key []byte) ([]byte, error) {
	if t.run.rounds == nil {
		return t.run.overlay.get(t.run.driver, key)
	}
	value, err := t.run.rounds.reads.get(key)
	return value, t.miss(err)
}

// learn fetches keys together. Those that are out of bounds are left to get, which says so.
func (t *tx) learn(keys [][]byte) error {
	inBounds := make([][]byte, 0, max(0, min(len(keys), kv.MaxTxOps-t.ops)))
	for _, key := range keys {
		if len(inBounds) == cap(inBounds) || t.checkKey("get", key, isFloor) != nil {
			break
		}
		inBounds = append(inBounds, key)
	}
	if err := t.miss(t.run.rounds.reads.learn(inBounds)); err != nil {
		return t.opt.driverFault(err, "get", nil)
	}
	return nil
}

// miss takes note of an error that says that the closure must run again.
func (t *tx) miss(err error) error {
	if err == errMissed {
		t.missed = true
	}
	return err
}

func (t *tx) GetMany(keys [][]byte) ([][]byte, error) {
	if t.run.rounds != nil && !t.done {
		if err := t.learn(keys); err != nil {
			return nil, t.fail(err)
		}
	}
	values := make([][]byte, len(keys))
	for i, key := range keys {
		value, err := t.get(key)
		if err != nil {
			return nil, t.fail(err)
		}
		values[i] = value
	}
	return values, nil
}

func (t *tx) Scan(r kv.Range, limit int) ([]kv.Entry, error) {
	scan := func(r kv.Range, visit func(k, v []byte) bool) error {
		if t.run.rounds != nil {
			return t.miss(t.run.rounds.reads.scan(r, limit, visit))
		}
		return t.run.overlay.scan(t.run.driver, r, visit)
	}
	entries, err := t.scan(scan, r, limit)
	return entries, t.fail(err)
}

func (t *tx) Put(key, value []byte) error { return t.fail(t.put(key, value)) }

func (t *tx) put(key, value []byte) error {
	if err := t.spend("put", 1); err != nil {
		return err
	}
	if err := t.checkKey("put", key, isFloor); err != nil {
		return err
	}
	if err := t.checkValue("put", key, value); err != nil {
		return err
	}
	if err := t.write("put", key, len(key)+len(value)); err != nil {
		return err
	}
	t.wrote = true
	t.run.overlay.set(key, present(value), put)
	return nil
}

func (t *tx) Delete(key []byte) error { return t.fail(t.delete(key)) }

func (t *tx) delete(key []byte) error {
	if err := t.spend("delete", 1); err != nil {
		return err
	}
	if err := t.checkKey("delete", key, isEntry); err != nil {
		return err
	}
	if err := t.write("delete", key, len(key)); err != nil {
		return err
	}
	t.wrote = true
	t.run.overlay.set(key, nil, deleted)
	return nil
}

func (t *tx) Append(partition, record []byte) error { return t.fail(t.append(partition, record)) }

func (t *tx) append(partition, record []byte) error {
	if err := t.spend("append", 1); err != nil {
		return err
	}
	if err := t.checkPartition("append", partition); err != nil {
		return err
	}
	if err := t.checkValue("append", entryKey, record); err != nil {
		return err
	}
	if err := t.write("append", entryKey, len(partition)+len(record)); err != nil {
		return err
	}
	t.wrote = true
	key := kv.JournalKey(partition, kv.EntryPosition{Commit: t.position, Index: t.appends})
	t.appends++
	t.run.overlay.journal = append(t.run.overlay.journal, Write{Key: key, Value: present(record)})
	return nil
}

func (t *tx) Signal(s kv.Signal) { _ = t.fail(t.signal(s)) }

func (t *tx) signal(s kv.Signal) error {
	if err := t.spend("signal", 1); err != nil {
		return err
	}
	if n := len(s.Topic) + len(s.Body); n > kv.MaxSignalBytes {
		return t.opt.fault(kv.ErrLimit, "signal", nil, "a signal of %d bytes; at most %d", n, kv.MaxSignalBytes)
	}
	t.signals = append(t.signals, s)
	return nil
}

// present is a copy of value that is not nil, because nil says that there is none.
func present(value []byte) []byte {
	if len(value) == 0 {
		return []byte{}
	}
	return bytes.Clone(value)
}

// scan collects at most limit entries of r.
func (b *budget) scan(scan func(kv.Range, func(k, v []byte) bool) error, r kv.Range, limit int) ([]kv.Entry, error) {
	if err := b.spend("scan", 1); err != nil {
		return nil, err
	}
	if err := b.checkRows("scan", limit); err != nil {
		return nil, err
	}
	if err := b.checkRange("scan", r); err != nil {
		return nil, err
	}
	if bytes.Compare(r.Start, r.End) >= 0 {
		return nil, nil
	}
	var entries []kv.Entry
	var spent error
	err := scan(r, func(key, value []byte) bool {
		if len(entries) > 0 { // the call itself has paid for the first
			if spent = b.spendRow("scan"); spent != nil {
				return false
			}
		}
		entries = append(entries, kv.Entry{Key: key, Value: value})
		return len(entries) < limit
	})
	if err != nil {
		return nil, b.opt.driverFault(err, "scan", r.Start)
	}
	if spent != nil {
		return nil, spent
	}
	return entries, nil
}
