package workload

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/engine"
	"abide/internal/keyspace"
	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/mysqlkv"
	"abide/kv/pgkv"
	"abide/protocol"
)

// Every database keeps the promises that a file keeps: what is asked of a server on SQLite is asked of one on each.

// openDatabase opens the store at a URL as the command does.
func openDatabase(t *testing.T, url string) kv.Store {
	t.Helper()
	var s kv.Store
	var err error
	if strings.HasPrefix(url, "postgres") {
		s, err = pgkv.Open(t.Context(), pgkv.Options{URL: url, Keys: keyspace.Register(), Now: time.Now})
	} else {
		s, err = mysqlkv.Open(t.Context(), mysqlkv.Options{URL: url, Keys: keyspace.Register(), Now: time.Now})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDifferentialOnDatabases(t *testing.T) {
	for _, kind := range testenv.Databases() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // most of the time they wait for the disk
			server, _ := startServerOver(t, openDatabase(t, testenv.Database(t, kind)), engine.Options{})
			differential(t, server, seeds(t, long(2, 30)), long(400, differentialRequests))
		})
	}
}

func TestLinearizableOnDatabases(t *testing.T) {
	for _, kind := range testenv.Databases() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server, _ := startServerOver(t, openDatabase(t, testenv.Database(t, kind)), engine.Options{})
			linearizable(t, server, seeds(t, long(2, 30)))
		})
	}
}

// fleet are servers on one store, of which clients choose.
type fleet struct {
	servers []*handlerServer
	turn    atomic.Uint32
}

// Post asks the servers in turn, so that each client is answered by all of them. What pauses one server's timers
// pauses those of all.
func (f *fleet) Post(path string, body []byte) (int, []byte, error) {
	if asked, err := protocol.DecodeEnvelope(body); err == nil && asked.Kind == string((&protocol.DebugStart{}).Kind()) {
		for _, s := range f.servers[1:] {
			if status, answer, err := s.Post(path, body); status != protocol.StatusOK || err != nil {
				return status, answer, err
			}
		}
		return f.servers[0].Post(path, body)
	}
	return f.servers[int(f.turn.Add(1))%len(f.servers)].Post(path, body)
}

// startFleet starts three servers on one database, with their loops.
func startFleet(t *testing.T, kind string) *fleet {
	t.Helper()
	url := testenv.Database(t, kind)
	f := &fleet{}
	for n := range 3 {
		server, e := startServerOver(t, openDatabase(t, url), engine.Options{ServerID: fmt.Sprintf("server-%d", n)})
		e.Start(nil)
		f.servers = append(f.servers, server)
		t.Cleanup(func() { // before the store is checked, for which the servers' instants are one
			server.latest.Store(max(f.servers[0].latest.Load(), f.servers[1].latest.Load(), f.servers[2].latest.Load()))
			if err := e.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return f
}

// TestLinearizableOnThreeServers has every client speak to all servers of a store.
func TestLinearizableOnThreeServers(t *testing.T) {
	for _, kind := range testenv.Databases() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			linearizable(t, startFleet(t, kind), seeds(t, long(3, 30)))
		})
	}
}

// TestDifferentialOnThreeServers asks three servers in turn what one model answers.
func TestDifferentialOnThreeServers(t *testing.T) {
	for _, kind := range testenv.Databases() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			differential(t, startFleet(t, kind), seeds(t, long(1, 30)), long(400, differentialRequests))
		})
	}
}
