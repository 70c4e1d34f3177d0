package batch

import (
	"bytes"
	"slices"
	"sort"

	"abide/kv"
)

// What an overlay knows of a remote engine's committed state: the keys that were looked up, and ranges of which
// every key is known. Nothing of it is dropped before the batch ends, because a closure that runs again must
// find what was fetched for it.

// interval is a range of keys that is known completely: what is in it and has no entry is absent.
type interval struct{ start, end []byte }

// coveredTo is the end of the known range that holds key; key itself if none does.
func (o *overlay) coveredTo(key []byte) []byte {
	i := sort.Search(len(o.covered), func(i int) bool { return bytes.Compare(o.covered[i].end, key) > 0 })
	if i < len(o.covered) && bytes.Compare(o.covered[i].start, key) <= 0 {
		return o.covered[i].end
	}
	return key
}

// cover adds a known range, joining it with those that it touches.
func (o *overlay) cover(start, end []byte) {
	if bytes.Compare(start, end) >= 0 {
		return
	}
	from := sort.Search(len(o.covered), func(i int) bool { return bytes.Compare(o.covered[i].end, start) >= 0 })
	to := from
	for to < len(o.covered) && bytes.Compare(o.covered[to].start, end) <= 0 {
		if bytes.Compare(o.covered[to].start, start) < 0 {
			start = o.covered[to].start
		}
		if bytes.Compare(o.covered[to].end, end) > 0 {
			end = o.covered[to].end
		}
		to++
	}
	o.covered = slices.Replace(o.covered, from, to, interval{start, end})
}

// known returns the value of key for a closure, and whether that can be told without the engine.
func (o *overlay) known(key []byte) (value []byte, known bool) {
	if e := o.find(key); e != nil {
		switch {
		case e.change == put:
			return e.value, true
		case e.change == deleted || e.base == baseAbsent:
			return nil, true
		case e.base == basePresent:
			return e.committed, true
		}
	}
	return nil, !bytes.Equal(o.coveredTo(key), key)
}

// learn takes the committed value of key, nil if there is none.
func (o *overlay) learn(key, value []byte) {
	e := o.find(key)
	if e == nil {
		e = o.insert(key)
	}
	if e.base == baseUnknown {
		o.cachedBytes += len(key) + len(value)
	}
	if e.base = baseAbsent; value != nil {
		e.base, e.committed = basePresent, value
	}
}

// learnScan takes the committed entries of a range.
func (o *overlay) learnScan(s *Scan) {
	for _, e := range s.Entries {
		o.learn(e.Key, e.Value)
	}
	end := s.End
	if len(s.Entries) >= s.Limit {
		last := s.Entries[len(s.Entries)-1].Key
		end = append(bytes.Clone(last), 0)
	}
	o.cover(s.Start, end)
}

// scanKnown visits the entries of r as a closure sees them, as far as they are known without a gap, until visit
// returns false. It returns how many of limit are left to find, 0 if visit ended it, and from where on nothing is
// known.
func (o *overlay) scanKnown(r kv.Range, limit int, visit func(key, value []byte) bool) (left int, from []byte) {
	from = o.coveredTo(r.Start)
	if bytes.Compare(from, r.End) > 0 {
		from = r.End
	}
	left = limit
	it := o.tree.Iter()
	defer it.Release()
	o.probe.key = r.Start
	for ok := it.Seek(&o.probe); ok; ok = it.Next() {
		e := it.Item()
		if bytes.Compare(e.key, from) >= 0 {
			break
		}
		var going bool
		switch {
		case e.change == put:
			going = visit(bytes.Clone(e.key), e.value)
		case e.change == unchanged && e.base == basePresent:
			going = visit(bytes.Clone(e.key), e.committed)
		default:
			continue
		}
		if left--; !going || left == 0 {
			return 0, from
		}
	}
	return left, from
}

// deletedIn counts the keys in r that the batch has deleted, up to limit.
func (o *overlay) deletedIn(r kv.Range, limit int) (n int) {
	if o.dirty == 0 {
		return 0
	}
	it := o.tree.Iter()
	defer it.Release()
	o.probe.key = r.Start
	for ok := it.Seek(&o.probe); ok && n < limit; ok = it.Next() {
		e := it.Item()
		if bytes.Compare(e.key, r.End) >= 0 {
			break
		}
		if e.change == deleted {
			n++
		}
	}
	return n
}
