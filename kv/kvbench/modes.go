package kvbench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"abide/kv"
)

// write compares transactions of five puts through the contract with the engine's own, and with a journal entry
// each.
func (r *run) write() error {
	return r.with("write", func(s *Subject) error {
		sp, trees := newSpace(r.SizeBytes, r.Seed), max(1, r.Keys/putsPerTx)
		if err := r.fill(s.Store, s.Engine, sp, r.Keys); err != nil {
			return err
		}
		var transactions float64
		var mallocs, commits uint64
		store := func(journal bool) func(time.Duration) (float64, error) {
			next := random(trees, r.Seed)
			return func(d time.Duration) (float64, error) {
				beforeCommits, beforeMallocs, start := s.Commits(), allocations(), time.Now()
				rate, err := r.writers(s.Store, sp, d, journal, next)
				if !journal {
					transactions += rate * time.Since(start).Seconds()
					commits += s.Commits() - beforeCommits
					mallocs += allocations() - beforeMallocs
				}
				return rate, err
			}
		}
		rates, err := r.compare([]contender{
			{"engine alone", r.engineWrites(s.Engine, sp, random(trees, r.Seed))},
			{"through the contract", store(false)},
			{"with a journal entry", store(true)},
		})
		if err != nil {
			return err
		}
		r.figure("contract / engine", rates[1]/rates[0], "ratio", ">= 0.8")
		r.figure("cost of a journal entry", 1-rates[2]/rates[1], "ratio", "<= 0.25")
		r.figure("syncs per transaction", float64(commits)/transactions, "ratio", "<= 0.1 at 64 clients")
		r.figure("allocations per put", float64(mallocs)/transactions/putsPerTx, "count", "")
		return nil
	})
}

// engineWrites is the load of write on the engine alone.
func (r *run) engineWrites(e Engine, sp *space, next func() uint64) func(time.Duration) (float64, error) {
	mark := uint64(0)
	return func(d time.Duration) (float64, error) {
		return r.rate(d, func() (int, error) {
			entries := make([]kv.Entry, 0, batchTx*putsPerTx)
			for range batchTx {
				mark += putsPerTx
				entries = sp.entries(entries, next(), mark)
			}
			slices.SortFunc(entries, func(a, b kv.Entry) int { return slices.Compare(a.Key, b.Key) })
			return batchTx, e.Write(entries)
		})
	}
}

func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// getsPerSnapshot and rowsPerScan are what one snapshot of the reading load does.
const (
	getsPerSnapshot = 100
	rowsPerScan     = 100
)

// read compares gets and scans through the contract with the engine's own.
func (r *run) read() error {
	return r.with("read", func(s *Subject) error {
		sp, trees := newSpace(r.SizeBytes, r.Seed), max(1, r.Keys/putsPerTx)
		if err := r.fill(s.Store, s.Engine, sp, r.Keys); err != nil {
			return err
		}
		for _, shape := range []struct {
			name        string
			gets, scans int
			goal        string
		}{
			{"single gets", 1, 0, ">= 0.7"},
			{"gets in one snapshot", getsPerSnapshot, 0, ">= 0.7"},
			{"scans of 100 rows", 0, 1, ">= 0.7"},
		} {
			var mallocs uint64
			next := random(trees, r.Seed)
			keys := func() (keys [][]byte) {
				for range shape.gets {
					keys = append(keys, sp.key(next(), 2))
				}
				return keys
			}
			rates, err := r.compare([]contender{
				{shape.name + ", engine alone", func(d time.Duration) (float64, error) {
					return r.rate(d, func() (int, error) {
						if shape.scans > 0 {
							_, err := s.Engine.Scan(kv.Range{Start: sp.tree(next()), End: sp.everything().End}, rowsPerScan)
							return 1, err
						}
						_, err := s.Engine.Get(keys())
						return shape.gets, err
					})
				}},
				{shape.name, func(d time.Duration) (rate float64, err error) {
					before, n := allocations(), 0
					rate, err = r.rate(d, func() (int, error) {
						n += max(shape.gets, shape.scans)
						if shape.scans > 0 {
							return 1, r.scan(s.Store, sp.tree(next()), sp.everything().End)
						}
						return shape.gets, r.get(s.Store, keys())
					})
					mallocs = (allocations() - before) / uint64(n)
					return rate, err
				}},
			})
			if err != nil {
				return err
			}
			r.figure(shape.name+": contract / engine", rates[1]/rates[0], "ratio", shape.goal)
			r.figure(shape.name+": allocations", float64(mallocs), "count", "")
		}
		return nil
	})
}

// scan reads a page in one snapshot.
func (r *run) scan(s kv.Store, start, end []byte) error {
	return s.View(r.ctx, func(snap kv.Snapshot) error {
		_, err := snap.Scan(kv.Range{Start: start, End: end}, rowsPerScan)
		return err
	})
}

// walk reads a range page by page, each in a snapshot of its own.
func walk(ctx context.Context, s kv.Store, all kv.Range, between func()) (rows int, err error) {
	const page = 1000
	for from := all; ; between() {
		var entries []kv.Entry
		err := s.View(ctx, func(snap kv.Snapshot) (err error) {
			entries, err = snap.Scan(from, page)
			return err
		})
		if rows += len(entries); err != nil || len(entries) < page {
			return rows, err
		}
		from.Start = append(slices.Clone(entries[page-1].Key), 0)
	}
}

// smallKeys is the size of the small store of Size.
const smallKeys = 10_000

// size compares the rates of a small and of a large store.
func (r *run) size() error {
	if r.Keys <= smallKeys {
		return fmt.Errorf("%d keys: the large store needs more than %d", r.Keys, smallKeys)
	}
	return r.with("small", func(small *Subject) error {
		return r.with("large", func(large *Subject) error {
			sp := newSpace(r.SizeBytes, r.Seed)
			if err := r.fill(small.Store, nil, sp, smallKeys); err != nil {
				return err
			}
			start := time.Now()
			if err := r.fill(large.Store, nil, sp, r.Keys); err != nil {
				return err
			}
			r.figure("filling", float64(r.Keys)/time.Since(start).Seconds(), "/s", "")
			if err := r.walkAll(large.Store, sp); err != nil {
				return err
			}
			return r.compareSizes(small, large, sp)
		})
	})
}

func (r *run) compareSizes(small, large *Subject, sp *space) error {
	for _, kind := range []struct {
		name string
		load func(s *Subject, next func() uint64) func(time.Duration) (float64, error)
	}{
		{"transactions of five puts", func(s *Subject, next func() uint64) func(time.Duration) (float64, error) {
			return func(d time.Duration) (float64, error) { return r.writers(s.Store, sp, d, false, next) }
		}},
		{"gets in one snapshot", func(s *Subject, next func() uint64) func(time.Duration) (float64, error) {
			return func(d time.Duration) (float64, error) {
				return r.rate(d, func() (int, error) {
					keys := make([][]byte, getsPerSnapshot)
					for i := range keys {
						keys[i] = sp.key(next(), 2)
					}
					return len(keys), r.get(s.Store, keys)
				})
			}
		}},
		{"scans of 100 rows", func(s *Subject, next func() uint64) func(time.Duration) (float64, error) {
			return func(d time.Duration) (float64, error) {
				return r.rate(d, func() (int, error) { return 1, r.scan(s.Store, sp.tree(next()), sp.everything().End) })
			}
		}},
	} {
		rates, err := r.compare([]contender{
			{kind.name + ", small store", kind.load(small, random(smallKeys/putsPerTx, r.Seed))},
			{kind.name + ", large store", kind.load(large, random(r.Keys/putsPerTx, r.Seed))},
		})
		if err != nil {
			return err
		}
		r.figure(kind.name+": large / small", rates[1]/rates[0], "ratio", ">= 0.7")
	}
	return nil
}

// walkAll scans the large store and tells how much memory that took at most, beyond what there was.
func (r *run) walkAll(s kv.Store, sp *space) error {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, peak, pages := m.HeapAlloc, uint64(0), 0
	start := time.Now()
	rows, err := walk(r.ctx, s, sp.everything(), func() {
		if pages++; pages%16 == 0 { // looking stops the world
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
	})
	if err != nil {
		return err
	}
	r.figure("walking through everything", float64(rows)/time.Since(start).Seconds(), "/s", "")
	r.figure("walking: rows", float64(rows), "count", "")
	r.figure("walking: memory", float64(peak)-float64(before), "bytes", "constant")
	return nil
}
