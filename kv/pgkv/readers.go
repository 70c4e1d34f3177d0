package pgkv

import (
	"context"
	"errors"

	"abide/kv"
	"abide/kv/batch"
)

// DefaultReaders is how many snapshots are open at once unless the options or the URL say otherwise; further ones
// wait.
const DefaultReaders = 10

// readers is a pool of connections for snapshots. The one used last is used next, so that few are open where few
// are needed.
type readers struct {
	*shared
	// free has a place for each connection that may still be taken: one that is open, or nil for one to be made.
	free   chan *conn
	closed chan struct{}
}

func newReaders(s *shared, n int) *readers {
	r := &readers{shared: s, free: make(chan *conn, n), closed: make(chan struct{})}
	for range n {
		r.free <- nil
	}
	return r
}

// Snapshot implements batch.Remote: it waits for a free connection, at most until ctx ends.
func (r *readers) Snapshot(ctx context.Context) (batch.RemoteSnapshot, error) {
	var c *conn
	select {
	case c = <-r.free:
	default:
		r.stats.readerWaits.Add(1)
		select {
		case c = <-r.free:
		case <-r.closed:
			return nil, &kv.Error{Is: kv.ErrClosed, Store: storeName, Op: "view"}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.stats.reading.Add(1)
	return &snapshot{readers: r, ctx: ctx, conn: c}, nil
}

// give takes a connection back; nil for one that was closed.
func (r *readers) give(c *conn) {
	r.stats.reading.Add(-1)
	r.free <- c
}

// close closes all connections, and waits for those that are in use.
func (r *readers) close() {
	close(r.closed)
	for range cap(r.free) {
		if c := <-r.free; c != nil {
			c.close()
		}
	}
}

// snapshot is one read-only transaction, which begins with the first fetch.
type snapshot struct {
	*readers
	ctx      context.Context
	conn     *conn // nil until it is needed, and when it has failed
	begun    bool
	over     bool // it has ended with its first fetch
	sequence uint64
}

// Fetch implements batch.RemoteSnapshot.
func (s *snapshot) Fetch(f *batch.Fetch) (uint64, error) {
	if s.begun || s.over {
		if s.conn == nil || s.over {
			return 0, failure("view", errors.New("the snapshot has failed"))
		}
		s.stats.readTrips.Add(1)
		if _, err := s.conn.do(s.ctx, s.conn.fetchCalls(nil, f)); err != nil {
			return 0, s.fail(err)
		}
		return s.sequence, nil
	}
	if s.conn != nil {
		err := s.begin(f)
		if err == nil || s.conn != nil {
			return s.sequence, err
		}
		// It was idle, and may have been cut without a word: nothing has been read yet.
	}
	if err := s.connect(); err != nil {
		return 0, err
	}
	err := s.begin(f)
	return s.sequence, err
}

func (s *snapshot) connect() error {
	c, err := connect(s.ctx, s.config, s.stmts)
	if err != nil {
		return s.fail(err)
	}
	s.stats.connects.Add(1)
	s.conn = c
	return nil
}

// begin is the round trip that takes the snapshot: the counter is read in it like everything else.
func (s *snapshot) begin(f *batch.Fetch) error {
	seen := s.seen.Load()
	var found *counter
	calls := append(s.conn.begun(&s.stmts.beginRead), call{statement: &s.stmts.count, args: [][]byte{counterKey},
		row: func(values [][]byte) error {
			c, err := parseCounter(values[0])
			found = &c
			return err
		}})
	calls = s.conn.fetchCalls(calls, f)
	if f.Last {
		calls = append(calls, call{statement: &s.stmts.rollback})
	}
	s.stats.readTrips.Add(1)
	if _, err := s.conn.do(s.ctx, calls); err != nil {
		return s.fail(err)
	}
	if err := s.check(found, seen); err != nil {
		return s.fail(err)
	}
	s.observe(found.sequence)
	s.begun, s.over, s.sequence = !f.Last, f.Last, found.sequence
	return nil
}

// fail gives the connection up, unless the server still answers on it.
func (s *snapshot) fail(err error) error {
	s.stats.failures.Add(cause(err))
	if s.conn != nil && !(isServerError(err) && s.ended()) {
		s.conn.close()
		s.conn = nil
	}
	if ended := s.ctx.Err(); ended != nil {
		return ended
	}
	return failure("view", err)
}

// ended ends the transaction and reports whether that worked.
func (s *snapshot) ended() bool {
	if s.conn.pg.IsClosed() {
		return false
	}
	_, err := s.conn.do(context.Background(), []call{{statement: &s.stmts.rollback}})
	s.begun = false
	return err == nil
}

// Release implements batch.RemoteSnapshot. The end of the transaction is nobody's to wait for.
func (s *snapshot) Release() {
	if !s.begun || s.conn == nil {
		s.give(s.conn)
		return
	}
	go func() {
		if !s.ended() {
			s.conn.close()
			s.conn = nil
		}
		s.give(s.conn)
	}()
}

// check tells whether a transaction has come to the store that was opened, and not to one that lacks commits which
// have been seen: another database at the same address, or a standby that was behind when it took over.
func (s *shared) check(found *counter, seen uint64) error {
	switch {
	case found == nil:
		return &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: "begin", Err: errOther,
			Detail: "the commit counter is not there"}
	case found.store != s.store:
		return &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: "begin", Err: errOther,
			Detail: "the database holds another store than the one that was opened"}
	case found.sequence < seen:
		return &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: "begin", Err: errOther,
			Detail: "the database lacks commits that were acknowledged: it has been restored, or a standby that was behind has taken over"}
	}
	return nil
}

// errOther is the cause of every error that says that the database is not the one it was.
var errOther = errors.New("this is not the database that the server was started on; nothing is read or written until it is back, or the server is started again")

// observe notes that a commit is known to be in the database.
func (s *shared) observe(sequence uint64) {
	for {
		seen := s.seen.Load()
		if sequence <= seen || s.seen.CompareAndSwap(seen, sequence) {
			return
		}
	}
}
