package engine

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/memkv"
)

// hooked is a store whose transactions a test can watch, hold up, fail or disturb. Hooks are set before the
// engine uses the store, or while nothing runs. All are optional.
type hooked struct {
	kv.Store

	mu sync.Mutex
	// before runs before an Update reaches the store; an error is returned instead of running it.
	before func(h kv.Hints) error
	// within runs at the end of a closure, inside its transaction; an error aborts it.
	within func(h kv.Hints, tx kv.Tx) error
	// after runs when an Update has ended and says what the engine hears of it.
	after func(h kv.Hints, pos kv.Position, err error) (kv.Position, error)
	// reading runs before a View reaches the store.
	reading func() error
	// resolve answers Resolve.
	resolve func(kv.Token) (kv.Outcome, error)

	updates, views, puts atomic.Int64
	ceilings             atomic.Int64 // puts of a server's row
}

func (s *hooked) set(fn func(s *hooked)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(s)
}

func (s *hooked) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	s.mu.Lock()
	before, within, after := s.before, s.within, s.after
	s.mu.Unlock()
	s.updates.Add(1)
	if before != nil {
		if err := before(h); err != nil {
			return kv.Position{}, err
		}
	}
	pos, err := s.Store.Update(ctx, h, func(tx kv.Tx) error {
		if err := fn(&watched{tx, s}); err != nil || within == nil {
			return err
		}
		return within(h, tx)
	})
	if after != nil {
		return after(h, pos, err)
	}
	return pos, err
}

func (s *hooked) View(ctx context.Context, fn func(kv.Snapshot) error) error {
	s.mu.Lock()
	reading := s.reading
	s.mu.Unlock()
	s.views.Add(1)
	if reading != nil {
		if err := reading(); err != nil {
			return err
		}
	}
	return s.Store.View(ctx, fn)
}

func (s *hooked) Resolve(ctx context.Context, t kv.Token) (kv.Outcome, kv.Position, error) {
	s.mu.Lock()
	resolve := s.resolve
	s.mu.Unlock()
	if resolve == nil {
		return s.Store.Resolve(ctx, t)
	}
	outcome, err := resolve(t)
	return outcome, kv.Position{}, err
}

// watched counts what a closure writes.
type watched struct {
	kv.Tx
	store *hooked
}

func (t *watched) Put(key, value []byte) error {
	t.store.puts.Add(1)
	if keyspace.Kind(key) == "server" {
		t.store.ceilings.Add(1)
	}
	return t.Tx.Put(key, value)
}

// newHooked is an engine over a store in memory with hooks. Its closures run once, so that counts are exact.
func newHooked(t *testing.T) (*fixture, *hooked) {
	t.Helper()
	inner := memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register()})
	t.Cleanup(func() { inner.Close() })
	s := &hooked{Store: inner}
	return fixtureOver(t, s, newManual()), s
}

// raw reads one row as it is stored.
func (f *fixture) raw(key []byte) (value []byte) {
	f.t.Helper()
	err := f.store.View(context.Background(), func(s kv.Snapshot) (err error) {
		value, err = s.Get(key)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return value
}

// put writes one row past the engine: damage, or what another server did. A nil value deletes it.
func (f *fixture) put(key, value []byte) {
	f.t.Helper()
	_, err := f.store.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
		if value == nil {
			return tx.Delete(key)
		}
		return tx.Put(key, value)
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// rows lists the rows of a kind.
func (f *fixture) rows(kind string) (rows []kv.Entry) {
	f.t.Helper()
	r := kv.Range{End: []byte{kv.ReservedPrefix}}
	for more := true; more; {
		err := f.store.View(context.Background(), func(s kv.Snapshot) error {
			page, err := s.Scan(r, 1000)
			for _, row := range page {
				if keyspace.Kind(row.Key) == kind {
					rows = append(rows, row)
				}
			}
			if more = len(page) == 1000; more {
				r = keyspace.After(r, page[len(page)-1].Key)
			}
			return err
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}
	return rows
}

// errForeign is an error that no package of ours knows.
var errForeign = errors.New("something else")

// flip damages a value so that it does not decode: another version.
func flip(value []byte) []byte {
	out := bytes.Clone(value)
	out[0] = 99
	return out
}
