package kvbench

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"abide/kv"
	"abide/kv/tuple"
)

// space is the key space of a load. Keys look like those of the machine: a tenant, a workspace, a call tree, and
// five entries side by side under each tree.
type space struct {
	prefix []byte
	value  []byte
}

func newSpace(sizeBytes int, seed uint64) *space {
	s := &space{prefix: tuple.AppendString(tuple.AppendInt(nil, 1), "default"), value: make([]byte, sizeBytes)}
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range s.value {
		s.value[i] = byte(r.Uint32())
	}
	return s
}

// tree is the prefix of a call tree's keys. Trees with consecutive numbers lie far apart.
func (s *space) tree(n uint64) []byte {
	const odd = 0x9E3779B97F4A7C15 // spreads the numbers, each to one place of its own
	key := append(make([]byte, 0, 64), s.prefix...)
	return binary.BigEndian.AppendUint64(append(key, 0x02), n*odd)
}

func (s *space) key(tree uint64, i int) []byte { return tuple.AppendInt(s.tree(tree), int64(i)) }

// everything is the range of all keys.
func (s *space) everything() kv.Range {
	return kv.Range{Start: s.prefix, End: tuple.PrefixEnd(s.prefix)}
}

// entries are the puts of one transaction. Each has a value of its own.
func (s *space) entries(dst []kv.Entry, tree uint64, mark uint64) []kv.Entry {
	for i := range putsPerTx {
		value := append(make([]byte, 0, len(s.value)), s.value...)
		binary.BigEndian.PutUint64(value, mark+uint64(i))
		dst = append(dst, kv.Entry{Key: s.key(tree, i), Value: value})
	}
	return dst
}

// update puts the entries of one tree in a transaction, with a journal entry if asked.
func (r *run) update(s kv.Store, sp *space, tree, mark uint64, journal bool) error {
	entries := sp.entries(make([]kv.Entry, 0, putsPerTx), tree, mark)
	_, err := kv.Run(r.ctx, s, kv.Hints{Lane: "default"}, func(tx kv.Tx) error {
		for _, e := range entries {
			if err := tx.Put(e.Key, e.Value); err != nil {
				return err
			}
		}
		if journal {
			return tx.Append(sp.prefix, entries[0].Value[:min(journalBytes, len(entries[0].Value))])
		}
		return nil
	})
	return err
}

// journalBytes is about the size of the machine's journal entries.
const journalBytes = 80

// writers lets the clients write for d and returns the rate of transactions. Trees come from next.
func (r *run) writers(s kv.Store, sp *space, d time.Duration, journal bool, next func() uint64) (float64, error) {
	var done, mark atomic.Int64
	mark.Store(time.Now().UnixNano())
	var mu sync.Mutex
	var failure error
	var wg sync.WaitGroup
	start := time.Now()
	for range r.Clients {
		wg.Go(func() {
			for time.Since(start) < d && r.ctx.Err() == nil {
				if err := r.update(s, sp, next(), uint64(mark.Add(putsPerTx)), journal); err != nil {
					mu.Lock()
					failure = errors.Join(failure, err)
					mu.Unlock()
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(start).Seconds(), errors.Join(failure, r.ctx.Err())
}

// random gives numbers of trees that exist.
func random(trees int, seed uint64) func() uint64 {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 1))
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return uint64(r.IntN(trees))
	}
}

// fill puts keys into the store and, unless it is nil, the engine.
func (r *run) fill(s kv.Store, e Engine, sp *space, keys int) error {
	const treesPerTx = 200
	trees := max(1, keys/putsPerTx)
	for first := 0; first < trees; first += treesPerTx {
		var entries []kv.Entry
		for tree := first; tree < min(first+treesPerTx, trees); tree++ {
			entries = sp.entries(entries, uint64(tree), uint64(tree))
		}
		_, err := kv.Run(r.ctx, s, kv.Hints{}, func(tx kv.Tx) error {
			for _, entry := range entries {
				if err := tx.Put(entry.Key, entry.Value); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil && e != nil {
			err = e.Write(entries)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
