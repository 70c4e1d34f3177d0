package engine

import (
	"context"
	"errors"
	"slices"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

const (
	// rosterPage is how many connections one snapshot of a look reads.
	rosterPage = 1000
	// maxRoster is how many connections a look reads at most. Of more than that some are unknown to other servers, which
	// costs messages that come twice, or a second later.
	maxRoster = 100_000
)

// Roster is what delivery reads and writes of the connections of all servers on the store: it implements
// deliver.Roster.
type Roster struct{ engine *Engine }

// Roster returns the engine's roster; nil for a store of one server.
func (e *Engine) Roster() deliver.Roster {
	if !e.shared {
		return nil
	}
	return Roster{e}
}

// Record implements deliver.Roster: one transaction.
func (o Roster) Record(ctx context.Context, made, again, ended []deliver.Seat) (numbers []int64, err error) {
	e := o.engine
	var hints kv.Hints
	if e.prefetches {
		hints.Prefetch = e.readsOfSeats(made, again, ended)
	}
	_, err = kv.Run(ctx, e.store, hints, func(tx kv.Tx) (err error) {
		numbers, err = e.record(tx, made, again, ended)
		return err
	})
	if err != nil {
		err = e.resolve(ctx, err)
	}
	return numbers, err
}

// readsOfSeats names the rows of connections, and the roster.
func (e *Engine) readsOfSeats(lists ...[]deliver.Seat) []kv.Range {
	ranges := []kv.Range{kv.Only(keyspace.RosterKey())}
	for _, seat := range slices.Concat(lists...) {
		ranges = append(ranges, kv.Only(keyspace.For(seat.Workspace, e.layout).Connection(seat.Group, seat.PID)))
	}
	return ranges
}

// record writes connections down; see deliver.Roster.
func (e *Engine) record(tx kv.Tx, made, again, ended []deliver.Seat) (numbers []int64, err error) {
	b, err := tx.Get(keyspace.RosterKey())
	if err != nil {
		return nil, err
	}
	roster, err := keyspace.ParseRoster(b)
	if err != nil {
		return nil, err
	}
	before := roster.Number
	for _, seat := range ended {
		key := keyspace.For(seat.Workspace, e.layout).Connection(seat.Group, seat.PID)
		row, there, err := connectionAt(tx, key)
		if err != nil {
			return nil, err
		}
		if there && row.Server == e.opt.ServerID && row.Number == seat.Number {
			roster.Number++
			if err := tx.Delete(key); err != nil {
				return nil, err
			}
		}
	}
	for i, seat := range append(append([]deliver.Seat(nil), made...), again...) {
		if !keyspace.Addressable(seat.Group, seat.PID) {
			numbers = append(numbers, -1)
			continue
		}
		key := keyspace.For(seat.Workspace, e.layout).Connection(seat.Group, seat.PID)
		row, there, err := connectionAt(tx, key)
		if err != nil {
			return nil, err
		}
		if i >= len(made) && there {
			if row.Server != e.opt.ServerID || row.Number != seat.Number {
				row.Number = 0
			}
			numbers = append(numbers, row.Number)
			continue
		}
		roster.Number++
		row = keyspace.Connection{Server: e.opt.ServerID, Number: roster.Number}
		if err := tx.Put(key, keyspace.AppendConnection(nil, row)); err != nil {
			return nil, err
		}
		numbers = append(numbers, roster.Number)
	}
	if roster.Number == before {
		return numbers, nil
	}
	return numbers, tx.Put(keyspace.RosterKey(), keyspace.AppendRoster(nil, roster))
}

// connectionAt reads a connection's row. One that does not decode counts as none: it is written anew.
func connectionAt(r kv.Reader, key []byte) (c keyspace.Connection, there bool, err error) {
	b, err := r.Get(key)
	if err != nil || b == nil {
		return c, false, err
	}
	c, damaged := keyspace.ParseConnection(b)
	return c, damaged == nil, nil
}

// Look implements deliver.Roster. Where there are many connections, they are read in several snapshots.
func (o Roster) Look(ctx context.Context, after int64) (s deliver.Standing, err error) {
	e := o.engine
	s = deliver.Standing{Server: e.opt.ServerID, Travels: e.travels()}
	if known := e.holding(); known != nil {
		s.Live = known.live
	}
	from := keyspace.Connections()
	for first, more := true, true; more; first = false {
		var rows []kv.Entry
		foreseen := func(keyspace.Keys) []kv.Range { return []kv.Range{kv.Only(keyspace.RosterKey())} }
		err := e.snapshotOnce(ctx, "", foreseen, func(snap kv.Snapshot) (err error) {
			rows = nil
			if first {
				b, err := snap.Get(keyspace.RosterKey())
				if err != nil {
					return err
				}
				roster, err := keyspace.ParseRoster(b)
				if err != nil {
					return err
				}
				if s.Number = roster.Number; s.Number == after {
					return nil
				}
			}
			rows, err = snap.Scan(from, rosterPage)
			return err
		})
		if err != nil {
			return s, err
		}
		if s.Number == after {
			return s, nil
		}
		for _, row := range rows {
			if seat, ok := seatOf(row); ok {
				s.Seats = append(s.Seats, seat)
			}
		}
		if more = len(rows) == rosterPage && len(s.Seats) < maxRoster; more {
			from = keyspace.After(from, rows[len(rows)-1].Key)
		}
	}
	s.Changed = true
	return s, nil
}

// seatOf parses a row of a connection; not ok for one that does not decode, which the sweep removes.
func seatOf(row kv.Entry) (seat deliver.Seat, ok bool) {
	key, err := keyspace.ParseRow(row.Key, row.Value)
	if err != nil {
		return seat, false
	}
	c, err := keyspace.ParseConnection(row.Value)
	return deliver.Seat{Workspace: key.Workspace, Group: key.Group, PID: key.PID, Server: c.Server, Number: c.Number}, err == nil
}

// Unclaimed implements deliver.Roster.
func (o Roster) Unclaimed(ctx context.Context, workspace string, sent []deliver.Execute) (unclaimed []deliver.Execute, err error) {
	e := o.engine
	now := e.clock.now()
	foreseen := func(k keyspace.Keys) []kv.Range { return readsOfExecutes(k, sent) }
	err = e.snapshotOnce(ctx, workspace, foreseen, func(s kv.Snapshot) error {
		unclaimed = unclaimed[:0]
		txn := store.Read(s, workspace, e.layout)
		if err := loadExecutes(txn, sent); err != nil {
			return err
		}
		for _, x := range sent {
			o, err := txn.Object(x.ID)
			if errors.Is(err, kv.ErrCorrupt) {
				continue
			}
			if err != nil {
				return err
			}
			pending := o != nil && o.Task != nil && o.State == protocol.Pending && o.TimeoutAt > now && o.Task.State == protocol.TaskPending
			if pending && o.Task.Version == x.Version {
				unclaimed = append(unclaimed, x)
			}
		}
		return nil
	})
	return unclaimed, err
}

// loadExecutes reads the records of executes in one round trip. A damaged one is left to whoever asks for it.
func loadExecutes(txn *store.Txn, executes []deliver.Execute) error {
	ids := make([]string, len(executes))
	for i, x := range executes {
		ids[i] = x.ID
	}
	if err := txn.Load(ids); !errors.Is(err, kv.ErrCorrupt) {
		return err
	}
	return nil
}
