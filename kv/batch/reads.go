package batch

import (
	"bytes"
	"errors"
	"slices"

	"abide/kv"
)

// errMissed ends a run of a closure at a read that has yet to be fetched. It never leaves this package.
var errMissed = errors.New("a read that has yet to be fetched")

// reads answers reads of a remote engine from what has been fetched. A read that needs more is either fetched at
// once (direct), or noted among what is needed and refused with errMissed.
type reads struct {
	cache  *overlay
	fetch  func(*Fetch) error
	direct bool
	need   Fetch
}

// get returns the value of key as a closure sees it.
func (r *reads) get(key []byte) ([]byte, error) {
	if value, known := r.cache.known(key); known {
		return value, nil
	}
	r.miss(key)
	if err := r.missed(); err != nil {
		return nil, err
	}
	value, _ := r.cache.known(key)
	return value, nil
}

// learn makes the values of keys known, all in one fetch.
func (r *reads) learn(keys [][]byte) error {
	missing := false
	for _, key := range keys {
		if _, known := r.cache.known(key); !known {
			r.miss(key)
			missing = true
		}
	}
	if !missing {
		return nil
	}
	return r.missed()
}

// scan visits the entries of span as a closure sees them, in order, until visit returns false, which it does
// at the latest at the limit-th.
func (r *reads) scan(span kv.Range, limit int, visit func(key, value []byte) bool) error {
	for {
		left, from := r.cache.scanKnown(span, limit, visit)
		if left == 0 || bytes.Compare(from, span.End) >= 0 {
			return nil
		}
		span.Start, limit = from, left
		r.missRange(span, limit)
		if err := r.missed(); err != nil {
			return err
		}
	}
}

// miss notes a key as needed.
func (r *reads) miss(key []byte) {
	r.need.Gets = append(r.need.Gets, bytes.Clone(key))
}

// missRange notes the first entries of a range as needed, with some more where the batch has deleted some.
func (r *reads) missRange(span kv.Range, limit int) {
	limit = min(limit+r.cache.deletedIn(span, limit), kv.MaxScanRows)
	r.need.Scans = append(r.need.Scans, Scan{
		Range: kv.Range{Start: bytes.Clone(span.Start), End: bytes.Clone(span.End)}, Limit: limit})
}

// missed fetches what is needed, or says that it must be fetched.
func (r *reads) missed() error {
	if !r.direct {
		return errMissed
	}
	return r.load()
}

// load fetches what is needed.
func (r *reads) load() error {
	f := r.take()
	if err := r.fetch(&f); err != nil {
		return err
	}
	r.keep(&f)
	return nil
}

// take is what is needed, in order and each once, and forgets it.
func (r *reads) take() Fetch {
	f := r.need
	r.need = Fetch{}
	slices.SortFunc(f.Gets, bytes.Compare)
	f.Gets = slices.CompactFunc(f.Gets, bytes.Equal)
	if len(f.Scans) > 1 {
		slices.SortFunc(f.Scans, func(a, b Scan) int {
			if c := bytes.Compare(a.Start, b.Start); c != 0 {
				return c
			}
			if c := bytes.Compare(a.End, b.End); c != 0 {
				return c
			}
			return b.Limit - a.Limit
		})
		f.Scans = slices.CompactFunc(f.Scans, func(a, b Scan) bool {
			return bytes.Equal(a.Start, b.Start) && bytes.Equal(a.End, b.End)
		})
	}
	return f
}

// keep puts what was fetched into the cache.
func (r *reads) keep(f *Fetch) {
	for i, key := range f.Gets {
		r.cache.learn(key, f.Values[i])
	}
	for i := range f.Scans {
		r.cache.learnScan(&f.Scans[i])
	}
}

// maxPrefetchRows is how many entries of a hinted range are fetched: a range has no limit of its own, and most of
// those that are named hold few.
const maxPrefetchRows = 128

// hint notes what hints name and is not known yet, of a range its first rows entries.
func (r *reads) hint(hints []kv.Range, rows int) {
	for _, h := range hints {
		if len(h.Start) == 0 || bytes.Compare(h.Start, h.End) >= 0 {
			continue
		}
		if len(h.End) == len(h.Start)+1 && h.End[len(h.Start)] == 0 && bytes.HasPrefix(h.End, h.Start) {
			if _, known := r.cache.known(h.Start); !known {
				r.need.Gets = append(r.need.Gets, bytes.Clone(h.Start))
			}
		} else if bytes.Compare(r.cache.coveredTo(h.Start), h.End) < 0 {
			r.need.Scans = append(r.need.Scans, Scan{
				Range: kv.Range{Start: bytes.Clone(h.Start), End: bytes.Clone(h.End)}, Limit: rows})
		}
	}
}
