package mysqlkv

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// readers is the bounded pool of reading sessions. Each snapshot has one to itself. Sessions are opened when they are first
// needed. A session keeps its last snapshot until its next one, which saves a round trip, or until the next tick.
type readers struct {
	connector *connector
	horizon   *horizon
	slots     chan struct{} // as many as there may be sessions
	closed    chan struct{}
	once      sync.Once

	mu   sync.Mutex
	idle []*idleSession // the one used last at the end
}

// idleSession is a session that nobody uses.
type idleSession struct {
	session *session
	ticks   int  // since it was used
	open    bool // its last snapshot
}

func newReaders(c *connector, h *horizon, size int) *readers {
	return &readers{connector: c, horizon: h, slots: make(chan struct{}, size), closed: make(chan struct{})}
}

// Snapshot takes a place in the pool; the snapshot itself is taken with its first Fetch.
func (p *readers) Snapshot(ctx context.Context) (batch.RemoteSnapshot, error) {
	select {
	case <-p.closed:
		return nil, &kv.Error{Is: kv.ErrClosed, Store: storeName, Op: "view"}
	default:
	}
	floor := p.horizon.at()
	select {
	case p.slots <- struct{}{}:
		return &snapshot{readers: p, ctx: ctx, floor: floor}, nil
	default:
	}
	p.connector.stats.readerWaits.Add(1)
	select {
	case p.slots <- struct{}{}:
		return &snapshot{readers: p, ctx: ctx, floor: floor}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, &kv.Error{Is: kv.ErrClosed, Store: storeName, Op: "view"}
	}
}

// take returns an idle session, or nil.
func (p *readers) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	s := p.idle[n-1].session
	p.idle = p.idle[:n-1]
	return s
}

func (p *readers) give(s *session, open bool) {
	p.mu.Lock()
	p.idle = append(p.idle, &idleSession{session: s, open: open})
	p.mu.Unlock()
}

// keep is called every tick: it ends snapshots that sessions have kept, which hold up the server's purge, and closes sessions
// before the server does.
func (p *readers) keep() {
	p.mu.Lock()
	var old []*idleSession
	kept := p.idle[:0]
	for _, i := range p.idle {
		if i.ticks++; i.open && i.ticks > 1 || i.ticks > maxIdleTicks {
			old = append(old, i)
		} else {
			kept = append(kept, i)
		}
	}
	p.idle = kept
	p.mu.Unlock()
	for _, i := range old {
		if i.ticks > maxIdleTicks || i.session.run("COMMIT") != nil {
			i.session.hangUp()
			continue
		}
		p.mu.Lock()
		p.idle = append([]*idleSession{{session: i.session, ticks: i.ticks}}, p.idle...)
		p.mu.Unlock()
	}
}

// maxIdleTicks is how many ticks a session is kept without use.
const maxIdleTicks = idleSeconds / 2

// close closes every session. It waits for snapshots in use as long as one may live.
func (p *readers) close() {
	p.once.Do(func() {
		close(p.closed)
		limit := time.NewTimer(kv.MaxTxSeconds * time.Second)
		defer limit.Stop()
	wait:
		for range cap(p.slots) {
			select {
			case p.slots <- struct{}{}:
			case <-limit.C:
				break wait // its user keeps it; the process is about to end
			}
		}
		for s := p.take(); s != nil; s = p.take() {
			s.hangUp()
		}
	})
}

// snapshot is one reading transaction.
type snapshot struct {
	readers *readers
	ctx     context.Context
	// floor is what was acknowledged before; the snapshot must show it.
	floor    uint64
	session  *session
	sequence uint64
	broken   bool
}

// beginSnapshot takes the snapshot and reads where it stands.
var beginSnapshot = "SELECT v FROM " + table + " WHERE k=" + string(appendLiteral(nil, counterKey))

// Fetch implements batch.RemoteSnapshot.
func (s *snapshot) Fetch(f *batch.Fetch) (uint64, error) {
	if s.session != nil {
		script := &script{limit: s.session.packetBytes}
		script.fetch(f)
		return s.sequence, s.note(s.session.send(script))
	}
	for {
		session := s.readers.take()
		idle := session != nil
		if !idle {
			var err error
			if session, err = s.readers.connector.dial(s.ctx, reading); err != nil {
				return 0, err
			}
		}
		s.session = session
		err := s.begin(f)
		if err != nil && idle && session.lost {
			// It was lost while it was idle, like others perhaps.
			session.hangUp()
			s.session = nil
			continue
		}
		if err := s.note(err); err != nil {
			return 0, err
		}
		return s.sequence, s.readers.horizon.seen(s.ctx, s.sequence)
	}
}

func (s *snapshot) begin(f *batch.Fetch) error {
	script := &script{limit: s.session.packetBytes}
	script.add("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY", nil)
	found := false
	script.add(beginSnapshot, func(row []driver.Value) (err error) {
		found = true
		s.sequence, err = decodeSequence(column(row, 0))
		return err
	})
	script.fetch(f)
	switch err := s.session.send(script); {
	case err != nil:
		return err
	case !found:
		return unavailable("view", "the database that answers has no commit counter: it is not the store that was opened")
	case s.sequence < s.floor:
		s.session.lost = true // another one may lead to the right server
		return unavailable("view", fmt.Sprintf("the database that answers is at commit %d, and %d was acknowledged: it is a replica that is "+
			"behind, or another database", s.sequence, s.floor))
	}
	return nil
}

func (s *snapshot) note(err error) error {
	if err != nil {
		s.broken = true
	}
	return failure("view", err)
}

// Release implements batch.RemoteSnapshot.
func (s *snapshot) Release() {
	switch {
	case s.session == nil:
	case s.broken:
		s.session.hangUp()
	default:
		s.readers.give(s.session, true)
	}
	<-s.readers.slots
}
