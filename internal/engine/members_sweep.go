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
	seen  int64         // the roster's number when this round began
	done  int64         // the same of the last round that has come to its end
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
		m.sweep.seen = s.roster.Number // what changes while it goes round is for the next round
		if err := e.called(ctx, e.keepCeilings); err != nil {
			return err
		}
	}
	err := e.called(ctx, e.sweepConnections)
	if err == nil && m.sweep.after == nil {
		m.sweep.done, m.sweep.due = m.sweep.seen, now+e.leaseFor()/renewals
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
	var gone []string
	err := e.store.View(ctx, func(s kv.Snapshot) error {
		gone = nil
		rows, err := s.Scan(keyspace.Servers(), memberPage)
		if err != nil {
			return err
		}
		for _, row := range rows {
			key, err := keyspace.ParseRow(row.Key, row.Value)
			if err != nil {
				return err
			}
			if key.ID == "" {
				continue
			}
			if member, err := s.Get(keyspace.MemberKey(key.ID)); err != nil {
				return err
			} else if member == nil {
				gone = append(gone, key.ID)
			}
		}
		return nil
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	_, err = kv.Run(ctx, e.store, kv.Hints{Background: true}, func(tx kv.Tx) error { return foldCeilings(tx, gone) })
	return err
}

// foldCeilings moves the ceilings of servers that have no row to the one of all that are gone.
func foldCeilings(tx kv.Tx, gone []string) error {
	kept := int64(0)
	for _, id := range append([]string{""}, gone...) {
		if id != "" {
			if member, err := tx.Get(keyspace.MemberKey(id)); err != nil {
				return err
			} else if member != nil {
				continue // it has come back
			}
		}
		b, err := tx.Get(keyspace.Server(id))
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		ms, err := keyspace.Instant("server", b)
		if err != nil {
			return err
		}
		kept = max(kept, ms)
		if id != "" {
			if err := tx.Delete(keyspace.Server(id)); err != nil {
				return err
			}
		}
	}
	return tx.Put(keyspace.Server(""), keyspace.AppendInstant(nil, kept))
}

// sweepConnections removes those of a page of connections whose server has no row. It reads first, so that a round that
// finds nothing occupies no writer.
func (e *Engine) sweepConnections(ctx context.Context) error {
	sweep := &e.members.sweep
	from := keyspace.Connections()
	if sweep.after != nil {
		from = keyspace.After(from, sweep.after)
	}
	var rows []kv.Entry
	var left [][]byte
	err := e.store.View(ctx, func(s kv.Snapshot) (err error) {
		left = nil
		if rows, err = s.Scan(from, memberPage); err != nil {
			return err
		}
		alive := map[string]bool{}
		for _, row := range rows {
			lives, err := serverLives(s, row.Value, alive)
			if err != nil {
				return err
			}
			if !lives {
				left = append(left, row.Key)
			}
		}
		return nil
	})
	if err == nil && len(left) > 0 {
		_, err = kv.Run(ctx, e.store, kv.Hints{Background: true}, func(tx kv.Tx) error { return removeConnections(tx, left) })
	}
	if err != nil {
		return err
	}
	sweep.after = nil
	if len(rows) == memberPage {
		sweep.after = rows[len(rows)-1].Key
	}
	return nil
}

// serverLives reports whether the server of a connection has a row; alive remembers those that were asked about. One that
// does not decode has none: its worker connects again.
func serverLives(r kv.Reader, connection []byte, alive map[string]bool) (bool, error) {
	c, err := keyspace.ParseConnection(connection)
	if err != nil {
		return false, nil
	}
	lives, known := alive[c.Server]
	if !known {
		member, err := r.Get(keyspace.MemberKey(c.Server))
		if err != nil {
			return false, err
		}
		lives = member != nil
		alive[c.Server] = lives
	}
	return lives, nil
}

// removeConnections removes those connections whose server still has no row.
func removeConnections(tx kv.Tx, keys [][]byte) error {
	alive, removed := map[string]bool{}, false
	for _, key := range keys {
		b, err := tx.Get(key)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		lives, err := serverLives(tx, b, alive)
		if err != nil {
			return err
		}
		if lives {
			continue
		}
		if err := tx.Delete(key); err != nil {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	_, err := raiseRoster(tx, false, 0)
	return err
}
