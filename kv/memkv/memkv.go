// Package memkv is a store in memory, for simulation and suites. It is a real backend: the same group commit
// as on disk drives it, and it passes the same conformance suite. Nothing survives Close.
//
// The state is an immutable ordered tree; a commit makes a new one that shares what did not change, so a
// snapshot is a pointer and costs nothing.
package memkv

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"abide/kv"
	"abide/kv/batch"
)

// Options say how a store behaves. The zero value is a store that runs every Update at once on the caller's
// goroutine, without goroutines of its own and without a clock: the one that a simulator drives.
type Options struct {
	// Queued puts the queue and the writer of group commit in front, as on disk.
	Queued bool
	// QueueLimit bounds that queue; 0 means batch.DefaultQueueLimit.
	QueueLimit int
	// Incarnation is the beginning of every position; 0 means 1.
	Incarnation uint32
	// Keys names kinds of keys in errors.
	Keys kv.KeyRegister
	// Now is the clock by which batches, closures and snapshots end; nil for none.
	Now func() time.Time
	// RunTwice runs every closure twice; see batch.Options.
	RunTwice bool
	// Remote drives the store as an engine whose reads are round trips; see batch.Remote.
	Remote bool
	// BeforeCommit, if given, is asked before every commit. Its error makes the commit fail with nothing
	// committed: a simulator's engine failure. It is called on the commit path and must not call the store.
	BeforeCommit func() error
}

// Store is a store in memory; it implements kv.Store.
type Store struct {
	*batch.Store
	opt  Options
	data *data
}

// Open makes an empty store.
func Open(opt Options) *Store {
	if opt.Incarnation == 0 {
		opt.Incarnation = 1
	}
	d := &data{}
	d.incarnation.Store(opt.Incarnation)
	d.committed.Store(&state{tree: btree.NewBTreeGOptions(
		func(a, b entry) bool { return bytes.Compare(a.key, b.key) < 0 },
		btree.Options{NoLocks: true},
	)})
	return open(opt, d)
}

// Handle opens another handle on the data of s, as another process would have one: with a queue and
// subscribers of its own. Each handle is closed by itself; the data lives as long as any of them.
func (s *Store) Handle() *Store { return open(s.opt, s.data) }

func open(opt Options, d *data) *Store {
	s := &Store{opt: opt, data: d}
	driver := &driver{data: d, beforeCommit: opt.BeforeCommit}
	options := batch.Options{
		Name:        "memory",
		Incarnation: d.incarnation.Load(),
		Keys:        opt.Keys,
		QueueLimit:  opt.QueueLimit,
		Now:         opt.Now,
		Synchronous: !opt.Queued,
		RunTwice:    opt.RunTwice,
	}
	if opt.Remote {
		s.Store = batch.NewRemote(batch.AsRemote(driver), options)
	} else {
		s.Store = batch.New(driver, options)
	}
	return s
}

type entry struct{ key, value []byte }

// state is what one commit left. It is never changed.
type state struct {
	tree     *btree.BTreeG[entry]
	sequence uint64
}

// data is what all handles share.
type data struct {
	// writing is held from Begin to Commit or Rollback: one handle writes at a time.
	writing   sync.Mutex
	committed atomic.Pointer[state]
	// incarnation is what a handle takes when it is opened.
	incarnation atomic.Uint32
}

// driver implements batch.Driver for one handle.
type driver struct {
	*data
	beforeCommit func() error
	next         *btree.BTreeG[entry] // what Apply made, until Commit
	incarnation  uint32               // what Commit sets; 0 for none
}

func (d *driver) Begin() (uint64, error) {
	d.writing.Lock()
	return d.committed.Load().sequence, nil
}

func (d *driver) Get(key []byte) ([]byte, error) { return d.committed.Load().Get(key) }

func (d *driver) Scan(r kv.Range, visit func(key, value []byte) bool) error {
	return d.committed.Load().Scan(r, visit)
}

func (d *driver) Apply(writes []batch.Write) error {
	d.next = d.committed.Load().tree.Copy()
	for _, w := range writes {
		if w.Delete {
			d.next.Delete(entry{key: w.Key})
		} else {
			d.next.Set(entry{key: w.Key, value: w.Value})
		}
	}
	return nil
}

func (d *driver) Commit(sequence uint64) error {
	defer d.Rollback()
	if d.beforeCommit != nil {
		if err := d.beforeCommit(); err != nil {
			return err
		}
	}
	d.committed.Store(&state{tree: d.next, sequence: sequence})
	if d.incarnation > 0 {
		d.data.incarnation.Store(d.incarnation)
	}
	return nil
}

// SetIncarnation implements batch.Incarnated.
func (d *driver) SetIncarnation(incarnation uint32) error {
	d.incarnation = incarnation
	return nil
}

func (d *driver) Rollback() {
	d.next, d.incarnation = nil, 0
	d.writing.Unlock()
}

// Resolve knows no unknown commit, because there is none.
func (d *driver) Resolve(context.Context, kv.Token) (kv.Outcome, error) {
	return kv.OutcomeUnknown, nil
}

func (d *driver) Snapshot(context.Context) (batch.DriverSnapshot, error) {
	return d.committed.Load(), nil
}

func (d *driver) Close() error { return nil }

func (s *state) Get(key []byte) ([]byte, error) {
	e, _ := s.tree.Get(entry{key: key})
	return e.value, nil
}

func (s *state) Scan(r kv.Range, visit func(key, value []byte) bool) error {
	s.tree.Ascend(entry{key: r.Start}, func(e entry) bool {
		return bytes.Compare(e.key, r.End) < 0 && visit(e.key, e.value)
	})
	return nil
}

func (s *state) Sequence() (uint64, error) { return s.sequence, nil }

func (s *state) Release() {}
