package sqlitekv

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// readers is the bounded pool of reading connections. Each snapshot has one to itself, with its own view of
// the log, so no reader waits for the writer. Connections are opened when they are first needed.
type readers struct {
	opt  *Options
	path string
	size int
	// free holds the connections that nobody uses, nil for one that is not open.
	free   chan *conn
	closed chan struct{}
	once   sync.Once
	// away is why there can be no snapshot for now; nil if there can.
	away atomic.Pointer[error]
}

func newReaders(opt *Options, path string) *readers {
	p := &readers{opt: opt, path: path, size: opt.Readers, free: make(chan *conn, opt.Readers), closed: make(chan struct{})}
	for range p.size {
		p.free <- nil
	}
	return p
}

// take waits for a connection until ctx ends or the pool is closed.
func (p *readers) take(ctx context.Context) (*conn, error) {
	select {
	case <-p.closed:
		return nil, &kv.Error{Is: kv.ErrClosed, Store: storeName, Op: "view"}
	default:
	}
	var c *conn
	select {
	case c = <-p.free:
	default:
		select {
		case c = <-p.free:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.closed:
			return nil, &kv.Error{Is: kv.ErrClosed, Store: storeName, Op: "view"}
		}
	}
	if c != nil {
		return c, nil
	}
	if away := p.away.Load(); away != nil {
		p.free <- nil
		return nil, &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: "view", Err: *away,
			Detail: "a checkpoint failed earlier; the store cannot be read until the disk works again"}
	}
	c, err := p.opt.openConn(p.path, reading, p.opt.readerCacheBytes())
	if err == nil {
		if err = c.prepare(reading); err != nil {
			_ = c.close()
		}
	}
	if err != nil {
		p.free <- nil
		return nil, err
	}
	return c, nil
}

// give returns a connection. A broken one is closed, and the next taker opens another.
func (p *readers) give(c *conn, broken bool) {
	if broken {
		_ = c.close()
		c = nil
	}
	p.free <- c
}

// retire closes every connection, and lets none be opened until resume. It waits for snapshots in use, at most so
// long; false, and nothing has changed for takers, if they take longer.
func (p *readers) retire(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for taken := range p.size {
		select {
		case c := <-p.free:
			if c != nil {
				_ = c.abandon()
			}
		case <-timer.C:
			for range taken {
				p.free <- nil
			}
			return false
		}
	}
	return true
}

// resume lets snapshots be opened again; if failure is not nil, they fail for it until the next resume.
func (p *readers) resume(failure error) {
	if failure != nil {
		p.away.Store(&failure)
	} else {
		p.away.Store(nil)
	}
	for range p.size {
		p.free <- nil
	}
}

// close closes every connection. It waits for snapshots in use as long as one may live.
func (p *readers) close() error {
	var failure error
	p.once.Do(func() {
		close(p.closed)
		limit := time.NewTimer(kv.MaxTxSeconds * time.Second)
		defer limit.Stop()
		for range p.size {
			select {
			case c := <-p.free:
				if c == nil {
					continue
				}
				if err := c.close(); err != nil {
					failure = err
				}
			case <-limit.C:
				return // its user keeps it; the process is about to end
			}
		}
	})
	return failure
}

// snapshot is one reading transaction.
type snapshot struct {
	*conn
	pool *readers
}

// Snapshot implements batch.Driver.
func (p *readers) Snapshot(ctx context.Context) (batch.DriverSnapshot, error) {
	c, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.begin.Exec(); err != nil {
		p.give(c, true)
		return nil, failure("view", err)
	}
	return &snapshot{conn: c, pool: p}, nil
}

// Sequence implements batch.DriverSnapshot. It is the first read, and so what pins the snapshot.
func (s *snapshot) Sequence() (uint64, error) { return s.conn.sequence() }

// Release implements batch.DriverSnapshot.
func (s *snapshot) Release() {
	err := s.conn.commit.Exec()
	s.pool.give(s.conn, err != nil)
}
