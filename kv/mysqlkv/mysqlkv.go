// Package mysqlkv is the store on a MySQL or MariaDB server, which several servers of Abide may share as equals.
//
//   - One table of binary keys and values in key order; the journal and the commit counter are rows of it. The server
//     computes nothing of ours.
//   - Group commit under a lock of all writers: a batch locks the row of the commit counter, reads what its closures
//     need in the same round trip, and writes, counts and commits in a second one. So batches of all servers follow one
//     another, and commit positions are unique, strictly ordered, and visible in order (docs/decisions).
//   - Snapshots are read-only transactions on sessions of their own; they never wait for a writer.
//   - Durable before acknowledged: a server whose settings lose commits in a crash is refused, unless told otherwise.
//     What a reader has seen is durable before it is told, too (see horizon).
//   - A commit whose answer is lost is looked up under the lock before the caller hears anything (see unknown.go).
//   - A lost server is reconnected to for ever; a failover to an empty, other or older database is noticed and refused.
package mysqlkv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"abide/kv"
	"abide/kv/batch"
)

// DefaultReaders is how many snapshots are open at once unless Options say otherwise. It is the reference's pool size.
const DefaultReaders = 10

// maxReaders bounds Options.Readers: each is a connection.
const maxReaders = 1000

// tick is the pace of the loop that keeps sessions alive and looks whether the store can write.
const tick = time.Second

// Options say how a store is opened. Only URL is required.
type Options struct {
	// URL is mysql://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS; see docs/storage-mysql.md. The database must exist;
	// the table is made if the user may.
	URL string
	// Keys names kinds of keys in errors.
	Keys kv.KeyRegister
	// Now is the clock by which batches, closures and snapshots end, and latencies are measured. Without it they are
	// bounded by number and bytes alone.
	Now func() time.Time
	// AcceptDataLoss opens a server whose settings lose acknowledged commits in a crash; see Store.Durability.
	AcceptDataLoss bool
	// Existing refuses a database without a store instead of making one, with ErrFormat.
	Existing bool
	// Log gets what a person should know: nil for nobody.
	Log *slog.Logger
	// Readers is how many snapshots can be open at once; further ones wait. 0 means DefaultReaders; at most 1,000. The
	// store has two connections more.
	Readers int
	// QueueLimit bounds the closures that wait for the writer; 0 means batch.DefaultQueueLimit.
	QueueLimit int
	// RunTwice runs every closure twice; see batch.Options.
	RunTwice bool

	// ioTime is ioTimeout unless a test says otherwise.
	ioTime time.Duration
}

// Store is an open store; it implements kv.Store.
type Store struct {
	*batch.Store
	engine *engine
}

// engine is what batch drives.
type engine struct {
	*writer
	readers *readers
	log     *slog.Logger
	shown   string

	stop  context.CancelFunc
	ended chan struct{}
	once  sync.Once
}

var _ batch.Remote = (*engine)(nil)

// Open opens the store in a database, and makes it where there is none. It needs the server to answer; ctx bounds
// how long it waits. ErrFormat if the database is not one that this program can open, ErrDurability if its server would
// lose commits; other errors are those of the server, none of them shows the password.
func Open(ctx context.Context, opt Options) (*Store, error) {
	a, err := parseURL(opt.URL)
	if err != nil {
		return nil, err
	}
	if opt.Readers == 0 {
		opt.Readers = DefaultReaders
	}
	if opt.Readers < 0 || opt.Readers > maxReaders {
		return nil, fmt.Errorf("mysql: %d readers; it must be 1 to %d", opt.Readers, maxReaders)
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.ioTime > 0 {
		a.config.ReadTimeout, a.config.WriteTimeout = opt.ioTime, opt.ioTime
	}
	h := newHorizon(&counters{})
	c, err := newConnector(a, opt.AcceptDataLoss, h)
	if err != nil {
		return nil, err
	}
	e, err := openEngine(ctx, &opt, c, h)
	if err != nil {
		return nil, err
	}
	e.shown = a.shown
	e.start()
	return &Store{
		Store: batch.NewRemote(e, batch.Options{
			Name:        storeName,
			Incarnation: e.format.incarnation,
			Keys:        opt.Keys,
			QueueLimit:  opt.QueueLimit,
			Now:         opt.Now,
			RunTwice:    opt.RunTwice,
		}),
		engine: e,
	}, nil
}

func openEngine(ctx context.Context, opt *Options, c *connector, h *horizon) (*engine, error) {
	first, err := c.dial(ctx, writing)
	if known := (*kv.Error)(nil); errors.As(err, &known) && (errors.Is(err, ErrFormat) || errors.Is(err, ErrDurability)) {
		return nil, known.Err // it says enough
	}
	if err != nil {
		return nil, err
	}
	defer first.hangUp()
	f, err := first.openTable(opt.Existing)
	if err != nil {
		return nil, err
	}
	c.store.Store(&f)
	opened := make([]byte, openedBytes)
	_, _ = rand.Read(opened) // it never fails
	w := &writer{connector: c, horizon: h, health: &health{}, stats: c.stats, now: opt.Now, format: f, opened: string(opened)}
	w.resolveWithin.Store(int64(maxResolveTime))
	h.dial = func(ctx context.Context) (*session, error) { return c.dial(ctx, writing) }
	w.turn.Lock()
	defer w.turn.Unlock()
	if err := w.connect(ctx, false); err != nil {
		return nil, err
	}
	return &engine{writer: w, readers: newReaders(c, h, opt.Readers), log: opt.Log, ended: make(chan struct{})}, nil
}

// start starts the loop that keeps sessions.
func (e *engine) start() {
	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	go func() {
		defer close(e.ended)
		t := time.NewTicker(tick)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			e.tend(ctx)
		}
	}()
}

// tend does what is due in one tick, and tells the log when the store stops or starts being able to write.
func (e *engine) tend(ctx context.Context) {
	before := e.health.get()
	one, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	e.writer.keep(one)
	e.readers.keep()
	switch after := e.health.get(); {
	case after != nil && before == nil:
		e.log.Warn("the database cannot be written to", "url", e.shown, "error", after)
	case after == nil && before != nil:
		e.log.Info("the database can be written to again", "url", e.shown)
	}
}

// Snapshot implements batch.Remote.
func (e *engine) Snapshot(ctx context.Context) (batch.RemoteSnapshot, error) {
	return e.readers.Snapshot(ctx)
}

// Close implements batch.Remote.
func (e *engine) Close() error {
	e.once.Do(func() {
		e.stop()
		<-e.ended
		e.readers.close()
		e.horizon.close()
		e.turn.Lock()
		defer e.turn.Unlock()
		if e.session != nil {
			e.session.hangUp()
			e.session = nil
		}
	})
	return nil
}

// Writable reports why the store cannot write for now; nil if it can. A store without traffic finds out within some
// seconds.
func (s *Store) Writable() error { return s.engine.health.get() }

// Shared reports that several servers may write to this store. Signals reach this server's subscribers only: what other
// servers commit is found by looking.
func (s *Store) Shared() bool { return true }

// Durability says how durable an acknowledged commit is: "durable", or which settings of the database server make it
// less, with Options.AcceptDataLoss. It is looked at with every connection.
func (s *Store) Durability() string {
	if weak := s.engine.connector.weak.Load(); weak != nil && len(*weak) > 0 {
		return strings.Join(*weak, "; ")
	}
	return "durable"
}
