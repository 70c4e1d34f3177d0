package store

import (
	"abide/internal/keyspace"
	"abide/kv"
)

// checkServers checks a row of several servers on one store. That a connection names a server which is no member is
// no problem: it was taken for dead, and its rows are about to be swept.
func (p *page) checkServers(row keyspace.Row, entry kv.Entry) error {
	b, err := p.r.Get(keyspace.RosterKey())
	if err != nil {
		return err
	}
	roster, err := keyspace.ParseRoster(b)
	if err != nil {
		if row.Kind == "roster" {
			return p.damage(row, err)
		}
		return nil // reported where the check meets the roster itself
	}
	var number int64
	switch row.Kind {
	case "member":
		var m keyspace.Member
		m, err = keyspace.ParseMember(entry.Value)
		number = m.Life
	case "connection":
		var c keyspace.Connection
		c, err = keyspace.ParseConnection(entry.Value)
		number = c.Number
	}
	if err != nil {
		return p.damage(row, err)
	}
	if number > roster.Number {
		return p.bad(row, "its number %d is beyond the last one given, %d", number, roster.Number)
	}
	return nil
}
