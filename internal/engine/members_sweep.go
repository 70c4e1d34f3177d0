package engine

import (
	"context"
	"time"

	"abide/internal/cluster"
	"abide/internal/keyspace"
	"abide/kv"
)

// memberPage is how many rows of servers or connections one transaction of their sweep looks at.
const memberPage = 256

// memberSweep is where the sweep of dead servers' rows stands.
type memberSweep struct {
	due   time.Duration // not before, steady
	done  int64         // the roster's number when nothing was left to sweep
	after []byte        // the last connection that was looked at; nil: about to begin
}

// sweepMembers removes the rows of servers that are dead, then what they have left: ceilings, which are kept as one, and
// connections. One server does it, and every step looks again in its transaction; a dead one that wakes up registers
// and records its connections anew.
func (e *Engine) sweepMembers(ctx context.Context) error {
	m := &e.members
	now := e.mono()
	if now < m.sweep.due || !e.owns(dutyMembers) {
		return nil
	}
	for _, dead := range m.observer.Dead(now) {
		if err := e.called(ctx, func(ctx context.Context) error { return e.bury(ctx, dead) }); err != nil {
			return err
		}
	}
	s := m.standing.Load()
	if s == nil || s.roster.Number == m.sweep.done {
		m.sweep.due = now + e.leaseFor()/renewals
		return nil
	}
	if m.sweep.after == nil {
		if err := e.called(ctx, e.keepCeilings); err != nil {
			return err
		}
	}
	err := e.called(ctx, e.sweepConnections)
	if err == nil && m.sweep.after == nil {
		m.sweep.done = s.roster.Number
	}
	return err
}

// bury removes a dead server's row, unless it has come back to life.
func (e *Engine) bury(ctx context.Context, dead cluster.Sighting) error {
	key := keyspace.MemberKey(dead.ID)
	removed := false
	_, err := kv.Run(ctx, e.store, kv.Hints{Background: true}, func(tx kv.Tx) error {
		removed = false
		b, err := tx.Get(key)
		if err != nil || b == nil {
			return err
		}
		if row, err := keyspace.ParseMember(b); err != nil || row.Life != dead.Life || row.Renewals != dead.Renewals {
			return err
		}
		if _, err := raiseRoster(tx, true, e.clock.now()); err != nil {
			return err
		}
		removed = true
		return tx.Delete(key)
	})
	if err == nil && removed {
		e.log.Warn("a server has not renewed its lease and is taken for dead", "server", dead.ID)
	}
	return err
}

// keepCeilings folds the ceilings of servers without a row into one: a server that starts must not serve an instant
// below what any of them has served, and rows of servers that will never come back must not add up.
func (e *Engine) keepCeilings(ctx context.Context) error {
	_, err := kv.Run(ctx, e.store, kv.Hints{Background: true}, func(tx kv.Tx) error {
		rows, err := tx.Scan(keyspace.Servers(), memberPage)
		if err != nil {
			return err
		}
		gone := keyspace.Server("")
		kept, changed := int64(0), false
		for _, row := range rows {
			key, err := keyspace.ParseRow(row.Key, row.Value)
			if err != nil {
				return err
			}
			ms, err := keyspace.Instant("server", row.Value)
			if err != nil {
				return err
			}
			if key.ID != "" {
				alive, err := tx.Get(keyspace.MemberKey(key.ID))
				if err != nil {
					return err
				}
				if alive != nil {
					continue
				}
				if err := tx.Delete(row.Key); err != nil {
					return err
				}
				changed = true
			}
			kept = max(kept, ms)
		}
		if !changed {
			return nil
		}
		return tx.Put(gone, keyspace.AppendInstant(nil, kept))
	})
	return err
}

// sweepConnections removes a page of the connections whose server has no row.
func (e *Engine) sweepConnections(ctx context.Context) error {
	sweep := &e.members.sweep
	from := keyspace.Connections()
	if sweep.after != nil {
		from = keyspace.After(from, sweep.after)
	}
	var rows []kv.Entry
	_, err := kv.Run(ctx, e.store, kv.Hints{Background: true}, func(tx kv.Tx) (err error) {
		if rows, err = tx.Scan(from, memberPage); err != nil {
			return err
		}
		alive, removed := map[string]bool{}, false
		for _, row := range rows {
			c, err := keyspace.ParseConnection(row.Value)
			known, ok := alive[c.Server]
			if err == nil && !ok {
				b, err := tx.Get(keyspace.MemberKey(c.Server))
				if err != nil {
					return err
				}
				known = b != nil
				alive[c.Server] = known
			}
			if err == nil && known {
				continue
			}
			if err := tx.Delete(row.Key); err != nil { // so does one that does not decode: its worker connects again
				return err
			}
			removed = true
		}
		if removed {
			_, err = raiseRoster(tx, false, 0)
		}
		return err
	})
	if err != nil {
		return err
	}
	sweep.after = nil
	if len(rows) == memberPage {
		sweep.after = rows[len(rows)-1].Key
	}
	return nil
}
