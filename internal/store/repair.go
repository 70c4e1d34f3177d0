package store

import (
	"bytes"
	"context"
	"errors"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// Repaired counts what a repair has done, by the kinds of the rows.
type Repaired struct {
	Added   Tally // derived entries that were missing
	Removed Tally // derived entries that no record calls for, or that do not decode
	PutBack Tally // rows that had been set aside
}

// Rows is how many rows a repair has changed.
func (r Repaired) Rows() int64 { return r.Added.Rows() + r.Removed.Rows() + r.PutBack.Rows() }

// Repair rebuilds the derived entries from the records, and puts back those rows of the quarantine that decode and
// would be in order where they were. It changes nothing else: no record, and no entry of a record that does not decode.
// A waiter on a promise that has settled since comes back with an obligation to drain it, so that it is woken. Every
// transaction is small and leaves the store no worse, so an interrupted repair can be repeated. Errors are the store's.
func (o Checker) Repair(ctx context.Context) (Repaired, error) {
	r := &repair{checker: o.begin(ctx, "repair"), done: Repaired{Tally{}, Tally{}, Tally{}}}
	for _, step := range []func() error{r.putBack, r.remove, r.add} {
		if err := step(); err != nil {
			return r.done, err
		}
	}
	return r.done, nil
}

type repair struct {
	*checker
	done Repaired
}

// rewrite gives every row of a range to judge, a page in each transaction, and counts the changes that it makes.
func (r *repair) rewrite(rows kv.Range, count Tally, judge func(p *page, tx kv.Tx, row kv.Entry, done Tally) error) error {
	for more := true; more; {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		var done Tally
		var next kv.Range
		var seen int64
		_, err := kv.Run(r.ctx, r.store, kv.Hints{Background: true}, func(tx kv.Tx) error {
			done = Tally{}
			page := &page{checker: r.checker, r: tx, txns: map[string]*Txn{}, floors: map[string]kv.EntryPosition{}}
			found, err := tx.Scan(rows, checkPage)
			if err != nil {
				return err
			}
			for _, row := range found {
				if err := judge(page, tx, row, done); err != nil {
					return err
				}
			}
			seen = int64(len(found))
			if more = len(found) == checkPage; more {
				next = keyspace.After(rows, found[len(found)-1].Key)
			}
			return nil
		})
		if err != nil {
			return err
		}
		rows = next
		for kind, n := range done {
			count[kind] += n
		}
		r.tally["repair"] += seen
		if r.progress != nil {
			r.progress(r.step, r.tally.Rows())
		}
	}
	return nil
}

// isDerived reports whether a key is that of a derived entry, as far as it can be read.
func isDerived(key []byte) bool {
	_, index := keyspace.Placement(key)
	return index
}

// remove deletes derived entries that no record calls for, or that are not what it calls for.
func (r *repair) remove() error {
	return r.rewrite(everything, r.done.Removed, func(p *page, tx kv.Tx, entry kv.Entry, done Tally) error {
		if !isDerived(entry.Key) {
			return nil
		}
		row, err := keyspace.ParseRow(entry.Key, entry.Value)
		if err == nil {
			derived, damaged, err := p.derivedFor(row)
			if err != nil || damaged || called(derived, entry) {
				return err
			}
		} else if !errors.Is(err, kv.ErrCorrupt) {
			return err
		}
		done[row.Kind]++
		return tx.Delete(entry.Key)
	})
}

func called(derived []kv.Entry, entry kv.Entry) bool {
	for _, e := range derived {
		if bytes.Equal(e.Key, entry.Key) {
			return bytes.Equal(e.Value, entry.Value)
		}
	}
	return false
}

// add puts the derived entries that records call for and do not have.
func (r *repair) add() error {
	return r.rewrite(everything, r.done.Added, func(p *page, tx kv.Tx, entry kv.Entry, done Tally) error {
		for _, e := range p.derivedOf(entry) {
			value, err := tx.Get(e.Key)
			if err != nil {
				return err
			}
			if value != nil && bytes.Equal(value, e.Value) {
				continue
			}
			if err := tx.Put(e.Key, e.Value); err != nil {
				return err
			}
			done[keyspace.Kind(e.Key)]++
		}
		return nil
	})
}

// derivedOf lists the entries that a row calls for; none if it is no record, or does not decode.
func (p *page) derivedOf(entry kv.Entry) []kv.Entry {
	row, err := keyspace.ParseRow(entry.Key, entry.Value)
	if err != nil {
		return nil
	}
	keys := p.txn(row.Workspace).keys
	switch row.Kind {
	case "object":
		if o, err := keyspace.Object(row.ID, entry.Value); err == nil {
			return keys.Derive(nil, o)
		}
	case "schedule":
		if s, err := keyspace.Schedule(row.ID, entry.Value); err == nil {
			return keys.DeriveSchedule(nil, s)
		}
	case "drain":
		if keyspace.CheckMarker(row.Kind, entry.Value) == nil {
			return []kv.Entry{keys.DeriveDrain(row.ID)}
		}
	case "unblock":
		if _, err := keyspace.Instant(row.Kind, entry.Value); err == nil {
			return []kv.Entry{keys.DeriveUnblock(row.ID, row.Address)}
		}
	}
	return nil
}

// errNotInOrder ends the attempt to put a row back that would not be in order.
var errNotInOrder = errors.New("the row is not in order")

// putBack moves rows out of the quarantine, as long as that makes others fit as well.
func (r *repair) putBack() error {
	for before := int64(-1); before != r.done.PutBack.Rows(); {
		before = r.done.PutBack.Rows()
		if err := r.putBackOnce(); err != nil {
			return err
		}
	}
	return nil
}

func (r *repair) putBackOnce() error {
	var aside [][]byte
	for from, more := keyspace.Quarantine(), true; more; {
		aside = aside[:0]
		err := r.store.View(r.ctx, func(s kv.Snapshot) error {
			rows, err := s.Scan(from, checkPage)
			for _, row := range rows {
				aside = append(aside, row.Key)
			}
			if more = len(rows) == checkPage; more {
				from = keyspace.After(from, rows[len(rows)-1].Key)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, key := range aside {
			if err := r.ctx.Err(); err != nil {
				return err
			}
			var kind string
			_, err := kv.Run(r.ctx, r.store, kv.Hints{Background: true}, func(tx kv.Tx) (err error) {
				kind, err = r.restore(tx, key)
				return err
			})
			switch {
			case err == nil && kind != "":
				r.done.PutBack[kind]++
			case err != nil && !errors.Is(err, errNotInOrder):
				return err
			}
		}
	}
	return nil
}

// restore puts one row back, with what it calls for, and judges it there as Check would. errNotInOrder leaves
// everything as it was.
func (r *repair) restore(tx kv.Tx, key []byte) (kind string, err error) {
	value, err := tx.Get(key)
	if err != nil || value == nil {
		return "", err
	}
	aside, err := keyspace.ParseRow(key, value)
	if err != nil {
		return "", errNotInOrder
	}
	set, err := keyspace.ParseQuarantined(value)
	if err != nil {
		return "", errNotInOrder
	}
	entry := kv.Entry{Key: aside.Moved, Value: set.Value}
	row, err := keyspace.ParseRow(entry.Key, entry.Value)
	if err != nil {
		return "", errNotInOrder
	}
	switch there, err := tx.Get(entry.Key); {
	case err != nil:
		return "", err
	case there != nil && bytes.Equal(there, entry.Value): // it has come back by itself
		return row.Kind, tx.Delete(key)
	case there != nil:
		return "", errNotInOrder
	}
	if err := errors.Join(tx.Put(entry.Key, entry.Value), tx.Delete(key)); err != nil {
		return "", err
	}
	if row.Kind == "waiter" {
		if err := oblige(Write(tx, row.Workspace, r.layout), row.Waiter); err != nil {
			return "", err
		}
	}
	judge := *r.checker
	judge.report, judge.tally, judge.suspended = func(Problem) { err = errNotInOrder }, Tally{}, nil
	p := &page{checker: &judge, r: tx, txns: map[string]*Txn{}}
	for _, e := range p.derivedOf(entry) {
		if err := tx.Put(e.Key, e.Value); err != nil {
			return "", err
		}
	}
	if fault := p.check(entry); fault != nil {
		return "", fault
	}
	return row.Kind, err
}

// oblige makes the obligation to drain a settled promise that a waiter of comes back.
func oblige(t *Txn, w machine.Waiter) error {
	o, err := t.Object(w.Awaited)
	if errors.Is(err, kv.ErrCorrupt) {
		return errNotInOrder
	}
	if err != nil || o == nil || o.State == protocol.Pending {
		return err
	}
	return t.SetDraining(w.Awaited, true)
}
