package sim

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"abide/internal/deliver"
	"abide/internal/keyspace"
	"abide/internal/push"
	"abide/kv"
)

// A simulation that finds nothing proves something only if it can fail. Each of these universes has a part that does
// not keep its promise.

// lossy acknowledges some transactions that it has not committed.
type lossy struct {
	kv.Store
	updates int
}

var errLost = errors.New("lost")

func (s *lossy) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	if s.updates++; h.Lane == "" || s.updates%50 != 0 {
		return s.Store.Update(ctx, h, fn)
	}
	_, err := s.Store.Update(ctx, h, func(tx kv.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return errLost
	})
	if errors.Is(err, errLost) {
		err = nil
	}
	return kv.NewPosition(1, 1<<40), err
}

// repeating runs some transactions that have committed once more, as a blind retry would.
type repeating struct {
	kv.Store
	updates int
}

func (s *repeating) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	pos, err := s.Store.Update(ctx, h, fn)
	if s.updates++; err == nil && !pos.IsZero() && s.updates%50 == 0 {
		return s.Store.Update(ctx, h, fn)
	}
	return pos, err
}

// forgetful drops some writes of one kind of key.
type forgetful struct {
	kv.Store
	kind string
	puts int
}

func (s *forgetful) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	return s.Store.Update(ctx, h, func(tx kv.Tx) error { return fn(forgetfulTx{tx, s}) })
}

type forgetfulTx struct {
	kv.Tx
	store *forgetful
}

func (t forgetfulTx) Put(key, value []byte) error {
	if keyspace.Kind(key) == t.store.kind {
		if t.store.puts++; t.store.puts%7 == 0 {
			return nil
		}
	}
	return t.Tx.Put(key, value)
}

// caching remembers the objects that it has written, as if no other server wrote to the store.
type caching struct {
	kv.Store
	objects map[string][]byte
}

func (s *caching) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	var t *cachingTx
	pos, err := s.Store.Update(ctx, h, func(tx kv.Tx) error {
		t = &cachingTx{tx, s, map[string][]byte{}}
		return fn(t)
	})
	if err == nil {
		for key, value := range t.written {
			s.objects[key] = value
		}
	}
	return pos, err
}

type cachingTx struct {
	kv.Tx
	store   *caching
	written map[string][]byte
}

func (t *cachingTx) Get(key []byte) ([]byte, error) {
	if value, ok := t.written[string(key)]; ok {
		return value, nil
	}
	if value, ok := t.store.objects[string(key)]; ok {
		return value, nil
	}
	return t.Tx.Get(key)
}

func (t *cachingTx) Put(key, value []byte) error {
	if keyspace.Kind(key) == "object" {
		t.written[string(key)] = bytes.Clone(value)
	}
	return t.Tx.Put(key, value)
}

// eager removes an unblock before it is delivered.
type eager struct{ deliver.Outbox }

func (o eager) CheckUnblocks(ctx context.Context, workspace string, hinted []deliver.UnblockRef) ([]deliver.Unblock, error) {
	found, err := o.Outbox.CheckUnblocks(ctx, workspace, hinted)
	if err == nil {
		err = o.UnblocksDelivered(ctx, workspace, hinted)
	}
	return found, err
}

// eagerPush removes an unblock before it is pushed.
type eagerPush struct{ push.Outbox }

func (o eagerPush) CheckUnblocks(ctx context.Context, workspace string, asked []deliver.UnblockRef) ([]deliver.Unblock, error) {
	found, err := o.Outbox.CheckUnblocks(ctx, workspace, asked)
	if err == nil {
		err = o.UnblocksDelivered(ctx, workspace, asked)
	}
	return found, err
}

// blindPush never finds what no hint has named.
type blindPush struct{ push.Outbox }

func (blindPush) Queues(context.Context, push.Kind, string) ([]push.Queue, string, error) {
	return nil, "", nil
}

// blind never finds what no hint has named.
type blind struct{ deliver.Outbox }

func (blind) Executes(_ context.Context, asks []deliver.Ask) ([]deliver.ExecutePage, error) {
	return make([]deliver.ExecutePage, len(asks)), nil
}

func TestPlantedFaultsAreFound(t *testing.T) {
	store := func(wrap func(kv.Store) kv.Store) Config { return Config{Wrap: wrap} }
	outbox := func(wrap func(deliver.Outbox) deliver.Outbox) Config { return Config{Outbox: wrap} }
	tests := []struct {
		name   string
		config Config
	}{
		{"an acknowledged write is lost", store(func(s kv.Store) kv.Store { return &lossy{Store: s} })},
		{"a commit is repeated", Config{Model: true, Wrap: func(s kv.Store) kv.Store { return &repeating{Store: s} }}},
		{"a timer is not armed", store(func(s kv.Store) kv.Store { return &forgetful{Store: s, kind: "timer"} })},
		{"a waiter is forgotten", store(func(s kv.Store) kv.Store { return &forgetful{Store: s, kind: "waiter"} })},
		{"an execute is not queued", store(func(s kv.Store) kv.Store { return &forgetful{Store: s, kind: "execute"} })},
		{"an unblock goes before it is delivered", outbox(func(o deliver.Outbox) deliver.Outbox { return eager{o} })},
		{"a server of three keeps what it has written in memory", Config{Servers: 3, Wrap: func(s kv.Store) kv.Store { return &caching{s, map[string][]byte{}} }}},
		{"an unblock goes before it is pushed", Config{Push: Always, Addresses: func(o push.Outbox) push.Outbox { return eagerPush{o} }}},
		{"no walk over addresses", Config{Push: Always, Addresses: func(o push.Outbox) push.Outbox { return blindPush{o} }}},
		{"no scan", outbox(func(o deliver.Outbox) deliver.Outbox { return blind{o} })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 60; seed++ {
				c := test.config
				c.Seed = seed
				if r := Run(c); r.Err != nil {
					first, _, _ := strings.Cut(r.Err.Error(), "\n")
					t.Logf("seed %d: %.300s", seed, first)
					return
				}
			}
			t.Error("not found in 60 seeds")
		})
	}
}

// A fault less changes what chance makes of the others, so how few are left is not certain.
func TestShrinkKeepsTheFaultsThatItTakes(t *testing.T) {
	c := Config{Outbox: func(o deliver.Outbox) deliver.Outbox { return eager{o} }}
	for c.Seed = 1; ; c.Seed++ {
		if Run(c).Err != nil {
			break
		}
		if c.Seed == 60 {
			t.Fatal("no seed fails")
		}
	}
	all := NewPlan(c.Seed)
	few, r := Shrink(c)
	t.Logf("seed %d, faults %v of %d: %v", c.Seed, few, len(all.Faults), r.Err)
	if r.Err == nil || len(few) == 0 || len(few) >= len(all.Faults) {
		t.Fatalf("%d of %d faults are left: %v", len(few), len(all.Faults), r.Err)
	}
	c.Plan = all.Only(few)
	if again := Run(c); again.Err == nil || again.Err.Error() != r.Err.Error() {
		t.Errorf("replayed, it ends with %v; before with %v", again.Err, r.Err)
	}
}
