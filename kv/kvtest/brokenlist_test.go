package kvtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"abide/kv"
	"abide/kv/memkv"
)

// broken is a way to get the contract wrong, and the check that finds it out.
type broken struct {
	name, check string
	harness     Harness
}

// inTx, inView and inUpdate break one call.
func inTx(change func(tx kv.Tx) *wrongTx) Harness {
	return harnessOf(func(s *memkv.Store) kv.Store {
		return &wrong{Store: s, tx: func(tx kv.Tx) kv.Tx {
			w := change(tx)
			w.Tx = tx
			return w
		}}
	})
}

func inView(change func(s kv.Snapshot) *wrongView) Harness {
	return harnessOf(func(s *memkv.Store) kv.Store {
		return &wrong{Store: s, view: func(snap kv.Snapshot) kv.Snapshot {
			w := change(snap)
			w.Snapshot = snap
			return w
		}}
	})
}

func inUpdate(update func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error)) Harness {
	return harnessOf(func(s *memkv.Store) kv.Store { return &wrong{Store: s, update: update} })
}

var brokenStores = slices.Concat(brokenReads, brokenWrites, brokenOrder, brokenIsolation, brokenEnds, brokenImports)

var brokenReads = []broken{
	{"an empty value reads as none", "reads/an absent key is nil and an empty value is not", inView(func(s kv.Snapshot) *wrongView {
		return &wrongView{get: func(key []byte) ([]byte, error) {
			value, err := s.Get(key)
			if len(value) == 0 {
				value = nil
			}
			return value, err
		}}
	})},
	{"GetMany answers in the order of keys", "reads/GetMany keeps the order of its keys", inView(func(s kv.Snapshot) *wrongView {
		return &wrongView{many: func(keys [][]byte) ([][]byte, error) {
			sorted := slices.Clone(keys)
			slices.SortFunc(sorted, bytes.Compare)
			return s.GetMany(sorted)
		}}
	})},
	{"a scan includes its end", "reads/Scan is ordered, half open and limited", inView(func(s kv.Snapshot) *wrongView {
		return &wrongView{scan: func(r kv.Range, limit int) ([]kv.Entry, error) {
			if len(r.End) > 0 && r.End[0] < kv.ReservedPrefix {
				r.End = append(bytes.Clone(r.End), 0)
			}
			return s.Scan(r, limit)
		}}
	})},
	{"a scan gives one entry too few", "reads/Scan of many entries", inView(func(s kv.Snapshot) *wrongView {
		return &wrongView{scan: func(r kv.Range, limit int) ([]kv.Entry, error) { return s.Scan(r, max(1, limit-1)) }}
	})},
	{"a scan of a transaction does not see its own writes", "reads/a scan merges the transaction's writes with what is stored",
		harnessOf(func(s *memkv.Store) kv.Store {
			return &wrong{Store: s, tx: func(tx kv.Tx) kv.Tx {
				return &wrongTx{Tx: tx, scan: func(r kv.Range, limit int) (entries []kv.Entry, err error) {
					err = s.View(context.Background(), func(v kv.Snapshot) (err error) { entries, err = v.Scan(r, limit); return err })
					return entries, err
				}}
			}}
		})},
	{"an own put takes a stored entry's place on the page", "scans/own puts and deletes at every page edge", inTx(func(tx kv.Tx) *wrongTx {
		deleted := false
		return &wrongTx{
			remove: func(key []byte) error { deleted = true; return tx.Delete(key) },
			scan: func(r kv.Range, limit int) ([]kv.Entry, error) {
				entries, err := tx.Scan(r, limit)
				if deleted && len(entries) == 3 && limit == 3 { // as one that counts what it deleted
					entries = entries[:2]
				}
				return entries, err
			},
		}
	})},
	{"a delete does not take back an own put", "scans/a put and then a delete of a key that did and did not exist", inTx(func(tx kv.Tx) *wrongTx {
		put := map[string]bool{}
		return &wrongTx{
			put: func(key, value []byte) error { put[string(key)] = true; return tx.Put(key, value) },
			remove: func(key []byte) error {
				if put[string(key)] {
					return nil
				}
				return tx.Delete(key)
			},
		}
	})},
	{"keys end at a NUL", "keys/keys that differ in their last byte only", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{put: func(key, value []byte) error { return tx.Put(cutAtNUL(key), value) }}
	})},
	{"the longest keys are cut", "keys/runs of 00 and FF, and the longest keys, are in byte order", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{put: func(key, value []byte) error { return tx.Put(key[:min(len(key), 1024)], value) }}
	})},
	{"returned slices change later", "reads/returned slices stay as they are", inView(func(s kv.Snapshot) *wrongView {
		return &wrongView{get: func(key []byte) ([]byte, error) {
			value, err := s.Get(key)
			reused.mu.Lock()
			defer reused.mu.Unlock()
			if value == nil {
				return nil, err
			}
			reused.buffer = append(reused.buffer[:0], value...)
			return reused.buffer, err
		}}
	})},
}

// reused is a buffer that a store should not have shared.
var reused struct {
	mu     sync.Mutex
	buffer []byte
}

var brokenWrites = []broken{
	{"deletes are lost", "writes/put, overwrite and delete", inTx(func(kv.Tx) *wrongTx {
		return &wrongTx{remove: func([]byte) error { return nil }}
	})},
	{"a failed closure commits", "writes/a failed closure leaves nothing behind", inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		var own error
		at, err := s.Update(ctx, kv.Hints{}, func(tx kv.Tx) error { own = fn(tx); return nil })
		if own != nil {
			return kv.Position{}, own
		}
		return at, err
	})},
	{"slices of the caller are kept", "writes/the caller may reuse its slices at once", inTx(func(tx kv.Tx) *wrongTx {
		var keys, values [][]byte
		return &wrongTx{
			put: func(key, value []byte) error { keys, values = append(keys, key), append(values, value); return nil },
			atEnd: func() (err error) {
				for i := range keys {
					err = errors.Join(err, tx.Put(keys[i], values[i]))
				}
				return err
			},
		}
	})},
	{"large values are cut", "writes/values of every size", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{put: func(key, value []byte) error { return tx.Put(key, value[:min(len(value), 8000)]) }}
	})},
	{"what is too large is cut instead of refused", "limits/what is out of bounds is refused", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{put: func(key, value []byte) error { return tx.Put(key, value[:min(len(value), kv.MaxValueBytes)]) }}
	})},
	{"the clock is not looked at", "limits/too much time", func() Harness {
		h := harnessOf(func(s *memkv.Store) kv.Store { return s })
		open := h.Open
		h.Open = func(t testing.TB, c Config) kv.Store { c.Now = nil; return open(t, c) }
		return h
	}()},
	{"the journal's keys can be written", "limits/the store's own keys are closed but for compaction's", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{put: func(key, value []byte) error {
			if len(key) > 0 && key[0] == kv.ReservedPrefix {
				return nil
			}
			return tx.Put(key, value)
		}}
	})},
	{"errors are bare", "errors/an error names its store, its operation and the kind of its key, never the key", inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		at, err := s.Update(ctx, kv.Hints{}, fn)
		if errors.Is(err, kv.ErrLimit) {
			err = kv.ErrLimit
		}
		return at, err
	})},
	{"errors show keys", "errors/an error names its store, its operation and the kind of its key, never the key", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{put: func(key, value []byte) error {
			err := tx.Put(key, value)
			var known *kv.Error
			if errors.As(err, &known) {
				known.Detail = string(key)
			}
			return err
		}}
	})},
	{"an overlooked error is forgotten", "errors/an error of the transaction is final", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{put: func(key, value []byte) error {
			if len(key) == 0 {
				return kv.ErrLimit
			}
			return tx.Put(key, value)
		}}
	})},
	{"a transaction works after its end", "errors/a transaction that is over says so", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{get: func(key []byte) ([]byte, error) {
			value, err := tx.Get(key)
			if errors.Is(err, kv.ErrTxDone) {
				err = nil
			}
			return value, err
		}}
	})},
	{"own errors come wrapped", "errors/a closure's own error comes back as it is", inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		at, err := s.Update(ctx, kv.Hints{}, fn)
		if err != nil {
			err = errors.Join(errors.New("update"), err)
		}
		return at, err
	})},
}

// resequence changes the number in a position.
func resequence(p kv.Position, change func(uint64) uint64) kv.Position {
	if p.IsZero() {
		return p
	}
	return kv.NewPosition(p.Incarnation(), change(p.Sequence()))
}

var brokenOrder = []broken{
	{"a reading transaction has a position", "positions/positions rise with every write and nothing else", inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		at, err := s.Update(ctx, kv.Hints{}, fn)
		if err == nil && at.IsZero() {
			at = kv.NewPosition(1, 1)
		}
		return at, err
	})},
	{"commits of one batch share a position", "batches/positions are unique and in order under 64 writers", inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		at, err := s.Update(ctx, kv.Hints{}, fn)
		return resequence(at, func(n uint64) uint64 { return n&^3 + 1 }), err
	})},
	{"the bound is one behind", "positions/a snapshot's bound is the last commit it observes", inView(func(s kv.Snapshot) *wrongView {
		return &wrongView{bound: func() kv.Position { return resequence(s.Bound(), func(n uint64) uint64 { return n - 1 }) }}
	})},
	{"the bound is ahead", "isolation/a snapshot observes exactly the commits up to its bound", inView(func(s kv.Snapshot) *wrongView {
		return &wrongView{bound: func() kv.Position { return resequence(s.Bound(), func(n uint64) uint64 { return n + 1 }) }}
	})},
	{"a page begins with the reader's last entry", "journal/a reader that stops inside a commit goes on inside it", inView(func(s kv.Snapshot) *wrongView {
		return &wrongView{journal: func(partition []byte, after kv.EntryPosition, limit int) ([]kv.JournalEntry, error) {
			if after.Index > 0 && after.Index != kv.AfterCommit {
				after.Index--
			}
			return s.Journal(partition, after, limit)
		}}
	})},
	{"a page skips the rest of a commit", "journal/a reader that stops inside a commit goes on inside it", inView(func(s kv.Snapshot) *wrongView {
		return &wrongView{journal: func(partition []byte, after kv.EntryPosition, limit int) ([]kv.JournalEntry, error) {
			if after != (kv.EntryPosition{}) {
				after.Index = kv.AfterCommit
			}
			return s.Journal(partition, after, limit)
		}}
	})},
	{"partitions are told by their beginning", "journal/no partition is the beginning of another", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{append: func(partition, record []byte) error { return tx.Append(partition[:min(len(partition), 1)], record) }}
	})},
	{"a commit's entries come in another order", "journal/entries come in commit order and, within a commit, in append order", inTx(func(tx kv.Tx) *wrongTx {
		type entry struct{ partition, record []byte }
		var entries []entry
		return &wrongTx{
			append: func(partition, record []byte) error { entries = append(entries, entry{partition, record}); return nil },
			atEnd: func() (err error) {
				for _, e := range slices.Backward(entries) {
					err = errors.Join(err, tx.Append(e.partition, e.record))
				}
				return err
			},
		}
	})},
	{"compaction leaves the floor", "compaction/a step removes at most 127 entries and is resumed", inTx(func(tx kv.Tx) *wrongTx {
		return &wrongTx{put: func(key, value []byte) error {
			if key[0] == kv.ReservedPrefix {
				return nil
			}
			return tx.Put(key, value)
		}}
	})},
	{"a reader below the floor gets a gap", "compaction/a reader below the floor is expired, one at it reads everything after it", inView(unheedingReader)},
	{"a reader below the floor gets a gap, under load", "compaction/readers never meet a gap while others compact and append", inView(unheedingReader)},
	{"the floor is read in another snapshot", "compaction/a reader below the floor is expired, one at it reads everything after it", harnessOf(func(s *memkv.Store) kv.Store {
		return &wrong{Store: s, view: func(snap kv.Snapshot) kv.Snapshot {
			return &wrongView{Snapshot: snap, journal: func(partition []byte, after kv.EntryPosition, limit int) ([]kv.JournalEntry, error) {
				err := s.View(context.Background(), func(v kv.Snapshot) error { _, err := v.Journal(partition, after, 1); return err })
				if err != nil {
					return nil, err
				}
				return snap.Journal(partition, after, limit)
			}}
		}}
	})},
	{"positions of another store are taken for one's own", "compaction/a position of another history is expired", inView(unheedingReader)},
}

// unheedingReader reads the journal without a look at the floor.
func unheedingReader(s kv.Snapshot) *wrongView {
	return &wrongView{journal: func(partition []byte, after kv.EntryPosition, limit int) ([]kv.JournalEntry, error) {
		rows, err := s.Scan(kv.EntriesAfter(partition, after), limit)
		var entries []kv.JournalEntry
		for _, row := range rows {
			_, at, _ := kv.ParseJournalKey(row.Key)
			entries = append(entries, kv.JournalEntry{Position: at, Record: row.Value})
		}
		return entries, err
	}}
}

var brokenIsolation = []broken{
	{"updates are lost", "isolation/increments are not lost", inUpdate(snapshotIsolation(false))},
	{"snapshot isolation skews", "isolation/no write skew", inUpdate(snapshotIsolation(true))},
	{"snapshot isolation has phantoms", "isolation/no phantoms", inUpdate(snapshotIsolation(true))},
	{"money is lost", "isolation/the bank's money stays the same", inUpdate(snapshotIsolation(false))},
	{"the ring breaks", "isolation/the ring stays one ring", inUpdate(snapshotIsolation(false))},
	{"a snapshot moves", "isolation/a snapshot does not move", harnessOf(func(s *memkv.Store) kv.Store {
		return &wrong{Store: s, view: func(snap kv.Snapshot) kv.Snapshot {
			return &wrongView{Snapshot: snap, get: func(key []byte) (value []byte, err error) {
				err = s.View(context.Background(), func(v kv.Snapshot) (err error) { value, err = v.Get(key); return err })
				return value, err
			}}
		}}
	})},
	{"a handle reads what was", "handles/what one handle acknowledged, the other sees", func() Harness {
		h := harnessOf(func(s *memkv.Store) kv.Store { return s })
		second := h.Second
		h.Second = func(t testing.TB, c Config) kv.Store { return &stale{Store: second(t, c)} }
		return h
	}()},
}

// stale is a handle that looks at the store once.
type stale struct {
	kv.Store
	once  sync.Once
	bound kv.Position
}

func (s *stale) View(ctx context.Context, fn func(kv.Snapshot) error) error {
	return s.Store.View(ctx, func(v kv.Snapshot) error {
		s.once.Do(func() { s.bound = v.Bound() })
		return fn(&wrongView{Snapshot: v, bound: func() kv.Position { return s.bound }})
	})
}

var brokenEnds = []broken{
	{"a caller who goes away is not told of the commit", "contexts/a cancelled context commits nothing", inUpdate(forgetful)},
	{"callers who go away are not told of commits", "contexts/a caller who goes away learns the outcome, whole", inUpdate(forgetful)},
	{"one failure fails its neighbours", "batches/one closure fails, its neighbours live", func() Harness {
		var mu sync.Mutex
		failed := false
		return inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
			return s.Update(ctx, kv.Hints{}, func(tx kv.Tx) error {
				err := fn(tx)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && failed {
					err = kv.ErrUnavailable
				}
				failed = err != nil && !failed
				return err
			})
		})
	}()},
	{"a refusal is told although its reason was lost", "batches/nothing is answered by a neighbour's write that was lost", inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		var own error
		at, err := s.Update(ctx, kv.Hints{}, func(tx kv.Tx) error { own = fn(tx); return own })
		if own != nil {
			err = own
		}
		return at, err
	})},
	{"a commit that failed is answered as one that did not", "batches/a commit that fails leaves nothing behind and tells everybody", inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		at, err := s.Update(ctx, kv.Hints{}, fn)
		if errors.Is(err, kv.ErrUnavailable) {
			err = nil
		}
		return at, err
	})},
	{"an unknown outcome is told as none", "batches/an unknown outcome comes with a token, and is resolved to what happened", inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		at, err := s.Update(ctx, kv.Hints{}, fn)
		if errors.Is(err, kv.ErrCommitUnknown) {
			at, err = kv.NewPosition(1, 1), nil
		}
		return at, err
	})},
	{"an unknown outcome has no token", "batches/an unknown outcome comes with a token, and is resolved to what happened", inUpdate(func(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
		at, err := s.Update(ctx, kv.Hints{}, fn)
		if errors.Is(err, kv.ErrCommitUnknown) {
			err = &kv.Error{Is: kv.ErrCommitUnknown, Store: "memory", Op: "commit"}
		}
		return at, err
	})},
	{"a transaction that wrote nothing signals", "signals/nothing that did not commit signals", harnessOf(func(s *memkv.Store) kv.Store {
		n := 0
		return &wrong{Store: s, tx: func(tx kv.Tx) kv.Tx {
			return &wrongTx{Tx: tx, signal: func(sig kv.Signal) {
				n++
				_ = tx.Append([]byte("signals"), nil) // makes it a write
				tx.Signal(sig)
			}}
		}}
	})},
	{"signals are repeated", "signals/signals come with the commit, coalesced", inTx(func(tx kv.Tx) *wrongTx {
		n := 0
		return &wrongTx{signal: func(s kv.Signal) {
			n++
			tx.Signal(kv.Signal{Topic: s.Topic, Body: s.Body + string(rune('a'+n))})
		}}
	})},
	{"reopening loses a key", "lifetime/everything survives reopening", lossy()},
	{"random histories: reopening loses a key", "histories/random histories agree with a sorted map", lossy()},
	{"random histories: deletes of the highest key are lost", "histories/random histories agree with a sorted map", inTx(subtle)},
}

// forgetful tells a caller who has gone away that nothing happened.
func forgetful(ctx context.Context, s kv.Store, fn func(kv.Tx) error) (kv.Position, error) {
	at, err := s.Update(ctx, kv.Hints{}, fn)
	if ctx.Err() != nil {
		return kv.Position{}, ctx.Err()
	}
	return at, err
}

// lossy is a store that forgets its first key when it is opened again.
func lossy() Harness {
	h := harnessOf(func(s *memkv.Store) kv.Store { return s })
	reopen := h.Reopen
	h.Reopen = func(t testing.TB, c Config) kv.Store {
		s := reopen(t, c)
		if _, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
			entries, err := tx.Scan(everything, 1)
			if len(entries) == 1 {
				err = tx.Delete(entries[0].Key)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		return s
	}
	return h
}

// subtle loses the deletion of a key that the same transaction has put and that begins with FE.
func subtle(tx kv.Tx) *wrongTx {
	put := map[string]bool{}
	return &wrongTx{
		put: func(key, value []byte) error { put[string(key)] = true; return tx.Put(key, value) },
		remove: func(key []byte) error {
			if put[string(key)] && key[0] == 0xFE {
				return nil
			}
			return tx.Delete(key)
		},
	}
}

var brokenImports = []broken{
	{"an import keeps the incarnation", "imports/a store filled in steps is like the one that it was filled from", imports(func(s *kv.Import) {
		s.Incarnation++
	})},
	{"a step of an import loses its last row", "imports/a store filled in steps is like the one that it was filled from", imports(func(s *kv.Import) {
		s.Rows = s.Rows[:max(0, len(s.Rows)-1)]
	})},
}

// imports is a store that makes other steps of an import than it is told.
func imports(change func(*kv.Import)) Harness {
	h := harnessOf(func(s *memkv.Store) kv.Store { return &wrongImporter{s, change} })
	h.Imports = true
	return h
}

type wrongImporter struct {
	*memkv.Store
	change func(*kv.Import)
}

func (w *wrongImporter) Import(ctx context.Context, step kv.Import) error {
	w.change(&step)
	return w.Store.Import(ctx, step)
}
