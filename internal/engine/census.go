package engine

import (
	"context"

	"abide/internal/cluster"
	"abide/internal/keyspace"
	"abide/kv"
)

// Census is who runs on a store, as one of its servers reads it, for people. Instants are epoch ms. Fields are only ever
// added to its JSON.
type Census struct {
	Shared  bool           `json:"shared"` // several servers may use the store
	Server  string         `json:"server"` // who has answered
	NowMs   int64          `json:"nowMs"`  // by its clock
	LostMs  int64          `json:"lostMs"` // when a server was last found dead; 0: never
	Servers []CensusServer `json:"servers"`
	Duties  []CensusDuty   `json:"duties"`
}

// CensusServer is one server with a row.
type CensusServer struct {
	ID          string `json:"id"`
	Live        bool   `json:"live"` // its lease holds, as the one that has answered sees it
	Host        string `json:"host"`
	ProcessID   int64  `json:"processId"`
	URL         string `json:"url"`
	Version     string `json:"version"`
	Derivation  int64  `json:"derivation"` // the version of the index entries that it writes
	StartedMs   int64  `json:"startedMs"`
	RenewedMs   int64  `json:"renewedMs"` // by its own clock
	LeaseMs     int64  `json:"leaseMs"`
	OffsetMs    int64  `json:"offsetMs"` // how far it has found its clock ahead of the median; negative: behind
	CeilingMs   int64  `json:"ceilingMs"`
	Connections int64  `json:"connections"`
}

// CensusDuty is something that one server does for all of them.
type CensusDuty struct {
	Name   string `json:"name"`
	Server string `json:"server"` // empty: nobody, until a lease has ended
}

// duties of a store are done by one server each, named as owns knows them.
var dutyNames = []string{dutySweep, dutyJournal, dutyMembers}

const (
	dutySweep   = "sweep"            // persists what has expired and nobody waits for
	dutyJournal = "journal"          // compacts journals
	dutyMembers = "sweep of servers" // removes the rows of the dead
)

// censusPage is how many connections one snapshot of a census counts, and censusPages how many it takes.
const (
	censusPage  = 1000
	censusPages = 100
)

// Census reads who runs on the store.
func (e *Engine) Census(ctx context.Context) (c Census, err error) {
	c = Census{Shared: e.shared, Server: e.opt.ServerID, NowMs: e.clock.now()}
	live := []string{e.opt.ServerID}
	if s := e.holding(); s != nil {
		live = s.live
	}
	err = e.store.View(ctx, func(s kv.Snapshot) error {
		c.Servers = nil
		b, err := s.Get(keyspace.RosterKey())
		if err != nil {
			return err
		}
		roster, err := keyspace.ParseRoster(b)
		if err != nil {
			return err
		}
		c.LostMs = roster.LostMs
		rows, err := s.Scan(keyspace.Members(), MaxServers)
		if err != nil {
			return err
		}
		for _, row := range rows {
			server, err := censusOf(s, row)
			if err != nil {
				return err
			}
			c.Servers = append(c.Servers, server)
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	if !e.shared {
		c.Servers = []CensusServer{e.alone()}
	}
	counts, err := e.countConnections(ctx)
	if err != nil {
		return c, err
	}
	for i := range c.Servers {
		for _, id := range live {
			c.Servers[i].Live = c.Servers[i].Live || c.Servers[i].ID == id
		}
		c.Servers[i].Connections = counts[c.Servers[i].ID]
	}
	for _, name := range dutyNames {
		c.Duties = append(c.Duties, CensusDuty{name, cluster.Owner(name, live)})
	}
	return c, nil
}

// alone is the only server of a store, which has no row.
func (e *Engine) alone() CensusServer {
	id := e.opt.Identity
	return CensusServer{
		ID: e.opt.ServerID, Host: id.Host, ProcessID: id.ProcessID, URL: id.URL, Version: id.Version,
		Derivation: keyspace.DerivationVersion, StartedMs: e.born, RenewedMs: e.clock.now(),
	}
}

func censusOf(s kv.Snapshot, row kv.Entry) (server CensusServer, err error) {
	key, err := keyspace.ParseRow(row.Key, row.Value)
	if err != nil {
		return server, err
	}
	m, err := keyspace.ParseMember(row.Value)
	if err != nil {
		return server, err
	}
	server = CensusServer{
		ID: key.ID, Host: m.Host, ProcessID: m.ProcessID, URL: m.URL, Version: m.Version, Derivation: m.Derivation,
		StartedMs: m.StartedMs, RenewedMs: m.ClockMs, LeaseMs: m.LeaseMs, OffsetMs: m.OffsetMs,
	}
	b, err := s.Get(keyspace.Server(key.ID))
	if err == nil && b != nil {
		server.CeilingMs, err = keyspace.Instant("server", b)
	}
	return server, err
}

// countConnections counts the connections of each server.
func (e *Engine) countConnections(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{}
	if !e.shared {
		return counts, nil
	}
	from := keyspace.Connections()
	for range censusPages {
		var rows []kv.Entry
		err := e.store.View(ctx, func(s kv.Snapshot) (err error) {
			rows, err = s.Scan(from, censusPage)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if c, err := keyspace.ParseConnection(row.Value); err == nil {
				counts[c.Server]++
			}
		}
		if len(rows) < censusPage {
			break
		}
		from = keyspace.After(from, rows[len(rows)-1].Key)
	}
	return counts, nil
}
